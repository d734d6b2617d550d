"""Existing data: buckets and file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, Finding, Found, Target, listed
from trainium_cdk.errors import Denied
from trainium_cdk.settings.problems import KeyPath


@dataclass(frozen=True)
class Bucket:
    """A bucket that the environment names."""

    name: str
    key: KeyPath
    same_region: bool
    """Whether it must be in the same region, because FSx can only link such buckets."""


def buckets(target: Target) -> Iterator[Bucket]:
    fsx = target.env.storage.fsx
    if fsx and fsx.s3 and not fsx.existing:
        name = fsx.s3.uri.removeprefix("s3://").split("/")[0]
        yield Bucket(name, ("storage", "fsx", "s3", "uri"), same_region=True)
    for key, name in target.inventory.data_buckets().items():
        yield Bucket(name, key, same_region=False)


BucketState = str | Literal["none", "denied"]
"""Region of a bucket, or why it is not known."""


def evaluate_buckets(target: Target, states: dict[str, BucketState]) -> Found:
    for bucket in buckets(target):
        what, where, answer = f"bucket {bucket.name}", target.where(bucket.key), states[bucket.name]
        if answer == "none":
            yield Finding("error", what, "none", "this bucket does not exist", "create it, or correct the name", where)
        elif answer == "denied":
            yield Finding(
                "warning",
                what,
                "unknown",
                "could not be checked: needs s3:ListBucket, or the bucket belongs to another account",
                "allow s3:ListBucket on it for these credentials, and make sure that the cluster may read it",
                where,
            )
        elif answer != target.env.region:
            yield Finding(
                "error" if bucket.same_region else "warning",
                what,
                answer,
                f"it is not in {target.env.region}"
                + (": FSx cannot link it" if bucket.same_region else ": AWS charges for the data transfer"),
                f"copy it to a bucket in {target.env.region}",
                where,
            )
        else:
            yield Finding("ok", what, answer, "reachable")


def fetch_buckets(target: Target, aws: Aws) -> dict[str, BucketState]:
    states: dict[str, BucketState] = {}
    for bucket in buckets(target):
        try:
            answer = aws.find("s3:ListBucket", Bucket=bucket.name)
        except Denied:
            states[bucket.name] = "denied"
            continue
        # S3 omits the region if the bucket is in the region of the request
        states[bucket.name] = answer.get("BucketRegion", target.env.region) if answer is not None else "none"
    return states


@dataclass(frozen=True)
class FileSystem:
    """An existing file system as AWS describes it. `zones` are those of its mount targets (EFS only)."""

    state: str
    kind: str
    vpc: str = ""
    mount_name: str = ""
    zones: frozenset[str] = frozenset()


def _existing(target: Target) -> dict[str, str]:
    """Ids of the existing file systems that the environment names, by storage name."""
    storage = target.env.storage
    both = (("efs", storage.efs), ("fsx", storage.fsx))
    return {name: s.existing.id for name, s in both if s and s.existing}


Systems = dict[str, FileSystem | None]


def evaluate_file_systems(target: Target, systems: Systems) -> Found:
    for name in systems:
        identifier = _existing(target)[name]
        at: KeyPath = ("storage", name, "existing")
        what, where, system = f"file system {identifier}", target.where(at), systems[name]
        if system is None:
            yield Finding(
                "error",
                what,
                "none",
                f"it does not exist in {target.env.region}",
                "correct the id or the region",
                where,
            )
            continue
        problems = list(_problems(target, name, system, what, where))
        yield from problems or [
            Finding("ok", what, system.state, f"{name} storage, in this environment's zones", where=where)
        ]


def _problems(target: Target, name: str, system: FileSystem, what: str, where: str) -> Found:
    network, fsx = target.env.network, target.env.storage.fsx
    if system.state.upper() != "AVAILABLE":
        yield Finding(
            "error", what, system.state, "it cannot be mounted in this state", "wait, or use another file system", where
        )
    if name == "efs":
        missing = [z for z in target.zone_ids if z not in system.zones]
        if missing:
            yield Finding(
                "error",
                what,
                listed(sorted(system.zones)),
                f"it has no mount target in {listed(missing)}: nodes there cannot mount it",
                "create mount targets there: aws efs create-mount-target",
                where,
            )
        return
    if system.kind != "LUSTRE":
        yield Finding(
            "error", what, system.kind, "it is not FSx for Lustre", "use an FSx for Lustre file system", where
        )
    elif fsx and fsx.existing and system.mount_name != fsx.existing.mount_name:
        yield Finding(
            "error",
            what,
            system.mount_name,
            f"the environment has mount_name: {fsx.existing.mount_name}",
            f"write mount_name: {system.mount_name}",
            where,
        )
    if network.existing and system.vpc != network.existing.vpc_id:
        yield Finding(
            "warning", what, system.vpc, f"it is not in the VPC {network.existing.vpc_id}", "peer the two VPCs", where
        )


def _fetch(name: str) -> Callable[[Target, Aws], Systems]:
    def fetch(target: Target, aws: Aws) -> Systems:
        identifier = _existing(target)[name]
        return {name: _efs(aws, identifier) if name == "efs" else _fsx(aws, identifier)}

    return fetch


def _efs(aws: Aws, identifier: str) -> FileSystem | None:
    answer = aws.find("elasticfilesystem:DescribeFileSystems", FileSystemId=identifier)
    if not answer or not answer["FileSystems"]:
        return None
    targets = aws("elasticfilesystem:DescribeMountTargets", FileSystemId=identifier)["MountTargets"]
    zones = frozenset(t["AvailabilityZoneId"] for t in targets)
    return FileSystem(answer["FileSystems"][0]["LifeCycleState"], "EFS", zones=zones)


def _fsx(aws: Aws, identifier: str) -> FileSystem | None:
    answer = aws.find("fsx:DescribeFileSystems", FileSystemIds=[identifier])
    if not answer or not answer["FileSystems"]:
        return None
    system = answer["FileSystems"][0]
    mount_name = system.get("LustreConfiguration", {}).get("MountName", "")
    return FileSystem(system["Lifecycle"], system["FileSystemType"], system.get("VpcId", ""), mount_name)


CHECKS: tuple[Check[Any], ...] = (
    Check("buckets", ("s3:ListBucket",), fetch_buckets, evaluate_buckets, lambda t: any(buckets(t))),
    Check(
        "efs",
        ("elasticfilesystem:DescribeFileSystems", "elasticfilesystem:DescribeMountTargets"),
        _fetch("efs"),
        evaluate_file_systems,
        lambda t: "efs" in _existing(t),
    ),
    Check("fsx", ("fsx:DescribeFileSystems",), _fetch("fsx"), evaluate_file_systems, lambda t: "fsx" in _existing(t)),
)
