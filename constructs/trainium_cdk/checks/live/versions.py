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
"""Names of ParallelCluster's official images: aws-parallelcluster-<version>-<this>-<date> (pcluster 3.16)."""
_PCLUSTER, _AMAZON_EKS = "parallelcluster", "amazon-eks"
_OFFICIAL = re.compile(r"aws-parallelcluster-(\d+\.\d+\.\d+)-")
SUPPORT_ENDS = dt.timedelta(days=60)
"""A warning is given this long before the end of support."""


def evaluate_images(target: Target, images: dict[str, dict[str, Any] | None]) -> Found:
    for wanted in target.of.images(target.env):
        what, where = f"image {wanted.id}", target.where(wanted.key)
        image = images[wanted.id]
        if image is None:
            yield Finding(
                "error",
                what,
                "none",
                f"it does not exist in {target.env.region}, or this account may not use it",
                "copy it to this region, share it with this account, or correct the id",
                where,
            )
            continue
        problems = list(_image_problems(target, wanted, image, what, where))
        yield from problems or [Finding("ok", what, str(image["State"]), str(image.get("Name", "")), where=where)]


def _image_problems(target: Target, wanted: Image, image: dict[str, Any], what: str, where: str) -> Found:
    if image["State"] != "available":
        yield Finding(
            "error", what, image["State"], "it cannot be used in this state", "wait, or use another image", where
        )
    if image["Architecture"] != "x86_64":
        yield Finding("error", what, image["Architecture"], "Trainium nodes are x86_64", "use an x86_64 image", where)
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
        yield from _built_by_parallelcluster(target, image, what, where)
    if _past(image.get("DeprecationTime"), target.now):
        yield Finding("warning", what, "deprecated", "its owner no longer maintains it", "build a new one", where)


def _built_by_parallelcluster(target: Target, image: dict[str, Any], what: str, where: str) -> Found:
    """Nodes need an image that ParallelCluster has built, in its own version and for the cluster's operating system."""
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
            f"nodes need an image that ParallelCluster {version} has built, and this image has no such tag or name",
            f"{build}; if it is derived from such an image, add that tag",
            where,
        )
    elif built != version:
        yield Finding(
            "error",
            what,
            built,
            f"ParallelCluster {built} has built it, and nodes of {version} refuse to start from it",
            build,
            where,
        )
    system = tags.get("parallelcluster:os")
    if system and system != p.os:
        yield Finding(
            "error", what, system, f"it is built for {system}, but pcluster.os is {p.os}", f"write os: {system}", where
        )


def fetch_images(target: Target, aws: Aws) -> dict[str, dict[str, Any] | None]:
    images: dict[str, dict[str, Any] | None] = {}
    for image in sorted({w.id for w in target.of.images(target.env)}):
        answer = aws.find("ec2:DescribeImages", ImageIds=[image])
        images[image] = (answer["Images"] or [None])[0] if answer else None
    return images


def evaluate_parallelcluster(target: Target, images: list[dict[str, Any]]) -> Found:
    p = target.env.pcluster
    version = p.version or target.env.catalog.parallelcluster.default
    what, where = f"ParallelCluster {version} on {p.os}", target.where(("pcluster", "version"))
    if not images:
        yield Finding(
            "error",
            what,
            "none",
            f"AWS publishes no image of this version in {target.env.region}: it is not released there, or retired",
            f"write pcluster.version: {target.env.catalog.parallelcluster.default}, or choose another region",
            where,
        )
        return
    newest = max(images, key=lambda i: str(i.get("CreationDate", "")))
    if _past(newest.get("DeprecationTime"), target.now):
        yield Finding("warning", what, "deprecated", "AWS no longer supports this version", "use a newer one", where)
    else:
        yield Finding("ok", what, newest["ImageId"], f"published in {target.env.region}")


def fetch_parallelcluster(target: Target, aws: Aws) -> list[dict[str, Any]]:
    p = target.env.pcluster
    version = p.version or target.env.catalog.parallelcluster.default
    name = f"aws-parallelcluster-{version}-{IMAGE_NAMES[p.os]}*"
    images: list[dict[str, Any]] = aws(
        "ec2:DescribeImages", Owners=["amazon"], Filters=[{"Name": "name", "Values": [name]}]
    )["Images"]
    return images


def _past(moment: Any, now: dt.datetime) -> bool:
    return bool(moment) and dt.datetime.fromisoformat(str(moment)) < now


def evaluate_kubernetes(target: Target, versions: dict[str, dict[str, Any]]) -> Found:
    version = target.env.kubernetes_version
    what, where = f"Kubernetes {version}", target.where(("eks", "version"))
    release = versions.get(version)
    status = (release or {}).get("versionStatus") or (release or {}).get("status", "").upper().replace("-", "_")
    offered = listed(v for v, f in sorted(versions.items()) if f.get("versionStatus") == "STANDARD_SUPPORT")
    if release is None or status == "UNSUPPORTED":
        yield Finding(
            "error",
            what,
            "unsupported" if release else "none",
            f"EKS does not create clusters of this version in {target.env.region}",
            f"write eks.version: one of {offered}",
            where,
        )
        return
    ends, last = release.get("endOfStandardSupportDate"), release.get("endOfExtendedSupportDate")
    if status == "EXTENDED_SUPPORT":
        yield Finding(
            "warning",
            what,
            "extended support",
            f"the cluster costs more, and support ends {_day(last)}",
            f"write eks.version: one of {offered}",
            where,
        )
    elif ends and ends - target.now < SUPPORT_ENDS:
        yield Finding(
            "warning",
            what,
            "standard support",
            f"it ends {_day(ends)}, and the cluster costs more after that",
            f"use {offered}",
            where,
        )
    else:
        yield Finding("ok", what, "standard support", f"until {_day(ends)}")


def fetch_kubernetes(_: Target, aws: Aws) -> dict[str, dict[str, Any]]:
    return {v["clusterVersion"]: v for v in aws("eks:DescribeClusterVersions")["clusterVersions"]}


def _day(moment: dt.datetime | None) -> str:
    return moment.date().isoformat() if moment else "on an unknown date"


def addons(target: Target) -> dict[str, str]:
    """The add-ons with a fixed version, from the catalogue or the environment. EKS chooses the version of the
    others."""
    version = target.env.kubernetes_version
    wanted = target.env.eks_addons
    pinned = {n: a.versions[version] for n, a in wanted.items() if version in a.versions}
    return pinned | {n: v for n, v in target.env.eks.addon_versions.items() if n in wanted}


def evaluate_addons(target: Target, offered: dict[str, list[str]]) -> Found:
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
        answer = aws("eks:DescribeAddonVersions", addonName=name, kubernetesVersion=target.env.kubernetes_version)
        offered[name] = [v["addonVersion"] for a in answer["addons"] for v in a["addonVersions"]]
    return offered


def evaluate_node_image(target: Target, image: str | None) -> Found:
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
    answer = aws.find("ssm:GetParameter", Name=name)
    return str(answer["Parameter"]["Value"]) if answer else None


def _is_eks(target: Target) -> bool:
    return _AMAZON_EKS in target.of.services


def _official_image(target: Target) -> bool:
    """Whether any node uses ParallelCluster's own image."""
    p = target.env.pcluster
    own = p.custom_ami or (p.head.custom_ami and all(q.custom_ami for q in p.queues))
    return _PCLUSTER in target.of.services and not own and p.os in IMAGE_NAMES


CHECKS: tuple[Check[Any], ...] = (
    Check("images", ("ec2:DescribeImages",), fetch_images, evaluate_images, lambda t: bool(t.of.images(t.env))),
    Check("parallelcluster", ("ec2:DescribeImages",), fetch_parallelcluster, evaluate_parallelcluster, _official_image),
    Check("kubernetes", ("eks:DescribeClusterVersions",), fetch_kubernetes, evaluate_kubernetes, _is_eks),
    Check("addons", ("eks:DescribeAddonVersions",), fetch_addons, evaluate_addons, _is_eks),
    Check("node-image", ("ssm:GetParameter",), fetch_node_image, evaluate_node_image, _is_eks),
)
