"""Existing data: buckets and file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, CheckTarget, Found, Subject, join_words
from trainium_cdk.errors import Denied
from trainium_cdk.problems import KeyPath


@dataclass(frozen=True)
class Bucket:
    """A bucket that the environment names."""

    name: str
    key: KeyPath
    same_region: bool
    """True if it must be in the same region, because FSx can only link such buckets."""


def buckets(target: CheckTarget) -> Iterator[Bucket]:
    fsx = target.env.storage.fsx
    linked: list[tuple[KeyPath, str]] = []
    if fsx and not fsx.existing:
        linked += [(("storage", "fsx", "s3_links", i, "uri"), link.uri) for i, link in enumerate(fsx.s3_links)]
    for name, key in {uri.removeprefix("s3://").split("/")[0]: key for key, uri in reversed(linked)}.items():
        yield Bucket(name, key, same_region=True)
    for key, name in target.inventory.data_buckets().items():
        yield Bucket(name, key, same_region=False)


BucketState = str | Literal["none", "denied"]
"""Region of a bucket, or why it is not known."""


def evaluate_buckets(target: CheckTarget, states: dict[str, BucketState]) -> Found:
    for bucket in buckets(target):
        subject, state = target.about(f"bucket {bucket.name}", *bucket.key), states[bucket.name]
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
        elif bucket.same_region:
            yield subject.error(state, f"{elsewhere}: FSx cannot link it", fix)
        else:
            yield subject.warning(state, f"{elsewhere}: AWS charges for the data transfer", fix)


def fetch_buckets(target: CheckTarget, aws: Aws) -> dict[str, BucketState]:
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


def _existing(target: CheckTarget) -> dict[str, str]:
    """Ids of the existing file systems that the environment names, by storage name."""
    storage = target.env.storage
    both = (("efs", storage.efs), ("fsx", storage.fsx))
    return {name: s.existing.id for name, s in both if s and s.existing}


Systems = dict[str, FileSystem | None]


def evaluate_file_systems(target: CheckTarget, systems: Systems) -> Found:
    for name, system in systems.items():
        subject = target.about(f"file system {_existing(target)[name]}", "storage", name, "existing")
        if system is None:
            yield subject.error("none", f"it does not exist in {target.env.region}", "correct the id or the region")
            continue
        problems = list(_problems(target, name, system, subject))
        yield from problems or [subject.ok(system.state, f"{name} storage, in this environment's zones")]


def _problems(target: CheckTarget, name: str, system: FileSystem, subject: Subject) -> Found:
    network, fsx = target.env.network, target.env.storage.fsx
    if system.state.upper() != "AVAILABLE":
        yield subject.error(system.state, "it cannot be mounted in this state", "wait, or use another file system")
    if name == "efs":
        if missing := [z for z in target.zone_ids if z not in system.zones]:
            yield subject.error(
                join_words(sorted(system.zones)),
                f"it has no mount target in {join_words(missing)}: nodes there cannot mount it",
                "create mount targets there: aws efs create-mount-target",
            )
        return
    if system.kind != "LUSTRE":
        yield subject.error(system.kind, "it is not FSx for Lustre", "use an FSx for Lustre file system")
    elif fsx and fsx.existing and system.mount_name != fsx.existing.mount_name:
        reason = f"the environment has mount_name: {fsx.existing.mount_name}"
        yield subject.error(system.mount_name, reason, f"write mount_name: {system.mount_name}")
    if network.existing and system.vpc != network.existing.vpc_id:
        yield subject.warning(system.vpc, f"it is not in the VPC {network.existing.vpc_id}", "peer the two VPCs")


def _fetch(name: str) -> Callable[[CheckTarget, Aws], Systems]:
    def fetch(target: CheckTarget, aws: Aws) -> Systems:
        identifier = _existing(target)[name]
        return {name: _efs(aws, identifier) if name == "efs" else _fsx(aws, identifier)}

    return fetch


def _efs(aws: Aws, identifier: str) -> FileSystem | None:
    found = aws.first("elasticfilesystem:DescribeFileSystems", "FileSystems", FileSystemId=identifier)
    if not found:
        return None
    targets = aws("elasticfilesystem:DescribeMountTargets", FileSystemId=identifier)["MountTargets"]
    zones = frozenset(t["AvailabilityZoneId"] for t in targets)
    return FileSystem(found["LifeCycleState"], "EFS", zones=zones)


def _fsx(aws: Aws, identifier: str) -> FileSystem | None:
    system = aws.first("fsx:DescribeFileSystems", "FileSystems", FileSystemIds=[identifier])
    if not system:
        return None
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
