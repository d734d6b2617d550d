"""Images and versions: whether they exist in the region, and how long they are supported."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, Finding, Found, Target, listed
from trainium_cdk.engines import Image

IMAGE_NAMES = {
    "ubuntu2204": "ubuntu-2204-lts-hvm-x86_64",
    "ubuntu2404": "ubuntu-2404-lts-hvm-x86_64",
    "alinux2023": "amzn2023-hvm-x86_64",
}
"""How ParallelCluster's official images are called: aws-parallelcluster-<version>-<this>-<date> (pcluster 3.16)."""
_PCLUSTER, _AMAZON_EKS = "parallelcluster", "amazon-eks"
_OFFICIAL = re.compile(r"aws-parallelcluster-(\d+\.\d+\.\d+)-")
SUPPORT_ENDS = dt.timedelta(days=60)
"""So long before the end of support it is worth knowing."""


def judge_images(target: Target, found: dict[str, dict[str, Any] | None]) -> Found:
    for wanted in target.of.images(target.env):
        what, where = f"image {wanted.id}", target.where(wanted.key)
        image = found[wanted.id]
        if image is None:
            yield Finding(
                "error",
                what,
                "none",
                f"there is no such image in {target.env.region} that this account may use",
                "copy it there, share it with this account, or correct the id",
                where,
            )
            continue
        wrong = list(_wrong_image(target, wanted, image, what, where))
        yield from wrong or [Finding("ok", what, str(image["State"]), str(image.get("Name", "")), where=where)]


def _wrong_image(target: Target, wanted: Image, image: dict[str, Any], what: str, where: str) -> Found:
    if image["State"] != "available":
        yield Finding("error", what, image["State"], "it cannot be used in this state", "wait, or name another", where)
    if image["Architecture"] != "x86_64":
        yield Finding("error", what, image["Architecture"], "Trainium nodes are x86_64", "name an x86_64 image", where)
    disks = {m["DeviceName"]: m.get("Ebs", {}) for m in image.get("BlockDeviceMappings", [])}
    root: dict[str, Any] = disks.get(image.get("RootDeviceName"), {})
    if (size := int(root.get("VolumeSize", 0))) > wanted.root_volume_gib:
        yield Finding(
            "error",
            what,
            f"{size} GiB",
            f"its root volume is larger than root_volume_gib: {wanted.root_volume_gib}",
            f"write root_volume_gib: {size} or more",
            where,
        )
    if _PCLUSTER in target.of.services:
        yield from _not_parallelclusters(target, image, what, where)
    if _past(image.get("DeprecationTime"), target.now):
        yield Finding(
            "warning", what, "deprecated", "its owner does not look after it any more", "build a new one", where
        )


def _not_parallelclusters(target: Target, image: dict[str, Any], what: str, where: str) -> Found:
    """Nodes start from an image that ParallelCluster has built, of its own version and the cluster's system."""
    p = target.env.pcluster
    version = p.version or target.env.catalog.parallelcluster.default
    tags = {t["Key"]: t["Value"] for t in image.get("Tags", [])}
    official = _OFFICIAL.match(str(image.get("Name", "")))
    built = tags.get("parallelcluster:version") or (official and official[1])
    build = f"build one: `trn image bake`, or pcluster build-image of ParallelCluster {version}"
    if built is None:
        yield Finding(
            "warning",
            what,
            "no tag parallelcluster:version",
            f"nodes start only from an image that ParallelCluster {version} has built; nothing says that of this one",
            f"{build}; or, where it was made from one, give it that tag",
            where,
        )
    elif built != version:
        yield Finding(
            "error",
            what,
            built,
            f"ParallelCluster {built} has built it, and {version} refuses it at its start",
            build,
            where,
        )
    system = tags.get("parallelcluster:os")
    if system and system != p.os:
        yield Finding(
            "error", what, system, f"it is built for {system}, but pcluster.os is {p.os}", f"write os: {system}", where
        )


def fetch_images(target: Target, aws: Aws) -> dict[str, dict[str, Any] | None]:
    found: dict[str, dict[str, Any] | None] = {}
    for image in sorted({w.id for w in target.of.images(target.env)}):
        answer = aws.find("ec2:DescribeImages", ImageIds=[image])
        found[image] = (answer["Images"] or [None])[0] if answer else None
    return found


def judge_parallelcluster(target: Target, images: list[dict[str, Any]]) -> Found:
    p = target.env.pcluster
    version = p.version or target.env.catalog.parallelcluster.default
    what, where = f"ParallelCluster {version} on {p.os}", target.where(("pcluster", "version"))
    if not images:
        yield Finding(
            "error",
            what,
            "none",
            f"AWS publishes no image of it in {target.env.region}: not released there, or retired",
            f"write pcluster.version: {target.env.catalog.parallelcluster.default}, or choose another region",
            where,
        )
        return
    newest = max(images, key=lambda i: str(i.get("CreationDate", "")))
    if _past(newest.get("DeprecationTime"), target.now):
        yield Finding(
            "warning", what, "deprecated", "AWS does not support this version any more", "use a newer one", where
        )
    else:
        yield Finding("ok", what, newest["ImageId"], f"published in {target.env.region}")


def fetch_parallelcluster(target: Target, aws: Aws) -> list[dict[str, Any]]:
    p = target.env.pcluster
    version = p.version or target.env.catalog.parallelcluster.default
    name = f"aws-parallelcluster-{version}-{IMAGE_NAMES[p.os]}*"
    found: list[dict[str, Any]] = aws(
        "ec2:DescribeImages", Owners=["amazon"], Filters=[{"Name": "name", "Values": [name]}]
    )["Images"]
    return found


def _past(moment: Any, now: dt.datetime) -> bool:
    return bool(moment) and dt.datetime.fromisoformat(str(moment)) < now


def judge_kubernetes(target: Target, versions: dict[str, dict[str, Any]]) -> Found:
    version = target.env.kubernetes_version
    what, where = f"Kubernetes {version}", target.where(("eks", "version"))
    found = versions.get(version)
    status = (found or {}).get("versionStatus") or (found or {}).get("status", "").upper().replace("-", "_")
    offered = listed(v for v, f in sorted(versions.items()) if f.get("versionStatus") == "STANDARD_SUPPORT")
    if found is None or status == "UNSUPPORTED":
        yield Finding(
            "error",
            what,
            "unsupported" if found else "none",
            f"EKS makes no such cluster in {target.env.region}",
            f"write eks.version: one of {offered}",
            where,
        )
        return
    ends, last = found.get("endOfStandardSupportDate"), found.get("endOfExtendedSupportDate")
    if status == "EXTENDED_SUPPORT":
        yield Finding(
            "warning",
            what,
            "extended support",
            f"every hour of the cluster costs more, and support ends {_day(last)}",
            f"write eks.version: one of {offered}",
            where,
        )
    elif ends and ends - target.now < SUPPORT_ENDS:
        yield Finding(
            "warning",
            what,
            "standard support",
            f"it ends {_day(ends)}; then the cluster costs more",
            f"use {offered}",
            where,
        )
    else:
        yield Finding("ok", what, "standard support", f"until {_day(ends)}")


def fetch_kubernetes(_: Target, aws: Aws) -> dict[str, dict[str, Any]]:
    return {v["clusterVersion"]: v for v in aws("eks:DescribeClusterVersions")["clusterVersions"]}


def _day(moment: dt.datetime | None) -> str:
    return moment.date().isoformat() if moment else "at a day that EKS does not tell"


def addons(target: Target) -> dict[str, str]:
    """The pinned add-ons of the cluster and their versions, the environment's own included; EKS chooses those of the others."""
    version = target.env.kubernetes_version
    wanted = target.env.eks_addons
    pinned = {n: a.versions[version] for n, a in wanted.items() if version in a.versions}
    return pinned | {n: v for n, v in target.env.eks.addon_versions.items() if n in wanted}


def judge_addons(target: Target, offered: dict[str, list[str]]) -> Found:
    kubernetes, wanted = target.env.kubernetes_version, addons(target)
    wrong = {name: v for name, v in wanted.items() if v not in offered.get(name, [])}
    for name, version in wrong.items():
        known = offered.get(name, [])
        fix = f"write eks.addon_versions: {{{name}: {known[0]}}}" if known else "choose another Kubernetes version"
        yield Finding(
            "error",
            f"add-on {name}",
            version,
            f"EKS does not offer this version for Kubernetes {kubernetes}",
            fix,
            target.where(("eks", "addon_versions", name)),
        )
    if not wrong:
        yield Finding("ok", "add-ons", listed(wanted), f"each in a version for Kubernetes {kubernetes}")


def fetch_addons(target: Target, aws: Aws) -> dict[str, list[str]]:
    offered: dict[str, list[str]] = {}
    for name in addons(target):
        found = aws("eks:DescribeAddonVersions", addonName=name, kubernetesVersion=target.env.kubernetes_version)
        offered[name] = [v["addonVersion"] for a in found["addons"] for v in a["addonVersions"]]
    return offered


def judge_node_image(target: Target, image: str | None) -> Found:
    facts, version = target.env.catalog.eks, target.env.kubernetes_version
    if image:
        yield Finding("ok", f"image {facts.ami_type}", image, f"published for Kubernetes {version}")
        return
    yield Finding(
        "error",
        f"image {facts.ami_type}",
        "none",
        f"AWS publishes no Neuron image for Kubernetes {version} in {target.env.region}",
        f"write eks.version: {facts.default}, or choose another region",
        target.where(("eks", "version")),
    )


def fetch_node_image(target: Target, aws: Aws) -> str | None:
    name = target.env.catalog.eks.ami_parameter.format(version=target.env.kubernetes_version)
    found = aws.find("ssm:GetParameter", Name=name)
    return str(found["Parameter"]["Value"]) if found else None


def _is_eks(target: Target) -> bool:
    return _AMAZON_EKS in target.of.services


def _official_image(target: Target) -> bool:
    """Whether some node has ParallelCluster's own image."""
    p = target.env.pcluster
    own = p.custom_ami or (p.head.custom_ami and all(q.custom_ami for q in p.queues))
    return _PCLUSTER in target.of.services and not own and p.os in IMAGE_NAMES


CHECKS: tuple[Check[Any], ...] = (
    Check("images", ("ec2:DescribeImages",), fetch_images, judge_images, lambda t: bool(t.of.images(t.env))),
    Check("parallelcluster", ("ec2:DescribeImages",), fetch_parallelcluster, judge_parallelcluster, _official_image),
    Check("kubernetes", ("eks:DescribeClusterVersions",), fetch_kubernetes, judge_kubernetes, _is_eks),
    Check("addons", ("eks:DescribeAddonVersions",), fetch_addons, judge_addons, _is_eks),
    Check("node-image", ("ssm:GetParameter",), fetch_node_image, judge_node_image, _is_eks),
)
