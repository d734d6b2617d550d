"""The operations of a scheduler on jobs: `Backend`, which each engine implements (`slurm/backend.py`, `kubernetes/backend.py`); and `Patience`, with
which requests are repeated."""

from __future__ import annotations

import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from trainium_cdk.client.jobs.runner import Document
from trainium_cdk.client.jobs.status import Foreign, JobStatus, LogChunk, Node, Submitted
from trainium_cdk.errors import (
    JobError,
    NotTheirs,
    SubmitError,
    TransportError,
    TrnError,
    UnknownJob,
    meant_one_of,
    similar,
)
from trainium_cdk.runner import requests
from trainium_cdk.runner.spec import SpecError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.forward import Tunnel
    from trainium_cdk.client.jobs.models import AnyJob, Plan
    from trainium_cdk.description.outputs import ClusterOutputs

T = TypeVar("T")

LONGEST_PAUSE = 30.0
ONE_QUESTION = 30.0
"""Seconds for which a single request is retried."""
CONTROLLER = 90.0
"""The same while Slurm's controller does not answer: a restart may take a minute, and Slurm's commands wait up to their MessageTimeout."""
FOLLOWING = 900.0
"""Seconds without a response after which following a job fails: longer than a head node's restart."""
_LONGEST_PAUSE = 15.0
"""Seconds between two requests while a job that is waited for does not change."""


def until(
    look: Callable[[], T], seconds: float, *, pause: float = 0.5, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Call `look` until its result is true, or the time is over. Return the last result."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        sleep(pause)
    return found


class Patience:
    """Limits retries by time: any number of failures is allowed if a response follows each within `seconds`."""

    def __init__(
        self,
        seconds: float,
        *,
        first: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
    ):
        """Args:
        seconds: from the last response, or the beginning, until the error is raised; at least `CONTROLLER` for one of Slurm's controller.
        first: seconds of the first pause; each is about twice the one before.
        """
        self._seconds, self._first, self._sleep = seconds, first, sleep
        self._pause, self._since = first, time.monotonic()

    def ask(self, request: Callable[[], T]) -> T:
        """The response to a request, which is sent again after each failure. Raises as `failed` does."""
        while True:
            try:
                found = request()
            except TransportError as e:
                self.failed(e)
            else:
                self.answered()
                return found

    def answered(self) -> None:
        """Reset after a response: the next failure is the first."""
        self._pause, self._since = self._first, time.monotonic()

    def failed(self, error: TransportError) -> None:
        """Pause before the next attempt. Raises the error if it is permanent, or the time is over."""
        seconds = max(self._seconds, CONTROLLER) if error.restarting else self._seconds
        if not error.again or time.monotonic() - self._since + self._pause > seconds:
            raise error
        self._sleep(self._pause * random.uniform(0.75, 1.25))  # noqa: S311  so that clients do not retry all at once
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


class Changes:
    """Passes a status on when it differs from the one before; to no one if `notify` is None."""

    def __init__(self, notify: Callable[[JobStatus], None] | None):
        self._notify = notify
        self._last: JobStatus | None = None

    def __call__(self, status: JobStatus) -> bool:
        """Take the next status. Return whether it differs from the one before."""
        differs = status != self._last
        if self._notify and differs:
            self._notify(status)
        self._last = status
        return differs


class Backend(ABC):
    """A scheduler that runs jobs: all that `trn` needs. Every method may raise `TransportError`, those with an id also
    `UnknownJob`. A job's handle is its id; nothing is stored on this machine."""

    ordered_logs: ClassVar[bool]
    """The lines of several nodes come in one order, so that an offset can be continued from."""

    names_jobs: ClassVar[bool] = False
    """A method that takes an id takes its first characters, too, and `latest`; then `full_id` has the id."""

    cluster: ClusterOutputs
    say: Callable[[str], None] = staticmethod(lambda _: None)
    """Called with a line about what was found: the full id for a shorter text, the node of a rank."""
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    @property
    def interval(self) -> float:
        """Seconds between two requests while a job is followed."""
        return 4.0

    def full_id(self, given: str) -> str:
        """The id of a job that a method was called with; itself if that is not known."""
        return given

    @abstractmethod
    def render(self, job: AnyJob, token: str | None = None) -> Plan:
        """The job as `submit` would send it (`Plan.spec`).

        Raises:
            JobError: the job does not fit the cluster.
        """

    @abstractmethod
    def send(self, *rendered: Plan) -> tuple[Submitted, ...]:
        """Send rendered jobs of different ids, in their order; on Slurm up to 100 in a request. Raises as `submit_many` does."""

    def submit(self, job: AnyJob, token: str | None = None) -> Submitted:
        """Submit a job. Repeated with the same token, it is submitted once.

        Raises:
            JobError: the job does not fit the cluster; nothing was sent.
            SubmitError: the cluster rejected it; nothing was created.
            TransportError: the cluster cannot be reached, or did not respond. The job may exist: submit it again with
                the same token.
        """
        return self.send(self.render(job, token))[0]

    def submit_many(self, jobs: Sequence[AnyJob], token: str | None = None) -> tuple[Submitted, ...]:
        """Submit several jobs, on Slurm in one request, which takes less time than one after another.

        Args:
            token: the job at index i is submitted with the token `<token>-<i>`; the default is a new one. Repeated with the same
                jobs and token, each is submitted once.

        Raises:
            JobError: a job does not fit the cluster; nothing was sent.
            SubmitError: the cluster rejected some; the others are submitted.
            TransportError: the cluster cannot be reached, or did not respond. Some jobs may exist: submit all again with the same token.
        """
        from trainium_cdk.client.jobs.job_spec import new_token

        token = new_token() if token is None else token
        return self.send(*[self.render(job, f"{token}-{i}") for i, job in enumerate(jobs)])

    @abstractmethod
    def status(self, id: str, *, progress: bool = False) -> JobStatus:
        """The status of a job. `progress`: with where its training stands, which on Slurm it always has."""

    @abstractmethod
    def settings(self, id: str) -> Mapping[str, Any]:
        """Return the settings of a job's submission, without its variables and the defaults of its kind; empty if they are not known."""

    def history(self, id: str) -> tuple[JobStatus, Mapping[str, Any], Mapping[str, bytes]]:
        """A job's status, its settings (empty if they cannot be read), and the whole logs of stages that came in the same request."""
        status = self.status(id)
        with contextlib.suppress(TrnError):
            return status, self.settings(status.id), {}
        return status, {}, {}

    @abstractmethod
    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        """The newest jobs, newest first; on Kubernetes those that run, then those that wait, in the order of their queue, then the others."""

    @abstractmethod
    def ids(self, limit: int) -> tuple[str, ...]:
        """The ids of the newest jobs, newest first."""

    @abstractmethod
    def active(self) -> tuple[JobStatus, ...]:
        """The jobs that run or wait."""

    @abstractmethod
    def others(self) -> tuple[Foreign, ...]:
        """List the jobs that other clients than `trn` run or queue: on Kubernetes newest first, on Slurm in the order of its queue."""

    def listed(self, limit: int = 50) -> tuple[tuple[JobStatus, ...], tuple[Foreign, ...]]:
        """List jobs as `list`, and on Kubernetes others as `others`, with fewer requests. On Slurm, `squeue` shows others."""
        return self.list(limit), ()

    @abstractmethod
    def cancel(self, id: str) -> JobStatus:
        """Cancel a job, and return its status. A job that has ended is not changed."""

    @abstractmethod
    def ask(
        self,
        given: Any,
        *,
        image: str | None = None,
        folder: str = "",
        seconds: int = 600,
        private: bool = False,
    ) -> Any:
        """Ask the runner one request, on a machine of the cluster with the shared file systems, as the jobs' user; its answer.

        Args:
            given: see `runner.requests`.
            image: of a pod. Default: a small one with Python.
            folder: on Kubernetes it is made before, for the jobs' user, where only root may.
            seconds: after which it is ended.
            private: only the jobs' user can read the request, now and later.

        Raises:
            JobError: it was refused.
            TransportError: the cluster cannot be reached.
        """

    def checkpoints(self) -> requests.FoundCheckpoints:
        """The newest checkpoint of each of the newest 1,000 jobs, and whether S3 has it; and the cluster's users, where all jobs are not one's own."""
        found: requests.FoundCheckpoints = self.ask(requests.ListCheckpoints(), seconds=120)
        return found

    @abstractmethod
    def nodes(self) -> tuple[Node, ...]:
        """The cluster's nodes, also those that are powered down."""

    @abstractmethod
    def session(self, node: Node | None = None, command: Sequence[str] = ()) -> tuple[str, str]:
        """The id of the instance with which Session Manager opens a shell, and the command that leads on to the node; empty if none does.

        Args:
            node: one that is on. Default: the machine from which the cluster is used.
            command: to run there instead of a shell.

        Raises:
            JobError: no shell can be opened there.
        """

    def wait(
        self, id: str, timeout: float | None = None, changed: Callable[[JobStatus], None] | None = None
    ) -> JobStatus:
        """Wait until a job has ended. Requests are repeated while the cluster does not respond, for 15 minutes.

        Args:
            timeout: seconds; None for no limit.
            changed: called with the status whenever it has changed.

        Raises:
            TrnError: it has not ended within `timeout`.
        """
        patience = Patience(FOLLOWING, first=self.interval, sleep=self.sleep)
        end = None if timeout is None else time.monotonic() + timeout
        report, pause = Changes(changed), self.interval
        while True:
            try:
                status = self.status(id)
            except TransportError as e:
                if end is not None and time.monotonic() > end:
                    raise
                patience.failed(e)
                continue
            patience.answered()
            pause = self.interval if report(status) else min(pause * 1.3, _LONGEST_PAUSE)
            if status.done:
                return status
            if end is not None and time.monotonic() + pause > end:
                raise TrnError(f"{id} has not ended within {timeout:.0f} s; it is {status.state}")
            self.sleep(pause)

    @abstractmethod
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
        """The log of a stage, in pieces.

        Args:
            stage: prepare, precompile or train. Default: the last one that has a log; with `follow` all, one after
                another.
            node: only the output of this node (0, 1, ...). Default: all, each line prefixed with its node.
            rank: only the output of the node of this process.
            follow: continue until the stage has ended, over restarts.
            offset: byte to begin at; after an interruption, the last `next_offset`. With one node only, unless the lines of
                several have a fixed order (`ordered_logs`).
            tail: begin at so many last lines of the stage, where the cluster can tell them (`ordered_logs`); with `follow`, of the last stage
                that has a log.
            changed: called with the status that came with the log, and while following again whenever it has changed.

        Raises:
            JobError: the job has no such stage, node or rank, or its nodes have not reported the rank yet. For an array, the stage is `train`,
                and pieces have their `member`.
        """

    @abstractmethod
    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        """Run a command on a node of the job, with this terminal; its exit code.

        Raises:
            JobError: the job has no such node, it does not run, or this is not possible on the cluster: the message says how then.
        """

    @abstractmethod
    def on_nodes(self, id: str, words: Sequence[str]) -> Sequence[str]:
        """Run a short program on each node of a running job; what it prints on each, in their order.

        Raises:
            JobError: the job does not run.
        """

    @abstractmethod
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
        """A port of this machine that leads to a port of a running job's node.

        Args:
            port: of the node's 127.0.0.1. Default: the one that the job offers, in the file `forward` of its directory.
            node: of the job: 0, 1, ..., or its name, as `nodes` has it. rank: the node of this process instead.
            local: port of this machine. Default: a free one.
            patience: seconds to wait for the job's offer, and until something listens at the port.

        Raises:
            JobError: the job does not run, has no such node, or offers no port; nothing listens there; the local port is taken.
        """

    @abstractmethod
    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[Tunnel]:
        """Serve the job's TensorBoard at a port of this machine.

        Args:
            image: an image with TensorBoard. Default: the job's.
            port: default: a free one.

        Raises:
            JobError: this is not possible on the cluster: the message says how it is.
        """


def all_submitted(outcomes: Sequence[Submitted | SubmitError]) -> tuple[Submitted, ...]:
    """The submitted jobs.

    Raises:
        SubmitError: some are errors; of one job, its own.
    """
    submitted = tuple(one for one in outcomes if not isinstance(one, SubmitError))
    if refused := [one for one in outcomes if isinstance(one, SubmitError)]:
        if len(outcomes) == 1:
            raise refused[0]
        count = f"{len(refused)} of {len(outcomes)} jobs were refused; the others are submitted"
        raise SubmitError("\n".join([count, *map(str, refused)]), submitted, refused)
    return submitted


def named_node(nodes: Sequence[Node], name: str) -> Node:
    """The node of that name, which is on.

    Raises:
        JobError: there is none, or it is powered down.
    """
    found = next((node for node in nodes if node.name == name), None)
    if found is None:
        close = similar(name, [node.name for node in nodes])
        hint = f". Did you mean {close}?" if close else "."
        raise JobError(f"there is no node {name[:80]!r}{hint} `trn nodes --all` lists them")
    if not found.on:
        raise JobError(f"node {name} is powered down. It starts when a job needs it")
    return found


def unknown_job(id: str, cluster: ClusterOutputs, similar: Sequence[str] = ()) -> UnknownJob:
    return UnknownJob(
        f"there is no job {id!r} on {cluster.cluster_name} ({cluster.stack}). `trn list` shows the existing jobs{meant_one_of(similar)}"
    )


def read_answer(document: Document, given: Any, cluster: ClusterOutputs) -> Any:
    """The answer of a runner to a request.

    Raises:
        JobError: it was refused.
        UnknownJob: there is no job of that id.
        NotTheirs: the jobs are somebody else's.
        TransportError: Slurm does not answer, or the answer cannot be read.
    """
    if document.error is None:
        try:
            return requests.read_answer(given, document.answer)
        except SpecError as e:
            raise TransportError(f"the runner's answer cannot be read: {e}", again=False) from None
    kind, message = document.error.kind, document.error.message
    if kind == "unknown":
        raise unknown_job(getattr(given, "id", "") or message, cluster, document.error.similar)
    if kind == "no member":
        raise UnknownJob(message)
    if kind == "later":
        raise TransportError(f"Slurm on {cluster.cluster_name} does not answer: {message}", restarting=True)
    if kind == "theirs":
        raise NotTheirs(message, again=False)
    if kind == "broken":
        raise TransportError(f"{message}. Please report it", again=False)
    raise JobError(message)


def check_log(status: JobStatus, stage: str | None, node: int | None, offset: int = 0) -> None:
    """Check that a job has the stage and the node whose log is requested. The logs of all members of an array are read together.

    Raises:
        JobError: it does not.
    """
    names = [s.name for s in status.stages]
    if status.members and stage != "prepare" and (node is not None or offset or stage not in (None, "train")):
        what = "a node" if node is not None else "an offset" if offset else f"the stage {stage}"
        raise JobError(
            f"{status.id} is an array of {len(status.members)}, and {what} belongs to one member. Give a member, for example "
            f"{status.id}/{status.members[0].name}"
        )
    if stage is not None and stage not in names:
        raise JobError(f"{status.id} has no stage {stage!r}; it has {', '.join(names)}. Choose one of them")
    if node is not None and not 0 <= node < status.nodes:
        raise JobError(f"{status.id} has nodes 0 to {status.nodes - 1}, not {node}. Choose one of them")
    if stage == "prepare" and node:
        raise JobError(f"the stage prepare runs on node 0 only, not on node {node}. Leave out the node")
