"""ParallelCluster in the account: its images, and the key pair of the head node."""

from __future__ import annotations

import re
from typing import Any

from trainium_cdk.description.checks.live import secrets
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.images import images, is_past
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject
from trainium_cdk.description.settings.types import is_placeholder

IMAGE_NAMES = {
    "ubuntu2204": "ubuntu-2204-lts-hvm-x86_64",
    "ubuntu2404": "ubuntu-2404-lts-hvm-x86_64",
    "alinux2023": "amzn2023-hvm-x86_64",
}
"""Names of ParallelCluster's official images: aws-parallelcluster-<version>-<this>-<date> (pcluster 3.16)."""
_OFFICIAL = re.compile(r"aws-parallelcluster-(\d+\.\d+\.\d+)-")
KEY: tuple[str, ...] = ("pcluster", "head", "ssh", "key_name")


def _key_name(target: CheckTarget) -> str | None:
    """The key pair that the environment names. One that the stack creates needs no check."""
    ssh = target.env.pcluster.head.ssh
    return ssh.key_name if ssh else None


def evaluate_key_pair(target: CheckTarget, kind: str | None) -> Found:
    name, os = _key_name(target), target.env.pcluster.os
    pair = target.about(f"key pair {name}", *KEY)
    create = f"aws ec2 create-key-pair --key-name {name} --key-type ed25519 --region {target.env.region}"
    if kind is None:
        yield pair.error("none", f"this key pair does not exist in {target.env.region}", create)
    elif kind != "ed25519" and os.startswith("ubuntu"):
        yield pair.error(kind, f"{os} does not support {kind} keys", "use an ed25519 key pair, or remove key_name")
    else:
        yield pair.ok(kind, f"{os} supports it")


def fetch_key_pair(target: CheckTarget, aws: Aws) -> str | None:
    pair = aws.first("ec2:DescribeKeyPairs", "KeyPairs", KeyNames=[_key_name(target)])
    return str(pair["KeyType"]) if pair else None


def evaluate_address(target: CheckTarget, existing: dict[str, Any] | None) -> Found:
    address = target.env.pcluster.head.elastic_ip
    subject = target.about(f"address {address}", "pcluster", "head", "elastic_ip")
    if existing is None:
        reason = f"it is not an Elastic IP address of this account in {target.env.region}"
        yield subject.error("none", reason, "write one of `aws ec2 describe-addresses`, or remove elastic_ip")
    elif existing.get("AssociationId"):
        reason = (
            "it is in use; ParallelCluster would take it from there, unless this cluster's head node has it already"
        )
        yield subject.warning(str(existing.get("InstanceId") or "in use"), reason, "write one that is free")
    else:
        yield subject.ok(str(existing["AllocationId"]), "it is free")


def fetch_address(target: CheckTarget, aws: Aws) -> dict[str, Any] | None:
    wanted = target.env.pcluster.head.elastic_ip
    addresses = aws("ec2:DescribeAddresses").get("Addresses", [])  # the request of address-quota
    return next((each for each in addresses if each.get("PublicIp") == wanted), None)


def _has_address(target: CheckTarget) -> bool:
    """Return whether the environment names an address. The value of a token is not known here, and counts as none."""
    address = target.env.pcluster.head.elastic_ip
    return bool(address) and not is_placeholder(str(address))


def _built_by_parallelcluster(target: CheckTarget, image: dict[str, Any], subject: Subject) -> Found:
    """Nodes need an image that ParallelCluster has built, in its own version and for the cluster's operating system."""
    p, version = target.env.pcluster, target.env.parallelcluster_version
    tags = {t["Key"]: t["Value"] for t in image.get("Tags", [])}
    official = _OFFICIAL.match(str(image.get("Name", "")))
    built = tags.get("parallelcluster:version") or (official and official[1])
    build = f"build one: `trn image bake`, or pcluster build-image of ParallelCluster {version}"
    if built is None:
        yield subject.warning(
            "no tag parallelcluster:version",
            f"nodes need an image that ParallelCluster {version} has built, and this image has no such tag or name",
            f"{build}; if it is derived from such an image, add that tag",
        )
    elif built != version:
        reason = f"ParallelCluster {built} has built it, and nodes of {version} refuse to start from it"
        yield subject.error(built, reason, build)
    system = tags.get("parallelcluster:os")
    if system and system != p.os:
        yield subject.error(system, f"it is built for {system}, but pcluster.os is {p.os}", f"write os: {system}")


def evaluate_parallelcluster(target: CheckTarget, images: list[dict[str, Any]]) -> Found:
    p, version = target.env.pcluster, target.env.parallelcluster_version
    subject = target.about(f"ParallelCluster {version} on {p.os}", "pcluster", "version")
    if not images:
        yield subject.error(
            "none",
            f"AWS publishes no image of this version in {target.env.region}: it is not released there, or retired",
            f"write pcluster.version: {target.env.catalog.parallelcluster.default}, or choose another region",
        )
        return
    newest = max(images, key=lambda i: str(i.get("CreationDate", "")))
    if is_past(newest.get("DeprecationTime"), target.now):
        yield subject.warning("deprecated", "AWS no longer supports this version", "use a newer one")
    else:
        yield subject.ok(newest["ImageId"], f"published in {target.env.region}")


def fetch_parallelcluster(target: CheckTarget, aws: Aws) -> list[dict[str, Any]]:
    p, version = target.env.pcluster, target.env.parallelcluster_version
    name = f"aws-parallelcluster-{version}-{IMAGE_NAMES[p.os]}*"
    images: list[dict[str, Any]] = aws(
        "ec2:DescribeImages", Owners=["amazon"], Filters=[{"Name": "name", "Values": [name]}]
    )["Images"]
    return images


def _official_image(target: CheckTarget) -> bool:
    """Return whether any node uses ParallelCluster's own image."""
    p = target.env.pcluster
    own = p.custom_ami or (p.head.custom_ami and all(q.custom_ami for q in p.queues))
    return not own and p.os in IMAGE_NAMES


CHECKS: tuple[Check[Any], ...] = (
    images(_built_by_parallelcluster),
    Check("parallelcluster", ("ec2:DescribeImages",), fetch_parallelcluster, evaluate_parallelcluster, _official_image),
    Check("key-pair", ("ec2:DescribeKeyPairs",), fetch_key_pair, evaluate_key_pair, lambda t: bool(_key_name(t))),
    Check("head-address", ("ec2:DescribeAddresses",), fetch_address, evaluate_address, _has_address),
    *secrets.CHECKS,
)
