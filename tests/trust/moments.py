"""Ending a submission at one of the programs of Slurm that it starts, counted, whatever the machine's pace.

A program on the PATH stands before each of them: it counts, and acts at the one with a given number, as the test requests. What happens before each
file that the runner writes is tested with the runner alone (`tests/runner/test_kills.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

_PROGRAMS = ("sbatch", "scancel", "scontrol", "squeue")


class Moments:
    """The programs that one kind of submission starts, counted from 1.

    Args:
        head: the head node's variables.
    """

    def __init__(self, folder: Path, head: Mapping[str, str], jobs: Path) -> None:
        self._folder, self._head, self._jobs = folder, head, jobs
        self._programs = folder / "programs"
        self._programs.mkdir()
        for name in _PROGRAMS:
            (self._programs / f"real-{name}").write_text(str(shutil.which(name, path=head["PATH"])))
            shutil.copy(Path(__file__).with_suffix(".sh"), self._programs / name)
            (self._programs / name).chmod(0o755)

    def env(self, name: str, number: int = 0, action: str = "") -> dict[str, str]:
        """Variables for `trn submit --local`.

        Args:
            name: of this submission, for `phases`.
            number: of the program before which something happens. 0: nothing does.
            action: kill-client (the runner continues), kill-both, or the name of a signal that the client gets.
        """
        return {
            "PATH": f"{self._programs}:{self._head['PATH']}", "MOMENTS": str(self._folder / f"{name}.moments"), "MOMENTS_JOBS": str(self._jobs),
            "MOMENT": str(number), "MOMENT_ACTION": action,
        }  # fmt: skip

    def phases(self, name: str) -> list[str]:
        """The phase before each program of a submission."""
        return (self._folder / f"{name}.moments").read_text().splitlines()


def spread(phases: Iterable[str], each: int) -> list[tuple[int, str]]:
    """Of each phase its first program, its last, and others between them, `each` in all: (number, phase)."""
    chosen: list[tuple[int, str]] = []
    for phase, group in groupby(enumerate(phases, 1), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        picks = {numbers[round(i * (len(numbers) - 1) / max(each - 1, 1))] for i in range(each)}
        chosen += [(number, phase) for number in sorted(picks)]
    return chosen
