"""`pcluster.overrides`: keys that a setting controls, names that do not exist, and what makes the cluster unsafe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from trainium_cdk.description.catalog.models import numbers
from trainium_cdk.description.checks import storage
from trainium_cdk.description.checks.cluster_configuration import (
    faults,
    rendered,
    schema_faults,
    slurm_faults,
    slurm_release,
    wide_policy,
)
from trainium_cdk.description.checks.cluster_keys import (
    CANNOT,
    CONTROLLED,
    POOL,
    QUEUE,
    RESOURCE,
    Path,
    denied_lines,
    pair_faults,
    places,
    value_at,
)
from trainium_cdk.description.checks.rule import Rules, error, join_words, near, warning
from trainium_cdk.description.settings import CpuQueue, Environment, Problem
from trainium_cdk.problems import KeyPath

RULES = Rules()

_LISTS = [
    *(f"{nodes}.{key}" for nodes in ("HeadNode", QUEUE, POOL) for key in
      ("Iam.AdditionalIamPolicies", "Networking.AdditionalSecurityGroups")),
    "Scheduling.SlurmSettings.CustomSlurmSettings",
]  # fmt: skip
POLICIES_OF_A_ROLE = 10
"""IAM's quota, if the account's was not raised (2026-11)."""
_OTHER_POLICIES = 3
"""Policies of the head node's role: the stack's two, and CloudWatchAgentServerPolicy, which ParallelCluster attaches (its templates at 3.16.1)."""


class _Items(NamedTuple):
    """A list whose items have names: where it is, what an item is called, whose names the settings have, what a new one needs."""

    place: str
    kind: str
    setting: str
    one_of: tuple[tuple[str, ...], ...]


_NAMED = (
    _Items("Scheduling.SlurmQueues", "queue", "pcluster.queues", (("Networking",), ("ComputeResources",))),
    _Items(
        f"{QUEUE}.ComputeResources",
        "compute resource",
        "pcluster.queues[].compute_resources[]",
        (("InstanceType", "Instances"),),
    ),
    _Items("LoginNodes.Pools", "pool", "pcluster.login_nodes", (("InstanceType",), ("Networking",))),
)


@RULES.refuse("ParallelCluster user guide, iam-roles-in-parallelcluster-v3: what its role may attach")
def unattachable_policies(env: Environment) -> Iterator[Problem]:
    for i, arn in enumerate(env.pcluster.node_policies):
        key: KeyPath = ("pcluster", "node_policies", i)
        if any(one.level == "error" for one in wide_policy(key, arn)):
            continue
        yield from _not_attachable(env, key, arn)


@RULES.add
def too_many_policies(env: Environment) -> Iterator[Problem]:
    names = {arn for arn in env.pcluster.node_policies if not arn.endswith("/CloudWatchAgentServerPolicy")}
    if len(names) + _OTHER_POLICIES > POLICIES_OF_A_ROLE:
        yield warning(
            ("pcluster", "node_policies"),
            f"IAM allows {POLICIES_OF_A_ROLE} policies on a role where the account's quota was not raised, and the head node's has "
            f"{_OTHER_POLICIES} others: the cluster's creation would fail",
            f"combine policies, so that there are {POLICIES_OF_A_ROLE - _OTHER_POLICIES}, or raise IAM's quota `Managed policies per role` first",
            value=f"{len(names)} policies",
        )


@RULES.refuse("ParallelCluster, CustomSlurmSettingsValidator: and each part's own validators; promise: no open SSH")
def controlled_override(env: Environment) -> Iterator[Problem]:
    """One problem for each place, the most severe."""
    if not env.pcluster.overrides:
        return
    found: dict[Path, Problem] = {}
    found_by = (
        _unsafe,
        _unknown_names,
        _controlled,
        _instance_types,
        storage.in_overrides,
        _policies,
        _beyond_the_role,
    )
    for problem in (each for find in found_by for each in find(env)):
        path = problem.key
        if path not in found or (found[path].level, problem.level) == ("warning", "error"):
            found[path] = problem
    wrong = [path for path, problem in found.items() if problem.level == "error"]
    for problem in _refused(env):
        if not any(problem.key[: len(path)] == path or path[: len(problem.key)] == problem.key for path in wrong):
            found[problem.key] = problem
    yield from (replace(p, key=("pcluster", "overrides", *path)) for path, p in found.items())


def _unsafe(env: Environment) -> Iterator[Problem]:
    """Find faults that only the overrides add. Other settings have their own rules."""
    config, before = rendered(env), faults(_without_overrides(env))
    for fault in faults(config):
        if fault not in before:
            yield replace(fault, key=_origin(env.pcluster.overrides, config, fault.key))


def _refused(env: Environment) -> Iterator[Problem]:
    """Find values in the overrides that ParallelCluster's schema or Slurm refuses. A release newer than the schema may accept more."""
    overrides, config, facts = env.pcluster.overrides, rendered(env), env.catalog.parallelcluster
    ours = _without_overrides(env)
    before = [*schema_faults(ours), *pair_faults(ours)]
    newer = numbers(env.parallelcluster_version) > numbers(facts.default)
    for fault in (*schema_faults(config), *pair_faults(config)):
        at = _origin(overrides, config, fault.key)
        if at and fault not in before:
            reason = f"{fault.reason} (the check uses the schema of {facts.default})" if newer else fault.reason
            yield replace(fault, key=at, reason=reason, level="warning" if newer else "error")
    for fault in (*slurm_faults(config, slurm_release(env)), *denied_lines(config, facts)):
        if (at := _origin(overrides, config, fault.key)) and at[-1] == fault.key[-1]:
            yield replace(fault, key=at)


def _controlled(env: Environment) -> Iterator[Problem]:
    """Find overrides of keys that have a setting, or cannot be set. The stack's own values are allowed."""
    overrides, ours = env.pcluster.overrides, _without_overrides(env)
    for pattern in (*CANNOT, *CONTROLLED):
        for path in places(overrides, pattern.split(".")):
            if _of_a_new_item(env, path) or _same(overrides, ours, path):
                continue
            if pattern in CANNOT:
                reason, fix = CANNOT[pattern]
                yield error(path, f"it cannot be set: {reason}", fix)
            else:
                yield _has_a_setting(env, path, CONTROLLED[pattern])
    for pattern in _LISTS:
        for path in places(env.pcluster.overrides, pattern.split(".")):
            if value_at(env.pcluster.overrides, path) is None and not _of_a_new_item(env, path):
                yield error(path, f"null would remove the stack's own {pattern.rpartition('.')[2]}", "remove it")


def _has_a_setting(env: Environment, path: Path, setting: str) -> Problem:
    if _in_cpu_queue(env, path):
        name = setting.rpartition(".")[2]
        setting = (
            "network" if name == "zone_id" else f"pcluster.cpu_queue.{name}" if name in CpuQueue.model_fields else ""
        )
    if not setting:
        reason = "no setting of the CPU queue says this: `trn` and its checks do not know of it"
        return warning(path, reason, "check it with ParallelCluster's documentation")
    reason = f"{setting} controls it: `trn`, its checks and the node scripts go by the setting alone"
    return warning(path, reason, f"use {setting}, or make sure that the cluster works without it")


def _instance_types(env: Environment) -> Iterator[Problem]:
    """The types of a compute resource of the settings. ParallelCluster takes one of both keys (its cluster_schema.py at 3.16.1)."""
    types = {(q.name, r.name): r.instance_type for q in env.pcluster.queues for r in q.compute_resources}
    overrides = env.pcluster.overrides
    for path in places(overrides, RESOURCE.split(".")):
        resource = value_at(overrides, path)
        if (
            not isinstance(resource, Mapping)
            or _of_a_new_item(env, path)
            or not {"InstanceType", "Instances"} & resource.keys()
        ):
            continue
        instances = resource.get("Instances")
        items = instances if isinstance(instances, list | tuple) else ()
        given = [item.get("InstanceType") for item in items if isinstance(item, Mapping)]
        key = (*path, "InstanceType" if "InstanceType" in resource and not items else "Instances")
        if items and resource.get("InstanceType", "ours") is not None:
            reason = "ParallelCluster takes Instances or InstanceType, and the stack sets InstanceType"
            yield error(key, reason, "add InstanceType: null next to it")
            continue
        setting = "pcluster.queues[].compute_resources[].instance_type"
        ours = types.get((_name(value_at(overrides, path[:3])), resource["Name"]))
        if ours and any(one != ours for one in given or [resource.get("InstanceType", ours)]):
            yield error(
                key,
                "it cannot be set: jobs, node scripts and prices go by the one type of the setting",
                f"use {setting}, with a compute resource for each type; or add a queue of another name",
            )
        elif not ours:
            yield _has_a_setting(env, key, setting)


def _unknown_names(env: Environment) -> Iterator[Problem]:
    """A further queue, pool or compute resource is possible, but has nothing of ours: it must be complete."""
    overrides = env.pcluster.overrides
    for items in _NAMED:
        for at in places(overrides, items.place.split(".")):
            given = value_at(overrides, at)
            if not isinstance(given, list | tuple) or _of_a_new_item(env, at):
                continue
            for i, item in enumerate(given):
                name = item.get("Name") if isinstance(item, Mapping) else None
                known = _names(env, overrides, at)
                if not isinstance(name, str):
                    reason = f"it has no Name, so that the list would replace the stack's own {items.kind}s"
                    yield error((*at, i), reason, f"add Name: {join_words(sorted(known), 'or')}")
                elif name not in known:
                    missing = [keys for keys in items.one_of if not set(keys) & item.keys()]
                    absent = join_words([" or ".join(keys) for keys in missing])
                    if missing:
                        reason = f"there is no {items.kind} of this name, and a new one needs {absent}"
                        yield error((*at, i, "Name"), reason, f"name {near(name, known)}, or add {absent}")
                    else:
                        reason = f"the {items.kind} is new: it has none of our scripts and permissions, and `trn submit` does not use it"
                        yield warning((*at, i, "Name"), reason, f"use {items.setting} for Trainium nodes")


def _policies(env: Environment) -> Iterator[Problem]:
    """Policies in `overrides` that ParallelCluster's function may not attach to the nodes' roles."""
    for pattern in _LISTS:
        for at in places(env.pcluster.overrides, pattern.split(".")):
            for i, item in enumerate(value_at(env.pcluster.overrides, at) or ()):
                arn = item.get("Policy") if isinstance(item, Mapping) else None
                if isinstance(arn, str):
                    yield from _not_attachable(env, (*at, i, "Policy"), arn)


def _beyond_the_role(env: Environment) -> Iterator[Problem]:
    """Find overrides for which ParallelCluster's function has no permission. Its default role reaches roles below /parallelcluster/, and buckets
    of its name (policies of its provider's template, aws-parallelcluster 3.16.1)."""
    if env.pcluster.provider.role or env.pcluster.provider.policies:
        return
    overrides = env.pcluster.overrides
    prefix = (overrides.get("Iam") or {}).get("ResourcePrefix")
    if isinstance(prefix, str) and "/" in prefix and not prefix.startswith("/parallelcluster/"):
        yield error(
            ("Iam", "ResourcePrefix"),
            "ParallelCluster may only create roles below /parallelcluster/",
            f"write /parallelcluster/{prefix.rpartition('/')[2]}, or allow iam:CreateRole and iam:PassRole for the path in a policy in "
            "pcluster.provider.policies",
            value=prefix,
        )
    bucket = overrides.get("CustomS3Bucket")
    if isinstance(bucket, str) and not bucket.startswith(("parallelcluster-", "aws-parallelcluster-")):
        yield error(
            ("CustomS3Bucket",),
            "ParallelCluster may only use buckets whose name begins with parallelcluster- or aws-parallelcluster-",
            f"write parallelcluster-{bucket}, or allow s3:* on the bucket in a policy in pcluster.provider.policies",
            value=bucket,
        )


def _not_attachable(env: Environment, at: KeyPath, arn: str) -> Iterator[Problem]:
    """A policy that ParallelCluster's function may not attach to the nodes' roles."""
    if env.pcluster.provider.role or env.pcluster.provider.policies:
        return
    found = re.fullmatch(r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/(\S+)", arn)
    own = found and found[1] != "aws" and found[2].startswith("parallelcluster")
    if found and not own and found[2] not in env.catalog.parallelcluster.attachable_policies:
        yield error(
            at,
            "ParallelCluster may only attach policies of the account whose name begins with parallelcluster, and some of AWS's",
            "give such a policy, use Iam.S3Access, or allow iam:AttachRolePolicy for it in a policy in pcluster.provider.policies",
        )


def _names(env: Environment, overrides: Any, path: Path) -> set[str]:
    """The settings' names of the items of a list."""
    p = env.pcluster
    if path[0] == "LoginNodes":
        return {"login"} if p.login_nodes else set()
    if path[-1] == "SlurmQueues":
        return set(p.queue_names)
    name = _name(value_at(overrides, path[:3]))
    return {r.name for q in p.queues if q.name == name for r in q.compute_resources} | {
        q.name for q in p.cpu_queues if q.name == name
    }


def _in_cpu_queue(env: Environment, path: Path) -> bool:
    return path[1:2] == ("SlurmQueues",) and _name(value_at(env.pcluster.overrides, path[:3])) in {
        queue.name for queue in env.pcluster.cpu_queues
    }


def _same(overrides: Any, ours: Any, path: Path) -> bool:
    """Return whether the value at a path without lists is the stack's own."""
    for step in path:
        ours = ours.get(step) if isinstance(ours, Mapping) else None
    return ours is not None and ours == value_at(overrides, path)


def _of_a_new_item(env: Environment, path: Path) -> bool:
    """Return whether a path is in a queue, a pool or a compute resource that the settings do not have."""
    overrides = env.pcluster.overrides
    return any(
        isinstance(step, int) and path[i - 1] in {"SlurmQueues", "Pools", "ComputeResources"}
        and _name(value_at(overrides, path[: i + 1])) not in _names(env, overrides, path[:i])
        for i, step in enumerate(path)
    )  # fmt: skip


def _without_overrides(env: Environment) -> Mapping[str, Any]:
    return rendered(env.model_copy(update={"pcluster": env.pcluster.model_copy(update={"overrides": {}})}))


def _origin(overrides: Any, config: Any, path: KeyPath) -> Path:
    """The path in the overrides that sets the value at a path of the merged configuration, or its nearest parent."""
    origin: list[str | int] = []
    for step in path:
        place: str | int | None = None
        if isinstance(overrides, Mapping):
            place = step if step in overrides else None
            config = config.get(step) if isinstance(config, Mapping) else None
        elif isinstance(overrides, list | tuple) and isinstance(config, list | tuple) and isinstance(step, int):
            config = config[step]
            same = (i for i, item in enumerate(overrides) if item == config or _name(item) == _name(config) != "")
            place = next(same, None)
        if place is None:
            break
        origin.append(place)
        overrides = overrides[place]
    return tuple(origin)


def _name(item: Any) -> Any:
    return item.get("Name", "") if isinstance(item, Mapping) else ""
