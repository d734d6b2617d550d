"""Arguments that cannot work in any app: the error comes at synthesis, with the argument and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import CfnParameter, Size, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks_v1
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from aws_cdk.aws_efs import ThroughputMode
from aws_cdk.aws_logs import RetentionDays

from tests.cdk import properties
from tests.foreign.foreign import cluster, errors, template, vpc
from trainium_cdk import (
    TrnBastionHost,
    TrnBootstrap,
    TrnBucket,
    TrnEksCluster,
    TrnNetwork,
    TrnNodeGroup,
    TrnOutputs,
    TrnPcluster,
    TrnPcsCluster,
    TrnPeering,
    TrnPlugins,
    TrnStorage,
    TrnSystemNodes,
    settings,
)
from trainium_cdk.description.catalog import Catalog, CatalogOverrides

BLOCK = settings.Queue(
    capacity_type="capacity-block", compute_resources=(settings.ComputeResource(min_nodes=4, max_nodes=4),)
)
VOLUME = settings.SharedVolume(name="more", type="efs", id="fs-0123456789abcdef0", mount_dir="/efs/more")
NATIVE = settings.Bootstrap(framework="torch-native")
LOOKUP = "is not looked up yet in the first synthesis, and must be known there: give value_from_lookup a default_value"
SESSION = "arn:aws:sts::111122223333:assumed-role/Platform/me"
ROLE = "arn:aws:iam::111122223333:role/Platform"
TOKEN = "is a token of the CDK, which has no value before the deployment: give a plain value"


def group(scope: Stack, **nodes: Any) -> TrnNodeGroup:
    return of_nodes(scope, nodes)


def of_nodes(scope: Stack, nodes: dict[str, Any], **given: Any) -> TrnNodeGroup:
    return TrnNodeGroup(scope, "Trn", cluster=cluster(scope), nodes=nodes, **given)  # type: ignore[arg-type]


def tagged(scope: Stack) -> None:
    """Tags of the stack, which ParallelCluster's function adds to the cluster's: 39 are allowed, the function adds one."""
    for i in range(30):
        Tags.of(scope).add(f"s{i}", "x")
    cluster = TrnPcluster(scope, "Slurm", vpc=vpc(scope))
    for i in range(10):
        Tags.of(cluster).add(f"t{i}", "x")


def number(scope: Stack) -> Any:
    return CfnParameter(scope, "Number", type="Number").value_as_number


def text(scope: Stack) -> str:
    return CfnParameter(scope, "Text").value_as_string


def texts(scope: Stack) -> list[str]:
    return CfnParameter(scope, "Texts", type="CommaDelimitedList").value_as_list


def own_script(bucket: str) -> settings.OwnScript:
    return settings.OwnScript(name="data", script=f"#!/bin/bash\naws s3 cp s3://{bucket}/data /scratch\n")


def system(scope: Stack, **nodes: Any) -> TrnSystemNodes:
    return TrnSystemNodes(scope, "System", cluster=cluster(scope), nodes=nodes)  # type: ignore[arg-type]


def control_plane(scope: Stack, *, log_retention: Any = RetentionDays.ONE_YEAR, **given: Any) -> TrnEksCluster:
    return TrnEksCluster(scope, "K", vpc=vpc(scope), control_plane=given, log_retention=log_retention)  # type: ignore[arg-type]


def scripts(scope: Stack, **given: Any) -> TrnBootstrap:
    return TrnBootstrap(scope, "Scripts", bucket=TrnBucket(scope, "B").bucket, **given)


def peering(scope: Stack, **given: Any) -> TrnPeering:
    mine = TrnNetwork(scope, "Net").vpc
    return TrnPeering(scope, "Peer", vpc=mine, peer=settings.Peering(vpc_id="vpc-0123456789abcdef0", **given))


def peering_of_an_imported_vpc(scope: Stack) -> TrnPeering:
    theirs = ec2.Vpc.from_vpc_attributes(scope, "Theirs", vpc_id="vpc-1", availability_zones=["us-west-2a"])
    return TrnPeering(
        scope, "Peer", vpc=theirs, peer=settings.Peering(vpc_id="vpc-0123456789abcdef0", cidr=("10.1.0.0/16",))
    )


def network(scope: Stack, **given: Any) -> TrnNetwork:
    return TrnNetwork(scope, "Net", network=settings.Network(**given))


def storage(scope: Stack, **given: Any) -> TrnStorage:
    return TrnStorage(scope, "S", vpc=vpc(scope), **given)


def described(scope: Stack, **given: Any) -> TrnPcluster:
    return TrnPcluster(scope, "Slurm", vpc=vpc(scope), cluster=settings.Pcluster(**given))


def group_of_an_imported_cluster(scope: Stack, **attributes: Any) -> TrnNodeGroup:
    theirs = eks.Cluster.from_cluster_attributes(scope, "Theirs", cluster_name="theirs", **attributes)
    return TrnNodeGroup(scope, "Trn", cluster=theirs)


def looked_up(scope: Stack) -> str:
    """What a lookup returns before the CDK's command line has read the value."""
    return ssm.StringParameter.value_from_lookup(scope, "/trn/value")


def networks(scope: Stack) -> None:
    within = vpc(scope)
    mine = cluster(scope, within=within, kubectl=True)
    wanted = CfnParameter(scope, "Networks", type="CommaDelimitedList").value_as_list
    group = TrnNodeGroup(scope, "Trn", cluster=mine, storage=TrnStorage(scope, "S", vpc=within))
    TrnPlugins(scope, "Plugins", cluster=mine, node_groups=[group], job_networks=wanted)


def slurm(scope: Stack, id: str = "Slurm", **scripts: Any) -> TrnPcluster:
    bootstrap = TrnBootstrap(scope, "Scripts", bucket=TrnBucket(scope, "B").bucket, **scripts) if scripts else None
    return TrnPcluster(scope, id, vpc=vpc(scope), bootstrap=bootstrap)


def outputs_twice(scope: Stack) -> None:
    one, bucket = slurm(scope), TrnBucket(scope, "Jobs").bucket
    for id in ("One", "Two"):
        TrnOutputs(scope, id, cluster=one, bucket=bucket)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: control_plane(s).grant_access("A", ROLE, "Edit"), "K: policy = Edit: .* Fix: write one of cluster-admin, admin"),
        (lambda s: TrnNetwork(s, "Net", max_azs=0), "Net: max_azs = 0: a network needs a zone. Fix: write max_azs=1 or more"),
        (lambda s: scripts(s, mount_dirs=["/a", "/b", "/c"]), "Scripts: mount_dirs = /a, /b, /c: .* Fix: give at most two"),
        (networks, f"Plugins: job_networks {TOKEN}"),
        (lambda s: network(s, cidr="10.0.0.0/24"), "^Foreign/Net: network.cidr 10.0.0.0/24 has 256 addresses, but 2 zone"),
        (lambda s: TrnNetwork(s, "Net", max_azs=number(s)), f"Net: max_azs {TOKEN}"),
        (peering_of_an_imported_vpc, "Peer: the network of Foreign/Theirs, an imported VPC, is not known: give cidr, or vpc_cidr_block"),
        (lambda s: group_of_an_imported_cluster(s), "Theirs: cluster_security_group_id of this imported .* give it to Cluster.from_cluster"),
        (lambda s: group_of_an_imported_cluster(s, cluster_security_group_id="sg-1"), "Theirs: vpc of this imported cluster is not known"),
        (lambda s: scripts(s, parameter_name=text(s)), f"Scripts: parameter_name {TOKEN}"),
        (lambda s: scripts(s, metrics_log_group=text(s)), "Scripts: metrics_log_group has a token of the CDK, .* Fix: write the value"),
        (
            lambda s: scripts(s, bootstrap=settings.Bootstrap(scripts=(own_script(text(s)),))),
            r"Scripts: bootstrap.scripts\[0\].script has a token of the CDK, .* or let the script read",
        ),
        (lambda s: storage(s, efs=None), r"S: efs and lustre are None, .* Fix: give efs=settings.Efs\(\)"),
        (lambda s: storage(s, efs_mount_dir="/data"), "S: efs_mount_dir is for a file system of the CDK. Fix: give mount_dir to settings.Efs"),
        (
            lambda s: TrnPcluster(s, "Slurm", vpc=vpc(s), queues=[settings.Queue(zone_id="usw2-az4")]),
            "Slurm: queue compute1 has zone_id usw2-az4, .* Fix: give queue_subnets={'compute1': subnet}, and no zone_id",
        ),
        (outputs_twice, "Two: the stack has the outputs of a cluster already: .*One"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_refused(build: Callable[[Stack], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        template(build)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda s: peering(s, cidr="10.0.0.0/16"), "Peer] peer.cidr = 10.0.0.0/16: it overlaps with 10.0.0.0/16 of this VPC"),
        (lambda s: system(s, instance_type="m7g.large"), "System] nodes.instance_type = m7g.large: this is an Arm type"),
        (lambda s: TrnBastionHost(s, "Host", vpc=vpc(s), host={"instance_type": "t4g.micro"}), "Host] host.instance_type = t4g.micro: this is an Arm type"),
        (lambda s: group(s, name="default"), "Trn] nodes.name = default: the group's queue has its name, and Kueue puts every job without a queue"),
        (lambda s: group(s, name="system"), "Trn] nodes.name = system: this name is reserved for the system nodes"),
        (lambda s: control_plane(s).grant_access("A", SESSION, "edit"), f"K] principal = {SESSION}: this is a session of a role, not the role"),
        (lambda s: control_plane(s).grant_access("A", iam.Role.from_role_name(s, "R", "AWSReservedSSO_A_0"), "edit"), "K] principal = arn:${Token[AWS.Partition."),
        (lambda s: TrnEksCluster(s, "C", vpc=vpc(s), control_plane={"version": "1.20"}), "C] control_plane.version = 1.20: EKS does not create clusters of this version any more"),
        (lambda s: control_plane(s, namespace="kube-system"), "K] control_plane.namespace = kube-system: this namespace is reserved"),
        (
            lambda s: group(s, capacity_type=eks.CapacityType.CAPACITY_BLOCK, instance_type="trn1.32xlarge"),
            "Trn] nodes.reservation = (absent): a capacity block needs its reservation id. Fix: give the id of the "
            "block that you bought, for example cr-0123456789abcdef0.",
        ),
        (
            lambda s: group(s, instance_type="trn2.3xlarge"),
            "Trn] region = us-west-2: the catalogue has no zone of this region that offers trn2.3xlarge",
        ),
        (lambda s: group(s, instance_type="trn1.2xlarge", efa=True), "Trn] nodes.efa = on: trn1.2xlarge has no EFA"),
        (lambda s: network(s, zone_ids=["use1-az6"]), "Net] network.zone_ids[0] = use1-az6: it is in us-east-1, but the region is us-west-2"),
        (
            lambda s: described(s, shared_storage=[VOLUME]),
            "Slurm] cluster.shared_storage[0].mount_dir = /efs/more: it overlaps with /efs (storage)",
        ),
        (
            lambda s: TrnPcluster(s, "Slurm", vpc=vpc(s), queues=[BLOCK]),
            "Slurm] queues[0].compute_resources[0].reservation = (absent): a capacity block needs its reservation id",
        ),
        (
            lambda s: TrnPcluster(s, "Slurm", vpc=vpc(s), head_node=settings.HeadNode(instance_type="c7g.4xlarge")),
            "Slurm] head_node.instance_type = c7g.4xlarge: this is an Arm type",
        ),
        (lambda s: Tags.of(group(s)).add("aws:x", "y"), "Trn] tags.aws:x = y: tags that begin with aws: are reserved. Fix: rename it, for example to my-x"),
        (lambda s: Tags.of(system(s)).add("aws:x", "y"), "System] tags.aws:x = y: tags that begin with aws: are reserved"),
        (
            lambda s: described(s, overrides={"Scheduling": {"Scheduler": "awsbatch"}}),
            "Slurm] cluster.overrides.Scheduling.Scheduler = awsbatch: it cannot be set",
        ),
        (tagged, "Slurm] the stack Foreign and its cluster have 40 tags; a cluster can have at most 39. Fix: remove some."),
        (lambda s: Tags.of(TrnPcluster(s, "Slurm", vpc=vpc(s))).add("aws:x", "y"), "Slurm] tags.aws:x = y: tags that begin with aws: are reserved"),
    ],
)  # fmt: skip
def test_the_rules_of_environments_hold_for_arguments(build: Callable[[Stack], Any], error: str) -> None:
    found = errors(build)
    assert [line for line in found if line.startswith(error)], found
    assert len(found) == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: described(s, os="rhel9"), "Slurm: error: cluster.os = rhel9: Neuron cannot be"),
        (lambda s: scripts(s, cluster=settings.Pcluster(os="ubuntu2004")), "Scripts: error: cluster.os = ubuntu2004: Neuron cannot be installed on"),
        (lambda s: scripts(s, mount_dirs=["/usr"]), r"Scripts: error: mount_dirs\[0\] = /usr: /usr belongs to the operating system"),
        (lambda s: storage(s, efs={"throughput": "provisioned"}), "S: error: efs = .*: throughput is provisioned, .* Fix: add provisioned_mibps"),
        (
            lambda s: storage(s, efs=settings.Efs(mount_dir="/data"), lustre=settings.Fsx(mount_dir="/data/fast")),
            r"S: error: the mount directories overlap \(/data and /data/fast\). Fix: choose two mount_dir values",
        ),
        (lambda s: control_plane(s).grant_access("A", "Platform", "edit"), "K: error: principal = Platform: it does not have the required form"),
        (lambda s: network(s, cidr="10.0.0.0/8"), "Net: error: network.cidr = 10.0.0.0/8: a VPC has a prefix from /16 to /28, not /8. Fix: write"),
        (lambda s: network(s, zone_ids=["usw2-az4"] * 2), r"Net: error: network.zone_ids\[1\] = usw2-az4: this zone is listed twice"),
        (
            lambda s: TrnPcluster(s, "Slurm", vpc=vpc(s), queues=[settings.Queue(name="cpu")]),
            "Slurm: error: cluster = .*: a queue and the CPU queue are named cpu. Fix: write cpu_queue: {name: cpu-nodes}, or",
        ),
    ],
)  # fmt: skip
def test_a_value_without_which_nothing_can_be_built(build: Callable[[Stack], Any], message: str) -> None:
    with pytest.raises(settings.SettingsError, match=f"^Foreign/{message}"):
        template(build)


@pytest.mark.parametrize(
    "given",
    [
        {"capacity_type": eks_v1.CapacityType.SPOT},
        {"capacity_type": "spot"},
        {"capacity_type": eks.CapacityType.SPOT, "root_volume_gib": number},
    ],
)
def test_accepted(given: dict[str, Any]) -> None:
    def build(scope: Stack) -> None:
        resolved = {k: Size.gibibytes(v(scope)) if v is number else v for k, v in given.items()}
        Tags.of(group(scope, **resolved)).add("Team", text(scope))

    [made] = properties(template(build), "EKS::Nodegroup")
    assert made["CapacityType"] == "SPOT"


def test_logs_are_kept_for_ever_only_on_request() -> None:
    made = template(lambda s: control_plane(s, log_retention=RetentionDays.INFINITE))
    [of_cluster] = [g for g in properties(made, "Logs::LogGroup") if str(g.get("LogGroupName")).endswith("/cluster")]
    assert "RetentionInDays" not in of_cluster


def test_the_size_of_provisioned_throughput_may_be_a_token() -> None:
    def build(scope: Stack) -> None:
        size = Size.mebibytes(number(scope))
        provisioned = {"throughput": ThroughputMode.PROVISIONED, "provisioned_mibps": size}
        TrnStorage(scope, "S", vpc=vpc(scope), efs=settings.Efs.model_validate(provisioned))

    [made] = properties(template(build), "EFS::FileSystem")
    assert made["ProvisionedThroughputInMibps"] == {"Ref": "Number"}


ELSEWHERE = (
    "region = eu-west-1: the catalogue has no zone of this region that offers trn1.32xlarge. Fix: use ap-south-1, "
)


@pytest.mark.parametrize(
    "build",
    [
        lambda s, **given: TrnPcluster(s, "Trn", vpc=vpc(s), **given),
        lambda s, **given: TrnPcluster(s, "Trn", vpc=vpc(s), bootstrap=scripts(s), **given),
        lambda s, **given: of_nodes(s, {}, **given),
    ],
    ids=["Slurm", "Slurm with scripts", "EKS"],
)
def test_a_region_that_the_catalogue_does_not_know(build: Callable[..., Any]) -> None:
    [found] = errors(build, "eu-west-1")
    assert found.startswith(f"Trn] {ELSEWHERE}")
    assert (
        "or list the zones that your account sees under catalog.instances.trn1.32xlarge.zone_ids, and under catalog.regions"
        in found
    )
    assert template(lambda s: build(s, rules=False), "eu-west-1")
    zones = CatalogOverrides(instances={"trn1.32xlarge": {"zone_ids": ["euw1-az1"]}}, regions={"euw1": "eu-west-1"})
    assert template(lambda s: build(s, catalog=Catalog.load(zones)), "eu-west-1")


def test_an_image_may_be_a_dynamic_reference() -> None:
    image = "{{resolve:ssm:/mine/image}}"
    made = template(lambda s: of_nodes(s, {"custom_ami": image}, service_cidr="172.20.0.0/16"))
    assert image in str(properties(made, "EC2::LaunchTemplate"))


def ssh(scope: Stack, *cidrs: str) -> TrnPcluster:
    opened = settings.Ssh(from_cidrs=cidrs)
    return TrnPcluster(scope, "Slurm", vpc=vpc(scope), head_node=settings.HeadNode(ssh=opened))


@pytest.mark.parametrize(
    "build",
    [
        lambda s: group(s, reservation=looked_up(s), user_data=looked_up(s)),
        lambda s: control_plane(s, endpoint="public", public_cidrs=[looked_up(s)], service_cidr=looked_up(s)),
        lambda s: described(s, custom_ami=looked_up(s)),
        lambda s: ssh(s, looked_up(s)),
    ],
    ids=["node group", "cluster", "Slurm cluster", "SSH"],
)
def test_the_first_synthesis_succeeds_so_that_the_lookup_follows(build: Callable[[Stack], Any]) -> None:
    assert template(build)


@pytest.mark.parametrize(
    ("scripts", "error"),
    [
        ({"cluster": settings.Pcluster(os="alinux2023")}, "Slurm] bootstrap = os alinux2023: the cluster's nodes have ubuntu2404"),
        ({"mount_dirs": ["/fsx"]}, "Slurm] bootstrap = mount_dirs /fsx: the cluster's nodes have /efs"),
        ({"bootstrap": NATIVE}, "Scripts] bootstrap.framework = torch-native: torch-native of Neuron 2.33.0 does not support training on trn1"),
        # fits trn2, but the queues are of trn1
        ({"bootstrap": NATIVE, "cluster": settings.Pcluster(queues=(settings.Queue.of("trn2.48xlarge"),))}, "Slurm] bootstrap.framework = torch-native: torch-native of Neuron 2.33.0 does not support training on trn1"),
    ],
)  # fmt: skip
def test_scripts_for_other_nodes_are_refused(scripts: dict[str, Any], error: str) -> None:
    found = errors(lambda scope: slurm(scope, **scripts))
    assert any(line.startswith(error) for line in found), found


def test_scripts_for_other_nodes_are_refused_on_pcs() -> None:
    def build(scope: Stack) -> None:
        scripts = TrnBootstrap(scope, "Scripts", bucket=TrnBucket(scope, "B").bucket, mount_dirs=["/data"])
        TrnPcsCluster(scope, "Slurm", vpc=vpc(scope), bootstrap=scripts)

    [found] = errors(build)
    assert found.startswith(
        "Slurm] bootstrap = mount_dirs /data: the cluster's nodes have /efs. Fix: give TrnBootstrap the"
    )


def test_ssh_from_the_network_of_a_vpc() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        ssh = settings.Ssh(from_cidrs=(within.vpc_cidr_block, "203.0.113.0/24"))
        TrnPcluster(scope, "Slurm", vpc=within, head_node=settings.HeadNode(ssh=ssh))

    [listed] = properties(template(build), "EC2::PrefixList")
    assert [entry["Cidr"] for entry in listed["Entries"]][1:] == ["203.0.113.0/24"]


def test_ssh_from_peers_of_the_cdk() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        jump = ec2.SecurityGroup(scope, "Jump", vpc=within)
        offices = ec2.PrefixList(scope, "Offices", entries=[ec2.CfnPrefixList.EntryProperty(cidr="203.0.113.0/24")])
        peers = [jump, ec2.Peer.prefix_list(offices.prefix_list_id), ec2.Peer.ipv4("198.51.100.0/24")]
        TrnPcluster(
            scope, "Slurm", vpc=within, ssh_from=peers, head_node=settings.HeadNode(ssh=settings.Ssh(key_name="office"))
        )

    made = template(build)
    rules = [rule for rule in properties(made, "EC2::SecurityGroupIngress") if rule["FromPort"] == 22]
    assert [next(key for key in ("SourceSecurityGroupId", "SourcePrefixListId", "CidrIp") if key in rule) for rule in rules] == [
        "SourceSecurityGroupId", "SourcePrefixListId", "CidrIp",
    ]  # fmt: skip
    [resource] = made.find_resources("Custom::PclusterCluster").values()
    head = resource["Properties"]["ClusterConfiguration"]["HeadNode"]
    assert head["Ssh"] == {"AllowedIps": "127.0.0.1/32", "KeyName": "office"}
    assert len(head["Networking"]["AdditionalSecurityGroups"]) == 2


def test_the_cluster_of_a_default_construct_has_another_name_than_the_stack() -> None:
    made = template(lambda scope: slurm(scope, "Default"))
    [resource] = made.find_resources("Custom::PclusterCluster").values()
    assert resource["Properties"]["ClusterName"].endswith("-slurm")


def test_file_systems_of_several_ports_are_opened_from_their_own_side() -> None:
    def one_port(scope: Stack) -> None:
        storage = TrnStorage(scope, "S", vpc=vpc(scope))
        ec2.SecurityGroup(scope, "G", vpc=storage_vpc(scope)).connections.allow_to_default_port(storage)

    def storage_vpc(scope: Stack) -> ec2.IVpc:
        return ec2.Vpc.from_vpc_attributes(scope, "Same", vpc_id="vpc-0123456789abcdef0", availability_zones=["a"])

    ports = {r["FromPort"] for r in properties(template(one_port), "EC2::SecurityGroupIngress")}
    assert 2049 in ports

    def several(scope: Stack) -> None:
        storage = TrnStorage(scope, "S", vpc=vpc(scope), lustre=settings.Fsx())
        ec2.SecurityGroup(scope, "G", vpc=storage_vpc(scope)).connections.allow_to_default_port(storage)

    with pytest.raises(RuntimeError, match="no default port"):
        template(several)
