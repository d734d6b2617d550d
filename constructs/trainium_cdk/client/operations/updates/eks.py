"""Changes that EKS rejects: incompatible versions, and kinds of updates that it takes one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_cdk.client.operations.updates.change import Change
from trainium_cdk.client.operations.updates.leaves import references
from trainium_cdk.description.catalog.updates import updates

_CLUSTER, _GROUP = "AWS::EKS::Cluster", "AWS::EKS::Nodegroup"
STACK_TAGS = "StackTags"
"""Stands among a node group's properties for the tags that CloudFormation gives it: the stack's."""
_VERSIONS = {"Version", "ReleaseVersion", "LaunchTemplate"}
Resources = Mapping[str, Mapping[str, Any]]


def with_stack_tags(template: dict[str, Any], tags: Mapping[str, str]) -> dict[str, Any]:
    """The template, in which each node group has the stack's tags too, unless it has one of the same name."""
    for resource in (template.get("Resources") or {}).values():
        if resource.get("Type") == _GROUP:
            own = (resource.get("Properties") or {}).get("Tags") or {}
            if others := {key: value for key, value in tags.items() if key not in own}:
                resource["Properties"] = {**resource.get("Properties", {}), STACK_TAGS: others}
    return template


def pairs(kind: str, changed: Iterable[str]) -> tuple[str, str] | None:
    """Return why EKS refuses to change these properties of a node group at once, and the fix. None if it does not, and for other types.

    "Version and ReleaseVersion updates cannot be combined with other updates": tags (aws-cdk issue 16644), sizes, labels and the rest of its
    configuration (containers-roadmap issue 1258). A version of the launch template counts as one of the former: UpdateNodegroupVersion takes all
    three (EKS API reference).
    """
    names = set(changed) if kind == _GROUP else set()
    versions, others = (" and ".join(sorted(step)) for step in (names & _VERSIONS, names - _VERSIONS))
    if not (versions and others):
        return None
    meaning = f"EKS does not take updates of {versions} and of {others} together: the deployment is rolled back"
    if STACK_TAGS not in names:
        return meaning, f"deploy {others} first, with {versions} as it was; then deploy all"
    return meaning, (
        "give the stack its tags first, with the template that it has: aws cloudformation update-stack --use-previous-template "
        "--capabilities CAPABILITY_NAMED_IAM --stack-name STACK --tags Key=KEY,Value=VALUE ... (all of them). Then compare again. In your own "
        "app, give tags with Tags.of, and set @aws-cdk/core:explicitStackTags in cdk.json: new ones then need no such step"
    )


def skew(old: Resources, new: Resources, names: Mapping[str, str]) -> Iterator[Change]:
    """Versions that EKS rejects: a control plane that is downgraded or skips one, nodes ahead of it or too far behind."""
    rules = updates().kubernetes
    for key, cluster in new.items():
        if cluster["Type"] != _CLUSTER:
            continue
        version = _minor(cluster)
        before = _minor(old.get(key, {}))
        if version is None:
            continue
        if before is not None and not 0 <= version - before <= rules.minors_at_once:
            step = before + (rules.minors_at_once if version > before else 0)
            yield _version_change(
                key, cluster, names, before, version,
                "EKS upgrades a control plane by one minor version at a time, and never downgrades it",
                f"deploy {_version(step)} first" if version > before else f"stay at {_version(before)}",
            )  # fmt: skip
        for group, resource in new.items():
            if resource["Type"] != _GROUP or not _belongs(resource, key):
                continue
            nodes, nodes_before = _minor(resource), _minor(old.get(group, {}))
            if nodes is None:
                continue
            if nodes > version:
                yield _version_change(
                    group, resource, names, nodes_before, nodes,
                    f"nodes may not be ahead of their control plane, which is {_version(version)}",
                    f"upgrade the cluster to {_version(nodes)} first",
                )  # fmt: skip
            elif version - nodes > rules.minors_behind:
                yield _version_change(
                    group, resource, names, nodes_before, nodes,
                    f"nodes may be at most {rules.minors_behind} minor versions behind their control plane, which is "
                    f"{_version(version)}",
                    f"give the node group {_version(version)}",
                )  # fmt: skip


def _version_change(
    key: str, resource: Mapping[str, Any], names: Mapping[str, str], old: int | None, new: int, why: str, advice: str
) -> Change:
    was = _version(old) if old is not None and old != new else ""
    return Change("refused", key, resource["Type"], names.get(key, key), "Version", was, _version(new), why, advice)


def _minor(resource: Mapping[str, Any]) -> int | None:
    """33 of 1.33; None if no version is given (AWS then chooses)."""
    version = (resource.get("Properties") or {}).get("Version")
    major, _, minor = str(version).partition(".")
    return int(minor) if major == "1" and minor.isdecimal() else None


def _version(minor: int) -> str:
    return f"1.{minor}"


def _belongs(group: Mapping[str, Any], cluster: str) -> bool:
    name = (group.get("Properties") or {}).get("ClusterName")
    return not isinstance(name, Mapping) or any(ref == cluster for ref, _ in references(name))
