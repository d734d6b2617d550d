"""Consequences of a change for a ParallelCluster cluster, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_cdk.client.operations.updates.change import Level
from trainium_cdk.client.operations.updates.leaves import intrinsic, text
from trainium_cdk.client.operations.updates.pcluster import ConfigChange, changes
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.slurm import Line, release_of, unjudged

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
Consequence = tuple[Level, str, str, str, Any, Any]
"""Level, meaning, advice, property, old and new value."""


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


_DATABASE = "Scheduling.SlurmSettings.Database"


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


def _value(value: Any) -> Any:
    """A list's entry by its name, as the whole entry is new or deleted."""
    if isinstance(value, Mapping) and not intrinsic(value):
        return next((value[key] for key in ("Name", "Key", "Policy", "BucketName") if key in value), value)
    return value
