"""Goodput of a training whose nodes fail: `make bench GOODPUT=1`. It is what new steps take, in the time for which nodes are paid.

Each fault of a day (`goodput.yaml`) happens to a training of countable steps (`goodput_training.py`), on a real Slurm of 16 nodes, and some to one on
a real API server with Kueue and JobSet. Measured is what the runner and the scheduler take until the training does steps again, and which steps it
does twice. Hours without a fault are left out, and the times after which a hang is seen are shortened; they count as they are set. What the local
machines do not have counts as published: a node's start, and the clocks by which AWS's daemons see that one is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import yaml

from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.runner.spec import Health
from trainium_cdk.runner.work import health
from trainium_cdk.runner.work.pulse import Progress

HERE = Path(__file__).parent
DATA: dict[str, Any] = yaml.safe_load((HERE / "goodput.yaml").read_text())
EACH, SECONDS = 8, 0.25
"""Steps of the local training between two checkpoints, and what one takes."""
FAST = Health(hang="restart", nan="stop", every=0.4, least=6.0)
"""The watch of the local training: `least` is 600 s in a cluster, and `every` 30 s."""
OWN = ("hang", "dead", "spot")
"""Faults after which a training goes on by itself. After the others a person sends the job again."""
FEW = ("hang", "dead", "nan")
"""Those that are tried on Kubernetes, with fewer nodes."""
MOST = 0.005
"""The part of a core that the runner may take."""
_PATIENCE = 300.0


@dataclass(frozen=True)
class Fault:
    """One of the trace. `step`: of the local training."""

    kind: str
    node: int
    at: float
    step: int


@dataclass(frozen=True)
class Seen:
    """What was measured of a fault. `begin`: seconds from when it was known, or the job was sent again, until a step. `redone`: steps done twice."""

    fault: Fault
    begin: float
    redone: int


@dataclass(frozen=True)
class Cost:
    """Seconds of all nodes that a fault costs: until it is known, until its machine is replaced, until a step, and for the steps that are done twice."""

    known: float
    machine: float
    begin: float
    redone: float

    @property
    def total(self) -> float:
        return self.known + self.machine + self.begin + self.redone


def faults(trace: Sequence[Mapping[str, Any]] = (), nodes: int = 0) -> list[Fault]:
    """Those of a trace, two checkpoints of the local training from each other, and as far from the last one as in the trace."""
    between, made = DATA["training"]["checkpoint"], []
    for number, one in enumerate(trace or DATA["trace"]["faults"]):
        part = one["at"] % between / between
        step = EACH * 2 * (number + 1) + 1 + int(part * (EACH - 1))
        made.append(Fault(one["kind"], one["node"] % (nodes or DATA["trace"]["nodes"]), one["at"], step))
    return made


# --- the figure ------------------------------------------------------------------------------------------------------------------------


def cost(seen: Seen, engine: str, *, watched: bool, data: Mapping[str, Any] = DATA) -> Cost:
    """What a fault costs in a cluster: rules of the runner and published times as they are, and what was measured."""
    rules, of, kind = Health(), data["training"], seen.fault.kind
    start, clocks = data["start"]["seconds"], data["seen"][engine]
    looks = 3 * rules.every  # of the node, of what judges, and of the node that carries the order out
    begin = seen.begin + of["load"]
    redone = seen.fault.at % of["checkpoint"]
    if kind in ("dead", "spot"):
        return Cost(clocks[kind]["seconds"], clocks["replaced"]["seconds"] + start, begin, redone)
    if kind == "disk":  # its job has ended: its nodes are stopped, and start for the next one
        return Cost(0.0, data["idle"] + start, begin, redone)
    if not watched:
        return Cost(data["person"], 0.0, begin, redone)
    if kind == "hang":
        return Cost(rules.least + looks, 0.0, begin, redone)
    return Cost(health.NANS * of["step"] + looks, data["idle"] + start, begin, redone)


def goodput(costs: Sequence[Cost], seconds: float) -> float:
    """The part of the paid time in which a step is done for the first time."""
    return seconds / (seconds + sum(one.total for one in costs))


# --- the local training ----------------------------------------------------------------------------------------------------------------


class Engine(Protocol):
    """A cluster on this machine.

    Attributes:
        place: its shared file system. inside: the same, as a job sees it.
    """

    name: str
    place: Path
    inside: str

    def send(self, job: Script, rules: Health) -> str: ...

    def has_ended(self, id: str) -> bool: ...

    def hangs(self, id: str) -> bool: ...

    def cancel(self, id: str) -> None: ...

    def lose(self, id: str, fault: Fault, goes_on: Callable[[], bool]) -> None:
        """A node is lost, and replaced at once. Returns when the training goes on."""


@dataclass
class Run:
    """A training on a cluster, which fails as it should."""

    engine: Engine
    nodes: int
    faults: Sequence[Fault]
    rules: Health
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
            self.seen.append(Seen(fault, again.time - known, last - again.step + 1))
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
        content = (HERE / "goodput_training.py").read_bytes()
        before = self.jobs[-1] if self.jobs else None
        job = Script(filename="train.py", content=content, nodes=self.nodes, env=env, resume_from=before)
        self.jobs.append(self.engine.send(job, self.rules))

    def _meet(self, fault: Fault, at: float, goes_on: Callable[[], bool]) -> float:
        """Do what others do about a fault. Returns since when it is known."""
        job = self.jobs[-1]
        if fault.kind in ("dead", "spot"):
            self.engine.lose(job, fault, goes_on)
            return at
        if fault.kind == "hang" and self.rules.hang == "restart":
            return at + self.rules.least
        if fault.kind == "disk" or self.rules.nan == "stop":
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


# --- Slurm -----------------------------------------------------------------------------------------------------------------------------


class Slurm:
    """A real Slurm on this machine."""

    name = "slurm"

    def __init__(self, slurm: LocalSlurm, nodes: int) -> None:
        self._slurm = slurm
        self._backend = SlurmBackend(
            make_cluster(fleet(nodes=nodes)), LocalTransport(env=slurm.node_env(), interval=0.2)
        )
        self._numbers: dict[str, str] = {}
        self.place = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs"
        self.inside = str(self.place)

    def send(self, job: Script, rules: Health) -> str:
        made = self._backend.render(job)
        sent = self._backend.send(dataclasses.replace(made, spec=dataclasses.replace(made.spec, health=rules)))
        self._numbers[sent.id] = sent.stages["train"]
        return sent.id

    def has_ended(self, id: str) -> bool:
        return self._backend.status(id).done

    def hangs(self, id: str) -> bool:
        return bool(self._backend.status(id).findings)

    def cancel(self, id: str) -> None:
        self._backend.cancel(id)
        until = time.monotonic() + _PATIENCE
        while self._squeue(id, "%T") in ("RUNNING", "COMPLETING") and time.monotonic() < until:
            time.sleep(0.1)

    def lose(self, id: str, fault: Fault, goes_on: Callable[[], bool]) -> None:
        names = self._slurm.run(["scontrol", "show", "hostnames", self._squeue(id, "%N")]).stdout.split()
        name = names[fault.node]
        if fault.kind == "spot":
            self._slurm.end_node(name)
        self._slurm.kill_node(name)
        self._slurm.run(["scontrol", "update", f"nodename={name}", "state=down", "reason=hardware"])
        self._slurm.replace_node(name)
        for _ in range(40):  # Slurm holds a job that it starts again for some minutes, in which a new node would start
            self._slurm.run(["scontrol", "update", f"JobId={self._numbers[id]}", "StartTime=now+1"])
            until = time.monotonic() + 8
            while time.monotonic() < until:
                if goes_on():
                    return
                time.sleep(0.1)

    def _squeue(self, id: str, what: str) -> str:
        words = ["squeue", "-h", "-a", "-t", "all", "-j", self._numbers[id], "-o", what]
        return self._slurm.run(words).stdout.strip()


@contextlib.contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[Slurm]:
    """One with so many nodes."""
    resource = {
        "Name": "trn",
        "InstanceType": "trn1.32xlarge",
        "MinCount": 0,
        "MaxCount": nodes,
        "Efa": {"Enabled": True},
    }
    queue = {"Name": "compute1", "JobExclusiveAllocation": True, "ComputeResources": [resource]}
    made = {"Scheduling": {"Scheduler": "slurm", "SlurmQueues": [queue]}}
    with LocalSlurm.start(
        folder, {**made, "SharedStorage": [{"Name": "efs", "StorageType": "Efs", "MountDir": "/efs"}]}
    ) as one:
        yield Slurm(one, nodes)


# --- what watching takes ----------------------------------------------------------------------------------------------------------------


def share(engine: Engine, seconds: float) -> float:
    """The part of a core that the runner takes on a node where nothing is wrong, with its rules of a cluster and four steps a second. The node is the
    first one, whose runner is the batch script, too."""
    run = Run(engine, 1, (), Health(), steps=int((seconds + 10) / SECONDS))
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


# --- undisturbed histories ---------------------------------------------------------------------------------------------------------------


class _Clock:
    now = 1_780_000_000.0

    def __call__(self) -> float:
        return self.now


def false_alarms(histories: int, hours: float = 8, nodes: int = 16) -> int:
    """In how many simulated histories without a fault something would be done: steps of seconds to minutes with long tails, a compilation of up to
    an hour, checkpoints of up to 20 minutes, which are said."""
    return sum(_is_disturbed(random.Random(seed), hours, nodes) for seed in range(histories))  # noqa: S311  no secret


def _is_disturbed(chance: random.Random, hours: float, nodes: int) -> bool:
    clock, rules = _Clock(), Health("restart", "stop")
    one, end = Progress(clock), clock.now + hours * 3600
    typical, saving, each = chance.choice([1.0, 5.0, 30.0, 90.0]), chance.uniform(5, 1200), chance.randint(20, 200)
    step, busy = 0, clock.now + chance.uniform(60, 3600)
    said = [b"Compiling module MODULE_0\n"]
    while clock.now < end:
        clock.now += rules.every
        while busy <= clock.now:
            step += 1
            said.append(b"step %d/99999999 | loss %.3f\n" % (step, 4 - step / 1e6))
            busy += min(typical * chance.paretovariate(2), 9 * max(typical, 60))
            if step % each == 0:
                said.append(b"Saving checkpoint\n")
                busy += saving
        one.read(b"".join(said), clock.now)
        said.clear()
        own = one.pulse(0, 0)
        pulses = [dataclasses.replace(own, node=n, task=n, beat=own.beat - chance.uniform(0, 5)) for n in range(nodes)]
        order, _ = health.act(health.decide(pulses, clock.now, rules), pulses, rules, health.Tried())
        if order:
            return True
    return False


# --- what is printed -------------------------------------------------------------------------------------------------------------------


def tell(engine: str, runs: Mapping[bool, Run], calm: Run, nodes: int) -> bool:
    """Print the figures. Returns whether nothing was done twice at a time, done for nothing, or lost."""
    every, seconds = DATA["trace"]["faults"], DATA["trace"]["seconds"]
    for watched, run in sorted(runs.items()):
        took = {kind: _begin(run, kind) for kind in sorted({one.fault.kind for one in run.seen})}
        rows = [
            (of["kind"], Seen(Fault(of["kind"], of["node"], of["at"], 0), took[of["kind"]], 0))
            for of in every
            if of["kind"] in took
        ]
        costs = [(kind, cost(one, engine, watched=watched)) for kind, one in rows]
        part = len(rows) / len(every) * seconds  # a fault each so many seconds, also where not all kinds were tried
        figure = goodput([one for _, one in costs], part)
        own = [one.total - one.redone for kind, one in costs if kind in OWN]
        print(
            f"goodput on {engine}, health loop {'on' if watched else 'off'}: {figure:.1%}   fault to training again: median "
            f"{statistics.median(own) / 60:.0f} min, worst {max(own) / 60:.0f} min   ({len(rows)} faults, one each {seconds / len(every) / 3600:.0f} h)",
            flush=True,
        )
        if watched:
            for kind in took:
                mine = [one for name, one in costs if name == kind]
                known, machine, begin, redone = (
                    statistics.mean(getattr(one, field) for one in mine)
                    for field in ("known", "machine", "begin", "redone")
                )
                print(
                    f"  {kind:<5} seen {known:>4.0f} s, machine {machine:>4.0f} s, begins {begin:>4.0f} s ({took[kind]:.0f} s measured), steps again {redone:>4.0f} s"
                )
    good = True
    for name, run in (("on", runs[True]), ("off", runs.get(False, calm)), ("undisturbed", calm)):
        copies, odd = run.copies, [step for step, losses in run.saved.items() if losses != calm.saved.get(step, losses)]
        print(
            f"  {name}, {nodes} nodes: begun {run.attempts} times, two copies {copies} times, {len(run.saved)} checkpoints, of another loss {len(odd)}"
        )
        good = good and not copies and not odd
    return good and calm.attempts == 1


def _begin(run: Run, kind: str) -> float:
    return statistics.mean(one.begin for one in run.seen if one.fault.kind == kind)


def measure(engine: Engine, nodes: int, trace: Sequence[Fault]) -> bool:
    """With the health loop, without it, and without a fault."""
    watched, told = (
        Run(engine, nodes, trace, FAST),
        Run(engine, nodes, trace, dataclasses.replace(FAST, hang="tell", nan="tell")),
    )
    calm = Run(engine, nodes, (), FAST, steps=watched.steps)
    for one in (calm, watched, told):
        one.carry_out()
    return tell(engine.name, {True: watched, False: told}, calm, nodes)


def main() -> int:
    """The exit code is 1 if something was done twice at a time, without a reason, or is lost."""
    from benchmarks import goodput_kubernetes

    alarms = false_alarms(100)
    print(f"restarts in 100 undisturbed histories of 8 hours on 16 nodes: {alarms}", flush=True)
    good = not alarms
    if reason := available():
        print(f"not measured on slurm: {reason}", file=sys.stderr)
    else:
        nodes = DATA["trace"]["nodes"]
        with tempfile.TemporaryDirectory() as folder, slurm(Path(folder), nodes) as engine:
            good = measure(engine, nodes, faults()) and good
            took = share(engine, 120)
            print(f"the runner takes {took:.2%} of a core while nothing is wrong   at most {MOST:.1%}", flush=True)
            good = took <= MOST and good
    if reason := goodput_kubernetes.available():
        print(f"not measured on eks: {reason}", file=sys.stderr)
    else:
        few = [next(one for one in DATA["trace"]["faults"] if one["kind"] == kind) for kind in FEW]
        with tempfile.TemporaryDirectory() as folder, goodput_kubernetes.kubernetes(Path(folder)) as cluster:
            good = measure(cluster, goodput_kubernetes.NODES, faults(few, goodput_kubernetes.NODES)) and good
    return int(not good)
