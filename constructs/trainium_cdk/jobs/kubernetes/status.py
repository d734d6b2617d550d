"""The status of a job, from its Kubernetes objects. Pure."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainium_cdk.jobs.kubernetes.names import DESCRIPTION, NODES, PREPARE, TRAIN, task_pod
from trainium_cdk.jobs.kubernetes.scripts import FINAL, TIMED_OUT
from trainium_cdk.jobs.status import ACTIVE, Expected, JobStatus, Stage, whole

Object = dict[str, Any]

_, NOT_COMPILED, _ = FINAL
_ENDED = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
_WORDS = 240
_STAGES = (PREPARE, "precompile", TRAIN)
_MOST_NODES = 10_000


@dataclass(frozen=True)
class Seen:
    """A job's objects in the cluster.

    Attributes:
        job: the Volcano Job.
        pods: its pods.
        group: its PodGroup, if it exists.
        events: messages of the PodGroup's events, newest last.
        nodes: the nodes of its node group; None if unknown.
    """

    job: Object
    pods: Sequence[Object] = ()
    group: Object | None = None
    events: Sequence[str] = ()
    nodes: Sequence[Object] | None = None


def described(job: Object) -> dict[str, Any]:
    """The job's description from its submission. It may have been edited: invalid values are left out, so that they do not
    break the list of jobs."""
    try:
        found = json.loads(job["metadata"].get("annotations", {})[DESCRIPTION])
    except (KeyError, TypeError, ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict):
        found = {}
    stages = found.get("stages")
    return {
        **found,
        "stages": [s for s in stages if s in _STAGES] if isinstance(stages, list) else [],
        "nodes": min(whole(found.get("nodes")) or 0, _MOST_NODES),
        "ranks_per_node": max(1, whole(found.get("ranks_per_node")) or 1),
        "global_batch_size": whole(found.get("global_batch_size")),
    }


def phase(job: Object) -> str:
    """Volcano's phase of the job."""
    return str(job.get("status", {}).get("state", {}).get("phase") or "Pending")


def ended(job: Object) -> bool:
    return phase(job) in _ENDED


def status(seen: Seen) -> JobStatus:
    description = described(seen.job)
    pods = sorted(seen.pods, key=index)
    stages = [_stage(name, seen, pods) for name in description["stages"] or [TRAIN]]
    return JobStatus(
        id=seen.job["metadata"]["name"],
        kind=str(description.get("kind", "?")),
        queue=str(seen.job["spec"].get("queue", "?")),
        instance_type=str(description.get("instance_type", "?")),
        nodes=description["nodes"],
        global_batch_size=description["global_batch_size"],
        stages=tuple(_with_job(stages, seen)),
        directory=str(description.get("directory", "")),
        expected=Expected.of(description.get("expected")),
        user=str(description.get("user", "")),
        submitted=seconds(seen.job["metadata"].get("creationTimestamp")),
    )


def index(pod: Object) -> int:
    """The pod's number within its task."""
    found = pod["metadata"].get("labels", {}).get("volcano.sh/task-index", "0")
    return int(found) if str(found).isdigit() else 0


def task(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get("volcano.sh/task-spec", ""))


def container_state(pod: Object, name: str) -> Mapping[str, Any]:
    """The `running`, `terminated` or `waiting` state of a container; empty if it has none yet."""
    for key in ("containerStatuses", "initContainerStatuses"):
        for found in pod.get("status", {}).get(key, []):
            if found["name"] == name:
                state: Mapping[str, Any] = found.get("state", {})
                return state
    return {}


def seconds(text: Any) -> int | None:
    """A Kubernetes timestamp in seconds since 1970."""
    try:
        return int(dt.datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp())
    except ValueError:
        return None


def _stage(name: str, seen: Seen, pods: Sequence[Object]) -> Stage:
    of_task = PREPARE if name == PREPARE else TRAIN
    mine = [p for p in pods if task(p) == of_task]
    states = [container_state(p, name) for p in mine]
    job_name = seen.job["metadata"]["name"]
    number = task_pod(job_name, of_task, 0)
    number = number if name == PREPARE else number.removesuffix("-0")
    running = [s["running"] for s in states if "running" in s]
    over = [s["terminated"] for s in states if "terminated" in s]
    bad = [t for t in over if t.get("exitCode") != 0]
    started = min((t for r in [*running, *over] if (t := seconds(r.get("startedAt"))) is not None), default=None)
    finished = max((t for r in over if (t := seconds(r.get("finishedAt"))) is not None), default=None)
    nodes = ",".join(p["spec"]["nodeName"] for p in mine if p["spec"].get("nodeName"))
    base = Stage(name, number, "PENDING", nodes=nodes, started=started)
    if name == "precompile" and any(_code(p, TRAIN) == NOT_COMPILED for p in mine):
        return replace(
            base, state="FAILED", reason="did not compile: see its log", exit_code=NOT_COMPILED, ended=finished
        )
    if name == TRAIN and any(t.get("exitCode") == NOT_COMPILED for t in bad):
        return replace(base, state="CANCELLED", reason="did not run: precompile did not complete", started=None)
    if bad:
        return replace(base, **_failure(bad), ended=finished)
    if over and len(over) == len(mine) and len(mine) >= (1 if name == PREPARE else _nodes(seen)):
        return replace(base, state="COMPLETED", exit_code=0, ended=finished)
    if running or over:
        return replace(base, state="RUNNING")
    return replace(base, reason=_why_pending(mine, name))


def _nodes(seen: Seen) -> int:
    nodes: int = described(seen.job)["nodes"]
    return nodes or 1


def _code(pod: Object, name: str) -> int | None:
    found = container_state(pod, name).get("terminated")
    return found.get("exitCode") if found else None


def _failure(bad: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # the first failure stopped the others
    first = min(bad, key=lambda t: (seconds(t.get("finishedAt")) or 0, t.get("exitCode") == 143))
    code, reason = first.get("exitCode"), str(first.get("reason", ""))
    if code == TIMED_OUT:
        return {"state": "TIMEOUT", "reason": "reached its time limit", "exit_code": code}
    if reason == "OOMKilled":
        return {"state": "OUT_OF_MEMORY", "reason": "was killed: out of memory", "exit_code": code}
    if found := re.search(r"exit code (\d+)\s*$", str(first.get("message", ""))):
        code = int(found[1])  # the script's own exit code
    return {"state": "FAILED", "reason": f"exit code {code}", "exit_code": code}


def _why_pending(pods: Sequence[Object], name: str) -> str:
    for pod in pods:
        waiting = container_state(pod, name).get("waiting") or {}
        why = str(waiting.get("reason", ""))
        if why and why not in _STARTING:
            return _cut(f"{why}: {waiting.get('message', '')}".removesuffix(": "))
        for condition in pod.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False" and condition.get("message"):
                return _scheduling([condition["message"]])
    return "starts" if any(p["spec"].get("nodeName") for p in pods) else ""


def _scheduling(messages: Iterable[str]) -> str:
    """The scheduler's messages in one sentence."""
    texts = [m for m in messages if m]
    short = list(dict.fromkeys(re.findall(r"[Ii]nsufficient(?: quota)?:? ([A-Za-z][\w./-]+)", " ".join(texts))))
    if short:
        return f"waits for nodes: insufficient {', '.join(short)}"
    return _cut(f"waits for nodes: {texts[-1]}") if texts else "waits for nodes"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"


def _with_job(stages: list[Stage], seen: Seen) -> list[Stage]:
    """The stages, corrected by the state of the job as a whole."""
    now, job = phase(seen.job), seen.job.get("status", {})
    retries, most = int(job.get("retryCount", 0)), int(seen.job["spec"].get("maxRetry", 0))
    at = seconds(job.get("state", {}).get("lastTransitionTime"))
    made: list[Stage] = []
    for found in stages:
        stage = found
        before = next((s for s in made if s.state != "COMPLETED"), None)
        if now == "Completed":
            stage = replace(stage, state="COMPLETED", reason="", exit_code=0, ended=stage.ended or at)
        elif before is not None and ACTIVE & {stage.state, before.state}:
            stage = _after(stage, before)
        elif stage.state in ACTIVE or (now == "Aborted" and stage.state != "COMPLETED"):
            stage = _current(stage, now, seen, retries, most, at)
        elif stage.state != "COMPLETED" and now not in _ENDED:
            # its pods report it first; others may still run, and use its compile cache
            then = "ends" if now in ("Terminating", "Aborting") else "ends or starts again"
            stage = replace(stage, state="RUNNING", reason=f"{stage.reason}; {then}", ended=None)
        made.append(stage)
    if now not in _ENDED and all(s.state == "COMPLETED" for s in made):
        made[-1] = replace(made[-1], state="RUNNING", reason="ends", exit_code=None, ended=None)
    return made


def _after(stage: Stage, before: Stage) -> Stage:
    if before.state in ACTIVE:
        return replace(stage, state="PENDING", reason=f"waits for {before.name}")
    return replace(stage, state="CANCELLED", reason=f"did not run: {before.name} did not complete")


def _current(stage: Stage, now: str, seen: Seen, retries: int, most: int, at: int | None) -> Stage:
    """The job's current stage, if its pods alone do not show how it ended."""
    if now == "Aborted":
        return replace(stage, state="CANCELLED", reason="", exit_code=None, ended=at)
    if now == "Aborting":
        return replace(stage, reason="is being cancelled")
    if now == "Failed":
        attempts = f"each of {retries} attempts" if retries > 1 else "its only attempt"
        return replace(stage, state="FAILED", reason=f"failed in {attempts}: see its log", ended=at)
    if now == "Terminated":
        return replace(stage, state="FAILED", reason="stopped because another node failed", ended=at)
    again = f"attempt {retries + 1} of {most}; " if retries else ""
    if stage.state == "RUNNING":
        return replace(stage, reason=again.removesuffix("; "))
    if now == "Restarting":
        return replace(stage, reason=f"{again}starts again")
    return replace(stage, reason=again + (_scaler(seen.group) or stage.reason or _group(seen)))


def _group(seen: Seen) -> str:
    """Why the pod group as a whole waits."""
    group = seen.group or {}
    if seen.nodes is not None:
        ready = [n for n in seen.nodes if _is_ready(n)]
        wanted = group.get("spec", {}).get("minResources", {})
        if short := [f"{name} ({wanted[name]} requested, {there} available)" for name, there in _short(wanted, ready)]:
            return (
                f"waits for nodes: insufficient {', '.join(short)}; it needs {_nodes(seen)} nodes, and its node group has "
                f"{len(ready)} ready"
            )
    conditions = [
        str(c.get("message", "")) for c in group.get("status", {}).get("conditions", []) if c.get("status") == "True"
    ]
    # before its pods are created, Volcano counts them as 0 of 0
    return _scheduling([m for m in [*conditions, *seen.events] if not m.startswith("0/0 tasks")])


def _scaler(group: Object | None) -> str:
    """The node scaler's note on a PodGroup; empty if it has none."""
    try:
        return _cut(json.loads((group or {})["metadata"]["annotations"][NODES])["why"])
    except (KeyError, TypeError, ValueError):
        return ""


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _short(wanted: Mapping[str, str], ready: Sequence[Object]) -> list[tuple[str, int]]:
    """Devices of which all ready nodes together have too few, in use or not: (name, number)."""
    found = []
    for name, amount in wanted.items():
        if "/" in name and "." in name.partition("/")[0] and not name.startswith("requests.") and amount.isdigit():
            there = sum(int(n.get("status", {}).get("allocatable", {}).get(name, 0)) for n in ready)
            if there < int(amount):
                found.append((name, there))
    return found
