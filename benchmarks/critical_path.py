"""The minimum time to deploy a template: the longest chain of resources that depend on each other. Pure.

`python -m benchmarks.critical_path cdk.out/TrnEksStack.template.json` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.creation import CreationTimes, creation_times
from trainium_cdk.operations.updates.leaves import references


@dataclass(frozen=True)
class Step:
    """One resource of a chain.

    Attributes:
        start: seconds after the deployment began.
        seconds: assumed duration.
    """

    logical_id: str
    kind: str
    start: int
    seconds: int

    @property
    def end(self) -> int:
        return self.start + self.seconds


class CircularDependency(ValueError):
    """Resources of the template depend on each other in a cycle."""


def schedule(template: Mapping[str, Any], times: CreationTimes | None = None) -> dict[str, Step]:
    """When each resource is created, by logical id, if each starts as early as possible.

    Raises:
        CircularDependency: the template has a cycle.
    """
    times = times or creation_times()
    resources: Mapping[str, Any] = template["Resources"]
    found: dict[str, Step] = {}
    waiting: list[str] = []

    def step(name: str) -> Step:
        if name in found:
            return found[name]
        if name in waiting:
            raise CircularDependency(" -> ".join([*waiting[waiting.index(name) :], name]))
        waiting.append(name)
        start = max((step(other).end for other in sorted(needs(resources, name))), default=0)
        waiting.pop()
        kind = resources[name]["Type"]
        found[name] = Step(name, kind, start, times.of(kind))
        return found[name]

    for name in resources:
        step(name)
    return found


def longest(template: Mapping[str, Any], times: CreationTimes | None = None) -> tuple[Step, ...]:
    """The chain that ends last, first resource first; empty for a template without resources."""
    when = schedule(template, times)
    chain: list[Step] = []
    last = max(when.values(), key=lambda s: s.end, default=None)
    while last:
        chain.insert(0, last)
        before = [when[other] for other in sorted(needs(template["Resources"], last.logical_id))]
        last = max(before, key=lambda s: s.end, default=None)
    return tuple(chain)


def needs(resources: Mapping[str, Any], name: str) -> set[str]:
    """The resources that a resource directly depends on, explicitly or by reference."""
    resource = resources[name]
    depends = resource.get("DependsOn", [])
    names = {depends} if isinstance(depends, str) else set(depends)
    return (names | {other for other, _ in references(resource.get("Properties", {}))}) & set(resources) - {name}


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1:
        print("usage: python -m benchmarks.critical_path TEMPLATE", file=sys.stderr)
        return 2
    try:
        chain = longest(json.loads(Path(given[0]).read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        print(f"{given[0]}: not a CloudFormation template in JSON ({type(e).__name__}: {e})", file=sys.stderr)
        return 1
    times = creation_times()
    print(f"{chain[-1].end if chain else 0} s at least, with assumed times ({times.source.strip()}; {times.date})")
    for step in chain:
        print(f"{step.start:>6} s  + {step.seconds:>4} s  {step.kind}  {step.logical_id}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
