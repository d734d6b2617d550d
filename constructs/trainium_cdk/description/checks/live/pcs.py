"""AWS PCS in the account: its image, and the clusters that exist already."""

from __future__ import annotations

from typing import Any

from trainium_cdk.description.checks.live.account import deployed_cluster, stack
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.images import fetch_public_image, images
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, counted


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


CHECKS: tuple[Check[Any], ...] = (
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
