"""`make mutation ROOM=...`: how many of a sample of small faults the mirrored tests of a room find."""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

import yaml

from mutation.rooms import ROOMS, ROOT, SAMPLE, SEED, mirrored, modules, real
from mutation.trial import Copy, Tests, preload

PYTHON = ROOT / ".venvs/mutation/bin/python"
RECORDED = ROOT / "mutation/recorded.yaml"
RESULTS = ROOT / ".cache/mutation"
FIGURES = RESULTS / "figures.json"
EQUIVALENT = ROOT / "mutation/equivalent.yaml"
WITH_SERVERS = 30
"""Most tests with servers that a fault meets, those that call the fewest functions first: of what all call, there are hundreds."""


class Mutant(NamedTuple):
    file: str
    line: int
    function: int
    """The first line of the function that it is in; 0 if it is in none: then its effect may be anywhere."""
    operator: str
    change: str
    """The lines that differ, without their indentation."""
    code: str

    @property
    def key(self) -> str:
        return f"{self.file}\n{self.change}"


def mutants(room: str, count: int, seed: str = SEED) -> tuple[list[Mutant], int]:
    """The sample, and the number of places that it is from."""
    command = [str(PYTHON), "-m", "mutation.places", seed, str(count), *modules(room)]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return [Mutant(**one) for one in found["mutants"]], found["places"]


def equivalent() -> dict[str, str]:
    """A mutant's key -> why no test can find it."""
    entries = yaml.safe_load(EQUIVALENT.read_text("utf-8")) or []
    return {f"{one['file']}\n{one['change'].strip()}": one["reason"] for one in entries}


def calling(mutant: Mutant, called: dict[str, list[str]]) -> set[str]:
    """The tests that call the function of a fault; if it is in none, those that call any of its file."""
    place = f"{mutant.file}:{mutant.function}" if mutant.function else f"{mutant.file}:"
    return {
        test
        for test, functions in called.items()
        if place in functions or (not mutant.function and any(f.startswith(place) for f in functions))
    }


def tried(room: str, chosen: list[Mutant], workers: int) -> Iterator[tuple[Mutant, str]]:
    """Each mutant, and the test that has found it; empty if none has.

    Raises:
        RuntimeError: they fail without a fault.
    """
    copies: queue.Queue[Copy] = queue.Queue()
    for number in range(workers):
        copies.put(Copy(RESULTS / f"{room}-{number}"))
    began, copy = time.monotonic(), copies.queue[0]
    called = copy.called(mirrored(room))
    limit = 60 + 5 * (time.monotonic() - began)
    with_servers = copy.called(mirrored(room), parts="") if ROOMS[room].servers else {}
    if copy.failing(Tests(real=list(ROOMS[room].real.values()))):
        raise RuntimeError(f"{', '.join(ROOMS[room].real.values())} fail without a fault")
    for copy in copies.queue:
        copy.limit = limit

    def one(mutant: Mutant) -> str:
        copy = copies.get()
        try:
            first, served = (calling(mutant, some) for some in (called, with_servers))
            nearest = sorted(served - first, key=lambda test: (len(with_servers[test]), test))[:WITH_SERVERS]
            tests = Tests(mirrored(room, mutant.file), first, set(nearest), real(room, mutant.file))
            return copy.failing_for(mutant.file, mutant.code, tests)
        finally:
            copies.put(copy)

    try:
        with ThreadPoolExecutor(workers) as pool:
            yield from zip(chosen, pool.map(one, chosen), strict=True)
    finally:
        while not copies.empty():
            copies.get().close()


def row(room: str, seed: str) -> str:
    """The name of a sample's figures."""
    return room if seed == SEED else f"{room}, second sample"


def measure(room: str, count: int, workers: int, again: bool, seed: str) -> dict[str, Any]:
    """Try the sample of a room, print what survives, and return the figures.

    Args:
        again: only those that survived last time, or are new.
    """
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    chosen, places = mutants(room, count, seed)
    print(f"{room}: {len(chosen)} of {places} places, seed {seed}", flush=True)
    known, results = equivalent(), RESULTS / f"{row(room, seed)}.json"
    last = json.loads(results.read_text()) if again and results.is_file() else {}
    killed = {m.key: last[m.key] for m in chosen if m.key in last}
    same = [m for m in chosen if m.key in known]
    for mutant, test in tried(room, [m for m in chosen if m.key not in killed | known], workers):
        if test:
            killed[mutant.key] = test
        else:
            print(f"survived: {mutant.file}:{mutant.line} {mutant.operator}\n{mutant.change}\n", flush=True)
        results.write_text(json.dumps(killed, indent=1, sort_keys=True) + "\n")
    figures = {
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "places": places,
        "mutants": len(chosen),
        "equivalent": len(same),
        "killed": sum(m.key in killed for m in chosen),
    }
    print(f"{room}: {figures['killed']} of {len(chosen) - len(same)} killed, {len(same)} equivalent", flush=True)
    return figures


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutation")
    parser.add_argument("rooms", nargs="*", help="default: all")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="places of each room (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="tests beside each other (default: %(default)s)"
    )
    parser.add_argument("--seed", default=SEED, help="of a second sample, beside that of %(default)s")
    parser.add_argument("--again", action="store_true", help="only what survived last time, or is new")
    parser.add_argument("--recorded", action="store_true", help="only the few of mutation/recorded.yaml: seconds")
    options = parser.parse_args(arguments)
    preload()
    if options.recorded:
        return recorded()
    for room in options.rooms or ROOMS:
        name = row(room, options.seed)
        if options.again and _figures().get(name, {}).get("seed") != options.seed:
            print(f"{room} has had no first run with seed {options.seed}: leave out --again")
            return 1
        found = measure(room, options.sample, options.workers, options.again, options.seed)
        figures = _figures()
        first = figures[name] if options.again else found
        found["first"] = first.get("first") or {key: first[key] for key in ("commit", "date", "killed")}
        FIGURES.write_text(json.dumps(figures | {name: found}, indent=1, sort_keys=True) + "\n", "utf-8")
    return 0


def _figures() -> dict[str, Any]:
    return dict(json.loads(FIGURES.read_text("utf-8"))) if FIGURES.is_file() else {}


def recorded() -> int:
    """Try the faults that are written down; 1 if one is not found."""
    copy, survived = Copy(RESULTS / "recorded"), 0
    for one in yaml.safe_load(RECORDED.read_text("utf-8")):
        source = (ROOT / one["file"]).read_text("utf-8")
        if source.count(one["before"]) != 1:
            print(f"{one['file']} has not one {one['before']!r}: record another fault in {RECORDED.name}")
            return 1
        test = copy.failing_with(one["file"], source.replace(one["before"], one["after"]), Tests([one["test"]]))
        print(f"{one['file']}: {one['before']} -> {one['after']}: {test or 'survived'}", flush=True)
        survived += not test
    return min(survived, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
