"""What `trn clusters --watch` shows in a terminal, and its keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_cdk.cli.terminal import line
from trainium_cdk.cli.view import fitted, more, state_text
from trainium_cdk.jobs.clusters import Overview, Work
from trainium_cdk.jobs.report import board
from trainium_cdk.jobs.report.board import CLUSTER, JOB, LIVE, RIGHT, SORTS, Choice, told
from trainium_cdk.jobs.report.live_clusters import Board

KEYS = "up, down: choose  enter: open  u: next user or team  c: only this cluster  s: other order  q: leave"
_UP, _DOWN = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j")


@dataclass
class Cursor:
    """What is chosen with the keys: first the clusters, then the jobs.

    Attributes:
        row: of both together, when a key was last pressed; `chosen` is what it was, and stays chosen where it goes.
        opened: what Enter was pressed on; None until then.
        problem: why what was opened could not be shown.
    """

    row: int = 0
    chosen: tuple[str, str, str] | None = None
    choice: Choice = field(default_factory=Choice)
    opened: tuple[Overview, Work | None] | None = None
    problem: str = ""

    def rows(self, found: Sequence[Overview], now: float) -> list[tuple[Overview, Work | None]]:
        """All that can be opened, in the order of the screen."""
        jobs = board.jobs(found, self.choice, now)
        return [*((one, None) for one in found), *((row.cluster, row.job) for row in jobs)]

    def press(self, key: str, found: Sequence[Overview], now: float) -> None:
        """Take a key."""
        rows = self.rows(found, now)
        self.row, self.problem = self.at(rows), ""
        if key in _UP:
            self.row = max(0, self.row - 1)
        elif key in _DOWN:
            self.row = min(len(rows) - 1, self.row + 1)
        elif key == "u":
            self._choose(owner=_next(["", *board.owners(found)], self.choice.owner))
        elif key == "s":
            self._choose(sort=_next(list(SORTS), self.choice.sort))
        elif key == "c" and rows:
            self._choose(cluster="" if self.choice.cluster else rows[self.row][0].key)
        elif key in ("\r", "\n") and rows:
            self.opened = rows[self.row]
        if key in _UP + _DOWN and rows:
            self.chosen = _name(*rows[self.row])

    def at(self, rows: Sequence[tuple[Overview, Work | None]]) -> int:
        """The row that is chosen now."""
        here = (number for number, row in enumerate(rows) if _name(*row) == self.chosen)
        return next(here, max(0, min(self.row, len(rows) - 1)))

    def _choose(self, **changes: str) -> None:
        self.choice = replace(self.choice, **changes)


def _name(one: Overview, job: Work | None) -> tuple[str, str, str]:
    return one.key, job.team if job else "", job.id if job else ""


def _next(values: Sequence[str], now: str) -> str:
    return values[(values.index(now) + 1) % len(values) if now in values else 0]


def view(shown: Board, cursor: Cursor, *, now: float, width: int, height: int) -> Group:
    """The whole screen; clusters and jobs that do not fit are counted, and columns that do not fit are left out."""
    found = shown.clusters
    chosen = board.jobs(found, cursor.choice, now)
    row = cursor.at(cursor.rows(found, now))
    parts: list[RenderableType] = [Text(board.totals(found) if found else _none(shown), "bold")]
    said = [line(f"{one.stack}: {text}") for one in found if (text := told(one, now))] + list(map(line, shown.notes))
    lines = list(accumulate(1 + len(text) // width for text in said))
    seen = max(1, sum(end <= height // 6 for end in lines))
    if found:
        clusters = [[_cell(CLUSTER[name](one)) for name in LIVE] for one in found]
        parts += _table(LIVE, clusters, row, width, max(3, height // 3), _CLUSTER_LESS)
    parts += [Text(text, "red") for text in said[:seen]]
    parts += [Text(f"and {len(said) - seen} more such lines: trn clusters", "red")] if len(said) > seen else []
    jobs = [[state_text(one.job.state) if name == "state" else _cell(JOB[name](one)) for name in JOB] for one in chosen]
    if found:
        parts += ["", Text(_title(cursor), "bold")]
    last = [Text("none run or wait, and none ended within a day", "dim")] if found and not jobs else []
    last += [Text(line(cursor.problem), "bold red")] if cursor.problem else []

    def made(rows: int) -> Group:
        table = _table([*JOB], jobs, row - len(found), width, max(1, rows), _JOB_LESS)
        return Group(*parts, *table, *last, Text(KEYS, "dim"))

    return fitted(made, min(len(jobs), height), width, height)


def _none(shown: Board) -> str:
    return "there is no cluster of trainium-cdk" if shown.complete else "looking for clusters ..."


def _title(cursor: Cursor) -> str:
    choice = cursor.choice
    whose = [f"of {choice.owner}"] if choice.owner else []
    where = [f"on {choice.cluster}"] if choice.cluster else []
    return line(" ".join(["jobs", *whose, *where, f"by {choice.sort}"]))


def _table(
    names: Sequence[str], rows: Sequence[Sequence[Text]], chosen: int, width: int, most: int, less: Sequence[str]
) -> list[RenderableType]:
    """Rows around the chosen one; of the columns, as many as fit, without the first ones of `less`."""
    if not rows:
        return []
    first = max(0, min(chosen - most // 2, len(rows) - most))
    shown = rows[first : first + most]
    need = {
        name: max(len(name), *(min(len(row[i]), _SENTENCE if name == "reason" else width) for row in shown))
        for i, name in enumerate(names)
    }
    for name in less:
        if sum(need.values()) + _GAP * len(need) > width:
            del need[name]
    made = Table(box=None, padding=(0, _GAP, 0, 0))
    for name in need:
        least = need[name] if sum(need.values()) + _GAP * len(need) <= width else None
        made.add_column(name, justify="right" if name in RIGHT else "left", overflow="fold", min_width=least)
    for number, row in enumerate(shown, first):
        cells = [cell for name, cell in zip(names, row, strict=True) if name in need]
        made.add_row(*cells, style="reverse" if number == chosen else "")
    return [made, *more(len(rows) - most)]


_GAP, _SENTENCE = 2, 16
"""Characters between two columns, and those to which a sentence is folded at least."""
_CLUSTER_LESS = ("engine", "nodes", "running", "region", "longest wait", "of it idle")
_JOB_LESS = ("stage", "reason", "nodes", "age", "USD")
"""Columns that a narrow terminal does without, in this order."""


def _cell(text: str) -> Text:
    return Text(line(text), overflow="fold")
