"""Clusters of each engine in the account: machine images that the environment names or AWS publishes, versions, names, and what the head node
and the function that starts nodes need."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from trainium_cdk.description.checks.live import keys
from trainium_cdk.description.checks.live.account import deployed_cluster, deploying_role, stack
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject, counted, join_words
from trainium_cdk.description.settings.inventory import MachineImage
from trainium_cdk.text import is_placeholder

RESERVE = "ec2:CreateCapacityReservation"
SUPPORT_ENDS = dt.timedelta(days=60)
"""A warning is given this long before the end of support of a Kubernetes version."""
IMAGE_NAMES = {
    "ubuntu2204": "ubuntu-2204-lts-hvm-x86_64",
    "ubuntu2404": "ubuntu-2404-lts-hvm-x86_64",
    "alinux2023": "amzn2023-hvm-x86_64",
}
"""Names of ParallelCluster's official images: aws-parallelcluster-<version>-<this>-<date> (pcluster 3.16)."""
_OFFICIAL = re.compile(r"aws-parallelcluster-(\d+\.\d+\.\d+)-")
_KEY_NAME: tuple[str, ...] = ("pcluster", "head", "ssh", "key_name")
Images = dict[str, dict[str, Any] | None]
"""Image id -> EC2's description; None where there is none."""
Further = Callable[[CheckTarget, dict[str, Any], Subject], Found]
"""Further findings about an image: target, EC2's description, the image as a subject."""


def images(further: Further = lambda *_: iter(())) -> Check[Images]:
    """The check of images.

    Args:
        further: findings that only one engine has. Default: none.
    """
    evaluate = partial(evaluate_images, further)
    return Check("images", ("ec2:DescribeImages",), fetch_images, evaluate, lambda t: bool(t.inventory.images()))


def evaluate_images(further: Further, target: CheckTarget, images: Images) -> Found:
    for wanted in target.inventory.images():
        subject, image = target.about(f"image {wanted.id}", *wanted.key), images[wanted.id]
        if image is None:
            yield subject.error(
                "none",
                f"it does not exist in {target.env.region}, or this account may not use it",
                "copy it to this region, share it with this account, or correct the id",
            )
            continue
        problems = [*_problems(target, wanted, image, subject), *further(target, image, subject)]
        yield from problems or [subject.ok(image["State"], str(image.get("Name", "")))]


def _problems(target: CheckTarget, wanted: MachineImage, image: dict[str, Any], subject: Subject) -> Found:
    if image["State"] != "available":
        yield subject.error(image["State"], "it cannot be used in this state", "wait, or use another image")
    if image["Architecture"] != "x86_64":
        yield subject.error(image["Architecture"], "Trainium nodes are x86_64", "use an x86_64 image")
    disks = {m["DeviceName"]: m.get("Ebs", {}) for m in image.get("BlockDeviceMappings", [])}
    root: dict[str, Any] = disks.get(image.get("RootDeviceName"), {})
    if (size := int(root.get("VolumeSize", 0))) > wanted.root_volume_gib:
        reason = f"its root volume is larger than root_volume_gib: {wanted.root_volume_gib}"
        yield subject.error(f"{size} GiB", reason, f"write root_volume_gib: {size} or more")
    if is_past(image.get("DeprecationTime"), target.now):
        yield subject.warning("deprecated", "its owner no longer maintains it", "build a new one")


def fetch_images(target: CheckTarget, aws: Aws) -> Images:
    wanted = sorted({w.id for w in target.inventory.images()})
    return {image: aws.first("ec2:DescribeImages", "Images", ImageIds=[image]) for image in wanted}


def fetch_public_image(target: CheckTarget, aws: Aws) -> str | None:
    """The image that AWS publishes for the nodes; None if there is none."""
    return aws.parameter(target.inventory.public_parameters()[0])


def is_past(moment: Any, now: dt.datetime) -> bool:
    return bool(moment) and dt.datetime.fromisoformat(str(moment)) < now


def evaluate_kubernetes(target: CheckTarget, versions: dict[str, dict[str, Any]]) -> Found:
    version = target.env.kubernetes_version
    kubernetes = target.about(f"Kubernetes {version}", "eks", "version")
    release = versions.get(version)
    status = (release or {}).get("versionStatus") or (release or {}).get("status", "").upper().replace("-", "_")
    offered = join_words(v for v, f in sorted(versions.items()) if f.get("versionStatus") == "STANDARD_SUPPORT")
    if release is None or status == "UNSUPPORTED":
        yield kubernetes.error(
            "unsupported" if release else "none",
            f"EKS does not create clusters of this version in {target.env.region}",
            f"write eks.version: one of {offered}",
        )
        return
    ends, last = release.get("endOfStandardSupportDate"), release.get("endOfExtendedSupportDate")
    if status == "EXTENDED_SUPPORT":
        reason = f"the cluster costs more, and support ends {_day(last)}"
        yield kubernetes.warning("extended support", reason, f"write eks.version: one of {offered}")
    elif ends and ends - target.now < SUPPORT_ENDS:
        reason = f"it ends {_day(ends)}, and the cluster costs more after that"
        yield kubernetes.warning("standard support", reason, f"use {offered}")
    else:
        yield kubernetes.ok("standard support", f"until {_day(ends)}")


def _day(moment: dt.datetime | None) -> str:
    return moment.date().isoformat() if moment else "on an unknown date"


def addons(target: CheckTarget) -> dict[str, str]:
    """The add-ons with a fixed version, from the catalogue or the environment. EKS chooses the version of the
    others."""
    version = target.env.kubernetes_version
    wanted = target.env.eks_addons
    pinned = {n: a.versions[version] for n, a in wanted.items() if version in a.versions}
    return pinned | {n: v for n, v in target.env.eks.addon_versions.items() if n in wanted}


def evaluate_addons(target: CheckTarget, offered: dict[str, list[str]]) -> Found:
    kubernetes, wanted = target.env.kubernetes_version, addons(target)
    wrong = {name: v for name, v in wanted.items() if v not in offered.get(name, [])}
    for name, version in wrong.items():
        known = offered.get(name, [])
        fix = f"write eks.addon_versions: {{{name}: {known[0]}}}" if known else "choose another Kubernetes version"
        addon = target.about(f"add-on {name}", "eks", "addon_versions", name)
        yield addon.error(version, f"EKS does not offer this version for Kubernetes {kubernetes}", fix)
    if not wrong:
        yield target.about("add-ons").ok(join_words(wanted), f"each in a version for Kubernetes {kubernetes}")


def fetch_addons(target: CheckTarget, aws: Aws) -> dict[str, list[str]]:
    offered: dict[str, list[str]] = {}
    for name in addons(target):
        answer = aws("eks:DescribeAddonVersions", addonName=name, kubernetesVersion=target.env.kubernetes_version)
        offered[name] = [v["addonVersion"] for a in answer["addons"] for v in a["addonVersions"]]
    return offered


def evaluate_node_image(target: CheckTarget, image: str | None) -> Found:
    facts, version = target.env.catalog.eks, target.env.kubernetes_version
    published = target.about(f"image {facts.ami_type}", "eks", "version")
    if image:
        yield published.ok(image, f"published for Kubernetes {version}")
        return
    yield published.error(
        "none",
        f"AWS publishes no Neuron image for Kubernetes {version} in {target.env.region}",
        f"write eks.version: {facts.default}, or choose another region",
    )


def reserves(target: CheckTarget) -> bool:
    """Return whether the function that starts nodes reserves them first."""
    scaled = target.env.eks.plugins.autoscaler and target.env.eks.scaling.reserve
    return scaled and any(n.queue.capacity_type == "on-demand" and not n.resource.reservation for n in target.nodes)


def evaluate_reserving(target: CheckTarget, decision: dict[str, Any] | None) -> Found:
    """Report whether the account may reserve instances, and the cost of a reservation."""
    reserving = target.about(RESERVE, "eks", "scaling", "reserve")
    if decision is None:
        yield reserving.info(
            "not checked",
            "the CDK's bootstrap, whose role is asked about, is missing",
            "bootstrap, and run trn check again",
        )
    elif not decision.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations", True):
        why = "a policy of the organization (SCP) forbids it: no node would start, because all nodes of a job are reserved first"
        yield reserving.error(
            "denied",
            why,
            "have it allowed, or write eks.scaling.reserve: false: then a part of a job's nodes may start",
        )
    else:
        most = target.env.eks.scaling.capacity_minutes
        text = f"until its nodes have launched, usually below a minute, a reservation is charged like them; it ends automatically after {most} minutes"
        yield reserving.ok("allowed", f"{text}, or up to an hour later")


def fetch_reserving(target: CheckTarget, aws: Aws) -> dict[str, Any] | None:
    """IAM's decision for the role with which the CDK deploys: only what the organization says counts, and that is the same for every role of
    the account."""
    answer = aws.find("iam:SimulatePrincipalPolicy", PolicySourceArn=deploying_role(target), ActionNames=[RESERVE])
    return answer["EvaluationResults"][0] if answer else None


EKS_CHECKS: tuple[Check[Any], ...] = (
    images(),
    Check(
        "kubernetes",
        ("eks:DescribeClusterVersions",),
        lambda _, aws: {v["clusterVersion"]: v for v in aws("eks:DescribeClusterVersions")["clusterVersions"]},
        evaluate_kubernetes,
    ),
    Check("addons", ("eks:DescribeAddonVersions",), fetch_addons, evaluate_addons),
    Check("node-image", ("ssm:GetParameter",), fetch_public_image, evaluate_node_image),
    Check("reserving", ("iam:SimulatePrincipalPolicy",), fetch_reserving, evaluate_reserving, reserves),
)


def _key_name(target: CheckTarget) -> str | None:
    """The key pair that the environment names. One that the stack creates needs no check."""
    ssh = target.env.pcluster.head.ssh
    return ssh.key_name if ssh else None


def evaluate_key_pair(target: CheckTarget, kind: str | None) -> Found:
    name, os = _key_name(target), target.env.pcluster.os
    pair = target.about(f"key pair {name}", *_KEY_NAME)
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


PARALLELCLUSTER_CHECKS: tuple[Check[Any], ...] = (
    images(_built_by_parallelcluster),
    Check("parallelcluster", ("ec2:DescribeImages",), fetch_parallelcluster, evaluate_parallelcluster, _official_image),
    Check("key-pair", ("ec2:DescribeKeyPairs",), fetch_key_pair, evaluate_key_pair, lambda t: bool(_key_name(t))),
    Check("head-address", ("ec2:DescribeAddresses",), fetch_address, evaluate_address, _has_address),
    *keys.SECRET_CHECKS,
)


def evaluate_image(target: CheckTarget, image: str | None) -> Found:
    subject = target.about("PCS-ready image", "pcs", "os")
    if image:
        yield subject.ok(
            image, "the newest: nodes are replaced when a deployment finds another; pcs.custom_ami keeps one"
        )
    else:
        reason = f"AWS publishes no PCS-ready image of {target.env.pcs.os} in {target.env.region}"
        yield subject.error("none", reason, "choose another region, or give pcs.custom_ami")


def evaluate_clusters(target: CheckTarget, names: list[str]) -> Found:
    """`names`: of the other clusters in the region."""
    if target.cluster in names:
        subject = target.about(f"PCS cluster {target.cluster}", "pcs", "cluster_name")
        yield subject.error("exists", "a cluster of this name already exists", "write another pcs.cluster_name")
    limit = target.env.catalog.pcs.limits.clusters
    subject = target.about("quota PCS clusters")
    reason = f"{counted(len(names), 'other cluster')} in {target.env.region}"
    if len(names) < limit:
        yield subject.ok(limit, reason)
    else:
        fix = "delete one, or request an increase of the quota Clusters of AWS Parallel Computing Service"
        yield subject.warning(limit, f"{reason}, and this is the default limit", fix)


def fetch_clusters(target: CheckTarget, aws: Aws) -> list[str]:
    names = [str(c["name"]) for c in aws("pcs:ListClusters").get("clusters", [])]
    deployed = deployed_cluster(stack(target, aws))
    return [name for name in names if name != deployed]


PCS_CHECKS: tuple[Check[Any], ...] = (
    images(),
    Check(
        "pcs-image",
        ("ssm:GetParameter",),
        fetch_public_image,
        evaluate_image,
        lambda t: bool(t.inventory.public_parameters()),
    ),
    Check("pcs-clusters", ("pcs:ListClusters", "cloudformation:DescribeStacks"), fetch_clusters, evaluate_clusters),
)
