"""What `make bench GOODPUT=1` prints."""

from __future__ import annotations

import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import sandbox.kubernetes
import sandbox.slurm
from tools.benchmarks.goodput.figure import AIM, DATA, FEW, Fault, Seen, cost, faults, goodput, hours, moves
from tools.benchmarks.goodput.histories import false_alarms
from tools.benchmarks.goodput.kubernetes import NODES, kubernetes
from tools.benchmarks.goodput.run import FAST, MOST, Engine, Run, share
from tools.benchmarks.goodput.slurm import slurm


def tell(engine: str, runs: Mapping[bool, Run], calm: Run, nodes: int) -> bool:
    """Print the figures. Returns whether nothing was done twice at a time, done for nothing, or lost."""
    every, seconds = DATA["trace"]["faults"], DATA["trace"]["seconds"]
    for watched, run in sorted(runs.items()):
        took = {kind: _mean(run, kind) for kind in sorted({one.fault.kind for one in run.seen})}
        rows = [
            (of["kind"], dataclasses.replace(took[of["kind"]], fault=Fault(of["kind"], of["node"], of["at"], 0)))
            for of in every
            if of["kind"] in took
        ]
        costs = [(kind, cost(one, engine, watched=watched)) for kind, one in rows]
        part = len(rows) / len(every) * seconds  # a fault each so many seconds, also where not all kinds were tried
        figure = goodput([one for _, one in costs], part)
        own = [one.total - one.redone for kind, one in costs if kind == "hang" or moves(kind, watched=watched)]
        print(
            f"goodput on {engine}, health loop {'on' if watched else 'off'}: {figure:.1%} with a fault each {seconds / len(every) / 3600:.0f} h, "
            f"{AIM:.0%} with one each {hours([one for _, one in costs], AIM):.1f} h; fault to training again: median "
            f"{statistics.median(own) / 60:.0f} min, worst {max(own) / 60:.0f} min",
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
                    f"  {kind:<5} seen {known:>4.0f} s, machine {machine:>4.0f} s, begins {begin:>4.0f} s ({took[kind].begin:.0f} s measured), steps again {redone:>4.0f} s"
                )
    good = True
    for name, run in (("on", runs[True]), ("off", runs.get(False, calm)), ("undisturbed", calm)):
        copies, odd = run.copies, [step for step, losses in run.saved.items() if losses != calm.saved.get(step, losses)]
        print(
            f"  {name}, {nodes} nodes: begun {run.attempts} times, two copies {copies} times, {len(run.saved)} checkpoints, of another loss {len(odd)}"
        )
        good = good and not copies and not odd
    return good and calm.attempts == 1


def _mean(run: Run, kind: str) -> Seen:
    """What was measured of a kind of fault, on average."""
    every = [one for one in run.seen if one.fault.kind == kind]
    begin, held = (statistics.mean(getattr(one, field) for one in every) for field in ("begin", "held"))
    return dataclasses.replace(every[0], begin=begin, held=held)


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
    alarms = false_alarms(100)
    print(f"restarts in 100 undisturbed histories of 8 hours on 16 nodes: {alarms}", flush=True)
    good = not alarms
    if reason := sandbox.slurm.available():
        print(f"not measured on slurm: {reason}", file=sys.stderr)
    else:
        nodes = DATA["trace"]["nodes"]
        with tempfile.TemporaryDirectory() as folder, slurm(Path(folder), nodes) as engine:
            good = measure(engine, nodes, faults()) and good
            took = share(engine, 120)
            print(f"the runner takes {took:.2%} of a core while nothing is wrong   at most {MOST:.1%}", flush=True)
            good = took <= MOST and good
    if reason := sandbox.kubernetes.available():
        print(f"not measured on eks: {reason}", file=sys.stderr)
    else:
        few = [next(one for one in DATA["trace"]["faults"] if one["kind"] == kind) for kind in FEW]
        with tempfile.TemporaryDirectory() as folder, kubernetes(Path(folder)) as cluster:
            good = measure(cluster, NODES, faults(few, NODES)) and good
    return int(not good)
