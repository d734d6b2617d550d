"""Machine images that the environment names: whether they exist in the region and can be used."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject
from trainium_cdk.description.settings.inventory import MachineImage

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
