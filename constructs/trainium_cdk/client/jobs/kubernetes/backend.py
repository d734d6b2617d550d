"""Jobs on an EKS cluster: each operation is a few requests to the Kubernetes API."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any

from trainium_cdk.client.jobs import quote
from trainium_cdk.client.jobs.backend import Backend, all_submitted, read_answer, unknown_job, until
from trainium_cdk.client.jobs.forward import Tunnel
from trainium_cdk.client.jobs.job_spec import new_token
from trainium_cdk.client.jobs.kubernetes import access, inside, logs, look, nodes, parts, reader, status
from trainium_cdk.client.jobs.kubernetes.api import Api, Object
from trainium_cdk.client.jobs.kubernetes.objects import objects, render
from trainium_cdk.client.jobs.kubernetes.status import JobObjects
from trainium_cdk.client.jobs.kubernetes.submit import Submitter
from trainium_cdk.client.jobs.models import AnyJob, Plan
from trainium_cdk.client.jobs.runner import settings_in
from trainium_cdk.client.jobs.status import Foreign, JobStatus, LogChunk, Node, Submitted
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.errors import ApiError, JobError, SubmitError, TrnError, UnknownJob
from trainium_cdk.runner.blocks import Block

_CANCEL_SECONDS = 60
"""Seconds that pods may take to end."""


class KubernetesBackend(Backend):
    """Jobs of one cluster, through its API.

    Args:
        api: the cluster's API, or a function that creates it on first use.
    """

    ordered_logs = False
    interval = 2.0
    cluster: EksCluster

    def __init__(
        self,
        cluster: EksCluster,
        api: Api | Callable[[], Api],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.cluster = cluster
        self._make = api if callable(api) else lambda: api
        self.sleep = sleep

    @cached_property
    def api(self) -> Api:
        """The cluster's API.

        Raises:
            TransportError: it cannot be reached.
        """
        return self._make()

    @cached_property
    def blocks(self) -> tuple[list[Block], str]:
        """The cluster's capacity blocks, as EC2 tells this user; and why some are not known."""
        if not self.cluster.has_blocks:
            return [], ""
        from trainium_cdk.client.jobs import blocks

        return blocks.ask(self.cluster)

    @property
    def devices(self) -> dict[str, int]:
        """Devices of one node, by node group."""
        return {fleet.resource: fleet.devices for fleet in self.cluster.fleets}

    def render(self, job: AnyJob, token: str | None = None) -> Plan:
        return render(job, self.cluster, new_token() if token is None else token)

    def send(self, *rendered: Plan) -> tuple[Submitted, ...]:
        outcomes: list[Submitted | SubmitError] = []
        for one in rendered:
            try:
                outcomes.append(self._send(one))
            except SubmitError as e:
                outcomes.append(e)
        return all_submitted(outcomes)

    def _send(self, rendered: Plan) -> Submitted:
        id, made, sent = rendered.id, objects(rendered, self.cluster), None
        if self.cluster.has_blocks:
            from trainium_cdk.client.jobs import blocks

            if line := blocks.line(rendered, *self.blocks):
                self.say(line)
        if workdir := getattr(rendered.job, "workdir", None):
            from trainium_cdk.client.jobs.workdir import send_folder

            sent = send_folder(workdir, self.cluster.bucket, self.cluster.region)
        existing = Submitter(self.cluster, self.api, rendered, made, self.sleep).send()
        if rendered.job.after:
            with contextlib.suppress(TrnError):  # it is submitted, and enters its queue without us too
                self.status(id)
        stages = {str(stage): f"{id}/{stage}" for stage in rendered.stages}
        return Submitted(id, existing, stages, rendered.directory, sent=sent)

    def status(self, id: str, *, progress: bool = False) -> JobStatus:
        job, rows = self._found(id)
        if rows:
            return self._of_array(rows)
        [found] = look.read_jobs(self.api, [job], self.devices)
        self._release(found)
        if status.ended(job) and not parts.array(job):
            self._forget_variables(job["metadata"]["name"])
        made = self._in_block(status.status(look.warned(self.api, look.on_nodes(self.api, found))))
        return logs.with_progress(self, made) if progress else made

    def _in_block(self, job: JobStatus) -> JobStatus:
        """Add the end of the capacity block in which the job runs, if it has no other reason."""
        *before, last = job.stages
        block = (
            next((one for one in self.blocks[0] if one.queue == job.queue), None) if last.state == "RUNNING" else None
        )
        if not block or last.reason or block.ends <= time.time():
            return job
        return replace(job, stages=(*before, replace(last, reason=block.text)))

    def _of_array(self, rows: Sequence[Object]) -> JobStatus:
        seen = look.of_array(self.api, rows, self.devices)
        for one in seen:
            self._release(one)
        if all(row["columns"]["TerminalState"] for row in rows):
            self._forget_variables(parts.array(rows[0]))
        return look.array_status(rows, seen)

    def seen(self, id: str, *, any_member: bool = False) -> JobObjects:
        """The job's objects in the cluster. Raises as `status` does.

        Args:
            any_member: for an array, the pods of one of its members.

        Raises:
            JobError: it is an array.
        """
        job, rows = self._found(id)
        if rows and not any_member:
            raise JobError(
                f"{parts.submission(job)} is an array of {len(rows)}. Name a member, for example {parts.id_of(job)}"
            )
        [found] = look.read_jobs(self.api, [job], self.devices)
        self._release(found)
        return found

    def _forget_variables(self, name: str) -> None:
        """Delete the Secret of a job that has ended, and cannot start again: its variables may be secret. Else it goes with the JobSet."""
        with contextlib.suppress(ApiError):  # the caller may not be allowed to
            if kept := self.api.find("Secret", name):
                self.api.delete("Secret", name, uid=kept["metadata"]["uid"])

    def _release(self, found: JobObjects) -> None:
        if change := status.released(found):  # the node scaler's function does this within a minute, where there is one
            body, part = change
            with contextlib.suppress(ApiError):  # the caller may not be allowed to, or the function was first
                self.api.patch("JobSet", found.job["metadata"]["name"], body, part=part)

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        """List the running jobs, newest first; then the waiting ones, in the order of their queue; then the ended ones, newest first."""
        return look.list_jobs(self.api, limit, self.devices, look.rows(self.api))

    def listed(self, limit: int = 50) -> tuple[tuple[JobStatus, ...], tuple[Foreign, ...]]:
        """List the jobs and others. Each kind of objects is read once."""
        rows, workloads = look.rows(self.api), look.Workloads(self.api)
        places = look.waiting(self.devices, workloads) if workloads.without else {}
        jobs = look.list_jobs(self.api, limit, self.devices, rows, places)
        return jobs, nodes.list_others(self.api, workloads, places, rows)

    def ids(self, limit: int) -> tuple[str, ...]:
        return tuple(look.grouped(look.rows(self.api)))[:limit]

    def settings(self, id: str) -> Mapping[str, Any]:
        """Return the settings in the job's object, without a script's arguments. Errors as of `status`."""
        return settings_in(self._found(id)[0]["metadata"].get("annotations", {}).get(parts.DESCRIPTION, ""))

    def active(self) -> tuple[JobStatus, ...]:
        return look.active(self.api)

    def others(self) -> tuple[Foreign, ...]:
        workloads = look.Workloads(self.api)
        places = look.waiting(self.devices, workloads) if workloads.without else {}
        return nodes.list_others(self.api, workloads, places, look.rows(self.api))

    def cancel(self, id: str) -> JobStatus:
        """The job fails with the reason `Cancelled`: JobSet then ends its pods, and Kueue takes it out of its queue."""
        job, rows = self._found(id)
        if rows:
            return self._cancel_array(rows)
        self._fail(id, job)
        seen = self.seen(id)
        if seen.prepare and not parts.array(job):  # which an array's other members need
            self.api.delete("BatchJob", seen.prepare["metadata"]["name"], uid=seen.prepare["metadata"]["uid"])
        self._until_ended(lambda: self.seen(id).pods)
        return self.status(job["metadata"]["name"])

    def _cancel_array(self, rows: Sequence[Object]) -> JobStatus:
        """Cancel an array's members, waiting ones first: none may start on the nodes of a cancelled one."""
        name = parts.array(rows[0])
        for row in sorted(rows, key=look.waits, reverse=True):
            if not row["columns"]["TerminalState"]:
                with contextlib.suppress(UnknownJob):  # deleted meanwhile
                    self._fail(parts.id_of(row), self._job(row["metadata"]["name"]))
        prepare = self.api.find("BatchJob", parts.prepare_job(name))
        if prepare and {row["metadata"]["uid"] for row in rows}.intersection(parts.owners(prepare)):
            self.api.delete("BatchJob", prepare["metadata"]["name"], uid=prepare["metadata"]["uid"])
        self._until_ended(lambda: self.api.list("Pod", labels=f"{parts.ARRAY_LABEL}={name}"))
        return self.status(name)

    def _fail(self, id: str, job: Object) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        while not (now := status.status(look.read_jobs(self.api, [job], self.devices)[0])).done:
            try:
                self.api.patch("JobSet", name, status.cancelled(job, now.stages), part="/status")
            except ApiError as e:
                if e.status not in (404, 409):
                    raise
            job = self._job(id)
            if job["metadata"]["uid"] != uid:
                raise UnknownJob(f"job {id} was deleted meanwhile; a new job has its name, and was not cancelled")

    def _until_ended(self, pods: Callable[[], Iterable[Object]]) -> None:
        until(lambda: not status.alive(pods()), _CANCEL_SECONDS, pause=0.3, sleep=self.sleep)

    def ask(
        self,
        given: Any,
        *,
        image: str | None = None,
        folder: str = "",
        seconds: int = 600,
        private: bool = False,  # noqa: ARG002  it always is
    ) -> Any:
        """Arguments and errors as of `Backend.ask`."""
        image = image or reader.small_image(self.cluster)
        answer = reader.ask(self.api, self.cluster, given, image=image, folder=folder, seconds=seconds)
        return read_answer(answer, given, self.cluster)

    def nodes(self) -> tuple[Node, ...]:
        return nodes.list_nodes(self.api, self.cluster)

    def session(self, node: Node | None = None, command: Sequence[str] = ()) -> tuple[str, str]:
        """The instance of a node, or the bastion host. Errors as of `Backend.session`."""
        if node is None:
            if not self.cluster.bastion_host_id:
                raise JobError(f"{self.cluster.stack} has no bastion host. Name a node (`trn nodes` lists them)")
            return self.cluster.bastion_host_id, quote.words(command)
        if not node.instance:
            raise JobError(f"node {node.name} has no EC2 instance yet. Try again when it is ready")
        return node.instance, quote.words(command)

    def logs(
        self,
        id: str,
        *,
        stage: str | None = None,
        node: int | None = None,
        rank: int | None = None,
        follow: bool = False,
        offset: int = 0,
        tail: int | None = None,  # noqa: ARG002  the lines of several pods have no order
        changed: Callable[[JobStatus], None] | None = None,
    ) -> Iterator[LogChunk]:
        if rank is not None:
            node = self._node_of_rank(id, rank)
        return logs.read(self, id, stage=stage, node=node, follow=follow, offset=offset, changed=changed)

    def _node_of_rank(self, id: str, rank: int) -> int:
        node = logs.node_of_rank(self, id, rank)
        self.say(f"rank {rank} is on node {node}")
        return node

    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        pod, container = inside.place(self, id, node)
        return inside.run(self.api, pod, container, command)

    def on_nodes(self, id: str, words: Sequence[str]) -> Sequence[str]:
        places = [inside.place(self, id, node) for node in range(self.status(id).nodes)]
        return [inside.output(self.api, *place, words) for place in places]

    def forward(
        self,
        id: str,
        port: int = 0,
        *,
        node: int | str = 0,
        rank: int | None = None,
        local: int = 0,
        patience: float = 0,
    ) -> AbstractContextManager[Tunnel]:
        if rank is not None:
            node = self._node_of_rank(id, rank)
        return inside.forward(self, id, node, port, local, patience)

    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[Tunnel]:
        return reader.serve_tensorboard(self, id, image=image, port=port, say=say)

    def _found(self, id: str) -> tuple[Object, Sequence[Object]]:
        """A job's JobSet. For an array, the first member's, and all members' rows (see `look.rows`). Errors as of `status`."""
        try:
            return self._job(id), ()
        except UnknownJob:
            rows = []
            if "/" not in id:
                with contextlib.suppress(JobError):  # too long
                    rows = look.array(self.api, parts.object_name(id))
            if not rows:
                nodes.refuse_foreign(self.api, id, self.others())
                raise
        rows.sort(key=lambda row: int(row["metadata"]["labels"][parts.MEMBER_LABEL]))
        return self._job(rows[0]["metadata"]["name"]), rows

    def _job(self, id: str) -> Object:
        """A job that `trn` has submitted. There may be JobSets of others, under any name."""
        try:
            found = self.api.find("JobSet", parts.object_name(id))
        except JobError:
            found = None
        if found is None:
            raise unknown_job(id, self.cluster)
        if not parts.is_job(found):
            why = next((one.reason for one in self.others() if one.name == found["metadata"]["name"]), "")
            raise nodes.foreign_error(self.api, "jobset", id, why)
        return found


def connect(
    cluster: EksCluster,
    *,
    local: bool | None = None,
    say: Callable[[str], None] | None = None,  # noqa: ARG001
) -> KubernetesBackend:
    """Arguments and errors as of `jobs.connect`."""
    if local:
        raise TrnError(f"stack {cluster.stack} runs Kubernetes and has no head node. Remove --local")
    return KubernetesBackend(cluster, lambda: kubernetes_api(cluster))


def kubernetes_api(cluster: EksCluster) -> Api:
    """The Kubernetes API of a cluster, with the credentials of AWS.

    Raises:
        TransportError: it cannot be reached.
    """
    endpoint = access.reach(cluster, access.find(cluster))
    return Api(endpoint, access.Identity.of(cluster), cluster.namespace)
