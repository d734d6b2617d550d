"""The rooms whose tests are tried, and the tests that mirror each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("constructs/trainium_cdk")
SEED, SAMPLE = "2026-11-25", 40
"""Faults are tried at so many places of each room, the same ones each time where the code has not changed."""


class Room(NamedTuple):
    tests: tuple[str, ...]
    real: Mapping[str, str] = {}
    """Part of a module's path -> tests of it that need a server or a program of another environment; all others do without."""
    servers: bool = False
    """Much of it needs a Slurm or a Kubernetes: the tests with one that call what has changed run too."""
    left_out: str = ""
    """A folder of the room that another design will replace."""


ROOMS = {
    "catalog": Room(("tests/catalog",)),
    "outputs": Room(("tests/test_outputs.py",)),
    "deployment": Room(("tests/deployment",), {"emptied_bucket": "tests/deployment/test_emptied_bucket.py"}),
    "operations": Room(
        ("tests/operations",),
        {
            "updates/pcluster": "tests/operations/updates/test_pcluster.py",
            "operations/updates": "tests/operations/updates/test_compare.py",
            "operations/why": "tests/operations/test_why.py",
        },
    ),
    "checks": Room(("tests/checks",), {"checks/live": "tests/checks/live/test_preflight.py"}),
    "jobs": Room(("tests/jobs",), servers=True),
    "eks": Room(
        (
            "tests/eks",
            "tests/stacks/test_eks.py",
            "tests/foreign/test_eks.py",
            "tests/foreign/test_node_group.py",
            "tests/foreign/test_refusals.py",
        ),
        servers=True,
        left_out="scaler",
    ),
}


def modules(room: str) -> list[str]:
    """The files of a room, relative to the root; packages' `__init__.py` that only import are among them: they have no places."""
    files = sorted((ROOT / PACKAGE / room).rglob("*.py"))
    left_out = ROOMS[room].left_out
    return [
        str(f.relative_to(ROOT))
        for f in files
        if not left_out or left_out not in f.relative_to(ROOT / PACKAGE / room).parts
    ]


def mirrored(room: str, module: str = "") -> list[str]:
    """The test files of a room; first those that are named as the module, or lie beside such a one."""
    found = [file for test in ROOMS[room].tests for file in _files(ROOT / test)]
    stem, folder = Path(module).stem, Path(module).parent.name

    def distance(file: Path) -> int:
        named, beside = stem in file.stem, file.parent.name == folder
        return 3 - 2 * named - beside

    return [str(file.relative_to(ROOT)) for file in sorted(found, key=distance)]


def _files(test: Path) -> list[Path]:
    return [test] if test.suffix == ".py" else sorted(test.rglob("test_*.py"))


def real(room: str, module: str) -> list[str]:
    """The tests of a module that need more than this environment."""
    return [test for part, test in ROOMS[room].real.items() if part in module]
