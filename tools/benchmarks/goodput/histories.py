"""Simulated trainings in which nothing is wrong."""

from __future__ import annotations

import dataclasses
import random

from trainium_cdk.runner.spec import HealthRules
from trainium_cdk.runner.work import health
from trainium_cdk.runner.work.pulse import Progress


class _Clock:
    now = 1_780_000_000.0

    def __call__(self) -> float:
        return self.now


def false_alarms(histories: int, hours: float = 8, nodes: int = 16) -> int:
    """In how many simulated histories without a fault something would be done: steps of seconds to minutes with long tails, a compilation of up to
    an hour, checkpoints of up to 20 minutes, which it announces."""
    return sum(_is_disturbed(random.Random(seed), hours, nodes) for seed in range(histories))  # noqa: S311  no secret


def _is_disturbed(chance: random.Random, hours: float, nodes: int) -> bool:
    clock, rules = _Clock(), HealthRules("restart", "stop")
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
