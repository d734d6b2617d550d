"""Existing data: buckets and file systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

from trainium_cdk.description.checks.live.account import stack
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject, join_words
from trainium_cdk.description.settings import ExistingSubnet
from trainium_cdk.description.settings.storage import SERVER_PORTS
from trainium_cdk.errors import Denied
from trainium_cdk.problems import KeyPath


def buckets(target: CheckTarget) -> dict[str, tuple[KeyPath, bool]]:
    """The buckets that the environment names -> their key, and whether FSx links them, which it only does in its region."""
    fsx, found = target.env.storage.fsx, dict[str, tuple[KeyPath, bool]]()
    for key, name in target.inventory.data_buckets().items():
        found[name] = (key, False)
    for setting, address in target.env.jobs.addresses.items():
        found[address.removeprefix("s3://").split("/")[0]] = (("jobs", setting), False)
    for i, link in reversed([*enumerate(fsx.s3_links if fsx and not fsx.existing else ())]):
        found[link.uri.removeprefix("s3://").split("/")[0]] = (("storage", "fsx", "s3_links", i, "uri"), True)
    return found


def evaluate_buckets(target: CheckTarget, states: dict[str, str]) -> Found:
    """Args: states: region of each bucket, `none` or `denied`."""
    for name, (key, linked) in buckets(target).items():
        subject, state = target.about(f"bucket {name}", *key), states[name]
        elsewhere, fix = f"it is not in {target.env.region}", f"copy it to a bucket in {target.env.region}"
        if state == "none":
            yield subject.error("none", "this bucket does not exist", "create it, or correct the name")
        elif state == "denied":
            yield subject.warning(
                "unknown",
                "could not be checked: needs s3:ListBucket, or the bucket belongs to another account",
                "allow s3:ListBucket on it for these credentials, and make sure that the cluster may read it",
            )
        elif state == target.env.region:
            yield subject.ok(state, "reachable")
        elif linked:
            yield subject.error(state, f"{elsewhere}: FSx cannot link it", fix)
        elif not target.env.network.reaches_internet:
            yield subject.warning(state, f"{elsewhere}: VPC endpoints lead to S3 of their own region alone", fix)
        else:
            yield subject.warning(state, f"{elsewhere}: AWS charges for the data transfer", fix)


def fetch_buckets(target: CheckTarget, aws: Aws) -> dict[str, str]:
    states: dict[str, str] = {}
    for name in buckets(target):
        try:
            answer = aws.find("s3:ListBucket", Bucket=name)
        except Denied:
            states[name] = "denied"
            continue
        # S3 omits the region if the bucket is in the region of the request
        states[name] = answer.get("BucketRegion", target.env.region) if answer is not None else "none"
    return states


@dataclass(frozen=True)
class FileSystem:
    """An existing file system or volume as AWS describes it.

    Attributes:
        vpc: empty if the stack has its own VPC, which is not compared.
        zones: zone ids of its mount targets (EFS), or its own (EBS).
        closed: security groups of a server -> what they do not allow the nodes.
    """

    state: str
    type: str
    vpc: str = ""
    mount_name: str = ""
    zones: frozenset[str] = frozenset()
    closed: Mapping[tuple[str, ...], str] = field(default_factory=dict)


Systems = dict[KeyPath, FileSystem | None]


def shared_volumes(target: CheckTarget, service: str) -> dict[KeyPath, tuple[str, str, str | None]]:
    """Type, id and security group of the existing volumes of `efs`, `fsx` or `ebs`. The stack gives the group rules for the nodes."""
    found: dict[KeyPath, tuple[str, str, str | None]] = {}
    for name, type, system in (("efs", "efs", target.env.storage.efs), ("fsx", "fsx-lustre", target.env.storage.fsx)):
        if system and (given := system.existing):
            found["storage", name, "existing"] = (type, given.id, given.security_group)
    for i, volume in enumerate(target.env.pcluster.shared_storage if target.engine == "slurm" else ()):
        found["pcluster", "shared_storage", i] = (volume.type, volume.id, volume.security_group)
    return {key: each for key, each in found.items() if each[0].startswith(service)}


def _subnets(target: CheckTarget) -> dict[str, list[ExistingSubnet]]:
    """The existing subnets of the nodes by zone id, the head node's zone first; a new network has none yet."""
    existing, p, slurm = target.env.network.existing, target.env.pcluster, target.engine == "slurm"
    queues = {target.inventory.zone_of(n.queue) for n in target.nodes}
    zones = [zone for i, zone in enumerate(target.zone_ids) if not i or zone in queues or target.engine == "eks"]
    if not existing:
        return {zone: [] for zone in zones}
    private = [next(s for s in existing.private_subnets if s.zone_id == zone) for zone in zones]
    public = existing.public_subnets[: slurm and "public" in (p.head.subnet, p.login_nodes and p.login_nodes.subnet)]
    chosen = [*public, *private] if p.head.subnet == "public" else [*private, *public]
    return {s.zone_id: [other for other in chosen if other.zone_id == s.zone_id] for s in chosen}


def evaluate_volumes(service: str, target: CheckTarget, systems: Systems) -> Found:
    for key, (type, id, group) in shared_volumes(target, service).items():
        system, what = systems[key], "volume" if service == "ebs" else "file system"
        subject = target.about(f"{what} {id}", *key)
        if system is None:
            yield subject.error("none", f"it does not exist in {target.env.region}", "correct the id or the region")
            continue
        problems = list(_problems(target, type, group, system, subject))
        yield from problems or [subject.ok(system.state, "the nodes can mount it")]


def _problems(target: CheckTarget, type: str, group: str | None, system: FileSystem, subject: Subject) -> Found:
    """Check as EfsIdValidator, ExistingFsxNetworkingValidator, SharedEbsVolumeIdValidator and MultiAzEbsVolumeValidator of 3.16.1 do."""
    network, fsx, slurm = target.env.network.existing, target.env.storage.fsx, target.engine == "slurm"
    if system.type != type:
        yield subject.error(system.type, f"it is not of type {type}", f"use one of type {type}")
        return
    if system.state.upper() not in ("AVAILABLE", "CREATED", "UPDATING"):  # CREATED: a volume of ONTAP
        yield subject.error(system.state, "it cannot be mounted in this state", "wait, or use another one")
    wanted = fsx.existing.mount_name if fsx and fsx.existing and subject.key[:2] == ("storage", "fsx") else ""
    if wanted and system.mount_name != wanted:
        reason = f"the environment has mount_name: {wanted}"
        yield subject.error(system.mount_name, reason, f"write mount_name: {system.mount_name}")
    missing = [zone for zone in _subnets(target) if zone not in system.zones]
    if type == "ebs" and missing[:1] == list(_subnets(target))[:1]:
        reason = f"the head node is in {missing[0]}, and EC2 attaches no volume of another zone"
        yield subject.error(join_words(system.zones), reason, f"copy it to {missing[0]} through a snapshot")
    if type == "efs" and missing:
        reason = f"it has no mount target in {join_words(missing)}: nodes there cannot mount it"
        fix = "create mount targets there: aws efs create-mount-target"
        yield subject.error(join_words(sorted(system.zones)), reason, fix)
    if system.vpc and system.vpc != (network and network.vpc_id):
        refused = slurm and type != "efs"  # ParallelCluster takes no FSx of another VPC
        say, fix = (subject.error, "use one of that VPC") if refused else (subject.warning, "peer the two VPCs")
        where = network.vpc_id if network else "of the nodes, which is new"
        yield say(system.vpc, f"it is not in the VPC {where}", fix)
        return
    if group and not any(group in ids for ids in system.closed):
        reason = "it is not a security group of the file system: rules in it would change nothing there"
        yield subject.warning(group, reason, "write the VPC's own group, or remove security_group")
    for ids, closed in system.closed.items():
        if closed and group not in ids:
            fix = f"write security_group: {ids[0]}, which then gets the rules; or add them yourself"
            yield subject.error(join_words(ids), f"its security groups do not allow {closed} the nodes", fix)


def _closed(target: CheckTarget, aws: Aws, type: str, ids: Sequence[str], zone: str = "") -> str:
    """Ports that security groups do not allow the nodes of a zone, or of all. ParallelCluster also reads egress, except of OpenZFS."""
    subnets = [subnet.id for z, own in _subnets(target).items() if zone in ("", z) for subnet in own]
    described = [aws.first("ec2:DescribeSubnets", "Subnets", SubnetIds=[id]) for id in subnets]
    nodes = [IPv4Network(subnet["CidrBlock"]) for subnet in described if subnet]
    shut: list[str] = []
    egress = target.engine == "slurm" and type != "fsx-openzfs"
    for kind, way in (("IpPermissions", "from"), *([("IpPermissionsEgress", "to")] if egress else [])):
        rules = [rule for id in ids for rule in _group(aws, id).get(kind, ())]
        for name, port in SERVER_PORTS.get(type, ()):
            mine = [r for r in rules if r["IpProtocol"] == name and r["FromPort"] <= port <= r["ToPort"]]
            if not _open(target, aws, [*mine, *(r for r in rules if r["IpProtocol"] == "-1")], nodes):
                shut.append(f"{name} {port} {way}")
    return join_words(shut) if shut else ""


def _open(target: CheckTarget, aws: Aws, rules: Sequence[Mapping[str, Any]], nodes: Sequence[IPv4Network]) -> bool:
    """Return whether rules name all networks, or a group, of the nodes. A prefix list counts as them."""
    allowed = list(collapse_addresses(IPv4Network(i["CidrIp"]) for r in rules for i in r.get("IpRanges", ())))
    if all(any(own.subnet_of(each) for each in allowed) for own in nodes) or any(r.get("PrefixListIds") for r in rules):
        return True
    named = {pair["GroupId"] for r in rules for pair in r.get("UserIdGroupPairs", ())}
    # tags of CloudFormation, for the stack's groups and ParallelCluster's, and of EKS, for the cluster's
    tags = [t["Value"] for id in named for t in _group(aws, id).get("Tags", ())]
    overrides = str(target.env.pcluster.overrides)
    return not {target.stack, target.cluster}.isdisjoint(tags) or any(id in overrides for id in named)


def _group(aws: Aws, id: str) -> Mapping[str, Any]:
    return aws.first("ec2:DescribeSecurityGroups", "SecurityGroups", GroupIds=[id]) or {"GroupId": id}


def _fetch(service: str, target: CheckTarget, aws: Aws) -> Systems:
    describe = {"efs": _efs, "fsx": _fsx, "ebs": _ebs}[service]
    systems = {key: describe(target, aws, id) for key, (_, id, _) in shared_volumes(target, service).items()}
    own = service != "ebs" and not target.env.network.existing and stack(target, aws)
    return {key: replace(system, vpc="") if own and system else system for key, system in systems.items()}


def _efs(target: CheckTarget, aws: Aws, id: str) -> FileSystem | None:
    system = aws.first("elasticfilesystem:DescribeFileSystems", "FileSystems", FileSystemId=id)
    if not system:
        return None
    closed: dict[tuple[str, ...], str] = {}
    ask = "elasticfilesystem:DescribeMountTargetSecurityGroups"
    targets = aws("elasticfilesystem:DescribeMountTargets", FileSystemId=id)["MountTargets"]
    for each in targets:
        ids = tuple(aws(ask, MountTargetId=each["MountTargetId"])["SecurityGroups"])
        closed[ids] = closed.get(ids) or _closed(target, aws, "efs", ids, each["AvailabilityZoneId"])
    zones = frozenset(each["AvailabilityZoneId"] for each in targets)
    return FileSystem(system["LifeCycleState"], "efs", targets[0]["VpcId"] if targets else "", "", zones, closed)


def _fsx(target: CheckTarget, aws: Aws, id: str) -> FileSystem | None:
    volume: dict[str, Any] | None = {"FileSystemId": id}
    if id.startswith("fsvol-"):
        volume = aws.first("fsx:DescribeVolumes", "Volumes", VolumeIds=[id])
    system = volume and aws.first("fsx:DescribeFileSystems", "FileSystems", FileSystemIds=[volume["FileSystemId"]])
    if not (volume and system):
        return None
    type, wanted = f"fsx-{system['FileSystemType'].lower()}", system.get("NetworkInterfaceIds")
    interfaces = aws("ec2:DescribeNetworkInterfaces", NetworkInterfaceIds=wanted)["NetworkInterfaces"] if wanted else []
    ids = tuple(dict.fromkeys(group["GroupId"] for each in interfaces for group in each["Groups"]))
    closed = {ids: _closed(target, aws, type, ids)} if ids else {}
    mount_name = system.get("LustreConfiguration", {}).get("MountName", "")
    return FileSystem({**system, **volume}["Lifecycle"], type, system["VpcId"], mount_name, closed=closed)


def _ebs(target: CheckTarget, aws: Aws, id: str) -> FileSystem | None:
    volume = aws.first("ec2:DescribeVolumes", "Volumes", VolumeIds=[id])
    if not volume:
        return None
    ids, ours = [a["InstanceId"] for a in volume.get("Attachments", ())], target.inventory.instance_tag
    used = aws("ec2:DescribeInstances", InstanceIds=ids)["Reservations"] if ids else []
    own = any({"Key": ours, "Value": target.cluster} in i.get("Tags", ()) for each in used for i in each["Instances"])
    return FileSystem("available" if own else volume["State"], "ebs", zones=frozenset({volume["AvailabilityZoneId"]}))


_OF_GROUPS = ("ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "cloudformation:DescribeStacks")
_ACTIONS = {
    "efs": (*(f"elasticfilesystem:Describe{x}" for x in ("FileSystems", "MountTargets", "MountTargetSecurityGroups")), *_OF_GROUPS),
    "fsx": ("fsx:DescribeFileSystems", "fsx:DescribeVolumes", "ec2:DescribeNetworkInterfaces", *_OF_GROUPS),
    "ebs": ("ec2:DescribeVolumes", "ec2:DescribeInstances"),
}  # fmt: skip
CHECKS: tuple[Check[Any], ...] = (
    Check("buckets", ("s3:ListBucket",), fetch_buckets, evaluate_buckets, lambda t: bool(buckets(t))),
    *(
        Check(s, actions, partial(_fetch, s), partial(evaluate_volumes, s), partial(shared_volumes, service=s))
        for s, actions in _ACTIONS.items()
    ),
)
