"""Machine images that the environment names: whether they exist in the region and can be used."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, Finding, Found, Target
from trainium_cdk.settings.inventory import Image

Images = dict[str, dict[str, Any] | None]
"""Image id -> EC2's description; None where there is none."""
Further = Callable[[Target, dict[str, Any], str, str], Iterator[Finding]]
"""Further findings about an image: target, EC2's description, what was checked, where it is set."""


def _none(*_: Any) -> Found:
    return iter(())


def images(further: Further = _none) -> Check[Images]:
    """The check of images.

    Args:
        further: findings that only one engine has. Default: none.
    """
    evaluate = partial(evaluate_images, further)
    return Check("images", ("ec2:DescribeImages",), fetch_images, evaluate, lambda t: bool(t.inventory.images()))


def evaluate_images(further: Further, target: Target, images: Images) -> Found:
    for wanted in target.inventory.images():
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
        problems = [*_problems(target, wanted, image, what, where), *further(target, image, what, where)]
        yield from problems or [Finding("ok", what, str(image["State"]), str(image.get("Name", "")), where=where)]


def _problems(target: Target, wanted: Image, image: dict[str, Any], what: str, where: str) -> Found:
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
    if is_past(image.get("DeprecationTime"), target.now):
        yield Finding("warning", what, "deprecated", "its owner no longer maintains it", "build a new one", where)


def fetch_images(target: Target, aws: Aws) -> Images:
    images: Images = {}
    for image in sorted({w.id for w in target.inventory.images()}):
        answer = aws.find("ec2:DescribeImages", ImageIds=[image])
        images[image] = (answer["Images"] or [None])[0] if answer else None
    return images


def is_past(moment: Any, now: dt.datetime) -> bool:
    return bool(moment) and dt.datetime.fromisoformat(str(moment)) < now
