"""Jobs on a Slurm cluster: each operation is one request to the runner on its head node; a log is read in pieces."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from trainium_cdk.client.jobs import joined, quote
from trainium_cdk.client.jobs.backend import (
    FOLLOWING,
    ONE_QUESTION,
    Backend,
    Changes,
    Patience,
    all_submitted,
    check_log,
    read_answer,
)
from trainium_cdk.client.jobs.runner import Document, document
from trainium_cdk.client.jobs.slurm.transport import (
    NOT_THEIRS,
    Result,
    Transport,
    as_user,
    shell,
)
from trainium_cdk.client.jobs.status import (
    ENDED_BADLY,
    Foreign,
    JobStatus,
    LogChunk,
    Node,
    Stage,
    Submitted,
    last_begun,
    with_reasons,
)
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import JobError, NotTheirs, TransportError
from trainium_cdk.runner import requests
from trainium_cdk.runner.blocks import Block
from trainium_cdk.runner.spec import SpecError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.forward import Tunnel
    from trainium_cdk.client.jobs.models import AnyJob, Plan

_SECONDS = 120
"""After which a request is ended."""
_EC2 = re.compile(r"; EC2 reported (\w{1,60}) for ")


class SlurmBackend(Backend):
    """Jobs of one cluster, through one transport.

    Args:
        transport: the way to the head node, or a function that creates it on first use.
    """

    ordered_logs = True
    names_jobs = True
    cluster: SlurmCluster

    def __init__(
        self,
        cluster: SlurmCluster,
        transport: Transport | Callable[[], Transport],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.cluster = cluster
        self._make = transport if callable(transport) else lambda: transport
        self.sleep = sleep
        self._ids: dict[str, str] = {}

    def full_id(self, given: str) -> str:
        return self._ids.get(given, given)

    @cached_property
    def transport(self) -> Transport:
        """The way to the head node.

        Raises:
            TransportError: no credentials or no region were found.
        """
        return self._make()

    @property
    def interval(self) -> float:
        return self.transport.interval

    @cached_property
    def blocks(self) -> tuple[list[Block], str]:
        """The cluster's capacity blocks, as EC2 tells this user; and why some are not known."""
        if not self.cluster.has_blocks:
            return [], ""
        if not self.transport.instance:
            return [], "users of this machine have no right at EC2. Ask for a status from yours"
        from trainium_cdk.client.jobs import blocks

        return blocks.ask(self.cluster)

    def render(self, job: AnyJob, token: str | None = None) -> Plan:
        from trainium_cdk.client.jobs.job_spec import new_token, render

        return render(job, self.cluster, new_token() if token is None else token)

    def send(self, *rendered: Plan) -> tuple[Submitted, ...]:
        from trainium_cdk.client.jobs.slurm import submission

        if self.cluster.has_blocks:
            from trainium_cdk.client.jobs import blocks

            for line in dict.fromkeys(filter(None, (blocks.line(one, *self.blocks) for one in rendered))):
                self.say(line)
        return all_submitted(submission.send(self.ask, self.cluster, rendered, self._patience(), self.say))

    def status(self, id: str, *, progress: bool = False) -> JobStatus:  # noqa: ARG002  it always has it
        return explained(self.ask_runner(requests.Status(id)))

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        """The newest jobs of the cluster's user, newest first; then other users' that run or wait."""
        return self._jobs(requests.ListJobs(limit, others=bool(self.cluster.users)))

    def ids(self, limit: int) -> tuple[str, ...]:
        return tuple(job.id for job in self._jobs(requests.ListJobs(limit)))

    def settings(self, id: str) -> Mapping[str, Any]:
        """Return the settings that the job's directory records. Errors as of `status`."""
        return dict(self.ask_runner(requests.JobSettings(id)))

    def history(self, id: str) -> tuple[JobStatus, Mapping[str, Any], Mapping[str, bytes]]:
        found: requests.History = self.ask_runner(requests.Report(id, LOG_BYTES))
        whole = {name: log.data for name, log in found.logs.items() if len(log.data) >= log.size}
        return explained(found.job), found.settings, whole

    def active(self) -> tuple[JobStatus, ...]:
        """The jobs that run or wait, from Slurm's queue; of each, only its id and stages."""
        return self._jobs(requests.Active())

    def others(self) -> tuple[Foreign, ...]:
        return tuple(self.ask_runner(requests.Others()))

    def cancel(self, id: str) -> JobStatus:
        return explained(self.ask_runner(requests.Cancel(id)))

    def ask(
        self,
        given: Any,
        *,
        image: str | None = None,  # noqa: ARG002  of a pod
        folder: str = "",  # noqa: ARG002  its user may make it
        seconds: int = 600,
        private: bool = False,
    ) -> Any:
        """Arguments and errors as of `Backend.ask`; private: only sender and head node may read it. Also:

        Raises:
            UnknownJob: there is no job of that id.
            NotTheirs: the jobs are somebody else's.
        """
        id = getattr(given, "id", "")
        if id in self._ids:  # `latest` is one job, whatever is submitted meanwhile
            given = replace(given, id=self._ids[id])
        seen = seen_by_runner(self.cluster)
        if isinstance(given, requests.SubmitJobs | requests.Status):
            seen = replace(seen, blocks=tuple(self.blocks[0]))
        request = json.dumps(requests.write_request(seen, given))
        answer = _parse(self.transport.ask(self.cluster, request, seconds, private))
        if answer.id:
            self._ids[id] = answer.id
            self.say(f"{id} is {self._ids[id]}")
        return read_answer(answer, given, self.cluster)

    def run_as_root(self, script: str) -> str:
        """Run a script on the head node as root, where Run Command is used: its agent is root, and the jobs' user has no sudo.
        Its output.

        Raises:
            TransportError: the head node cannot be reached, or the script failed.
        """
        from trainium_cdk.client.jobs.slurm.ssm import SsmTransport

        way = self.transport
        result = (way.as_user("root") if isinstance(way, SsmTransport) else way).run(script)
        if result.code != 0:
            raise TransportError(f"the script on the head node failed: {_last_words(result)}")
        return result.stdout

    def nodes(self) -> tuple[Node, ...]:
        return tuple(with_type(one, self.cluster) for one in self.ask_runner(requests.ListNodes()))

    def session(self, node: Node | None = None, command: Sequence[str] = ()) -> tuple[str, str]:
        """The head node (on PCS a login node), and from there ssh: the role of the nodes on which jobs run has no Session Manager. Errors
        as of `Backend.session`."""
        cluster, target = self.cluster, self.transport.instance or self.cluster.head_node_id
        user = cluster.job_user
        if node is None and command:
            return target, as_user(user, quote.words(command), "sudo")
        if node is None:
            return target, shell(user) if cluster.for_person else ""
        if not cluster.shares_ssh_keys or cluster.for_person:
            raise JobError(
                f"nodes of {cluster.cluster_name} take no ssh from {user}. `trn shell JOB` opens a shell on the nodes of a job"
            )
        # not that user's configuration of ssh, which may name programs to start here
        ssh = ["exec", "ssh", "-F", "/etc/ssh/ssh_config", quote.word(node.name)]
        ssh += [quote.word(quote.words(command))] if command else []  # a shell there takes it apart again
        return target, as_user(cluster.image_user, " ".join(ssh), "sudo")

    def logs(
        self,
        id: str,
        *,
        stage: str | None = None,
        node: int | None = None,
        rank: int | None = None,
        follow: bool = False,
        offset: int = 0,
        tail: int | None = None,
        changed: Callable[[JobStatus], None] | None = None,
    ) -> Iterator[LogChunk]:
        def ask(of: str, begin: int, last: int | None, members: Mapping[str, int] = {}) -> requests.Log:
            nonlocal rank, node
            given = requests.ReadLog(id, of, node, begin, LOG_BYTES, last, members, rank)
            log: requests.Log = self.ask(given, seconds=_SECONDS)
            if rank is not None and log.node is not None:
                self.say(f"rank {rank} is on node {log.node}")
                rank, node = None, log.node
            return replace(log, job=explained(log.job))

        return read_logs(
            self,
            ask,
            id,
            stage=stage,
            node=node if rank is None else 0,
            follow=follow,
            offset=offset,
            tail=tail,
            changed=changed,
        )

    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        """Run the command as a step of the job. The exit code is its own only where this machine is the head node: Session Manager reports none.
        Arguments and errors as of `Backend.execute`."""
        words = [*self.ask_runner(requests.WordsOnNode(id, node)), *command]
        if not (target := self.transport.instance):
            return subprocess.run(words, check=False).returncode
        from trainium_cdk.client.jobs.forward import terminal

        return terminal(target, self.cluster.region, as_user(self.cluster.job_user, quote.words(words), "sudo"))

    def on_nodes(self, id: str, words: Sequence[str]) -> Sequence[str]:
        return tuple(self.ask(requests.RunOnNodes(id, tuple(words))))

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
        """Forward a port through a step of the job. Arguments and errors as of `Backend.forward`."""
        from trainium_cdk.client.jobs.slurm import tunnels

        return tunnels.forward(self, id, node, rank, port, local, patience)

    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[Tunnel]:
        """Run TensorBoard on the head node, at a port of its loopback address. Arguments and errors as of `Backend.tensorboard`."""
        if image:
            raise JobError(
                f"{self.cluster.stack} runs Slurm, where TensorBoard comes with the job's packages. Leave out --image"
            )
        from trainium_cdk.client.jobs.slurm import tunnels

        return tunnels.tensorboard(self, id, port=port, say=say)

    def _jobs(self, given: Any) -> tuple[JobStatus, ...]:
        return tuple(map(explained, self.ask_runner(given)))

    def ask_runner(self, given: Any) -> Any:
        """The answer to a request that may be sent more than once. Errors as of `ask`."""
        return self._patience().ask(lambda: self.ask(given, seconds=_SECONDS))

    def _patience(self) -> Patience:
        return Patience(ONE_QUESTION, sleep=self.sleep)


def seen_by_runner(cluster: SlurmCluster) -> requests.Cluster:
    """A cluster as the runner sees it."""
    return requests.Cluster(
        shared_dir=cluster.shared_dir,
        folder=cluster.folder,
        identity=cluster.identity,
        name=cluster.cluster_name,
        stack=cluster.stack,
        region=cluster.region,
        cpu_queue=cluster.cpu.queue if cluster.cpu else "",
        multi_user=bool(cluster.users),
    )


def _parse(result: Result) -> Document:
    try:
        return document(result.stdout)
    except SpecError as e:
        why = _last_words(result) if result.code or result.stderr.strip() else f"the answer cannot be read: {e}"
    if result.code == NOT_THEIRS:
        raise NotTheirs(why, again=False)
    raise TransportError(f"the query on the head node failed: {why}", again=result.code < 0 or result.code > 128)


def explained(job: JobStatus) -> JobStatus:
    """A job of an answer, with what its errors mean."""
    found = replace(job, stages=tuple(map(_explained, job.stages)), members=tuple(map(_explained, job.members)))
    if found.state not in ENDED_BADLY:
        return found
    return with_reasons(found)


def with_type(node: Node, cluster: SlurmCluster) -> Node:
    """A node of an answer, with its instance type and its own queue."""
    for f in cluster.every_fleet:
        # PCS names no kind, and its CPU nodes have the queue's name alone
        if re.match(rf"{re.escape(f.queue)}-(?:(?:(?:dy|st)-)?{re.escape(f.resource)}-)?\d+$", node.name):
            return replace(node, queue=f.queue, instance_type=f.instance_type)  # not that of your own partition
    return node


def _explained(stage: Stage) -> Stage:
    """Add the meaning of an error of EC2 to a stage's reason."""
    found = _EC2.search(stage.reason) if stage.state == "PENDING" else None
    if found is None:
        return stage
    from trainium_cdk.description.catalog.known_errors import explain  # only here: not for each `trn status`

    error = explain(f"(Code:{found[1]})")
    return replace(stage, reason=f"{stage.reason}: {error}") if error else stage


def _last_words(result: Result) -> str:
    errors = [line.strip() for line in result.stderr.splitlines() if line.strip()][-3:]
    return " ".join(errors)[-600:] or f"exit code {result.code}"


LOG_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a log in one response. Through SSM, large responses come through the stack's bucket."""


class AskLog(Protocol):
    """Asks for the next piece of a job's log: of a stage (empty: the last one that has a log), from a byte, or from the last so many lines; of an
    array, from these bytes of its members."""

    def __call__(self, of: str, begin: int, last: int | None, members: Mapping[str, int] = ...) -> requests.Log: ...


def read_logs(
    backend: Backend,
    ask: AskLog,
    id: str,
    *,
    stage: str | None,
    node: int | None,
    follow: bool,
    offset: int,
    tail: int | None,
    changed: Callable[[JobStatus], None] | None,
) -> Iterator[LogChunk]:
    """See `SlurmBackend.logs`."""
    notify = Changes(changed)
    if not follow:
        yield from _read_log(backend, ask, stage, node, offset, tail, notify)
        return
    status = backend.status(id)
    check_log(status, stage, node, offset)
    if status.members and stage != "prepare":
        yield from joined.read(backend, _rounds(ask), follow=True, tail=tail, notify=notify)
        return
    names = [stage] if stage else [s.name for s in status.stages]
    if tail is not None:
        names = names[names.index(stage or last_begun(status)) :]
    for name in names:
        yield from _follow_log(backend, ask, name, offset if stage else 0, tail, notify)
        tail = None


def _rounds(ask: AskLog) -> joined.Ask:
    return lambda begin, tail: _round(ask("train", 0, tail, begin))


def _round(log: requests.Log) -> joined.Round:
    members = log.members or ()
    chunks = [LogChunk(log.stage, one.offset, one.data, one.member) for one in members]
    return joined.Round(log.job, chunks, {one.member: one.size for one in members})


def _read_log(
    backend: Backend,
    ask: AskLog,
    stage: str | None,
    node: int | None,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    """Yield the log up to its present end. A job that writes faster than it is read would never end it."""
    patience = Patience(ONE_QUESTION, sleep=backend.sleep)

    def ask_for(name: str) -> requests.Log:
        return patience.ask(lambda: ask(name, offset, tail))

    log = ask_for(stage or "")
    check_log(log.job, stage, node, offset)
    if log.members is not None:
        yield from joined.read(backend, _rounds(ask), follow=False, tail=None, notify=notify, first=_round(log))
        return
    name, end = log.stage, log.piece.size
    notify(log.job)
    if tail is not None:
        offset, tail = max(offset, log.piece.offset), None
    while True:
        data = log.piece.data[: max(0, end - offset)]
        if data or log.piece.offset < offset:
            yield LogChunk(name, log.piece.offset, data)
        offset += len(data)
        if not data or offset >= end:
            return
        log = ask_for(name)


def _follow_log(
    backend: Backend,
    ask: AskLog,
    stage: str,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    interval = backend.interval
    patience = Patience(FOLLOWING, first=interval, sleep=backend.sleep)
    while True:
        log = patience.ask(lambda: ask(stage, offset, tail))  # noqa: B023  called at once
        chunk = LogChunk(log.stage, log.piece.offset, log.piece.data)
        active = log.job.active(stage)
        if active:
            notify(log.job)
        if tail is not None:
            offset, tail = max(offset, chunk.offset), None
        if chunk.data:
            yield chunk
            offset = chunk.next_offset
        if not active and (not chunk.data or offset >= log.piece.size):  # the status was read before the log
            notify(log.job)  # that it has ended comes after its last lines
            return
        if active and len(chunk.data) < LOG_BYTES:
            backend.sleep(interval)
