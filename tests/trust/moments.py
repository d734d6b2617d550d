"""Ending a submission at one of its commands, counted, whatever the machine's pace.

Bash reads the file that BASH_ENV names before a script. Ours counts the commands of the script that `trn submit` runs on
the head node, and acts at the one with a given number, as the test requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

PHASES = ("not begun", "writing files", "taken by Slurm", "written down", "released")
"""How far a submission has come."""


class Moments:
    """The commands of one kind of submission, counted from 1."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hook = Path(__file__).with_suffix(".sh")

    def env(self, name: str, number: int = 0, action: str = "") -> dict[str, str]:
        """Variables for `trn submit --local`.

        Args:
            name: of this submission, for `phases`.
            number: of the command before which something happens. 0: nothing does.
            action: kill-client (the script continues), kill-both, or the name of a signal that the client gets.
        """
        return {
            "BASH_ENV": str(self._hook), "MOMENTS": str(self._folder / f"{name}.moments"), "MOMENT": str(number),
            "MOMENT_ACTION": action,
        }  # fmt: skip

    def phases(self, name: str) -> list[str]:
        """The phase before each command of a submission."""
        return (self._folder / f"{name}.moments").read_text().splitlines()


def spread(phases: Iterable[str], each: int) -> list[tuple[int, str]]:
    """Of each phase its first command, its last, and others between them, `each` in all: (number, phase)."""
    chosen: list[tuple[int, str]] = []
    for phase, group in groupby(enumerate(phases, 1), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        picks = {numbers[round(i * (len(numbers) - 1) / max(each - 1, 1))] for i in range(each)}
        chosen += [(number, phase) for number in sorted(picks)]
    return chosen
