"""Jobs on a Slurm cluster: each method is one script that runs on the head node."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from trainium_cdk.errors import JobError, SubmitError, TransportError, UnknownJob
from trainium_cdk.jobs.backend import Backend, all_submitted, named_node, unknown_job
from trainium_cdk.jobs.forward import Tunnel
from trainium_cdk.jobs.patience import ONE_QUESTION, Patience
from trainium_cdk.jobs.slurm import batch, logs, snapshot
from trainium_cdk.jobs.slurm.logs import Piece
from trainium_cdk.jobs.slurm.snapshot import Snapshot
from trainium_cdk.jobs.slurm.submit_script import LATER, RESULT, TAKEN, with_addresses
from trainium_cdk.jobs.slurm.transport import NOT_THEIRS, Result, Transport
from trainium_cdk.jobs.status import Activity, Foreign, JobStatus, LogChunk, Node, Submitted, parse_int, settings_in
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner.requests import RunOnNodes

if TYPE_CHECKING:
    from trainium_cdk.jobs.models import AnyJob
    from trainium_cdk.jobs.slurm.render import SlurmSubmission
    from trainium_cdk.jobs.workdir import Sent


class SlurmBackend(Backend["SlurmSubmission"]):
    """Jobs of one cluster, through one transport.

    Args:
        transport: the way to the head node, or a function that creates it on first use.
    """

    ordered_logs = True
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

    def render(self, job: AnyJob, token: str | None = None) -> SlurmSubmission:
        from trainium_cdk.jobs.slurm.render import render
        from trainium_cdk.jobs.submission import new_token

        return render(job, self.cluster, new_token() if token is None else token)

    def send(self, submission: SlurmSubmission) -> Submitted:
        sent = self._deliver(submission)
        return self._submitted(submission, self._patience().ask(lambda: self._send(submission)), sent)

    def _submitted(self, submission: SlurmSubmission, result: Result, sent: Sent | None) -> Submitted:
        results = [line for line in result.stdout.splitlines() if line.startswith(RESULT)]
        if result.code != 0 or not results:
            why = _last_words(result)
            if _INACTIVE in why:
                why += f". {snapshot.inactive_queue(self.cluster)}"
            undone = "" if result.code == TAKEN else ". Nothing of it is left there"
            raise SubmitError(f"{submission.id} was not submitted to {self.cluster.cluster_name}: {why}{undone}")
        answer = json.loads(results[-1].removeprefix(RESULT))
        stages = {str(k): str(v) for k, v in answer["stages"].items()}
        again = tuple(str(answer.get("resubmitted", "")).split())
        return Submitted(submission.id, bool(answer["existing"]), stages, submission.directory, again, sent)

    def _send(self, submission: SlurmSubmission) -> Result:
        result = self._run([submission], submission.text)
        if _unfinished(result):
            token = submission.id.removeprefix(f"{submission.plan.job.label}-")
            raise TransportError(
                f"the submission of {submission.id} to {self.cluster.cluster_name} has not finished: "
                f"{_last_words(result)}. Submit it again with token {token}: it is submitted only once",
                restarting=result.code == LATER,
            )
        return result

    def send_many(self, submissions: Sequence[SlurmSubmission]) -> tuple[Submitted, ...]:
        """In requests of up to 100 jobs. Arguments and errors as of `Backend.send_many`."""
        outcomes: dict[str, Submitted | SubmitError] = {}
        for first in range(0, len(submissions), batch.MOST):
            part = submissions[first : first + batch.MOST]
            sent = {one.id: self._deliver(one) for one in part}
            self._patience().ask(partial(self._send_part, part, sent, outcomes))
        return all_submitted([outcomes[one.id] for one in submissions])

    def _send_part(
        self,
        part: Sequence[SlurmSubmission],
        sent: Mapping[str, Sent | None],
        outcomes: dict[str, Submitted | SubmitError],
    ) -> None:
        """Send what has no outcome yet, and add the outcomes. Raises a TransportError if one is still missing."""
        part = [one for one in part if one.id not in outcomes]
        result = self._run(part, batch.script(part))
        ended = dict(batch.results(result.stdout))
        if not ended and not _unfinished(result):  # refused before the first job
            ended = {one.id: result for one in part}
        for one in part:
            if one.id not in ended or _unfinished(ended[one.id]):
                continue
            try:
                outcomes[one.id] = self._submitted(one, ended[one.id], sent[one.id])
            except SubmitError as e:
                outcomes[one.id] = e
        missing = [one for one in part if one.id not in outcomes]
        if missing:
            last = ended.get(missing[0].id, result)
            raise TransportError(
                f"{len(missing)} of {len(part)} jobs are not submitted to {self.cluster.cluster_name} yet ({missing[0].id} is the first): "
                f"{_last_words(last)}. Submit them all again with the same token: each is submitted only once",
                restarting=last.code == LATER,
            )

    def _run(self, submissions: Sequence[SlurmSubmission], text: str) -> Result:
        addresses: dict[str, str] = {}
        trees = {tree: one.plan for one in submissions if (tree := getattr(one.plan.job, "tree", ""))}
        for plan in trees.values():
            from trainium_cdk.jobs import workdir

            addresses |= workdir.addresses(plan)
        private = bool(addresses) or any(one.plan.job.env for one in submissions)
        return self.transport.run(with_addresses(text, addresses), timeout=300, private=private)

    @staticmethod
    def _deliver(submission: SlurmSubmission) -> Sent | None:
        if not getattr(submission.plan.job, "workdir", None):
            return None
        from trainium_cdk.jobs.workdir import deliver

        return deliver(submission.plan)

    def _patience(self) -> Patience:
        return Patience(ONE_QUESTION, sleep=self.sleep)

    def status(self, id: str) -> JobStatus:
        return self._one(id, snapshot.ask_one(self.cluster, self._known(id)))

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        """The newest jobs of the cluster's user, newest first; then those of other users that run or wait."""
        return self._ask(snapshot.ask_all(self.cluster, limit, others=bool(self.cluster.users))).jobs

    def ids(self, limit: int) -> tuple[str, ...]:
        return tuple(job.id for job in self._ask(snapshot.ask_all(self.cluster, limit)).jobs)

    def settings(self, id: str) -> Mapping[str, Any]:
        """As recorded in the job's directory. Errors as of `status`."""
        result = self.transport.run(
            snapshot.ask_settings(self.cluster, snapshot.parts(self._known(id))[0]), timeout=120
        )
        return settings_in(result.stdout.rpartition(snapshot.SETTINGS)[2])

    def active(self) -> tuple[JobStatus, ...]:
        """The jobs that run or wait, from Slurm's queue; of each, only its id and stages."""
        return self._ask(snapshot.ask_active(self.cluster)).jobs

    def others(self) -> tuple[Foreign, ...]:
        from trainium_cdk.jobs.slurm import others

        return others.parse(self._answer(others.SCRIPT))

    def activity(self, limit: int = 50) -> Activity:
        from trainium_cdk.jobs.slurm import activity

        return activity.parse(self._answer(activity.script(self.cluster, limit)), self.cluster)

    def cancel(self, id: str) -> JobStatus:
        return self._one(id, snapshot.ask_cancel(self.cluster, self._known(id)))

    def run_shared(self, script: str) -> str:
        """Run a script on the head node; its output.

        Raises:
            TransportError: the head node cannot be reached, or the script failed.
        """
        return self._output(self.transport.run(script, timeout=600))

    def ask(
        self,
        given: Any,
        *,
        image: str | None = None,  # noqa: ARG002  of a pod
        folder: str = "",  # noqa: ARG002  its user may make it
        seconds: int = 600,
        private: bool = False,
    ) -> Any:
        """Arguments and errors as of `Backend.ask`."""
        from trainium_cdk.jobs.slurm import asking

        return asking.ask(self.transport, self.cluster, given, timeout=seconds, private=private)

    def run_as_root(self, script: str) -> str:
        """The same as root, where Run Command is used: its agent is root, and the jobs' user may have no sudo (`pcluster.sudo`)."""
        from trainium_cdk.jobs.slurm.ssm import SsmTransport

        transport = self.transport
        return self._output(
            (transport.as_user("root") if isinstance(transport, SsmTransport) else transport).run(script)
        )

    @staticmethod
    def _output(result: Result) -> str:
        if result.code != 0:
            raise TransportError(f"the script on the head node failed: {_last_words(result)}")
        return result.stdout

    def nodes(self) -> tuple[Node, ...]:
        from trainium_cdk.jobs.slurm import nodes

        return nodes.parse(self._answer(nodes.SCRIPT), self.cluster)

    def session(self, node: str | None = None, command: Sequence[str] = ()) -> tuple[str, str]:
        """The head node (on PCS a login node), and from there ssh: the role of the nodes on which jobs run has no Session Manager. Errors
        as of `Backend.session`."""
        target = self.transport.instance or self.cluster.head_node_id
        from trainium_cdk.jobs import quote
        from trainium_cdk.jobs.slurm import account

        if node is None and command:
            return target, account.run(self.cluster.job_user, quote.words(command), "sudo")
        if node is None:
            return target, account.shell(self.cluster.job_user) if self.cluster.for_person else ""
        found = named_node(self.nodes(), node)
        if not found.on:
            raise JobError(f"node {node} is {found.state}: it starts when a job needs it")
        if not self.cluster.shares_ssh_keys or (self.cluster.for_person and self.cluster.users == "local"):
            raise JobError(
                f"nodes of {self.cluster.cluster_name} take no ssh from {self.cluster.job_user}. `trn shell JOB` opens a shell on the nodes of a job; "
                "or install a key with bootstrap.scripts"
            )
        # not that user's configuration of ssh, which may name programs to start here
        ssh = ["exec", "ssh", "-F", "/etc/ssh/ssh_config", quote.word(node)]
        ssh += [quote.word(quote.words(command))] if command else []  # a shell there takes it apart again
        return target, account.run(self.cluster.job_user, " ".join(ssh), "sudo")

    def logs(
        self,
        id: str,
        *,
        stage: str | None = None,
        node: int | None = None,
        follow: bool = False,
        offset: int = 0,
        tail: int | None = None,
        changed: Callable[[JobStatus], None] | None = None,
    ) -> Iterator[LogChunk]:
        def ask(of: str, begin: int, last: int | None) -> Piece:
            return self.log_piece(id, of, node, begin, logs.LOG_BYTES, last)

        return logs.read(
            self, ask, id, stage=stage, node=node, follow=follow, offset=offset, tail=tail, changed=changed
        )

    def node_of_rank(self, id: str, rank: int) -> int:
        """Ranks are in the order of the nodes. Arguments and errors as of `Backend.node_of_rank`."""
        status = self.status(id)
        each = self._ranks_per_node(status)
        if not 0 <= rank < status.nodes * each:
            raise JobError(f"{id} has ranks 0 to {status.nodes * each - 1}, not {rank}. Choose one of them")
        return rank // each

    def _ranks_per_node(self, status: JobStatus) -> int:
        """As of `Plan`, from the job's record."""
        given = self.settings(status.id)
        if (several := parse_int(given.get("tasks_per_node")) or 1) > 1:
            return several
        from trainium_cdk.catalog import Catalog

        lnc = parse_int(given.get("lnc"))
        if lnc and (kind := Catalog.load().instances.get(status.instance_type)) and lnc in kind.lnc:
            return kind.logical_cores(lnc)
        ours = status.queue, status.instance_type
        return next((f.cores for f in self.cluster.every_fleet if (f.queue, f.instance_type) == ours), 1)

    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        """As a step of the job, through a session with the head node. Arguments and errors as of `Backend.execute`."""
        from trainium_cdk.jobs.slurm import inside

        return inside.execute(self.cluster, self.transport, self.status(id), node, command)

    def on_nodes(self, id: str, words: Sequence[str]) -> Mapping[int, str]:
        status = self.status(id)
        from trainium_cdk.jobs.slurm import inside

        inside.check(status)
        told = self.ask(RunOnNodes(status.current.number, status.nodes, tuple(words)))
        return {int(number): output for number, output in told.items()}

    def forward(
        self, id: str, port: int = 0, *, node: int | str = 0, local: int = 0, patience: float = 0
    ) -> AbstractContextManager[Tunnel]:
        """Through a step of the job. Arguments and errors as of `Backend.forward`."""
        from trainium_cdk.jobs.slurm import relay

        return relay.forward(self, self.status(id), node, port, local, patience)

    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[Tunnel]:
        """It runs on the head node, at a port of its loopback address. Arguments and errors as of `Backend.tensorboard`."""
        if image:
            raise JobError(
                f"{self.cluster.stack} runs Slurm, where TensorBoard is that of the job's environment. Leave out --image"
            )
        from trainium_cdk.jobs.slurm import tensorboard

        return tensorboard.serve(self, self.status(id).directory, port=port, say=say)

    def log_piece(
        self, id: str, stage: str, node: int | None, offset: int, most: int, tail: int | None = None
    ) -> Piece:
        """The next piece of a log, with the log's size and the job's status just before it was read. A piece without data is at the
        log's end, if that is before `offset`. With `tail`, it begins at so many last lines, if they are after `offset`."""
        script = snapshot.ask_log(self.cluster, self._known(id), stage, node, offset, most, tail)
        found = snapshot.parse(self._checked(self.transport.run(script, timeout=120)), self.cluster)
        if not found.jobs:
            raise unknown_job(id, self.cluster)
        if not found.regular:
            raise JobError(
                f"the log of {id}'s {stage} is not a regular file, and was not opened. The job has replaced it"
            )
        begin = offset if found.begin is None else found.begin
        end = begin if found.data or found.size is None else min(begin, found.size)
        return Piece(LogChunk(stage, end, found.data), self._member(id, found.jobs[0]), found.size or 0)

    def log_end(self, id: str, stage: str, node: int | None, most: int) -> bytes:
        return self._ask(snapshot.ask_end(self.cluster, self._known(id), stage, node, most)).data

    def _known(self, id: str) -> str:
        """A valid id: only such ids are passed to scripts. Raises UnknownJob for others."""
        job = snapshot.parts(id)[0]
        valid = job and len(job) <= 90 and job[0] not in ".-"
        if (
            not valid
            or not all(c.isascii() and (c.isalnum() or c in ".-") for c in job)
            or not _INDEX.fullmatch(id[len(job) :])
        ):
            raise unknown_job(id, self.cluster)
        return id

    def _member(self, id: str, job: JobStatus) -> JobStatus:
        """The member of an array that an id names; else the job."""
        index = snapshot.parts(id)[1]
        found = job.member(index) if index else job
        if found is None:
            has = f"it has {job.members[0].name} to {job.members[-1].name}" if job.members else "it is no array"
            raise UnknownJob(f"{job.id} has no member {index}: {has}")
        return found

    def _one(self, id: str, script: str) -> JobStatus:
        jobs = self._ask(script).jobs
        if not jobs:
            raise unknown_job(id, self.cluster)
        return self._member(id, jobs[0])

    def _ask(self, script: str) -> Snapshot:
        return snapshot.parse(self._answer(script), self.cluster)

    def _answer(self, script: str) -> str:
        """The output of a script that may run more than once."""
        return self._patience().ask(lambda: self._checked(self.transport.run(script, timeout=120)))

    @staticmethod
    def _checked(result: Result) -> str:
        if result.code == NOT_THEIRS:
            raise TransportError(_last_words(result), again=False)
        if result.code not in (0, 4):
            failed = f"the query on the head node failed: {_last_words(result)}"
            raise TransportError(failed, restarting=result.code == _NO_ANSWER)
        return result.stdout


_NO_ANSWER = 5
"""Exit code of a query that Slurm's controller did not answer (`shell/ask.sh`, and the scripts of `slurm/`)."""
_INDEX = re.compile(r"(/[0-9]{1,3})?")
_INACTIVE = "Required partition not available (inactive or drain)"
"""What sbatch prints if the queue's partition is INACTIVE."""


def _unfinished(result: Result) -> bool:
    """Whether it said so, or was killed before it could clean up."""
    return result.code == LATER or result.code < 0 or result.code > 128


def _last_words(result: Result) -> str:
    errors = [line.strip() for line in result.stderr.splitlines() if line.strip()][-3:]
    return " ".join(errors)[-600:] or f"exit code {result.code}"
