"""`TrnStorage`: its resources, access to them, and their removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import CfnResource, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Annotations, Match, Template

from tests.audit import principals
from tests.cdk import IN_US_EAST_1, findings, needs, only, properties, resources, synth
from trainium_cdk import settings as trn
from trainium_cdk.cdk.helpers.groups import ClosedGroup
from trainium_cdk.cdk.network import TrnNetwork
from trainium_cdk.cdk.storage import TrnStorage

ZONES = ("use1-az6", "use1-az4")
QUIET = trn.Network(nat="none", s3_endpoint=False, flow_logs=False, zone_ids=ZONES)
EFS_ID, FSX_ID, GROUP = "fs-0123456789abcdef0", "fs-0123456789abcdef1", "sg-0123456789abcdef0"
EXISTING = trn.Storage(
    efs=trn.Efs(existing=trn.ExistingEfs(id=EFS_ID, security_group=GROUP)),
    fsx=trn.Fsx(existing=trn.ExistingFsx(id=FSX_ID, mount_name="abcdefgh")),
)
BOTH = trn.Storage(efs=trn.Efs(), fsx=trn.Fsx())
LUSTRE = trn.Storage(efs=None, fsx=trn.Fsx())


def storage(stack: Stack, settings: trn.Storage | None = None, **kwargs: Any) -> TrnStorage:
    network, described = TrnNetwork(stack, "Network", network=QUIET), settings or trn.Storage()
    zones = kwargs.pop("zone_ids", network.zone_ids)
    subnets = ec2.SubnetSelection(subnets=[network.private_subnet(zone) for zone in zones])
    given = {"efs": described.efs, "lustre": described.fsx, "vpc_subnets": subnets}
    return TrnStorage(stack, "Storage", vpc=network.vpc, **given, **kwargs)


def made(settings: trn.Storage | None = None, **kwargs: Any) -> Template:
    return synth(lambda stack: storage(stack, settings, **kwargs))


def rules(template: Template) -> set[str]:
    """Every rule of every security group: `Efs <- Clients tcp 2049` lets Clients in, `->` lets out."""

    def name(group: Any) -> str:
        known = ("Clients", "EfsGroup", "FsxGroup", "Host")
        text = group if isinstance(group, str) else group["Fn::GetAtt"][0]
        return next((k.removesuffix("Group") for k in known if k in text), text)

    found = set()
    for kind, arrow, other in (
        ("Ingress", "<-", "SourceSecurityGroupId"),
        ("Egress", "->", "DestinationSecurityGroupId"),
    ):
        for r in properties(template, f"EC2::SecurityGroup{kind}"):
            low, high = r["FromPort"], r["ToPort"]
            ports = f"{low}" if low == high else f"{low}-{high}"
            found.add(f"{name(r['GroupId'])} {arrow} {name(r[other])} {r['IpProtocol']} {ports}")
    for group in properties(template, "EC2::SecurityGroup"):
        # a group without outbound rules of its own allows all outbound traffic
        out = [r["CidrIp"] for r in group.get("SecurityGroupEgress", [{"CidrIp": "0.0.0.0/0"}])]
        inward = [r["CidrIp"] for r in group.get("SecurityGroupIngress", [])]
        found |= {f"anyone {cidr}" for cidr in (*inward, *out) if cidr != "255.255.255.255/32"}
    return found


def both_ways(server: str, client: str, *ports: str) -> set[str]:
    return {f"{a} {arrow} {b} tcp {p}" for p in ports for a, b in ((server, client), (client, server)) for arrow in ("<-", "->")}  # fmt: skip


LUSTRE_PORTS = ("988", "1018-1023")
AMONG_SERVERS = {f"Fsx {arrow} Fsx tcp {p}" for p in LUSTRE_PORTS for arrow in ("<-", "->")}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, both_ways("Efs", "Clients", "2049")),
        (LUSTRE, both_ways("Fsx", "Clients", *LUSTRE_PORTS) | AMONG_SERVERS),
        (BOTH, both_ways("Efs", "Clients", "2049") | both_ways("Fsx", "Clients", *LUSTRE_PORTS) | AMONG_SERVERS),
        (EXISTING, both_ways(GROUP, "Clients", "2049")),
    ],
)
def test_only_clients_reach_the_file_systems_and_only_at_their_ports(
    settings: trn.Storage | None, expected: set[str]
) -> None:
    template = made(settings)
    assert rules(template) == expected
    assert findings(template) == []


def test_access_for_other_security_groups() -> None:
    # a group without outbound access gets the outbound rules too
    def build(stack: Stack) -> None:
        shared = storage(stack, BOTH)
        host = ClosedGroup(stack, "Host", vpc_id="vpc-0123456789abcdef0", description="A host beside the cluster")
        shared.connections.allow_default_port_from(host.group)

    assert rules(synth(build)) - rules(made(BOTH)) == {
        *both_ways("Efs", "Host", "2049"),
        *both_ways("Fsx", "Host", *LUSTRE_PORTS),
    }


def test_a_rule_that_is_not_added_is_a_warning() -> None:
    """The stack's own clients need no rule of ours: their administrator has opened the file system."""

    def warned(call: Callable[[TrnStorage, ec2.ISecurityGroup], None]) -> list[str]:
        def build(stack: Stack) -> None:
            host = ClosedGroup(stack, "Host", vpc_id="vpc-0123456789abcdef0", description="A host beside the cluster")
            call(storage(stack, EXISTING), host.group)
            built.append(stack)

        built: list[Stack] = []
        synth(build)
        found = Annotations.from_stack(built[0]).find_warning("*", Match.any_value())
        return [text for w in found if "gets no rule" in (text := str(w.entry.data))]

    for opened in (
        warned(lambda shared, host: shared.connections.allow_default_port_from(host)),
        warned(lambda shared, host: shared.allow_clients(host)),
    ):
        [text] = opened
        assert f"{FSX_ID} gets no rule, as its security group is not known. Fix: give security_group" in text
    assert warned(lambda *_: None) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (trn.Efs(), {"ThroughputMode": "elastic"}),
        (trn.Efs(throughput="bursting"), {"ThroughputMode": "bursting"}),
        (
            trn.Efs(throughput="provisioned", provisioned_mibps=1024),
            {"ThroughputMode": "provisioned", "ProvisionedThroughputInMibps": 1024},
        ),
        (trn.Efs(backups=True), {"BackupPolicy": {"Status": "ENABLED"}}),
    ],
)
def test_efs(settings: trn.Efs, expected: dict[str, Any]) -> None:
    template = made(trn.Storage(efs=settings))
    template.has_resource_properties("AWS::EFS::FileSystem", {"Encrypted": True, "PerformanceMode": "generalPurpose", **expected})  # fmt: skip
    assert findings(template) == []


def test_efs_has_a_mount_target_in_each_zone_and_requires_tls() -> None:
    template = made()
    private = {k for k, s in resources(template, "EC2::Subnet").items() if s["Properties"]["CidrBlock"].endswith("/20")}
    assert {t["SubnetId"]["Ref"] for t in properties(template, "EFS::MountTarget")} == private
    [statement] = only(template, "EFS::FileSystem")["FileSystemPolicy"]["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    one = made(zone_ids=("use1-az4",))
    assert len(properties(one, "EFS::MountTarget")) == 1


LZ4 = {"DataCompressionType": "LZ4"}
ONE = {**LZ4, "DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 50, "AutomaticBackupRetentionDays": 0}
TWO = {**ONE, "DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125}
SCRATCH = {**LZ4, "DeploymentType": "SCRATCH_2"}
BACKUPS = {"AutomaticBackupRetentionDays": 7, "CopyTagsToBackups": True}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (trn.Fsx(), SCRATCH),
        (trn.Fsx(compression=False), {**SCRATCH, "DataCompressionType": "NONE"}),
        (
            trn.Fsx(deployment="PERSISTENT_1", throughput=200, backup_days=7),
            {**ONE, "PerUnitStorageThroughput": 200, **BACKUPS},
        ),
        (trn.Fsx(deployment="PERSISTENT_2"), TWO),
    ],
)
def test_lustre(settings: trn.Fsx, expected: dict[str, Any]) -> None:
    template = made(trn.Storage(efs=None, fsx=settings))
    found = only(template, "FSx::FileSystem")
    assert found["LustreConfiguration"] == expected
    assert (found["FileSystemTypeVersion"], found["StorageCapacity"]) == ("2.15", 1200)
    assert properties(template, "FSx::DataRepositoryAssociation") == []
    assert findings(template) == []


def test_lustre_is_in_the_zone_of_the_fleet() -> None:
    def first(template: Template) -> str:
        [subnet] = only(template, "FSx::FileSystem")["SubnetIds"]
        return str(resources(template, "EC2::Subnet")[subnet["Ref"]]["Properties"]["AvailabilityZoneId"])

    assert first(made(LUSTRE)) == "use1-az6"
    assert first(made(LUSTRE, zone_ids=("use1-az4",))) == "use1-az4"


def test_lustre_waits_for_the_rules_of_its_group() -> None:
    """FSx refuses a group that does not allow Lustre among its servers (aws-parallelcluster issue 6181)."""
    template = made(LUSTRE)
    [file_system], [group] = (
        resources(template, "FSx::FileSystem"),
        only(template, "FSx::FileSystem")["SecurityGroupIds"],
    )
    waited = needs(template, file_system)
    for kind, to in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
        found = resources(template, f"EC2::SecurityGroup{kind}").items()
        own = {id for id, r in found if r["Properties"]["GroupId"] == r["Properties"].get(to) == group}
        assert own, kind
        assert own <= waited, kind


@pytest.mark.parametrize("deployment", ["SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"])
def test_s3_is_linked_by_an_association(deployment: trn.FsxDeployment) -> None:
    repository = trn.DataRepository(uri="s3://corpus/train/", directory="/corpus", auto_export=True)
    template = made(trn.Storage(fsx=trn.Fsx(deployment=deployment, s3_links=(repository,))))
    link = only(template, "FSx::DataRepositoryAssociation")
    assert (link["FileSystemPath"], link["DataRepositoryPath"]) == ("/corpus", "s3://corpus/train/")
    # a deleted file leaves its object in the bucket
    assert link["S3"] == {
        "AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]},
        "AutoExportPolicy": {"Events": ["NEW", "CHANGED"]},
    }
    assert "ImportPath" not in only(template, "FSx::FileSystem")["LustreConfiguration"]
    assert findings(template) == []


def kept(template: Template) -> dict[str, list[str]]:
    """Resource types by deletion policy."""
    found: dict[str, list[str]] = {}
    for resource in template.to_json()["Resources"].values():
        assert resource.get("DeletionPolicy") == resource.get("UpdateReplacePolicy")
        found.setdefault(resource.get("DeletionPolicy", "unsaid"), []).append(resource["Type"].removeprefix("AWS::"))
    found.pop("unsaid")
    return {k: sorted(v) for k, v in found.items()}


def test_data_is_deleted_unless_it_is_kept() -> None:
    assert kept(made(BOTH)) == {"Delete": ["EFS::FileSystem", "FSx::FileSystem"]}


def test_kept_efs_retains_no_other_resource() -> None:
    assert kept(made(removal_policy=RemovalPolicy.RETAIN)) == {"Retain": ["EFS::FileSystem"]}


def test_kept_lustre_retains_its_network() -> None:
    template = made(BOTH, removal_policy=RemovalPolicy.RETAIN)
    held = ["EC2::SecurityGroup", "EC2::Subnet", "EC2::VPC", "EFS::FileSystem", "FSx::FileSystem"]
    assert kept(template) == {"Retain": held}
    fsx = only(template, "FSx::FileSystem")
    everything = template.to_json()["Resources"]
    [subnet], [group] = fsx["SubnetIds"], fsx["SecurityGroupIds"]
    assert (
        everything[subnet["Ref"]]["DeletionPolicy"] == everything[group["Fn::GetAtt"][0]]["DeletionPolicy"] == "Retain"
    )


def test_depending_on_storage_includes_mount_targets_links_and_rules() -> None:
    repository = trn.DataRepository(uri="s3://corpus")
    settings = trn.Storage(efs=trn.Efs(), fsx=trn.Fsx(deployment="PERSISTENT_2", s3_links=(repository,)))

    def build(stack: Stack) -> None:
        CfnResource(stack, "Node", type="Custom::Node").node.add_dependency(storage(stack, settings).ready)

    template = synth(build)
    waited = needs(template, "Node")
    for kind in (
        "EFS::MountTarget",
        "FSx::FileSystem",
        "FSx::DataRepositoryAssociation",
        "EC2::SecurityGroupIngress",
        "EC2::SecurityGroupEgress",
    ):
        assert set(resources(template, kind)) <= waited, kind


@pytest.mark.parametrize("env", [None, IN_US_EAST_1])
def test_mounts(env: Any) -> None:
    found = []
    synth(lambda stack: found.extend(storage(stack, BOTH).file_systems), env=env)
    efs, lustre = found
    assert (efs.kind, efs.mount_dir, efs.mount_name, efs.owned) == ("efs", "/efs", "", True)
    assert (lustre.kind, lustre.mount_dir, lustre.owned) == ("fsx", "/fsx", True)
    assert efs.dns_name.startswith(f"{efs.id}.efs.")
    assert lustre.mount_name
    assert lustre.dns_name


def test_existing_file_systems_are_mounted_and_not_created() -> None:
    found = []
    template = synth(lambda stack: found.extend(storage(stack, EXISTING).file_systems), env=IN_US_EAST_1)
    assert [(m.kind, m.id, m.mount_dir, m.mount_name, m.owned) for m in found] == [
        ("efs", EFS_ID, "/efs", "", False),
        ("fsx", FSX_ID, "/fsx", "abcdefgh", False),
    ]
    assert found[1].dns_name.startswith(f"{FSX_ID}.fsx.us-east-1.")
    assert {r["Type"].split("::")[1] for r in template.to_json()["Resources"].values()} == {"EC2"}


@pytest.mark.parametrize(("settings", "resource"), [(None, "Fn::GetAtt"), (EXISTING, "Fn::Join")])
def test_mounting_efs_is_granted_to_identities(settings: trn.Storage | None, resource: str) -> None:
    def build(stack: Stack) -> None:
        role = iam.Role(stack, "Node", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        storage(stack, settings).grant_root_access(role)

    [statement] = only(synth(build), "IAM::Policy")["PolicyDocument"]["Statement"]
    assert {a.split(":")[1] for a in statement["Action"]} == {"ClientMount", "ClientWrite", "ClientRootAccess"}
    assert list(statement["Resource"]) == [resource]


POINT = {"elasticfilesystem:AccessPointArn": "arn:aws:elasticfilesystem:us-east-1:111122223333:access-point/fsap-0"}
BY_POINT = ({"tls": True, "context": POINT}, {"tls": True}, {"tls": False, "context": POINT}, {"tls": False})
MOUNTS = {
    "nodes of EKS": (True, False, False, False),
    "nodes of Slurm": (True, True, False, False),
    "nobody": (False,) * 4,
}


@pytest.mark.parametrize("who", MOUNTS)
def test_who_mounts_what(who: str) -> None:
    """The local IAM's decision by the role's policy and the file system's: through an access point, its root, and both without TLS."""

    def build(stack: Stack) -> None:
        files = storage(stack)
        roles = [
            iam.Role(stack, name, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")) for name in ("Eks", "Slurm")
        ]
        files.grant_access_points(roles[0])
        files.grant_root_access(roles[1])

    template = synth(build).to_json()
    found = principals.of(template)
    policies = [] if who == "nobody" else found.policies["Eks" if "EKS" in who else "Slurm"]
    [[key, efs]] = [pair for pair in template["Resources"].items() if pair[1]["Type"] == "AWS::EFS::FileSystem"]
    request = {
        "policies": policies,
        "resource": principals.filled({"Fn::GetAtt": [key, "Arn"]}, template),
        "resource_policy": principals.filled(efs["Properties"]["FileSystemPolicy"], template),
        "caller": "arn:aws:iam::111122223333:role/any",
    }
    for action in ("ClientMount", "ClientWrite"):
        asked = [{**request, "action": f"elasticfilesystem:{action}", **how} for how in BY_POINT]
        assert tuple(principals.evaluate(asked)) == MOUNTS[who]


def test_a_zone_missing_from_the_network_is_refused() -> None:
    with pytest.raises(ValueError, match="no private subnet in zone use1-az5"):
        made(zone_ids=("use1-az5",))
