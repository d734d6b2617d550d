"""Versions of EKS: whether it offers them in the region, and how long it supports them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.images import fetch_public_image, images
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, join_words
from trainium_cdk.description.checks.live.policy import deploying_role

RESERVE = "ec2:CreateCapacityReservation"
SUPPORT_ENDS = dt.timedelta(days=60)
"""A warning is given this long before the end of support."""


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


CHECKS: tuple[Check[Any], ...] = (
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
