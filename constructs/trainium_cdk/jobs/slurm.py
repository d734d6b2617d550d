"""Jobs on a Slurm cluster: the five verbs, each one script run on the head node."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import time
from collections.abc import Callable, Iterator

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import JobError, SubmitError, TransportError, UnknownJob
from trainium_cdk.jobs import snapshot
from trainium_cdk.jobs.backend import ACTIVE, JobStatus, LogChunk, Submitted, wait
from trainium_cdk.jobs.models import AnyJob
from trainium_cdk.jobs.patience import FOLLOWING, ONE_QUESTION, Patience
from trainium_cdk.jobs.render import LATER, RESULT, Submission, render
from trainium_cdk.jobs.snapshot import Snapshot
from trainium_cdk.jobs.transport import Result, Transport
from trainium_cdk.outputs import SlurmCluster

LOG_BYTES = 196_608
"""Most bytes of a log asked for at once."""


def new_token(now: dt.datetime | None = None) -> str:
    """A token nobody else has: the day, and six random digits."""
    return f"{now or dt.datetime.now(dt.UTC):%Y%m%d}-{secrets.token_hex(3)}"


class _Changes:
    """Passes a status on when it differs from the one before."""

    def __init__(self, tell: Callable[[JobStatus], None] | None):
        self._tell = tell
        self._last: JobStatus | None = None

    def __call__(self, status: JobStatus) -> None:
        if self._tell and status != self._last:
            self._tell(status)
        self._last = status


class SlurmBackend:
    """Jobs of one cluster, through one transport. A handle is the job's id: it needs nothing kept on this side."""

    def __init__(
        self,
        cluster: SlurmCluster,
        transport: Transport,
        *,
        catalog: Catalog | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.cluster = cluster
        self.transport = transport
        self._catalog, self._sleep = catalog, sleep

    def render(self, job: AnyJob, token: str | None = None) -> Submission:
        """What `submit` would send.

        Raises:
            JobError: the job does not fit the cluster.
        """
        return render(job, self.cluster, token or new_token(), catalog=self._catalog)

    def submit(self, job: AnyJob, token: str | None = None) -> Submitted:
        """Submit a job; once for a token, however often it is asked.

        Raises:
            JobError: the job does not fit the cluster; nothing was sent.
            SubmitError: the head node or Slurm refused it; nothing is left behind.
            TransportError: the head node cannot be reached, or did not answer. It may have taken the job: ask again
                with the same token.
        """
        return self.send(self.render(job, token))

    def send(self, submission: Submission) -> Submitted:
        """Send what was rendered. Raises as `submit` does."""
        private = bool(submission.plan.job.env)
        result = self._patiently(lambda: self._send(submission, private))
        said = [line for line in result.stdout.splitlines() if line.startswith(RESULT)]
        if result.code != 0 or not said:
            why = _last_words(result)
            if _INACTIVE in why:
                why += f". {snapshot.inactive_queue(self.cluster)}"
            raise SubmitError(
                f"{submission.id} was not submitted to {self.cluster.cluster_name}: {why}. Nothing of it is left there"
            )
        answer = json.loads(said[-1].removeprefix(RESULT))
        stages = {str(k): str(v) for k, v in answer["stages"].items()}
        again = tuple(str(answer.get("resubmitted", "")).split())
        return Submitted(submission.id, bool(answer["existing"]), stages, submission.directory, again)

    def _send(self, submission: Submission, private: bool) -> Result:
        result = self.transport.run(submission.text, timeout=300, private=private)
        if result.code == LATER or result.code < 0 or result.code > 128:  # killed: it had no chance to clean up
            token = submission.id.removeprefix(f"{submission.plan.job.label}-")
            raise TransportError(
                f"the submission of {submission.id} to {self.cluster.cluster_name} has not finished: "
                f"{_last_words(result)}. Submit it again with token {token}: it will be there once"
            )
        return result

    def _patiently(self, ask: Callable[[], Result]) -> Result:
        patience = Patience(ONE_QUESTION, sleep=self._sleep)
        while True:
            try:
                return ask()
            except TransportError as e:
                patience.failed(e)

    def status(self, id: str) -> JobStatus:
        """How a job is.

        Raises:
            UnknownJob, TransportError
        """
        return self._one(id, snapshot.ask_one(self.cluster, self._known(id)))

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        """The newest jobs, newest first."""
        return self._ask(snapshot.ask_all(self.cluster, limit)).jobs

    def active(self) -> tuple[JobStatus, ...]:
        """The jobs that run or wait, as Slurm's queue has them; of each, only its id and stages."""
        return self._ask(snapshot.ask_active(self.cluster)).jobs

    def cancel(self, id: str) -> JobStatus:
        """Cancel what runs or waits of a job, and return how it is then. A job that has ended stays as it was.

        Raises:
            UnknownJob, TransportError
        """
        return self._one(id, snapshot.ask_cancel(self.cluster, self._known(id)))

    def wait(
        self, id: str, timeout: float | None = None, changed: Callable[[JobStatus], None] | None = None
    ) -> JobStatus:
        """Wait until a job has ended.

        Args:
            timeout: seconds; None for as long as it takes.
            changed: called with the status whenever a stage has changed.

        Raises:
            JobTimeout: it has not ended within `timeout`.
            UnknownJob, TransportError
        """
        return wait(self, id, timeout, changed, interval=self.transport.interval, sleep=self._sleep)

    def logs(
        self,
        id: str,
        *,
        stage: str | None = None,
        node: int | None = None,
        follow: bool = False,
        offset: int = 0,
        changed: Callable[[JobStatus], None] | None = None,
    ) -> Iterator[LogChunk]:
        """The log of a stage, in pieces that follow on each other byte by byte.

        Args:
            stage: prepare, precompile or train. Default: the last one that has a log; with `follow` all, one after
                another.
            node: only what this node (0, 1, ...) said. Default: all of them, each line with its node in front.
            follow: go on until the stage has ended.
            offset: where to begin; a follower that broke off goes on at its last `next_offset`.
            changed: called with the status whenever it has changed, while following.

        Raises:
            JobError: the job has no such stage or node.
            UnknownJob, TransportError
        """
        status = self.status(id)
        names = [s.name for s in status.stages]
        if stage is not None and stage not in names:
            raise JobError(f"{id} has no stage {stage!r}; it has {', '.join(names)}. Choose one of them")
        if node is not None and not 0 <= node < status.nodes:
            raise JobError(f"{id} has nodes 0 to {status.nodes - 1}, not {node}. Choose one of them")
        if follow:
            tell = _Changes(changed)
            for name in [stage] if stage else names:
                yield from self._follow(id, name, node, offset if stage else 0, tell)
            return
        started = [
            s.name for s in status.stages if s.state != "PENDING" and not (s.state == "CANCELLED" and not s.nodes)
        ]
        yield from self._read(id, stage or (started or names)[-1], node, offset)

    def node_of_rank(self, id: str, rank: int) -> int:
        """The node on which a process of the training is: ranks are given by the node's place in the list.

        Raises:
            JobError: the job has no such rank.
            UnknownJob, TransportError
        """
        status = self.status(id)
        fleets = [f for f in self.cluster.fleets if (f.queue, f.instance_type) == (status.queue, status.instance_type)]
        each = fleets[0].cores if fleets else 1
        if not 0 <= rank < status.nodes * each:
            raise JobError(f"{id} has ranks 0 to {status.nodes * each - 1}, not {rank}. Choose one of them")
        return rank // each

    def _read(self, id: str, stage: str, node: int | None, offset: int) -> Iterator[LogChunk]:
        patience = Patience(ONE_QUESTION, sleep=self._sleep)
        while True:
            try:
                chunk, _ = self._piece(id, stage, node, offset)
            except TransportError as e:
                patience.failed(e)
                continue
            patience.answered()
            if not chunk.data:
                return
            yield chunk
            offset = chunk.next_offset

    def _follow(self, id: str, stage: str, node: int | None, offset: int, tell: _Changes) -> Iterator[LogChunk]:
        patience = Patience(FOLLOWING, first=self.transport.interval, sleep=self._sleep)
        while True:
            try:
                chunk, status = self._piece(id, stage, node, offset)
            except TransportError as e:
                patience.failed(e)
                continue
            patience.answered()
            tell(status)
            if chunk.data:
                yield chunk
                offset = chunk.next_offset
            active = any(s.name == stage and s.state in ACTIVE for s in status.stages)
            if not chunk.data and not active:
                return
            if active and len(chunk.data) < LOG_BYTES:
                self._sleep(self.transport.interval)

    def _piece(self, id: str, stage: str, node: int | None, offset: int) -> tuple[LogChunk, JobStatus]:
        """The next piece of a log, and how the job was just before it was read."""
        found = self._parse(
            self.transport.run(
                snapshot.ask_log(self.cluster, self._known(id), stage, node, offset, LOG_BYTES), timeout=120
            )
        )
        if not found.jobs:
            raise self._unknown(id)
        if not found.regular:
            raise JobError(
                f"the log of {id}'s {stage} is not a regular file, and was not opened. Its job has replaced it"
            )
        return LogChunk(stage, offset, found.data), found.jobs[0]

    def _known(self, id: str) -> str:
        """An id that could be one; scripts get no other."""
        if not id or len(id) > 90 or id[0] in ".-" or not all(c.isascii() and (c.isalnum() or c in ".-") for c in id):
            raise self._unknown(id)
        return id

    def _unknown(self, id: str) -> UnknownJob:
        return UnknownJob(
            f"there is no job {id!r} on {self.cluster.cluster_name} ({self.cluster.stack}). `trn list` shows "
            "those there are"
        )

    def _one(self, id: str, script: str) -> JobStatus:
        jobs = self._ask(script).jobs
        if not jobs:
            raise self._unknown(id)
        return jobs[0]

    def _ask(self, script: str) -> Snapshot:
        found: Snapshot | None = None
        patience = Patience(ONE_QUESTION, sleep=self._sleep)
        while found is None:
            try:
                found = self._parse(self.transport.run(script, timeout=120))
            except TransportError as e:
                patience.failed(e)
        return found

    def _parse(self, result: Result) -> Snapshot:
        if result.code == snapshot.NOT_THEIRS:
            raise TransportError(_last_words(result), again=False)
        if result.code not in (0, 4):
            raise TransportError(f"the head node could not be asked: {_last_words(result)}")
        return snapshot.parse(result.stdout, self.cluster)


_INACTIVE = "Required partition not available (inactive or drain)"
"""What sbatch prints where the queue's partition is INACTIVE."""


def _last_words(result: Result) -> str:
    said = [line.strip() for line in result.stderr.splitlines() if line.strip()][-3:]
    return " ".join(said)[-600:] or f"exit code {result.code}"
