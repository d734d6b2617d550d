"""A training of countable steps on a cluster of this machine, which fails as the trace says."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from tools.benchmarks.goodput.figure import EACH, HERE, SECONDS, Fault, Seen, moves
from trainium_cdk.jobs import Script
from trainium_cdk.runner.spec import HealthRules

FAST = HealthRules(hang="restart", nan="stop", every=0.4, least=6.0)
"""The watch of the local training: `least` is 600 s in a cluster, and `every` 30 s."""
MOST = 0.005
"""The part of a core that the runner may take."""
_PATIENCE = 300.0


class Engine(Protocol):
    """A cluster on this machine.

    Attributes:
        place: its shared file system. inside: the same, as a job sees it.
    """

    name: str
    place: Path
    inside: str

    def send(self, job: Script, rules: HealthRules) -> str: ...

    def has_ended(self, id: str) -> bool: ...

    def hangs(self, id: str) -> bool: ...

    def cancel(self, id: str) -> None: ...

    def lose(self, id: str, fault: Fault, goes_on: Callable[[], bool]) -> float:
        """A node is lost, and replaced at once. Returns when the scheduler has begun the job again."""


@dataclass
class Run:
    """A training on a cluster, which fails as it should."""

    engine: Engine
    nodes: int
    faults: Sequence[Fault]
    rules: HealthRules
    steps: int = 0

    def __post_init__(self) -> None:
        self.steps = self.steps or max((one.step for one in self.faults), default=0) + 2 * EACH
        self.place = Path(tempfile.mkdtemp(prefix="goodput-", dir=self.engine.place))
        self.place.chmod(0o777)
        self.seen: list[Seen] = []
        self.jobs: list[str] = []

    def carry_out(self) -> Self:
        """Train, with all faults, to the end."""
        self.send()
        for number, fault in enumerate(self.faults):
            self._until((self.place / f"fault-{number}").exists)
            at = float((self.place / f"fault-{number}").read_text())
            attempts = {one.attempt for one in self._done()}
            known = self._meet(
                fault, at, lambda before=attempts: any(one.attempt not in before for one in self._done())
            )  # type: ignore[misc]
            self._until(lambda before=attempts: any(one.attempt not in before for one in self._done()))  # type: ignore[misc]
            again = next(one for one in self._done() if one.attempt not in attempts)
            last = max(one.step for one in self._done() if one.attempt in attempts and one.loss == one.loss)
            held = known - at if moves(fault.kind, watched=self.watched) else 0.0
            self.seen.append(Seen(fault, again.time - known, last - again.step + 1, held))
        return self.end()

    def end(self) -> Self:
        """Wait until it has ended."""
        self._until(lambda: self.engine.has_ended(self.jobs[-1]))
        return self

    def until_step(self, step: int) -> None:
        self._until(lambda: any(one.step >= step for one in self._done()))

    def send(self) -> None:
        env = {
            "PLACE": f"{self.engine.inside}/{self.place.name}",
            "STEPS": str(self.steps),
            "EACH": str(EACH),
            "SECONDS": str(SECONDS),
        }
        env["FAULTS"] = json.dumps([[one.kind, one.node, one.step] for one in self.faults])
        content = (HERE / "training.py").read_bytes()
        before = self.jobs[-1] if self.jobs else None
        job = Script(filename="train.py", content=content, nodes=self.nodes, env=env, resume_from=before)
        self.jobs.append(self.engine.send(job, self.rules))

    def _meet(self, fault: Fault, at: float, goes_on: Callable[[], bool]) -> float:
        """Do what others do about a fault. Returns since when it is known."""
        job = self.jobs[-1]
        if moves(fault.kind, watched=self.watched):
            return self.engine.lose(job, fault, goes_on)
        if fault.kind == "hang" and self.watched:
            return at + self.rules.least
        if fault.kind in ("disk", "device") or self.rules.nan == "stop":
            self._until(lambda: self.engine.has_ended(job))
        else:
            self._until(lambda: self.engine.hangs(job))
            self.engine.cancel(job)
        known = time.time()
        self.send()
        return known

    def _until(self, is_so: Callable[[], bool]) -> None:
        began = looked = time.monotonic()
        while not is_so():
            now = time.monotonic()
            over = now - looked > 5 and self.engine.has_ended(self.jobs[-1]) and not is_so()
            if over or now - began > _PATIENCE:
                what = "has ended" if over else f"nothing for {_PATIENCE:.0f} s"
                raise TimeoutError(f"{self.engine.name}, {self.jobs[-1]}: {what}, after {self.seen}")
            looked = now if now - looked > 5 else looked
            time.sleep(0.1)

    @property
    def watched(self) -> bool:
        """Whether the health loop does more than to tell."""
        return self.rules.hang == "restart"

    # --- what it did ---------------------------------------------------------------------------------------------------------------

    def _done(self) -> list[Step]:
        lines = [one.split() for one in _lines(self.place / "steps")]
        return [
            Step(a, int(step), float(at), float(loss)) for a, step, at, loss in (one for one in lines if len(one) == 4)
        ]

    @property
    def saved(self) -> dict[int, set[str]]:
        """The losses at each checkpoint."""
        made: dict[int, set[str]] = {}
        for line in _lines(self.place / "saved"):
            step, loss = line.split()
            made.setdefault(int(step), set()).add(loss)
        return made

    @property
    def attempts(self) -> int:
        """How often it was begun."""
        return len({line.split()[1] for line in _lines(self.place / "begun") if line.startswith("0 ")})

    @property
    def copies(self) -> int:
        """How often a node had two of it at a time."""
        return len(_lines(self.place / "two"))


@dataclass(frozen=True)
class Step:
    attempt: str
    step: int
    time: float
    loss: float


def _lines(file: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return file.read_text().splitlines()
    return []


def share(engine: Engine, seconds: float) -> float:
    """The part of a core that the runner takes on a node where nothing is wrong, with its rules of a cluster and four steps a second. The node is the
    first one, whose runner is the batch script, too."""
    run = Run(engine, 1, (), HealthRules(), steps=int((seconds + 10) / SECONDS))
    run.send()
    run.until_step(10)
    before, began = _nanoseconds(run.jobs[-1]), time.monotonic()
    time.sleep(seconds)
    took = (_nanoseconds(run.jobs[-1]) - before) / 1e9 / (time.monotonic() - began)
    run.end()
    return took


def _nanoseconds(job: str) -> int:
    """Processor time of a job's runners, by the kernel."""
    took = 0
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (one / "cmdline").read_bytes().split(b"\0")
            if b"-I" in words and b"srun" not in words[0] and any(job.encode() in word for word in words):
                took += sum(int((task / "schedstat").read_text().split()[0]) for task in (one / "task").iterdir())
    return took
