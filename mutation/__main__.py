"""`make mutation ROOM=...`: how many of a sample of small faults the mirrored tests of a room find."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import yaml

from mutation.rooms import ROOMS, ROOT, SAMPLE, SEED, modules, real, tests
from mutation.trial import Copy, preload

PYTHON = ROOT / ".venvs/mutation/bin/python"
FIGURES = ROOT / ".cache/figures"
RESULTS = ROOT / ".cache/mutation"
EQUIVALENT = ROOT / "mutation/equivalent.yaml"


class Mutant(NamedTuple):
    file: str
    line: int
    operator: str
    code: str

    @property
    def change(self) -> str:
        """The lines that differ, without their indentation."""
        before = (ROOT / self.file).read_text("utf-8").splitlines()
        lines = list(difflib.unified_diff(before, self.code.splitlines(), n=0, lineterm=""))[2:]
        return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[0] != "@")

    @property
    def key(self) -> str:
        return f"{self.file}\n{self.change}"


def mutants(room: str, count: int) -> tuple[list[Mutant], int]:
    """The sample, and the number of places that it is from."""
    command = [str(PYTHON), "-m", "mutation.places", SEED, str(count), *modules(room)]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return [Mutant(**one) for one in found["mutants"]], found["places"]


def equivalent() -> dict[str, str]:
    """A mutant's key -> why no test can find it."""
    entries = yaml.safe_load(EQUIVALENT.read_text("utf-8")) or []
    return {f"{one['file']}\n{one['change'].strip()}": one["reason"] for one in entries}


def tried(room: str, chosen: list[Mutant], workers: int) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether the tests have found it.

    Raises:
        SystemExit: they fail without a fault.
    """
    copies: queue.Queue[Copy] = queue.Queue()
    for number in range(workers):
        copy = Copy(RESULTS / f"{room}-{number}")
        if number == 0 and not copy.passes(tests(room, ""), list(ROOMS[room].real.values())):
            sys.exit(f"the tests of {room} fail without a fault:\n{copy.output.read_text()[-3000:]}")
        copies.put(copy)

    def one(mutant: Mutant) -> bool:
        copy = copies.get()
        try:
            return not copy.passes_with(mutant.file, mutant.code, tests(room, mutant.file), real(room, mutant.file))
        finally:
            copies.put(copy)

    try:
        with ThreadPoolExecutor(workers) as pool:
            yield from zip(chosen, pool.map(one, chosen), strict=True)
    finally:
        while not copies.empty():
            copies.get().close()


def measure(room: str, count: int, workers: int, again: bool) -> dict[str, Any]:
    """Try the sample of a room, print what survives, and return the figures.

    Args:
        again: only those that survived last time, or are new.
    """
    chosen, places = mutants(room, count)
    print(f"{room}: {len(chosen)} of {places} places, seed {SEED}", flush=True)
    known, results = equivalent(), RESULTS / f"{room}.json"
    last = set(json.loads(results.read_text())) if again and results.is_file() else set()
    killed = {m.key for m in chosen if m.key in last}
    same = [m for m in chosen if m.key in known]
    for mutant, found in tried(room, [m for m in chosen if m.key not in killed | known.keys()], workers):
        if found:
            killed.add(mutant.key)
        else:
            print(f"survived: {mutant.file}:{mutant.line} {mutant.operator}\n{mutant.change}\n", flush=True)
        results.write_text(json.dumps(sorted(killed)))
    figures = {
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
    parser.add_argument("--again", action="store_true", help="only what survived last time, or is new")
    options = parser.parse_args(arguments)
    preload()
    FIGURES.mkdir(parents=True, exist_ok=True)
    for room in options.rooms or ROOMS:
        figures = measure(room, options.sample, options.workers, options.again)
        (FIGURES / f"mutation-{room}.json").write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
