"""Two templates, and what a deployment of the second over the first would do."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainium_cdk.client.operations.updates import beside, eks, slurm
from trainium_cdk.client.operations.updates.change import (
    LEVELS,
    RENEWED,
    Change,
    Level,
    intrinsic,
    leaves,
    marked,
    references,
    text,
)
from trainium_cdk.client.operations.updates.spec import Spec
from trainium_cdk.description.catalog.updates import updates

Template = Mapping[str, Any]
_COPY = "leave it as it was, or copy its data first and then give --allow {name}"


@dataclass(frozen=True)
class _Resource:
    """A resource before and after; empty if it does not exist."""

    id: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]

    @property
    def type(self) -> str:
        return str((self.new or self.old)["Type"])

    @property
    def name(self) -> str:
        path = ((self.new or self.old).get("Metadata") or {}).get("aws:cdk:path", "")
        steps = [
            step for step in path.split("/")[1:] if step != "Default"
        ]  # the CDK's id of what stands for its parent
        while len(steps) > 1 and steps[-1] == "Resource":
            steps.pop()
        return "/".join(steps) or self.id

    @property
    def kept(self) -> bool:
        """True if the account keeps the deployed resource when the stack replaces or removes it. DeletionPolicy is for a removal alone."""
        policy = self.new.get("UpdateReplacePolicy") if self.new else self.old.get("DeletionPolicy")
        return policy in ("Retain", "RetainExceptOnCreate", "Snapshot")

    def change(
        self, level: Level, meaning: str, advice: str = "", property: str = "", old: Any = None, new: Any = None
    ) -> Change:
        what = advice.replace("{name}", self.name)
        return Change(level, self.id, self.type, self.name, property, _short(old), _short(new), meaning, what)


def compare(old: Template, new: Template, spec: Spec, *, fleet_running: bool = True) -> list[Change]:
    """Every change that a deployment of `new` over `old` would make, the worst first; may be empty.

    Consequences of a replacement are included: a replaced subnet replaces the file system in it.

    Args:
        old: the deployed template, as it was submitted.
        new: the template to be deployed.
        spec: what CloudFormation replaces.
        fleet_running: whether compute nodes of a Slurm cluster may be up; ParallelCluster then rejects some changes.
    """
    before, after = _known(old), _known(new)
    pairs = [_Resource(key, before.get(key, {}), after.get(key, {})) for key in dict.fromkeys([*after, *before])]
    pairs = [split for pair in pairs for split in _same_type(pair)]
    both = [p for p in pairs if p.old and p.new]
    renewed = _renewed(both, spec, _parameters(old, new))
    found = [c for p in pairs if not (p.old and p.new) for c in _come_or_gone(p, spec)]
    for pair in both:
        found.extend(_changed(pair, spec, renewed, fleet_running))
    found.extend(_accounting(pairs))
    names = {p.id: p.name for p in pairs}
    found.extend(eks.skew(before, after, names))
    found.extend(beside.rejected(beside.Templates(before, after, renewed), names))
    found = [_keep_what_follows(c, _zones(before), _zones(after)) for c in found]
    return sorted(found, key=lambda c: LEVELS.index(c.level))


def _accounting(pairs: Collection[_Resource]) -> Iterator[Change]:
    """Slurm's accounting, where a cluster of another name takes the place of one. They are below the same construct."""
    clusters = [p for p in pairs if p.type == slurm.CLUSTER]
    for gone in (p for p in clusters if not p.new):
        place = gone.name.rpartition("/")[0]
        for come in (p for p in clusters if not p.old and p.name.rpartition("/")[0] == place):
            for verdict in slurm.accounting(gone.old.get("Properties") or {}, come.new.get("Properties") or {}):
                yield gone.change(*verdict)


def _zones(resources: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Zone ids of the subnets, each once."""
    subnets = [r.get("Properties") or {} for r in resources.values() if r["Type"] == "AWS::EC2::Subnet"]
    return tuple(dict.fromkeys(str(s["AvailabilityZoneId"]) for s in subnets if "AvailabilityZoneId" in s))


def _keep_what_follows(change: Change, old: tuple[str, ...], new: tuple[str, ...]) -> Change:
    """Add advice on how to keep what the environment does not set, and what therefore changes with something else: the zones with
    the instance types of a new queue or node group, the services' network with a new peering."""
    if change.level not in ("loses", "refused"):
        return change
    if change.property == "KubernetesNetworkConfig.ServiceIpv4Cidr":
        return replace(change, advice=f"keep the services' network as it is: eks: {{service_cidr: {change.old}}}")
    addresses = change.type == beside.SUBNET  # a zone's position decides them
    if not (addresses or "Subnet" in change.property) or not old or not new or old == new:
        return change
    first = "; or, for another zone in the place of one, deploy without the old one first" if addresses else ""
    return replace(change, advice=f"keep the zones as they are: network: {{zone_ids: [{', '.join(old)}]}}{first}")


def _known(template: Template) -> dict[str, Mapping[str, Any]]:
    # the CDK's metadata changes with each of its releases, without effect
    return {k: r for k, r in (template.get("Resources") or {}).items() if r.get("Type") != "AWS::CDK::Metadata"}


def _same_type(pair: _Resource) -> Iterator[_Resource]:
    """A resource of another type is a deletion and a creation for CloudFormation."""
    if pair.old and pair.new and pair.old["Type"] != pair.new["Type"]:
        yield _Resource(pair.id, pair.old, {})
        yield _Resource(pair.id, {}, pair.new)
    else:
        yield pair


def _parameters(old: Template, new: Template) -> set[tuple[str, str]]:
    before, after = old.get("Parameters") or {}, new.get("Parameters") or {}
    return {(key, "") for key in after if key in before and after[key].get("Default") != before[key].get("Default")}


def _renewed(both: list[_Resource], spec: Spec, known: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """(logical id, attribute) of everything that has another value after the deployment; attribute "" means all."""
    renewed = set(known)
    while True:
        size = len(renewed)
        for pair in both:
            changed = _differences(pair, renewed)
            if any(spec.impact(pair.type, path) == "yes" for path in changed):
                renewed.add((pair.id, ""))
            elif changed:
                renewed |= {(pair.id, attribute) for attribute in updates().moving.get(pair.type, ())}
        if len(renewed) == size:
            return renewed


def _differences(pair: _Resource, renewed: set[tuple[str, str]]) -> dict[tuple[str, ...], tuple[Any, Any]]:
    """Path within the properties -> (old, new), for each leaf that differs."""
    before = leaves(pair.old.get("Properties") or {})
    after = leaves(marked(pair.new.get("Properties") or {}, renewed))
    paths = dict.fromkeys([*after, *before])
    return {p: (before.get(p), after.get(p)) for p in paths if text(before.get(p)) != text(after.get(p))}


def _holds(pair: _Resource, spec: Spec) -> str:
    """Return the data that is lost with a resource; empty if there is none."""
    if slurm.is_provider(pair.old):
        return ""
    return updates().holds.get(pair.type) or ("what it stores" if spec.stateful(pair.type) else "")


def _come_or_gone(pair: _Resource, spec: Spec) -> Iterator[Change]:
    held = _holds(pair, spec)
    if not pair.old:
        yield pair.change("safe", "it is created")
    elif not held:
        yield pair.change("safe", "it is deleted; nothing is stored in it")
    elif pair.kept:
        yield pair.change(
            "loses", f"it is removed from the stack, but is kept in the account with {held}, and costs money", _COPY
        )
    else:
        yield pair.change("loses", f"it is deleted; lost with it: {held}", _COPY)


def _changed(pair: _Resource, spec: Spec, renewed: set[tuple[str, str]], fleet_running: bool) -> Iterator[Change]:
    if pair.type == slurm.CLUSTER:
        properties = marked(pair.new.get("Properties") or {}, renewed)
        for verdict in slurm.consequences(pair.old.get("Properties") or {}, properties, fleet_running):
            yield pair.change(*verdict)
        return
    if pair.type == eks.OBJECTS:
        properties = marked(pair.new.get("Properties") or {}, renewed)
        for level, meaning, advice, *values in eks.consequences(pair.old.get("Properties") or {}, properties):
            yield replace(pair.change(level, meaning, advice, values[0]), old=values[1], new=values[2])
        return
    differences = _differences(pair, renewed)
    fixed = updates().fixed.get(pair.type, {})
    if any(spec.impact(pair.type, path) == "yes" and path[0] not in fixed for path in differences):
        fixed = {}  # there is a new one anyway, of another name or in another cluster
    named = _name_that_stays(pair, differences, spec)
    replaced = any(spec.impact(pair.type, path) == "yes" for path in differences)
    if not replaced and (refused := eks.pairs(pair.type, (path[0] for path in differences))):
        yield pair.change("refused", *refused)
    for path, (old, new) in differences.items():
        level, meaning, advice = _meaning(pair, path, old, new, spec, fixed, named)
        yield pair.change(level, meaning, advice, ".".join(path), old, new)


def _name_that_stays(pair: _Resource, differences: Collection[tuple[str, ...]], spec: Spec) -> str:
    """The name that the template gives a resource, before and after; empty if it gives none, or another one."""
    names = [(pair.new.get("Properties") or {}).get(key) for key in spec.named_by(pair.type)]
    changed = {path[0] for path in differences} & set(spec.named_by(pair.type))
    return "" if changed or not all(isinstance(name, str) for name in names) else ", ".join(map(str, names))


def _meaning(
    pair: _Resource,
    path: tuple[str, ...],
    old: Any,
    new: Any,
    spec: Spec,
    fixed: Mapping[str, tuple[str, str]],
    named: str,
) -> tuple[Level, str, str]:
    if words := fixed.get(path[0]):
        return ("refused", *words)
    impact = "maybe" if not spec.knows(pair.type) and "Custom::" not in pair.type else spec.impact(pair.type, path)
    if impact == "yes" or (impact == "maybe" and path[0] not in updates().interrupts.get(pair.type, {})):
        if impact == "yes" and named:
            return "refused", f"CloudFormation does not replace what keeps its name, {named}", _renaming(pair.type)
        return _replaced(pair, spec, "is" if impact == "yes" else "may be")
    words = slurm.refused(pair.type, path, old, new) or (None if new is None else fixed.get(".".join(path)))
    if words:
        return ("refused", *words)
    if new in (None, "NONE") and (words := updates().stays.get(pair.type, {}).get(".".join(path))):
        return ("refused", *words)
    if pair.type == "AWS::PCS::Cluster" and (words := slurm.unjudged_of_pcs(path, pair.new)):
        return ("interrupts", *words)
    if _smaller(old, new) and (words := updates().grows_only.get(pair.type, {}).get(path[0])):
        return ("refused", *words)
    if _smaller(old, new) and (words := updates().ends.get(pair.type, {}).get(".".join(path))):
        return ("interrupts", *words)
    if lost := updates().empties.get(pair.type):
        return ("loses", *lost)
    if words := updates().interrupts.get(pair.type, {}).get(path[0]):
        return ("interrupts", *words)
    return "safe", "it is changed in place", ""


def _renaming(type_name: str) -> str:
    setting = updates().names.get(type_name)
    return (
        f"leave it as it was; or give it another name{f' ({setting})' if setting else ''}: a new one is created, and this one is "
        "deleted after it"
    )


def _smaller(old: Any, new: Any) -> bool:
    """Return whether a number, or a version, becomes smaller. CloudFormation also takes numbers as text."""
    before, after = str(old).split("."), str(new).split(".")
    return all(part.isdecimal() for part in (*before, *after)) and [*map(int, after)] < [*map(int, before)]


def _replaced(pair: _Resource, spec: Spec, verb: str) -> tuple[Level, str, str]:
    held = _holds(pair, spec)
    if not held:
        return "replaces", f"it {verb} replaced; nothing is stored in it", ""
    if pair.kept:
        return "loses", f"it {verb} replaced by a new, empty one; the old one is kept in the account with {held}", _COPY
    return "loses", f"it {verb} replaced; lost with it: {held}", _COPY


def _short(value: Any) -> str:
    words = _words(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def _words(value: Any) -> str:
    """A value as readable text; a reference is shown by its target."""
    if value is None:
        return ""
    if intrinsic(value):
        [(function, inner)] = value.items()
        if function == RENEWED:
            return f"another {_words(inner)}"
        return ".".join(dict.fromkeys(".".join(r).removesuffix(".Ref") for r in references(value))) or json.dumps(inner)
    if isinstance(value, list) and len(value) == 1:
        return _words(value[0])
    return json.dumps(text(value), separators=(",", ":")) if isinstance(value, Mapping | list) else str(text(value))
