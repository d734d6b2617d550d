"""Random histories of a cluster: jobs are submitted and cancelled while its controller crashes, or it is created again on the same
file system, or destroyed. Foreign jobs run next to ours, and job numbers may be assigned again to either."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.status import ACTIVE, JobStatus
from trainium_cdk.client.operations.teardown.occupants import end
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend

OPERATIONS = ("submit", "submit", "submit and crash", "submit and crash", "crash", "renew", "cancel", "destroy", "look")
UNSAVED_SECONDS = 3.0
"""A controller is killed at most this long after a submission: it saves what it knows every few seconds."""
_RAN = b'#!/bin/bash\necho "$NEURON_EXTRACT_GRAPHS_ONLY $(date +%s%N)" >> "$HOME/ran/$NAME"\n'


@dataclass
class Ours:
    """A job of ours.

    Attributes:
        head: the head node of the cluster that took it.
        bare: the name of the bare job that was submitted beside it; empty where the two did not have the same crashes.
        kills: how often the controller had been killed before.
        ended_at: when `cancel` or `destroy` had ended it, in nanoseconds since 1970.
    """

    id: str
    token: str
    job: Script
    head: str
    bare: str
    kills: int
    ended_at: int | None = None


@dataclass
class World:
    """A Slurm, and what has happened to it.

    Attributes:
        counts: actions, and their outcomes.
        acted: actions on a job that was not ours.
        silent: jobs of ours that were held or lost without a report, or ran although they were cancelled.
    """

    slurm: LocalSlurm
    number: int
    counts: Counter[str] = field(default_factory=Counter)
    acted: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    _renewed: int = 0

    def __post_init__(self) -> None:
        (self._home / "ran").mkdir(exist_ok=True)

    @property
    def backend(self) -> SlurmBackend:
        """Jobs on the cluster as it is now."""
        cluster = make_cluster(fleet(nodes=4), head_node_id=f"i-{self.number:08x}{self._renewed:08x}")
        return SlurmBackend(cluster, LocalTransport(env=self.slurm.node_env(), interval=0.2))

    @property
    def _home(self) -> Path:
        return Path(self.slurm.node_env()["HOME"])

    def ran(self, name: str) -> list[int]:
        """When a job ran, in nanoseconds since 1970; trial runs that compile do not count."""
        try:
            lines = (self._home / "ran" / name).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [int(line.split()[-1]) for line in lines if not line.startswith("1 ")]

    def crash(self, after: float = 0.0, down: float = 0.0) -> None:
        """The controller is killed, and started again from what it has saved."""
        time.sleep(after)
        self.slurm.kill_controller()
        time.sleep(down)
        self.slurm.start_controller()
        self.counts["kills"] += 1

    @contextlib.contextmanager
    def unsaved(self) -> Iterator[None]:
        """Requests to Slurm meanwhile are lost, as if its controller crashed before it saved them."""
        state, kept = self.slurm.directory / "state", self.slurm.directory / "state.kept"
        self.slurm.kill_controller(save=True)
        shutil.copytree(state, kept)
        self.slurm.start_controller()
        yield
        self.slurm.kill_controller()
        shutil.rmtree(state)
        kept.rename(state)
        self.slurm.start_controller()

    def renew(self) -> None:
        """A new cluster, with another head node, on the same file system."""
        self.slurm.renew()
        self._renewed += 1
        self.counts["renewed"] += 1

    def wait(self, id: str) -> JobStatus:
        """Until a job has ended."""
        found: list[JobStatus] = []

        def ended() -> bool:
            found.append(self.backend.status(id))
            return found[-1].done

        self.until(ended)
        return found[-1]

    def until(self, done: Callable[[], bool]) -> None:
        """Meanwhile, nodes that Slurm drains (they still had a lost job of that number) are replaced, as ParallelCluster does; and
        nodes report more often than by default, so that Slurm learns of jobs that ended during the crash."""
        end, register = time.monotonic() + 600, time.monotonic() + 10
        while not done():
            assert time.monotonic() < end, self.slurm.run(["squeue", "-a"]).stdout
            for name, state in self.slurm.node_states().items():
                if state.startswith("drain"):
                    self.slurm.run(["scontrol", "update", f"nodename={name}", "state=resume"])
            if time.monotonic() > register:
                self.slurm.register_nodes()
                register += 5
            time.sleep(0.2)

    def bare_ran(self, name: str) -> bool:
        """Whether a bare job has run; waits until it has, or Slurm does not have it any more, or holds it after a failed launch.
        One that has run may be in Slurm's queue for ever."""
        over = ("", "launch failed requeued held")
        self.until(
            lambda: (
                bool(self.ran(name)) or self.slurm.run(["squeue", "-h", "-n", name, "-o", "%r"]).stdout.strip() in over
            )
        )
        return bool(self.ran(name))

    def bare(self, name: str, *options: str) -> str:
        """A job that Slurm was given without `trn`; its number, or nothing where Slurm did not take it."""
        body = f'#!/bin/bash\\necho "0 $(date +%s%N)" >> "$HOME/ran/{name}"\\n'
        command = ["sbatch", "--parsable", f"--job-name={name}", "-o", "/dev/null", *options]
        file = self._home / f"{name}.sh"
        file.write_text(body.replace("\\n", "\n"))
        return self.slurm.run([*command, str(file)]).stdout.strip()


class History:
    """One of them. Every name in it is its own."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self._random = random.Random(seed)  # noqa: S311  the same history each time
        self._ours: list[Ours] = []
        self._strangers: list[str] = []
        self._bare: dict[str, str] = {}  # name -> the head node of the cluster that took it

    def run(self) -> None:
        """Play it, and hold what became of everything against what may."""
        world = self.world
        self._stranger()
        self._submit()
        for operation in self._random.choices(OPERATIONS, k=self._random.randint(3, 6)):
            world.counts[operation] += 1
            match operation:
                case "submit":
                    self._submit()
                case "submit and crash":
                    self._submit_and_crash()
                case "crash":
                    world.crash()
                    self._stranger()  # it may get a number that was ours
                case "renew":
                    world.renew()
                    for _ in range(self._random.randint(0, 2)):
                        self._stranger()
                case "cancel":
                    self._cancel()
                case "destroy":
                    self._destroy()
                case "look":
                    world.backend.list()
        # at least one pair of jobs, ours and a bare one, that is not cancelled before the crash is over
        self._submit()
        world.crash(self._random.uniform(0, UNSAVED_SECONDS), self._random.uniform(0, 0.3))
        self._settle()
        self._check_strangers()
        world.slurm.run(["scancel", f"--user={world.slurm.node_env()['USER']}"])
        world.counts["histories"] += 1

    def _name(self, kind: str, number: int) -> str:
        return f"{kind}-{self.seed}-{number}"

    def _stranger(self) -> None:
        """A job of a user without `trn`: it is held, waits for its start time, or runs immediately."""
        name = self._name("stranger", len(self._strangers))
        ways: tuple[list[str], ...] = (["--hold"], ["--begin=now+3600"], [])
        how = self._random.choice(ways)
        if self.world.bare(name, *how):
            self._strangers.append(name if how else "")

    def _submit(self) -> Ours:
        number, kills = len(self._ours), self.world.counts["kills"]
        token, bare = self._name("t", number), self._name("bare", number)
        job = Script(
            filename="ran.sh", content=_RAN, name="job", env={"NAME": token}, precompile=self._random.random() < 0.3
        )
        head = self.world.backend.cluster.head_node_id
        first = self._random.random() < 0.5
        taken = first and self.world.bare(bare)
        sent = self.world.backend.submit(job, token)
        if not first:
            taken = self.world.bare(bare)
        self._ours.append(Ours(sent.id, token, job, head, bare if taken else "", kills))
        self._bare[bare] = head
        return self._ours[-1]

    def _submit_and_crash(self) -> None:
        """The controller dies while it takes a job, or some seconds later."""
        after, down = self._random.uniform(0, UNSAVED_SECONDS), self._random.uniform(0, 0.3)
        if self._random.random() < 0.5:
            self._submit()
            self.world.crash(after, down)
            return
        with ThreadPoolExecutor(1) as pool:
            submitted = pool.submit(self._submit)
            self.world.crash(after / 10, down)
            ours = submitted.result()
        ours.bare = ""

    def _cancel(self) -> None:
        ours = self._random.choice(self._ours)
        self._ended(ours, self.world.backend.cancel(ours.id))

    def _ended(self, ours: Ours, status: JobStatus) -> None:
        here = ours.head == self.world.backend.cluster.head_node_id
        if here and status.state != "LOST" and any(stage.state in ACTIVE for stage in status.stages):
            self.world.silent.append(f"{ours.id} is {status.state} after it was cancelled")
        if status.state == "CANCELLED" and ours.ended_at is None:
            ours.ended_at = time.time_ns()

    def _destroy(self) -> None:
        """What `trn destroy` does with the jobs; the stack is another test's concern."""
        backend = self.world.backend
        end(backend, "cancel", lambda _: None)
        for status in backend.active():
            self.world.silent.append(f"{status.id} is {status.state} after trn destroy")
        for ours in self._ours:
            self._ended(ours, backend.status(ours.id))

    def _settle(self) -> None:
        """Follow the fixes that `trn` prints until each job has ended. No job may wait forever or be missing without a report."""
        counts = self.world.counts
        backend = self.world.backend
        for ours in self._ours:
            counts["submitted"] += 1
            status = self.world.wait(ours.id)
            unaided = bool(self.world.ran(ours.token))
            here = ours.head == backend.cluster.head_node_id
            again = 0
            while here and again < 5 and "Submit it again with the same token" in status.current.reason:
                again += 1
                counts[f"reported {status.state}"] += 1
                counts["submitted again"] += bool(backend.submit(ours.job, ours.token).resubmitted)
                status = self.world.wait(ours.id)
            self._check(ours, status)
            if ours.bare and ours.ended_at is None and here and counts["kills"] > ours.kills:
                counts["compared"] += 1
                counts["compared, ran"] += bool(self.world.ran(ours.token))
                counts["compared, ran without resubmission"] += unaided
                counts["compared, bare ran"] += self.world.bare_ran(ours.bare)

    def _check(self, ours: Ours, status: JobStatus) -> None:
        ran, silent = self.world.ran(ours.token), self.world.silent
        here = ours.head == self.world.backend.cluster.head_node_id
        how = f"history {self.seed}: {ours.id} {[(s.name, s.state, s.reason) for s in status.stages]}, ran {len(ran)} times"
        if ours.ended_at is not None:
            if status.state != "CANCELLED" or any(when > ours.ended_at for when in ran):
                silent.append(f"{how}, after it was cancelled")
        elif status.state == "COMPLETED":
            if not ran:
                silent.append(how)
        elif here or status.state not in ("UNKNOWN", "LOST", "CANCELLED", "FAILED") or not status.current.reason:
            silent.append(how)

    def _check_strangers(self) -> None:
        """They were not cancelled, and held ones were not released. Slurm records how each job ended."""
        log = self.world.slurm.directory / "log" / "jobcomp.log"
        ends = log.read_text().splitlines() if log.exists() else []
        for name in filter(None, self._strangers):
            if self.world.ran(name) or any(f" Name={name} " in line for line in ends):
                self.world.acted.append(f"history {self.seed}: {name} was let go or cancelled")
        for name in self._bare:
            if any(f" Name={name} " in line and "JobState=CANCELLED" in line for line in ends):
                self.world.acted.append(f"history {self.seed}: {name} was cancelled")
