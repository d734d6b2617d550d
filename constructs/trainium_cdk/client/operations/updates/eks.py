"""Changes that EKS rejects: incompatible versions, and kinds of updates that it takes one at a time. And Kubernetes objects that leave a stack:
what the function of `Custom::TrnOwnedObjects` removes, what stays, and which jobs notice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainium_cdk.client.operations.updates.change import RENEWED, Change, Level, references
from trainium_cdk.description.catalog.updates import updates

_CLUSTER, _GROUP = "AWS::EKS::Cluster", "AWS::EKS::Nodegroup"
STACK_TAGS = "StackTags"
"""Stands among a node group's properties for the tags that CloudFormation gives it: the stack's."""
_VERSIONS = {"Version", "ReleaseVersion", "LaunchTemplate"}
OBJECTS = "Custom::TrnOwnedObjects"
Verdict = tuple[Level, str, str, str, str, str]
"""Level, meaning, advice, property, old and new value: of a `Change`."""
_QUEUES = (
    "they are removed, and their nodes go to the other queues. Jobs that run in them continue, but others may take their nodes back; "
    "without quota they stay until these jobs end. Jobs that wait in them never start"
)
_GROUP_JOBS = (
    "cancel the waiting jobs, or submit them to another queue; jobs on a node group that is removed end with its nodes"
)
_NAMESPACES = (
    "they are removed, unless they have jobs (ended ones too) or volumes of users. Such a namespace stays with all that is in it but its "
    "queues; it is removed within the hour after they are deleted"
)
_RENAMED = (
    "the volume and its claim are named by the file system: there are new ones, and the old ones are removed. A claim that a job uses stays "
    "until the job ends"
)
_RESUBMIT = "submit waiting jobs again after the deployment: they name the old claim"
_FOLDER = "the namespace gets its own folder on EFS, and its jobs do not see the files that are on the file system now; none is deleted"
_MOVE = (
    "when all jobs have ended, move the files with examples/kubernetes/own-folder.yaml, then deploy (docs/guides/change.md), and submit waiting "
    "jobs again: they name the old claim"
)
_GONE = "they are removed; files are not deleted with them. A claim that a job uses stays until the job ends"
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


def consequences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Verdict]:
    """List the consequences of an update of the list of objects.

    Args:
        new: with marks where a reference will have another value (`change.marked`).
    """
    before, after = _names(old.get("Objects") or {}), _names(new.get("Objects") or {})
    left = {kind: [name for name in names if name not in after.get(kind, ())] for kind, names in before.items()}
    came = {kind: [name for name in names if name not in before.get(kind, ())] for kind, names in after.items()}
    if queues := left.pop("ClusterQueue", None):
        left.pop("LocalQueue", None)
        yield "interrupts", _QUEUES, _GROUP_JOBS, "ClusterQueue", ", ".join(queues), ""
    if spaces := left.pop("Namespace", None):
        yield "interrupts", _NAMESPACES, "", "Namespace", ", ".join(spaces), ""
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        if gone := left.pop(kind, None):
            renamed = bool(came.get(kind))
            words = (_RENAMED, _RESUBMIT) if renamed else (_GONE, "")
            if any(name.replace("efs-", "efs-team-", 1) in came.get(kind, ()) for name in gone):
                words = (_FOLDER, _MOVE)
            yield "interrupts", *words, kind, ", ".join(gone), ", ".join(came.get(kind, ()))
            came.pop(kind, None)
    for kind, names in left.items():
        if names:
            yield "safe", "they are removed", "", kind, ", ".join(names), ""
    for kind, names in came.items():
        if names:
            yield "safe", "they are created", "", kind, "", ", ".join(names)
    if old.get("Function") != new.get("Function"):
        yield "safe", "it is changed in place", "", "Function", "", ""


def _names(objects: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names as readable text, by kind, each namespace in the place of `*` (`eks.owned.names_by_kind`)."""
    spaces = objects.get("*", ())
    found = {kind: [_words(name) for name in names] for kind, names in objects.items() if kind != "*"}
    return {kind: [each for name in names for each in _each(name, spaces)] for kind, names in found.items()}


def _each(name: str, namespaces: Sequence[str]) -> list[str]:
    return [f"{one}{name[1:]}" for one in namespaces] if name.startswith("*") else [name]


def _words(value: Any) -> str:
    """
    >>> _words({"Fn::Join": ["", ["training-efs-", {"Ref": "Efs"}]]})
    'training-efs-(Efs)'
    """
    if not isinstance(value, Mapping):
        return str(value)
    [(function, inner)] = value.items()
    if function == RENEWED:
        return _words(inner).replace("(", "(new ")
    if function == "Fn::Join":
        return str(inner[0]).join(map(_words, inner[1]))
    return f"({inner if isinstance(inner, str) else '.'.join(inner)})"
