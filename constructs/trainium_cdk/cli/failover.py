"""`trn launch --failover`: a job goes on in another environment where the one before has no capacity for it.

What happens next is `jobs.failover.decide`'s; this observes, and does it. The state is where the job is: its id is the same in every
environment and for every run of the same command, and a file in the job's directory records that it leaves. On this machine there are only
checkpoints on their way, and a lock against a second run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trainium_cdk import engines
from trainium_cdk.cli import launching
from trainium_cdk.cli.availability import lacked, unavailable
from trainium_cdk.cli.carrying import carry, patiently, resumes_from
from trainium_cdk.cli.named import user
from trainium_cdk.cli.options import Target, name_in_account
from trainium_cdk.cli.output import one_line, say, status_when_interrupted
from trainium_cdk.cli.stages import StageLog
from trainium_cdk.errors import JobError, SubmitError, TrnError, UnknownJob, UpdateError
from trainium_cdk.jobs import failover, quote
from trainium_cdk.jobs.backend import Changes
from trainium_cdk.jobs.failover import Seen, Step
from trainium_cdk.jobs.quote import printed

if TYPE_CHECKING:
    from trainium_cdk.jobs import Backend, JobStatus
    from trainium_cdk.settings import Environment

_MARK = "leaves"
"""File in a job's directory: it goes on in another environment."""
_NEVER_THERE = ("", "REVIEW_IN_PROGRESS", "CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_COMPLETE")
"""States of a stack that has no cluster, so that no job can be on it."""
_ENDING_SECONDS = 900.0
"""Seconds in which a cancelled job's processes must be gone: Kubernetes ends the pods of a lost node after 5 minutes."""


@dataclass
class Place:
    """One environment of the launch.

    Attributes:
        id, name: of its stack, in the app and in the account.
        job: the job's id there.
        queue: of the job.
    """

    file: Path
    env: Environment
    id: str
    name: str
    job: str
    queue: str
    _jobs: Any = None

    def __str__(self) -> str:
        return f"{self.name} in {self.env.region}"

    @property
    def jobs(self) -> Backend[Any]:
        """Raises TransportError: the cluster does not respond."""
        if self._jobs is None:
            self._jobs = launching.reachable(self.name, self.env)
        found: Backend[Any] = self._jobs
        return found


def run(
    files: Sequence[Path],
    job: list[str],
    stack: str | None,
    app: Path | None,
    minutes: str,
    folders: tuple[str, ...],
    *,
    yes: bool,
    remove: bool,
) -> int:
    """Launch a job that may go on in further environments; the exit code.

    Raises:
        TrnError: an environment cannot be used, or cannot be observed.
    """
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", minutes):
        raise JobError(
            f"--patience is {minutes[:80]!r}. Write a number of minutes, for example --patience {launching.PATIENCE:g}"
        )
    token, job = _token(files[0], job, stack)
    places = list(_places(files, job, stack, token))
    _check_folders(places, folders)
    again = f"Nothing watches {places[0].job} until the same command is run again: it goes on from there"
    with _alone(token) as folder, status_when_interrupted(lambda: again):
        it = _Launch(places, job, token, launching.app_in(app), float(minutes) * 60, folders, folder, remove)
        say(f"{places[0].job}: the same command goes on with it. To run it once more, give another --token")
        it.ask(yes=yes)
        return it.run()


def _token(first: Path, job: list[str], stack: str | None) -> tuple[str, list[str]]:
    """The token of the job, and its words without it. The files after the first one may change: the job is the same."""
    from trainium_cdk import settings

    end = job.index("--") if "--" in job else len(job)
    words, token, options = [], "", iter(job[:end])
    for word in options:
        name, equals, value = word.partition("=")
        if name in ("--team", "--user"):
            variable = {"--team": "TRN_TEAM", "--user": "TRN_CLUSTER_USER"}[name]
            raise JobError(f"{name} is not an option of `trn launch --failover`. Set {variable} instead")
        if name == "--after":
            raise JobError(f"a job with {name} does not go on in another environment. Leave out {name}, or --failover")
        if name == "--token":
            token = value if equals else next(options, "")
        else:
            words.append(word)
    words += job[end:]
    env = settings.load(first)
    where = (stack or engines.get(env.engines[0]).stack, env.name, env.region)
    return token or failover.token(user(Target()), *where, *words), words


def _places(files: Sequence[Path], job: list[str], stack: str | None, token: str) -> Iterator[Place]:
    from trainium_cdk import settings

    seen: dict[tuple[str, str], Path] = {}
    for file in files:
        env = settings.load(file)
        id = stack if stack and file == files[0] else engines.get(env.engines[0]).stack
        name = name_in_account(id, env)
        if other := seen.get((name, env.region)):
            raise JobError(f"{other} and {file} both describe {name} in {env.region}. Give one of them another name")
        seen[name, env.region] = file
        to = ["--environment", str(file), "--stack", name, "--token", token]
        try:
            found = launching.dry_run([*to, *job])
        except TrnError as e:
            raise JobError(f"{file}: {e}") from None
        yield Place(file, env, id, name, found["id"], found["queue"])


def with_resume(job: list[str], folder: str) -> list[str]:
    """The words of a job that goes on from a folder.

    >>> with_resume(["train.py", "--resume-from", "/efs/a", "--nodes", "2", "--", "--resume-from"], "/efs/b")
    ['train.py', '--nodes', '2', '--resume-from', '/efs/b', '--', '--resume-from']
    """
    end = job.index("--") if "--" in job else len(job)
    words, options = [], iter(job[:end])
    for word in options:
        if word == "--resume-from":
            next(options, None)
        elif not word.startswith("--resume-from="):
            words.append(word)
    return [*words, "--resume-from", folder, *job[end:]]


def _check_folders(places: Sequence[Place], folders: Sequence[str]) -> None:
    from trainium_cdk.cli.described import described_cluster

    for place in places:
        mounts = described_cluster(place.env, place.name).mount_dirs
        for folder in folders:
            if ".." in folder.split("/") or not any(folder.startswith(f"{mount}/") for mount in mounts):
                raise JobError(
                    f"{place.file}: --checkpoints {folder[:200]} is not on a shared file system of {place.name}. Give a folder below "
                    f"{' or '.join(mounts)}"
                )


@contextlib.contextmanager
def _alone(token: str) -> Iterator[Path]:
    """The folder for checkpoints on their way. Raises JobError: another run of this launch is at work on this machine."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "trainium-cdk" / "launch"
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (base / f"{token}.lock").open("w")
    except OSError as e:
        raise JobError(f"{base}: {e.strerror}. Set XDG_STATE_HOME to a folder with room for the checkpoints") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JobError("the same launch runs on this machine already. Wait for it, or end it with Ctrl-C") from None
        yield base / token


@dataclass
class _Launch:
    places: list[Place]
    job: list[str]
    token: str
    app: Path
    patience: float
    folders: tuple[str, ...]
    folder: Path
    remove: bool
    closed: dict[int, str] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    tidied: set[int] = field(default_factory=set)
    proven: set[int] = field(default_factory=set)
    followed: set[int] = field(default_factory=set)

    def ask(self, *, yes: bool) -> None:
        """Say what may be deployed and what it costs, what cannot be used now, and ask once.

        Raises:
            UpdateError: an environment cannot be deployed.
        """
        new = [place for place in self.places if self._state(place) in _NEVER_THERE]
        for place in self.places:
            say(
                launching.price(place.id, place.name, place.env, place.file) if place in new else f"{place} is deployed"
            )
        for number, place in enumerate(self.places):
            if why := unavailable(place.env, place.name, place.queue, new=place in new):
                say(f"{place} cannot be used now: {why}")
                self.closed[number] = why
        if new:
            launching.ask(", and where the job goes on there, ".join(p.name for p in new), yes=yes)

    def run(self) -> int:
        while True:
            step = failover.decide([self._look(i) for i in range(len(self.places))], self.patience)
            place = self.places[step.at]
            if step.do == "end":
                if step.why.startswith("LOST") and step.at not in self.proven:
                    self._prove(step.at)  # finds what a crash of the scheduler has lost, or submits it again
                    continue
                return self._end(step)
            if step.do == "submit":
                self._submit(step)
            elif step.do == "leave":
                say(f"{place.job} leaves {place}: {step.why}")
                self._leave(place)
            else:
                if step.at not in self.proven:
                    self._prove(step.at)
                self._tidy(step.at)
                self._follow(step.at)

    @staticmethod
    def _state(place: Place) -> str:
        return launching.state(place.name, place.env.region)

    def _look(self, number: int) -> Seen:
        place, closed = self.places[number], self.closed.get(number, "")
        state = self._state(place)
        if state in _NEVER_THERE:
            return Seen(closed=closed)
        if state.startswith("DELETE"):
            gone = f"{place} is {state}, and may have had {place.job}. When it is gone ({printed('trn', 'destroy', place.name, '--env', place.file)}), run this again"
            return Seen(closed=closed or gone, unknown=gone)
        from trainium_cdk.operations.updates.live import deployed

        deployed(place.name, place.env.region)  # raises where the stack is in no state to be used
        try:
            job = self._status(place)
        except UnknownJob:
            return Seen(closed=closed)
        leaves = not job.ok and "trn-leaves" in self._shared(
            place, job, f"if [ -e {{}}/{_MARK} ]; then echo trn-leaves; fi"
        )
        return Seen(job, leaves, closed, self._waited(number, job), _used_up(place.jobs, job))

    def _status(self, place: Place) -> JobStatus:
        status: JobStatus = patiently(lambda: place.jobs.status(place.job))
        return status

    @staticmethod
    def _shared(place: Place, job: JobStatus, script: str, *, made: bool = False) -> list[str]:
        """The lines that a script prints; `{}` is the job's directory."""
        folder = quote.shared(job.directory)
        text = script.replace("{}", folder)
        run = patiently(lambda: place.jobs.run_shared(text, folder=job.directory if made else ""))
        return run.splitlines()

    def _waited(self, number: int, job: JobStatus) -> float:
        """Seconds since EC2 refused instances first; another attempt, during which the reason is another one, does not start it again."""
        if failover.shortage(job):
            self.since.setdefault(number, time.monotonic())
        elif job.state != "PENDING":
            self.since.pop(number, None)
        return time.monotonic() - self.since[number] if number in self.since else 0.0

    def _submit(self, step: Step) -> None:
        place = self.places[step.at]
        new = self._state(place) in _NEVER_THERE
        if why := unavailable(place.env, place.name, place.queue, new=new):
            say(f"{place} cannot be used now: {why}")
            self.closed[step.at] = why
            return
        if new:
            try:
                launching.deploy(place.id, place.name, place.env, place.file, self.app)
            except UpdateError as e:
                if not (why := lacked(place.name, place.env.region)):
                    raise
                say(f"{e}. EC2 had no capacity for it: {why}")
                self.closed[step.at] = f"its deployment failed: {why}"
                return
        resume, target = "", place.jobs
        if step.source is not None:
            source = self.places[step.source]
            here = self.folder / f"{source.name}-{source.env.region}"
            resume = carry(place.job, source.jobs, target, self.folders, here)
        try:
            self._send(step.at, resume)
        except SubmitError as e:
            if step.source is None:
                raise
            say(str(e))  # with another number of NeuronCores, for example, a kind's checkpoint cannot be read
            self.closed[step.at] = str(e)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _send(self, number: int, resume: str) -> None:
        """Submit the job; one that is there already proves to be the same, or is refused.

        Args:
            resume: folder for --resume-from, in place of one that the command has.
        """
        place = self.places[number]
        to = ["--environment", str(place.file), "--stack", place.name, "--token", self.token]
        if code := launching.trn("submit", *to, *(with_resume(self.job, resume) if resume else self.job)):
            raise typer.Exit(code)
        self.proven.add(number)

    def _prove(self, number: int) -> None:
        place = self.places[number]
        self._send(number, resumes_from(place.jobs, place.job))

    def _leave(self, place: Place) -> None:
        """Record that the job leaves, end it, and see that nothing of it runs.

        Raises:
            JobError: it cannot be proved to have ended; it goes nowhere then.
        """
        job = self._status(place)
        self._shared(place, job, f"umask 022\nmkdir -p {{}}\n: > {{}}/{_MARK}", made=True)
        patiently(lambda: place.jobs.cancel(place.job))
        end = time.monotonic() + _ENDING_SECONDS
        while True:
            job = self._status(place)
            if failover.ended(job) and not any(_runs(place.job, node.job) for node in patiently(place.jobs.nodes)):
                say(one_line(job))
                return
            if time.monotonic() > end:
                raise JobError(
                    f"{one_line(job)}. It is not certain that it has ended, so that it goes on nowhere else. Run this again when it has"
                )
            time.sleep(place.jobs.interval)

    def _follow(self, number: int) -> None:
        """Print the log until something else is to be done than to follow it."""
        place = self.places[number]
        self.followed.add(number)
        out, told = StageLog(place.jobs, place.job), Changes(lambda s: say(one_line(s)))
        while True:
            job = self._status(place)
            told(job)
            out.print(job, told)
            seen: list[Seen] = [Seen(closed=self.closed.get(i, "")) for i in range(len(self.places))]
            seen[number] = Seen(job, waited=self._waited(number, job))
            if failover.decide(seen, self.patience).do != "follow":
                out.close(job)
                return
            place.jobs.sleep(place.jobs.interval)

    def _tidy(self, at: int) -> None:
        """Clusters that the job has left: removed with --remove, else named."""
        for number in range(at):
            place = self.places[number]
            if number in self.tidied or self._look(number).job is None:
                continue
            self.tidied.add(number)
            try:
                launching.finish(place.name, place.file, place.env.region, remove=self.remove, offer=False)
            except (TrnError, typer.Exit) as e:
                say(
                    f"{place} was not removed{f': {e}' if str(e) else ''}. To remove it: {printed('trn', 'destroy', place.name, '--env', place.file)}"
                )

    def _end(self, step: Step) -> int:
        place, seen = self.places[step.at], self._look(step.at)
        if seen.job and step.at not in self.followed:
            self._follow(step.at)
        say(f"{place.job} on {place}: {step.why}")
        for number, why in self.closed.items():
            say(f"{self.places[number]}: {why}")
        self._tidy(step.at)
        if seen.job is None:
            return 1
        if not step.ok and (seen.leaves or failover.nodes_lost(seen)):  # what it needs to go on is there alone
            say(f"{place} stays, with its checkpoints ({seen.job.checkpoints or 'none'}). Run this again to go on")
            return 1
        code = 0 if step.ok else 1
        return launching.finish(place.name, place.file, place.env.region, remove=self.remove) or code


def _used_up(jobs: Backend[Any], job: JobStatus) -> bool:
    """Whether the end of a failed stage's log says that it was started again as often as --restarts allows."""
    if job.state != "FAILED" or not jobs.ordered_logs:
        return False
    name = job.current.name
    begin = jobs.tail_offset(job.id, name, None, 20)
    return failover.USED_UP.encode() in b"".join(chunk.data for chunk in jobs.logs(job.id, stage=name, offset=begin))


def _runs(id: str, on_node: str) -> bool:
    """Whether the job that a node reports, with its stage, is this one."""
    return on_node == id or on_node.startswith((f"{id}:", f"{id}/"))
