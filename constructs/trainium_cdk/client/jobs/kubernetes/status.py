"""The status of a job, from its Kubernetes objects. Pure."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainium_cdk.cdk.eks.scaler.labels import unready
from trainium_cdk.client.jobs.kubernetes.parts import (
    AFTER,
    AFTER_LABEL,
    CANCELLED,
    DESCRIPTION,
    FOLDER,
    INDEX_LABEL,
    NEVER,
    NOT_COMPILED,
    PREPARE,
    QUEUE,
    QUEUE_LABEL,
    TASK_LABEL,
    TRAIN,
    condition,
    id_of,
    prepare_job,
    seconds,
    submission,
    submitted,
)
from trainium_cdk.client.jobs.kubernetes.reasons import (
    Waits,
    cut,
    describe_failure,
    describe_no_python,
    describe_wait,
    is_without_program,
    told_by,
)
from trainium_cdk.client.jobs.runner import plain
from trainium_cdk.client.jobs.status import (
    ACTIVE,
    ENDED_BADLY,
    JobStatus,
    Stage,
    checkpoints_in,
    parse_int,
    with_reason,
)
from trainium_cdk.description.outputs import ROLE_LABEL
from trainium_cdk.errors import JobError
from trainium_cdk.runner.records import MEMORY_FULL, one_line
from trainium_cdk.runner.spec import SpecError

Object = dict[str, Any]

STARTS = "starts"
"""The reason of a stage that nothing keeps from running."""
ATTENTION = "needs attention since"
"""Begins the reason of a training without progress, as far as its pods show it: its log says what it is."""
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
_LATE = 300
"""Seconds; the function that starts nodes runs each minute."""
_STAGES = (PREPARE, "precompile", TRAIN)
_MOST_NODES = 10_000
_TEXTS = ("kind", "queue", "instance_type", "directory", "user")
"""What a job's description has as texts."""
_JOBSET = {
    "FailedJobs": "failed, and is not started again",
    "FailJobSetFailurePolicyAction": "failed, and its failure policy does not start it again",
    "JobCreationFailed": "its Jobs could not be created",
    "HeadlessServiceCreationFailed": "the Service by which its pods find each other could not be created",
    "PVCCreationFailed": "its volumes could not be created",
    "ExclusivePlacementViolation": "a pod was on a node that its placement forbids",
}
"""The reasons of JobSet for a failure (pkg/constants/constants.go, 2026-08-18), other than `ReachedMaxRestarts`."""


@dataclass(frozen=True)
class JobObjects:
    """A job's objects in the cluster.

    Attributes:
        job: the JobSet.
        pods: its pods, and the pods of `prepare`.
        prepare: the batch Job of `prepare`, if it exists.
        after: the JobSets that must complete before it: another job, or all members of an array.
        workload: Kueue's Workload of the JobSet, if it exists.
        waits: what is known of its place in its queue.
        ran: when the function that starts nodes ran last, in seconds since 1970; None if that is not known.
        lost: its nodes that do not respond.
        broken: those that the node scaler's function has cordoned because a device is broken, and the words of EKS's node monitoring agent.
        refused: why its pods cannot be created; empty if they can, or that is not known.
        stuck: what keeps its pods from starting that are on their nodes; empty if nothing does, or that is not known.
    """

    job: Object
    pods: Sequence[Object] = ()
    prepare: Object | None = None
    after: Sequence[Object] = ()
    workload: Object | None = None
    waits: Waits = field(default_factory=Waits)
    ran: int | None = None
    lost: Sequence[str] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    stuck: str = ""


def described(job: Object) -> dict[str, Any]:
    """The job's description from its submission. It may have been edited: invalid values are left out, so that they do not
    break the list of jobs."""
    try:
        found = plain(str((job["metadata"].get("annotations") or {}).get(DESCRIPTION, "")))
    except SpecError:
        found = {}
    if not isinstance(found, dict):
        found = {}
    stages, values = found.get("stages"), found.get("values")
    texts = {name: one_line(found[name]) for name in _TEXTS if isinstance(found.get(name), str)}
    return {
        **{name: value for name, value in found.items() if name not in _TEXTS},
        **texts,
        "directory": _directory(texts.get("directory", "")),
        "stages": [s for s in stages if s in _STAGES] if isinstance(stages, list) else [],
        "nodes": min(parse_int(found.get("nodes")) or 0, _MOST_NODES),
        "ranks_per_node": max(1, parse_int(found.get("ranks_per_node")) or 1),
        "global_batch_size": parse_int(found.get("global_batch_size")),
        "values": {one_line(name): one_line(str(value)) for name, value in values.items()}
        if isinstance(values, dict)
        else {},
    }


def _directory(text: str) -> str:
    """A job's directory; empty if it is none that a job can have."""
    return text if text.startswith("/") and ".." not in text.split("/") else ""


def ended(job: Object) -> bool:
    return bool(condition(job, "Completed", "Failed"))


def failed(job: Object, reason: str, message: str) -> Object:
    """The change of its status by which a JobSet fails, if it has not changed since it was read."""
    now = _time(time.time())
    new = {"type": "Failed", "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
    others = [c for c in job.get("status", {}).get("conditions") or [] if c["type"] != "Failed"]
    return {"metadata": _proof(job), "status": {"terminalState": "Failed", "conditions": [*others, new]}}


def cancelled(job: Object, stages: Iterable[Stage]) -> Object:
    """The change of its status by which a JobSet is cancelled. It says when its stages began and completed: their pods, which know it,
    are deleted."""
    began = [f"; {s.name} began {_time(s.started)}" for s in stages if s.started]
    done = [f"; {s.name} completed {_time(s.ended)}" for s in stages if s.state == "COMPLETED" and s.ended]
    return failed(job, CANCELLED, f"trn cancel{''.join(began + done)}")


def _times(message: str, what: str) -> dict[str, int | None]:
    """Read the times at which stages began or completed, from the message of a cancelled job."""
    return {name: seconds(at) for name, at in re.findall(rf"; (\w+) {what} (\S+Z)", message)}


def _time(since_1970: float) -> str:
    return f"{dt.datetime.fromtimestamp(since_1970, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


def released(seen: JobObjects) -> tuple[Object, str] | None:
    """The change by which a JobSet that waits for others enters its queue or fails, and what is changed, if it is time for it."""
    job, first, other = seen.job, waits_for(seen.job), after(seen.job)
    queue = job["metadata"].get("annotations", {}).get(QUEUE)
    if not first or not queue or ended(job):
        return None
    if any(condition(one, "Failed") for one in seen.after):
        return failed(job, NEVER, f"{_named(seen)} did not complete"), "/status"
    if not _completed(seen) or (first != other and not condition(seen.prepare, "Complete")):
        return None
    labels = {AFTER_LABEL: None, QUEUE_LABEL: queue}
    return {"metadata": {**_proof(job), "labels": labels}}, ""


def _completed(seen: JobObjects) -> bool:
    """Return whether all jobs before this one have completed."""
    return not after(seen.job) or (bool(seen.after) and all(condition(one, "Completed") for one in seen.after))


def _named(seen: JobObjects) -> str:
    """Return the id of the job before this one."""
    name = after(seen.job)
    return next((id_of(one) for one in seen.after if one["metadata"]["name"] == name), name)


def waits_for(job: Object) -> str:
    """Return the name of the job that must complete before a JobSet enters its queue: a batch Job, or the JobSet `after`; empty if none."""
    return str(job["metadata"].get("labels", {}).get(AFTER_LABEL, ""))


def after(job: Object) -> str:
    """The JobSet, or the array, that must complete before this one; empty if none."""
    return str(job["metadata"].get("annotations", {}).get(AFTER, ""))


def _proof(job: Object) -> Object:
    return {key: job["metadata"][key] for key in ("uid", "resourceVersion")}


def train_spec(job: Object) -> Object:
    """The specification of the training pods.

    Raises:
        JobError: it has none.
    """
    if not (made := job["spec"].get("replicatedJobs")):
        raise JobError(f"{id_of(job)} has no pods: its JobSet was changed. Submit it again")
    spec: Object = made[-1]["template"]["spec"]["template"]["spec"]
    return spec


def alive(pods: Iterable[Object]) -> bool:
    """Return whether a container of the pods may still run."""
    return any(pod.get("status", {}).get("phase") not in ("Succeeded", "Failed") for pod in pods)


def status(seen: JobObjects) -> JobStatus:
    pods = sorted(seen.pods, key=index)
    stages = [_stage(name, seen, pods) for name in described(seen.job)["stages"] or [TRAIN]]
    *before, last = _with_job(stages, seen)
    return of(seen.job, (*before, replace(last, values=described(seen.job)["values"])))


def of(job: Object, stages: Iterable[Stage]) -> JobStatus:
    """A job, as its submission describes it, with these stages."""
    description = described(job)
    return JobStatus(
        id=id_of(job),
        kind=str(description.get("kind", "?")),
        queue=one_line(str(job["metadata"].get("annotations", {}).get(QUEUE, "?"))),
        instance_type=str(description.get("instance_type", "?")),
        nodes=description["nodes"],
        global_batch_size=description["global_batch_size"],
        stages=tuple(with_reason(one, description["nodes"]) if one.state in ENDED_BADLY else one for one in stages),
        directory=str(description.get("directory", "")),
        user=str(description.get("user", "")),
        submitted=seconds(job["metadata"].get("creationTimestamp")),
        checkpoints=checkpoints_in(str(description.get("directory", "")), description.get("checkpoints")),
    )


def index(pod: Object) -> int:
    """The pod's number within its task."""
    found = pod["metadata"].get("labels", {}).get(INDEX_LABEL, "0")
    return int(found) if str(found).isdigit() else 0


def task(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(TASK_LABEL, ""))


def _image(pod: Object, name: str) -> str:
    every = (*pod["spec"].get("containers", []), *pod["spec"].get("initContainers", []))
    return next((str(one.get("image")) for one in every if one["name"] == name), "?")


def container_state(pod: Object, name: str) -> Mapping[str, Any]:
    """The `running`, `terminated` or `waiting` state of a container; empty if it has none yet."""
    for key in ("containerStatuses", "initContainerStatuses"):
        for found in pod.get("status", {}).get(key, []):
            if found["name"] == name:
                state: Mapping[str, Any] = found.get("state", {})
                return state
    return {}


def _stage(name: str, seen: JobObjects, pods: Sequence[Object]) -> Stage:
    of_task = PREPARE if name == PREPARE else TRAIN
    mine = [p for p in pods if task(p) == of_task]
    states = [container_state(p, name) for p in mine]
    job_name = seen.job["metadata"]["name"]
    number = prepare_job(submission(seen.job)) if name == PREPARE else f"{job_name}-{TRAIN}"
    running = [s["running"] for s in states if "running" in s]
    over = [s["terminated"] for s in states if "terminated" in s]
    bad = [
        {**t, "node": index(p), "full": memory_full(p, name), "image": _image(p, name)}
        for p, s in zip(mine, states, strict=True)
        if (t := s.get("terminated")) and t.get("exitCode") != 0
    ]
    started = min((t for r in [*running, *over] if (t := seconds(r.get("startedAt"))) is not None), default=None)
    finished = max((t for r in over if (t := seconds(r.get("finishedAt"))) is not None), default=None)
    nodes = ",".join(p["spec"]["nodeName"] for p in mine if p["spec"].get("nodeName"))
    base = Stage(name, number, "PENDING", nodes=nodes, started=started)
    not_begun = next((text for p in mine if (text := _not_begun(p))), "")
    if name == PREPARE:
        if not waits_for(seen.job) or condition(seen.prepare, "Complete"):
            return replace(base, state="COMPLETED", exit_code=0, ended=finished)
        if why := condition(seen.prepare, "Failed"):
            failure = describe_failure(bad) if bad else {"state": "FAILED", "reason": not_begun or cut(why["message"])}
            return replace(base, ended=finished, **failure)
        if bad:
            failure = describe_failure(bad)
            return replace(base, state="RUNNING", reason=f"{failure['reason']}; {_next(failure['state'])}")
    if name == "precompile" and any(t.get("exitCode") == NOT_COMPILED for t in bad):
        return replace(
            base, state="FAILED", reason="did not compile: see its log", exit_code=NOT_COMPILED, ended=finished
        )
    if not_begun:
        return replace(base, state="FAILED", reason=not_begun, ended=finished)
    if taken := next((text for p in mine if (text := _taken(p))), ""):
        return replace(base, state="FAILED", reason=taken, ended=finished)
    if bad:
        return replace(base, **describe_failure(bad), ended=finished)
    if name != PREPARE and over and len(over) == len(mine) and len(mine) >= (described(seen.job)["nodes"] or 1):
        return replace(base, state="COMPLETED", exit_code=0, ended=finished)
    if running or over:
        without = [text for p in mine if (text := _blocked(p, name))]
        return replace(
            base, state="RUNNING", reason=cut(f"{len(without)} of its pods: {without[0]}") if without else ""
        )
    return replace(base, reason=why_pending(mine, name))


def _taken(pod: Object) -> str:
    """Describe why a pod was ended that had not failed: its node is lost, or has no space left; empty if it was not."""
    state, node = pod.get("status", {}), pod["spec"].get("nodeName", "?")
    if state.get("phase") == "Failed" and state.get("reason"):  # by its node's kubelet
        return cut(f"node {node} ended its pod: {state['reason']}: {state.get('message', '')}".removesuffix(": "))
    why = condition(pod, "DisruptionTarget")
    return cut(f"its pod on node {node} is ended: {why['reason']}: {why.get('message', '')}") if why else ""


def _not_begun(pod: Object) -> str:
    """Describe why no container of a pod could begin: the first one failed, which makes a folder; empty if it did not."""
    end = container_state(pod, FOLDER).get("terminated") or {}
    if not end.get("exitCode"):
        return ""
    if is_without_program(end):
        return describe_no_python(_image(pod, FOLDER))
    return f"the jobs' folder on the shared file system was not made: exit code {end['exitCode']}. See the log of its container {FOLDER}"


def _next(state: str) -> str:
    """Describe the result of a pod's failure, which Kubernetes has not decided yet."""
    return "ends" if state == "OUT_OF_MEMORY" else "ends or starts again"


def memory_full(pod: Object, name: str) -> str:
    """Describe how a container of a pod was killed for full memory, and the change to make; empty if it was not."""
    ended = container_state(pod, name).get("terminated") or {}
    if ended.get("reason") != "OOMKilled" and not _killed(ended):
        return ""
    spec = pod["spec"]
    found: Object = next((c for c in (*spec["containers"], *spec.get("initContainers", [])) if c["name"] == name), {})
    most = str(found.get("resources", {}).get("limits", {}).get("memory", ""))
    if re.fullmatch("[0-9]{1,9}Mi", most) and int(most[:-2]) % 1024 == 0:
        most = f"{int(most[:-2]) // 1024}Gi"
    given = f"its {most.replace('Gi', ' GiB').replace('Mi', ' MiB')} of memory" if most else "its memory"
    if spec.get("nodeSelector", {}).get(ROLE_LABEL) == "system":
        fix = "Raise eks.prepare_memory_gib and deploy, then start it again"
    else:
        fix = (
            "Use fewer data loader workers or compiler processes, a smaller batch, or an instance type with more memory"
        )
    return f"was killed: it needed more than {given}. {fix}"


def _killed(ended: Object) -> bool:
    told = told_by(ended)
    return told is not None and told.last == MEMORY_FULL


def starts(pod: Object) -> bool:
    """Return whether a pod is on a node, and none of its containers has run yet; or its claim of devices is not there, so that the scheduler does not
    look at it. While an image is pulled or a volume mounted, it looks the same."""
    found = [
        *pod.get("status", {}).get("initContainerStatuses", []),
        *pod.get("status", {}).get("containerStatuses", []),
    ]
    began = any({"running", "terminated"} & one.get("state", {}).keys() for one in found)
    seen = pod["spec"].get("nodeName") or not condition(pod, "PodScheduled", status="False")
    return bool(seen) and pod.get("status", {}).get("phase") == "Pending" and not began


def why_pending(pods: Sequence[Object], name: str) -> str:
    """Describe why a container of these pods does not run yet: `starts` if nothing keeps it from that; empty if there are no pods."""
    return next((cut(why) for pod in pods if (why := _blocked(pod, name))), STARTS if pods else "")


def _blocked(pod: Object, name: str) -> str:
    """Describe the obstacle to a container: its pod has no node, or its image cannot be pulled, for example; empty if there is none."""
    for container in (FOLDER, name):
        waiting = container_state(pod, container).get("waiting") or {}
        why = str(waiting.get("reason", ""))
        if why and why not in _STARTING:
            return f"{why}: {waiting.get('message', '')}".removesuffix(": ")
    for found in pod.get("status", {}).get("conditions", []):
        if found["type"] == "PodScheduled" and found["status"] == "False" and found.get("message"):
            return f"waits for nodes: {found['message'].partition(', preemption: ')[0]}"
    return ""


def _with_job(stages: list[Stage], seen: JobObjects) -> list[Stage]:
    """The stages, corrected by the state of the job as a whole."""
    completed, failed = condition(seen.job, "Completed"), condition(seen.job, "Failed")
    end = completed or failed
    at = seconds(end["lastTransitionTime"]) if end else None
    made: list[Stage] = []
    for found in stages:
        stage = found
        before = next((s for s in made if s.state != "COMPLETED"), None)
        if completed:
            began = stage.started or (_resumed(seen.job) if stage.name != PREPARE else None)
            stage = replace(stage, state="COMPLETED", reason="", exit_code=0, started=began, ended=stage.ended or at)
        elif failed and failed["reason"] in (CANCELLED, NEVER) and stage.state != "COMPLETED":
            why = f"did not run: {cut(failed['message'])}" if failed["reason"] == NEVER else ""
            began = stage.started or _times(failed["message"], "began").get(stage.name)
            stage = replace(stage, state="CANCELLED", reason=why, exit_code=None, started=began, ended=at)
            if done := _times(failed["message"], "completed").get(stage.name):
                stage = replace(stage, state="COMPLETED", exit_code=0, ended=done)
        elif before is not None and ACTIVE & {stage.state, before.state}:
            stage = _after(stage, before)
        elif stage.state in ACTIVE:
            stage = _not_ended(stage, failed, seen, at) if failed else _current(stage, seen)
        elif stage.state != "COMPLETED" and not failed and stage.name != PREPARE:
            # its pods report it first; others may still run, and use its compile cache
            stage = replace(stage, state="RUNNING", reason=f"{stage.reason}; {_next(stage.state)}", ended=None)
        made.append(stage)
    if not end and all(s.state == "COMPLETED" for s in made):
        made[-1] = replace(made[-1], state="RUNNING", reason="ends", exit_code=None, ended=None)
    return made


def _resumed(job: Object) -> int | None:
    """Return the time at which a job's pods were last allowed to start. It is known also if they were not read, or are deleted."""
    conditions = job.get("status", {}).get("conditions") or []
    found = next((c for c in conditions if c["type"] == "Suspended" and c["status"] == "False"), None)
    return seconds(found["lastTransitionTime"]) if found else None


def _after(stage: Stage, before: Stage) -> Stage:
    if before.state in ACTIVE:
        return replace(stage, state="PENDING", reason=f"waits for {before.name}")
    return replace(stage, state="CANCELLED", reason=f"did not run: {before.name} did not complete")


def _attempts(seen: JobObjects) -> tuple[int, int]:
    """The number of the current attempt, and the most that are made."""
    restarts = int(seen.job.get("status", {}).get("restarts") or 0)
    return restarts + 1, int(seen.job["spec"].get("failurePolicy", {}).get("maxRestarts") or 0) + 1


def _not_ended(stage: Stage, failed: Object, seen: JobObjects, at: int | None) -> Stage:
    """A stage that had not ended when the job failed."""
    number, _ = _attempts(seen)
    if failed["reason"] == "ReachedMaxRestarts":
        attempts = f"each of {number} attempts" if number > 1 else "its only attempt"
        return replace(stage, state="FAILED", reason=f"failed in {attempts}: see its log", ended=at)
    words = _JOBSET.get(str(failed["reason"]))
    message = str(failed.get("message") or ("" if words else failed["reason"]))
    return replace(stage, state="FAILED", reason=cut(": ".join(filter(None, [words, message]))), ended=at)


def _current(stage: Stage, seen: JobObjects) -> Stage:
    number, most = _attempts(seen)
    again = [f"attempt {number} of {most}"] if number > 1 else []
    if seen.lost and stage.name != PREPARE:
        nodes = f"node{'s' if len(seen.lost) > 1 else ''} {', '.join(seen.lost)}"
        again.append(
            f"{nodes} not ready: without a change its pods are ended after 5 minutes, and the job starts again"
        )
    if stage.name != PREPARE:
        broken = sorted(seen.broken.items())
        again += [cut(f"node {node} has a broken device, and gets no other job: {why}") for node, why in broken]
    if stage.name == TRAIN and (since := min(filter(None, map(unready, seen.pods)), default=0)):
        at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(since))
        again.append(f"{ATTENTION} {at}: see trn status {id_of(seen.job)}")
    if seen.refused:
        again.append(cut(f"its pods cannot be created: {seen.refused}"))
    elif seen.stuck and stage.state == "PENDING" and stage.reason in ("", STARTS):
        again.append(cut(f"its pods do not start: {seen.stuck}"))
    elif stage.state == "PENDING" and stage.name != PREPARE:
        waits = waiting(seen) if seen.job["spec"].get("suspend") else ""
        if waits and seen.ran and time.time() - seen.ran > _LATE:
            waits += f"; nodes are neither started nor stopped since {time.strftime('%H:%M UTC on %Y-%m-%d', time.gmtime(seen.ran))}"
        again += [waits or stage.reason or STARTS]
    return replace(stage, reason="; ".join(again) or stage.reason)


def waiting(seen: JobObjects) -> str:
    """Describe why a job in a queue does not run yet, by Kueue and the function that starts nodes."""
    if not submitted(seen.job):
        return "is being submitted; if it stays so, submit it again with the same token, or cancel it"
    if waits_for(seen.job):
        if not _completed(seen):
            return f"waits for {_named(seen)}"
        return f"{_named(seen) or PREPARE} has completed: it joins its queue within a minute or two"
    return cut(describe_wait(seen.workload, seen.waits))
