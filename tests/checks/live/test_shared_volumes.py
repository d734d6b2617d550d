"""Existing file systems and volumes in the local AWS: `trn check` and ParallelCluster's own validators agree, and its advice helps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.pcluster_validator import PclusterValidator, errors
from sandbox.pcluster_validator.seed import Seeded, seed
from tests.checks.live.conftest import ZONE, session
from tests.pcluster.examples import stringified
from trainium_cdk import settings
from trainium_cdk.description.checks.live import Aws, CheckTarget, run
from trainium_cdk.description.checks.live.data import CHECKS
from trainium_cdk.description.cluster_configuration import ClusterIds, render

pytestmark = pytest.mark.usefixtures("aws")
NODES, SECOND_ZONE = "10.0.16.0/20", "use1-az4"
ANYWHERE = [{"CidrIp": "0.0.0.0/0"}]
NFS = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049}
ALL = {"IpProtocol": "-1"}
STORAGE = {
    "EfsIdValidator",
    "ExistingFsxNetworkingValidator",
    "SharedEbsVolumeIdValidator",
    "MultiAzEbsVolumeValidator",
}
Rules = Sequence[Mapping[str, Any]]


class World:
    """The seeded network, and what a case makes in it."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws, self.base = aws, seed(aws.client, ZONE)
        self.ec2, self.number = aws.client("ec2"), 0
        other = self.ec2.create_subnet(VpcId=self.base.vpc, CidrBlock="10.0.32.0/20", AvailabilityZoneId=SECOND_ZONE)
        self.other = other["Subnet"]["SubnetId"]

    def group(self, ingress: Rules, egress: Rules, vpc: str = "") -> str:
        """A security group with these rules alone; `SELF` is its own id."""
        self.number += 1
        id = self.ec2.create_security_group(GroupName=f"g{self.number}", Description="-", VpcId=vpc or self.base.vpc)[
            "GroupId"
        ]
        self.ec2.revoke_security_group_egress(GroupId=id, IpPermissions=[{**ALL, "IpRanges": ANYWHERE}])
        for rules, allow in (
            (ingress, self.ec2.authorize_security_group_ingress),
            (egress, self.ec2.authorize_security_group_egress),
        ):
            if rules:
                allow(GroupId=id, IpPermissions=json.loads(json.dumps(rules).replace("SELF", id)))
        return str(id)

    def efs(self, group: str, subnet: str) -> str:
        self.number += 1
        efs = self.aws.client("efs")
        id = efs.create_file_system(CreationToken=f"t{self.number}-{group}")["FileSystemId"]
        efs.create_mount_target(FileSystemId=id, SubnetId=subnet, SecurityGroups=[group])
        return str(id)

    def fsx(self, kind: str, group: str, subnet: str) -> str:
        fsx = self.aws.client("fsx")
        given: dict[str, Any] = {"LustreConfiguration": {"DeploymentType": "SCRATCH_2"}}
        if kind == "OPENZFS":
            given = {"OpenZFSConfiguration": {"DeploymentType": "SINGLE_AZ_1", "ThroughputCapacity": 64}}
        system = fsx.create_file_system(
            FileSystemType=kind, StorageCapacity=1200, SubnetIds=[subnet], SecurityGroupIds=[group], **given
        )["FileSystem"]["FileSystemId"]
        if kind == "LUSTRE":
            return str(system)
        parent = {"OpenZFSConfiguration": {"ParentVolumeId": system.replace("fs-", "fsvol-")}}
        return str(fsx.create_volume(VolumeType=kind, Name="data", **parent)["Volume"]["VolumeId"])

    def volume(self, subnet: str) -> str:
        zone = self.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailabilityZone"]
        return str(self.ec2.create_volume(AvailabilityZone=zone, Size=10)["VolumeId"])

    def environment(self, type: str, id: str, more: str = "") -> str:
        b = self.base
        return f"""\
network:
  existing:
    vpc_id: {b.vpc}
    cidr: 10.0.0.0/16
    private_subnets: [{{id: {b.private_subnet}, zone_id: {ZONE}}}, {{id: {self.other}, zone_id: {SECOND_ZONE}}}]
    public_subnets: [{{id: {b.public_subnet}, zone_id: {ZONE}}}]
storage: {{efs: {{existing: {{id: {b.efs}, security_group: {b.security_group}}}}}}}
pcluster:
  cpu_queue: null
  shared_storage: [{{name: more, mount_dir: /more, type: {type}, id: {id}{more}}}]
"""


@pytest.fixture(scope="module")
def world(local_aws: LocalAws) -> World:
    return World(local_aws)


def vendor(validator: PclusterValidator, base: Seeded, text: str) -> list[str]:
    """What ParallelCluster refuses about the volume."""
    env = settings.parse(text, "environment.yaml")
    ids = ClusterIds(
        head_subnet=base.private_subnet,
        queue_subnets={queue.name: base.private_subnet for queue in env.pcluster.queues},
        entry_url=base.script,
        scripts_url=base.script.replace("entry.sh", "0123abcd.zip"),
        pointer="/trainium/cluster/node-scripts",
        efs_id=base.efs,
        security_groups=(base.security_group,),
    )
    found = errors(validator.validate(stringified(render(env, ids)), env.cluster_name))
    return [finding.message for finding in found if finding.type in STORAGE]


def ours(text: str, engine: str = "slurm") -> list[str]:
    target = CheckTarget(settings.parse(text, "environment.yaml"), engine)
    mine = [check for check in CHECKS if check.name in ("efs", "fsx", "ebs")]
    found = run(target, Aws("us-east-1", session()), mine)
    assert not [f for f in found if "could not be checked" in f.reason], found
    return [f"{f.value}: {f.reason}. Fix: {f.fix}" for f in found if f.level == "error"]


NODES_ALONE = [{**NFS, "IpRanges": [{"CidrIp": NODES}]}]
OUT = [{**ALL, "IpRanges": ANYWHERE}]
LUSTRE = [{"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "IpRanges": ANYWHERE}]
OPENZFS = [
    {"IpProtocol": protocol, "FromPort": first, "ToPort": last, "IpRanges": ANYWHERE}
    for protocol in ("tcp", "udp")
    for first, last in ((111, 111), (2049, 2049), (20001, 20003))
]
OF_ITSELF = [{**ALL, "UserIdGroupPairs": [{"GroupId": "SELF"}]}]
RULES: list[tuple[str, Rules, Rules, str]] = [
    ("efs", [], OUT, "do not allow tcp 2049 from the nodes"),
    ("efs", OF_ITSELF, OUT, "do not allow tcp 2049 from the nodes"),
    ("efs", NODES_ALONE, [], "do not allow tcp 2049 to the nodes"),
    ("efs", NODES_ALONE, NODES_ALONE, ""),
    ("efs", [{**NFS, "IpRanges": [{"CidrIp": "10.0.16.0/21"}, {"CidrIp": "10.0.24.0/21"}]}], OUT, ""),
    ("efs", [{**NFS, "IpRanges": [{"CidrIp": "10.0.16.0/21"}]}], OUT, "tcp 2049 from the nodes"),
    ("fsx-lustre", [], OUT, "tcp 988 from the nodes"),
    ("fsx-lustre", LUSTRE, [], "tcp 988 to the nodes"),
    ("fsx-lustre", LUSTRE, OUT, ""),
    ("fsx-openzfs", OPENZFS, [], ""),
    ("fsx-openzfs", OPENZFS[:-1], [], "do not allow udp 20001 from, udp 20002 from and udp 20003 from the nodes"),
]


@pytest.mark.parametrize(("type", "ingress", "egress", "expected"), RULES)
def test_rules_of_security_groups(
    type: str, ingress: Rules, egress: Rules, expected: str, world: World, validator: PclusterValidator
) -> None:
    """With `security_group` the stack adds what is missing."""
    group = world.group(ingress, egress)
    subnet = world.base.private_subnet
    id = world.efs(group, subnet) if type == "efs" else world.fsx(type.removeprefix("fsx-").upper(), group, subnet)
    text = world.environment(type, id)
    assert bool(vendor(validator, world.base, text)) is bool(expected)
    if not expected:
        assert ours(text) == []
        return
    [found] = ours(text)
    assert expected in found
    assert f"write security_group: {group}," in found
    assert ours(world.environment(type, id, f", security_group: {group}")) == []
    assert ours(world.environment(type, id, ", security_group: sg-0123456789abcdef0")) == [found]


def test_places_and_states(world: World, validator: PclusterValidator) -> None:
    base, everything = world.base, [{**ALL, "IpRanges": ANYWHERE}]
    group = world.group(everything, everything)
    vpc = world.ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    away = world.ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/20", AvailabilityZoneId=ZONE)["Subnet"]["SubnetId"]
    used = world.volume(base.private_subnet)
    server = world.ec2.run_instances(InstanceType="c5.large", MinCount=1, MaxCount=1, SubnetId=base.private_subnet)
    instance = server["Instances"][0]["InstanceId"]
    world.ec2.attach_volume(VolumeId=used, InstanceId=instance, Device="/dev/sdf")
    for type, id, expected in (
        ("efs", world.efs(group, world.other), f"no mount target in {ZONE}"),
        ("efs", world.efs(group, base.private_subnet), ""),
        ("fsx-lustre", world.fsx("LUSTRE", world.group(everything, everything, vpc), away), "use one of that VPC"),
        ("fsx-lustre", world.fsx("LUSTRE", group, world.other), ""),
        ("ebs", world.volume(world.other), f"the head node is in {ZONE}"),
        ("ebs", world.volume(base.private_subnet), ""),
        ("ebs", used, "it cannot be mounted in this state"),
        ("ebs", "vol-00000000000000bad", "it does not exist"),
        ("fsx-openzfs", "fsvol-00000000000000bad", "it does not exist"),
    ):
        text = world.environment(type, id)
        assert "".join(ours(text)).count(expected) >= bool(expected), (id, ours(text))
        assert bool(ours(text)) is bool(expected), (type, ours(text))
        if type != "fsx-openzfs":  # of a volume that does not exist ParallelCluster reads nothing else
            assert bool(vendor(validator, base, text)) is bool(expected), (type, id)
    tags = [{"Key": "parallelcluster:cluster-name", "Value": "trn-slurm"}]
    world.ec2.create_tags(Resources=[instance], Tags=tags)
    assert ours(world.environment("ebs", used)) == [], "the head node of this cluster has it already"
    world.ec2.terminate_instances(InstanceIds=[instance])


@pytest.mark.parametrize("engine", ["eks", "pcs"])
def test_other_engines(engine: str, world: World) -> None:
    """Their nodes need a way in alone."""
    for ingress, expected in (([], "do not allow tcp 2049 from the nodes"), (NODES_ALONE, "")):
        group = world.group([*ingress, *([{**NFS, "IpRanges": [{"CidrIp": "10.0.32.0/20"}]}] if ingress else [])], [])
        id = world.efs(group, world.base.private_subnet)
        world.aws.client("efs").create_mount_target(FileSystemId=id, SubnetId=world.other, SecurityGroups=[group])
        text = world.environment("efs", id).partition("storage:")[0] + f"storage: {{efs: {{existing: {{id: {id}}}}}}}"
        assert "".join(ours(text, engine)).count(expected) >= bool(expected)
        assert bool(ours(text, engine)) is bool(expected)
