"""Consequences of a change for a ParallelCluster cluster, as text, by the update policies of ParallelCluster for each path of its configuration.

The policies are data (`catalog/data/updates.yaml`); the few that depend on the values are functions here. The tests compare both
with ParallelCluster itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from trainium_cdk.client.operations.updates.change import Level, intrinsic, text
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.slurm import Line, release_of, unjudged
from trainium_cdk.description.catalog.updates import updates

CLUSTER = "Custom::PclusterCluster"
_VERSION = re.compile(r"/parallelcluster/(\d[\d.]*)/")
_ANOTHER = (
    "leave it as it was; or give the cluster another name (pcluster.cluster_name): a new cluster is created on "
    "the same file systems, and this one is deleted after it"
)
_STOP = "stop the fleet first (trn nodes stop), compare again with --fleet-stopped, deploy, and start it again (trn nodes start)"
_STOP_LOGIN = (
    "set pcluster.overrides: {LoginNodes: {Pools: [{Name: login, Count: 0}]}} and deploy, then deploy this without it. If that deployment "
    "does not continue, end the lifecycle hook of the login nodes, which ParallelCluster leaves open (its issue 7172): "
    "aws autoscaling complete-lifecycle-action --lifecycle-action-result CONTINUE"
)
_DATABASE = "Scheduling.SlurmSettings.Database"
Verdict = Literal["live", "drain", "kill", "stop", "stop-login", "stop-both", "new"]
"""live: at once. drain: nodes are replaced when their jobs have ended. kill: nodes are replaced with their jobs
(QueueUpdateStrategy TERMINATE). stop: rejected while compute nodes may run. stop-login: rejected, as login nodes run. stop-both:
rejected while compute nodes or login nodes run. new: another cluster."""
Config = Mapping[str, Any]
_OF_STRATEGY: dict[str, Verdict] = {"DRAIN": "drain", "TERMINATE": "kill"}
_EXTERNAL = {"FileSystemId", "VolumeId", "FileCacheId"}
_LIVE_STORAGE = {"Efs", "FsxLustre", "FsxOntap", "FsxOpenZfs", "FileCache"}
Consequence = tuple[Level, str, str, str, Any, Any]
"""Level, meaning, advice, property, old and new value."""
_STOPPED = {"stop": "stopped", "stop-both": "stop-login"}
"""Verdicts while the fleet is stopped."""
_UNSEEN: tuple[Level, str, str] = (
    "safe",
    "ParallelCluster does not see this change, and leaves the cluster as it is until something else of its configuration changes",
    "change something else with it, for example a tag",
)
_WORDS: dict[str, tuple[Level, str, str]] = {
    "live": ("safe", "the running cluster is updated without interruption", ""),
    "drain": (
        "interrupts",
        "nodes that run a job keep it and are replaced after it; idle ones are replaced at once",
        "",
    ),
    "kill": (
        "interrupts",
        "the nodes are replaced at once, and the jobs on them stop",
        "let running jobs end first; those that were stopped start again from their last checkpoint",
    ),
    "stop": ("refused", "ParallelCluster rejects it while compute nodes may run", _STOP),
    "stopped": (
        "interrupts",
        "the fleet must be stopped for it, so no job runs",
        "start the fleet again afterwards",
    ),
    "stop-login": ("refused", "ParallelCluster rejects it while login nodes run", _STOP_LOGIN),
    "stop-both": (
        "refused",
        "ParallelCluster rejects it while compute nodes or login nodes run",
        f"{_STOP_LOGIN}. Before that, {_STOP}",
    ),
    "new": ("refused", "ParallelCluster cannot change it in an existing cluster", _ANOTHER),
}


def consequences(old: Mapping[str, Any], new: Mapping[str, Any], fleet_running: bool) -> Iterator[Consequence]:
    """The consequences of a change of the cluster resource's properties."""
    if text(old.get("ClusterName")) != text(new.get("ClusterName")):
        meaning = "ParallelCluster does not rename a cluster"
        yield "refused", meaning, _ANOTHER, "ClusterName", old.get("ClusterName"), new.get("ClusterName")
    before, after = (text(_configuration(p)) for p in (old, new))  # as CloudFormation sends it
    found = changes(before, after)
    unseen = all(change.policy == "IGNORED" for change in found)
    for change in found:
        verdict = change.verdict if fleet_running else _STOPPED.get(change.verdict, change.verdict)
        level, meaning, advice = _UNSEEN if unseen else _WORDS[verdict]
        if level == "safe" and not unseen and (names := _unjudged(change)):
            level, (meaning, advice) = "interrupts", _not_judged(names)
        yield level, meaning, advice, change.path, _value(change.old), _value(change.new)
    yield from accounting(old, new)


def unjudged_of_pcs(path: tuple[str, ...], new: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (meaning, advice) for a changed slurm.conf setting of a PCS cluster if nobody judged its value; else None."""
    properties = new.get("Properties") or {}
    settings = (properties.get("SlurmConfiguration") or {}).get("SlurmCustomSettings") or []
    if path[:2] != ("SlurmConfiguration", "SlurmCustomSettings") or path[2:] == () or not int(path[2]) < len(settings):
        return None
    line = {settings[int(path[2])]["ParameterName"]: settings[int(path[2])]["ParameterValue"]}
    names = unjudged(release_of((properties.get("Scheduler") or {}).get("Version")), line)
    return _not_judged(names) if names else None


def _unjudged(change: ConfigChange) -> list[str]:
    """Parameters of slurm.conf whose new values nobody judged; a file that is included is one."""
    before, found, name = change.path.partition("CustomSlurmSettings")
    if not found or change.new is None:
        return []
    if name == "IncludeFile":
        return [str(change.new)]
    of: Line | None = (
        "NodeName" if ".ComputeResources" in before else "PartitionName" if "SlurmQueues" in before else None
    )
    facts, new = Catalog.load().parallelcluster, {name.strip("."): change.new} if name else change.new
    release = release_of(facts.releases[facts.default].slurm)
    lines = new if isinstance(new, list) else [new]
    return [n for line in lines if line not in (change.old or ()) for n in unjudged(release, line, of)]


def _not_judged(names: Iterable[str]) -> tuple[str, str]:
    return (
        f"nobody here can judge the value of {', '.join(names)}: if Slurm does not take it, its controller stops, and nothing is submitted",
        "try it first on a cluster without jobs, or ask a slurmctld of its release: trn check",
    )


def accounting(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Consequence]:
    """List losses in Slurm's accounting where a cluster takes the place of another, or gets another database.

    The tables of a database are of two kinds: users, accounts and QoS are one set; limits (associations), shares and the records of jobs
    belong to a cluster's name (run with Slurm 22.05's slurmdbd, 2026-11-26).
    """
    before, after = _database(old), _database(new)
    if not before:
        return
    names = text(old.get("ClusterName")), text(new.get("ClusterName"))
    if before != after:
        meaning = "Slurm's users, accounts, QoS, limits and records of jobs stay in the old database, which the cluster does not read any more"
        server, name = before
        same_server = after is None or after[0] == server
        kept = f"set pcluster.accounting.database: {name}{'' if same_server else ', with the uri as it was'}"
        limits = f", and copy the limits: {_limits(*names)}" if names[0] != names[1] else ""
        yield "loses", meaning, f"{kept}{limits}", _DATABASE, name, after[1] if after else None
    elif names[0] != names[1]:
        meaning = (
            "users, accounts and QoS stay; limits, shares and records of jobs belong to the old name. With AccountingStorageEnforce Slurm "
            "refuses jobs until the limits are copied"
        )
        yield "interrupts", meaning, f"copy the limits: {_limits(*names)}", _DATABASE, names[0], names[1]


def _database(properties: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """The server and the database of a cluster's accounting; ParallelCluster names it after the cluster."""
    scheduling = _configuration(properties).get("Scheduling") or {}
    found = (scheduling.get("SlurmSettings") or {}).get("Database") or {}
    if not found:
        return None
    name = str(text(properties.get("ClusterName"))).replace("-", "_")
    return text(found.get("Uri")), text(found.get("DatabaseName")) or name


def _limits(old: Any, new: Any) -> str:
    return f"`sacctmgr dump {old} file=limits.cfg`, then `sacctmgr load file=limits.cfg cluster={new}`; `sacct -M {old}` shows old jobs"


def refused(type_name: str, path: tuple[str, ...], old: Any, new: Any) -> tuple[str, str] | None:
    """Explain how a change outside the cluster resource would break it: (meaning, advice); None if it would not."""
    if type_name != "AWS::CloudFormation::Stack" or path != ("TemplateURL",):
        return None
    versions = [_VERSION.search(json.dumps(value)) for value in (old, new)]
    if not (versions[0] and versions[1]) or versions[0][1] == versions[1][1]:
        return None
    return (
        f"ParallelCluster {versions[1][1]} does not update a cluster that {versions[0][1]} created",
        _ANOTHER,
    )


def is_provider(resource: Mapping[str, Any]) -> bool:
    """Return whether a resource is the nested stack with ParallelCluster's function, which stores nothing."""
    url = (resource.get("Properties") or {}).get("TemplateURL")
    return url is not None and _VERSION.search(json.dumps(url)) is not None


def _configuration(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    found = properties.get("ClusterConfiguration")
    return found if isinstance(found, Mapping) and not intrinsic(found) else {}


def _value(value: Any) -> Any:
    """A list's entry by its name, as the whole entry is new or deleted."""
    if isinstance(value, Mapping) and not intrinsic(value):
        return next((value[key] for key in ("Name", "Key", "Policy", "BucketName") if key in value), value)
    return value


@dataclass(frozen=True)
class ConfigChange:
    """One difference between two configurations.

    Attributes:
        path: for example `Scheduling.SlurmQueues[compute1].ComputeResources[trn].MaxCount`.
        policy: ParallelCluster's name of its policy for it.
        old, new: None for none.
    """

    path: str
    policy: str
    verdict: Verdict
    old: Any
    new: Any


@dataclass(frozen=True)
class _Found:
    steps: tuple[str, ...]
    rule: str
    old: Any
    new: Any
    is_list: bool = False

    @property
    def key(self) -> str:
        return self.steps[-1]

    @property
    def in_a_queue(self) -> bool:
        return any(step.startswith("SlurmQueues[") for step in self.steps[:-1])


def changes(old: Config, new: Config, *, login_running: bool | None = None) -> list[ConfigChange]:
    """Every difference, with ParallelCluster's verdict. Values may be text, as CloudFormation passes them.

    Args:
        login_running: whether login nodes run. Default: whether `old` has any.
    """
    logins = has_login_nodes(old) if login_running is None else login_running
    found = list(_section(old, new, (), ""))
    return [ConfigChange(".".join(f.steps), f.rule, _verdict(f, found, old, new, logins), f.old, f.new) for f in found]


def has_login_nodes(config: Config) -> bool:
    """Return whether the configuration has login nodes."""
    pools = (config.get("LoginNodes") or {}).get("Pools") or []
    return any(_number(pool.get("Count"), 1) > 0 for pool in pools)


def policy(path: str) -> str:
    """ParallelCluster's policy for a path, where `[]` stands for any entry of a list."""
    while path:
        if rule := _policies().get(path):
            return rule
        path = path.rpartition(".")[0] if not path.endswith("[]") else path[:-2]
    return "UNSUPPORTED"


@cache
def _policies() -> dict[str, str]:
    return updates().parallelcluster.by_path


def _section(old: Any, new: Any, steps: tuple[str, ...], at: str) -> Iterator[_Found]:
    old, new = old or {}, new or {}
    for key in dict.fromkeys([*old, *new]):
        here, path = (*steps, key), f"{at}.{key}" if at else key
        before, after = old.get(key), new.get(key)
        rule = policy(path)
        if name := updates().parallelcluster.keys.get(path):
            yield from _list(before or [], after or [], here, path, name)
        elif _is_section(before) or _is_section(after):
            one_sided = not (before and after)
            if not one_sided or rule == "IGNORED":
                yield from _section(before, after, here, path)
            elif before or after:
                yield _Found(here, rule, before, after)
        elif text(before) != text(after):
            yield _Found(here, rule, before, after)


def _list(old: list[Any], new: list[Any], steps: tuple[str, ...], path: str, name: str) -> Iterator[_Found]:
    before = {_key(entry[name]): entry for entry in old}
    after = {_key(entry[name]): entry for entry in new}
    for key, entry in after.items():
        if key in before:
            yield from _section(before[key], entry, (*steps[:-1], f"{steps[-1]}[{key}]"), f"{path}[]")
        else:
            yield _Found(steps, policy(path), None, entry, is_list=True)
    for key, entry in before.items():
        if key not in after:
            yield _Found(steps, policy(path), entry, None, is_list=True)


def _key(value: Any) -> str:
    """The identity of a list's entry, as text."""
    return json.dumps(text(value)) if intrinsic(value) else str(value)


def _is_section(value: Any) -> bool:
    """A mapping, but not one of CloudFormation's functions, whose value is not known."""
    return isinstance(value, Mapping) and not intrinsic(value)


def _verdict(f: _Found, found: list[_Found], old: Config, new: Config, logins: bool) -> Verdict:
    if f.rule.startswith("LOGIN_NODES") and not logins:
        return "live"
    match f.rule:
        case "SUPPORTED" | "SUPPORTED_UNLESS_ADC" | "IGNORED":
            return "live"
        case "QUEUE_UPDATE_STRATEGY":
            return _by_strategy(f, new)
        case "RESIZE_UPDATE_STRATEGY_ON_REMOVE":
            return _resized(f, found, new)
        case "COMPUTE_FLEET_STOP":
            return "stop"
        case "COMPUTE_FLEET_STOP_ON_REMOVE":
            return "live" if f.is_list and f.in_a_queue and f.old is None else "stop"
        case "MANAGED_PLACEMENT_GROUP":
            return "stop" if _managed_group(f, old) and not _managed_group(f, new) else _by_strategy(f, new)
        case "MANAGED_FSX":
            if _managed_fsx(old) & _managed_fsx(new):
                return "new"
            grown = isinstance(f.old, list) and all(text(v) in text(f.new or []) for v in f.old)
            return "live" if grown else _by_strategy(f, new)
        case "SHARED_STORAGE_UPDATE_POLICY":
            return _storage(f, new, logins)
        case "LOGIN_NODES_POOLS_UPDATE_POLICY":
            return "live" if f.is_list and f.old is None else "stop-login"
        case "LOGIN_NODES_STOP" | "LOGIN_NODES_POOL_STOP":
            return "stop-login"
        case "COMPUTE_AND_LOGIN_NODES_STOP":
            return "stop-both" if logins else "stop"
        case _:
            return "new"


def _strategy(new: Config) -> str:
    settings = (new.get("Scheduling") or {}).get("SlurmSettings") or {}
    return str(settings.get("QueueUpdateStrategy") or "COMPUTE_FLEET_STOP")


def _by_strategy(f: _Found, new: Config) -> Verdict:
    if not f.in_a_queue:
        return "stop"
    return _OF_STRATEGY.get(_strategy(new), "stop")


def _resized(f: _Found, found: list[_Found], new: Config) -> Verdict:
    """A queue, a compute resource or a count of nodes: more is live, less is not."""
    if f.is_list and f.old is None:
        return "live"
    if f.key == "MaxCount" and _number(f.new, 10) >= _number(f.old, 10):
        return "live"
    if f.key == "MinCount":
        most = next((g for g in found if g.steps == (*f.steps[:-1], "MaxCount")), None)
        if most and _number(most.new, 10) - _number(most.old, 10) >= _number(f.new, 0) - _number(f.old, 0):
            return "live"
    return "kill" if _strategy(new) == "TERMINATE" else "stop"


def _number(value: Any, default: int) -> int:
    """A count, or ParallelCluster's default if it is not given."""
    return default if value is None else int(value)


def _managed_group(f: _Found, config: Config) -> bool:
    """Return whether the compute resource with the change has a placement group that ParallelCluster creates."""
    queue = _entry((config.get("Scheduling") or {}).get("SlurmQueues"), f.steps, "SlurmQueues")
    resource = _entry(queue.get("ComputeResources"), f.steps, "ComputeResources")
    chosen = (resource.get("Networking") or {}).get("PlacementGroup") or (queue.get("Networking") or {}).get(
        "PlacementGroup"
    )
    if not chosen or chosen.get("Name") or chosen.get("Id"):
        return False
    return bool(
        chosen.get("Enabled")
    )  # as ParallelCluster: the text "false", which CloudFormation sends, counts as true


def _entry(entries: Any, steps: tuple[str, ...], name: str) -> Mapping[str, Any]:
    wanted = next((s[len(name) + 1 : -1] for s in steps if s.startswith(f"{name}[")), None)
    return next((e for e in entries or [] if wanted is not None and text(e.get("Name")) == wanted), {})


def _managed_fsx(config: Config) -> set[str]:
    """File systems that ParallelCluster creates, by name."""
    return {
        str(s.get("Name"))
        for s in config.get("SharedStorage") or []
        if s.get("StorageType") == "FsxLustre" and "FileSystemId" not in (s.get("FsxLustreSettings") or {})
    }


def _storage(f: _Found, new: Config, logins: bool) -> Verdict:
    if not f.is_list and "/home" in (f.old, f.new):  # the head node's /home would be hidden, with what it is used for
        return "new"
    if not f.is_list:  # another mount point: with nodes running, ParallelCluster's own check of it raises an exception
        return "stop-both" if logins else "stop"
    entry = f.new or f.old
    if entry.get("MountDir") in ("home", "/home"):
        return "new"
    kind = str(entry.get("StorageType"))
    if kind in _LIVE_STORAGE and _EXTERNAL & set(entry.get(f"{kind}Settings") or {}):
        return "live"
    by_strategy = _OF_STRATEGY.get(_strategy(new), "stop")
    if not logins:
        return by_strategy
    return "stop-both" if by_strategy == "stop" else "stop-login"
