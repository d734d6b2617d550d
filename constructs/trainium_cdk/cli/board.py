"""What `trn clusters --watch` shows in a terminal, and its keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_cdk.cli.terminal import line
from trainium_cdk.cli.view import state_text
from trainium_cdk.jobs.clusters import Overview, Work
from trainium_cdk.jobs.report import board
from trainium_cdk.jobs.report.board import CLUSTER, JOB, LIVE, RIGHT, SORTS, Choice, Shown, told
from trainium_cdk.jobs.report.live_clusters import Board

KEYS = "up, down: choose  enter: open  u: next user or team  c: only this cluster  s: other order  q: leave"
_UP, _DOWN = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j")


@dataclass
class Cursor:
    """What is chosen with the keys: first the clusters, then the jobs.

    Attributes:
        row: of both together.
        opened: what Enter was pressed on; None until then.
        problem: why what was opened could not be shown.
    """

    row: int = 0
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
        self.row, self.problem = max(0, min(self.row, len(rows) - 1)), ""
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

    def _choose(self, **changes: str) -> None:
        self.choice = replace(self.choice, **changes)


def _next(values: Sequence[str], now: str) -> str:
    return values[(values.index(now) + 1) % len(values) if now in values else 0]


def view(shown: Board, cursor: Cursor, *, now: float, height: int) -> Group:
    """The whole screen; jobs that do not fit are counted."""
    found, choice = shown.clusters, cursor.choice
    chosen = board.jobs(found, choice, now)
    row = max(0, min(cursor.row, len(found) + len(chosen) - 1))
    parts: list[RenderableType] = [Text(board.totals(found) if found else _none(shown), "bold")]
    if found:
        made = _table(LIVE)
        for number, one in enumerate(found):
            made.add_row(*(_cell(CLUSTER[name](one)) for name in LIVE), style=_style(number == row))
        parts.append(made)
    said = [f"{one.stack}: {text}" for one in found if (text := told(one, now))] + shown.notes
    parts += [Text(line(text), "red") for text in said]
    if found:
        parts += ["", *_jobs(chosen, row - len(found), cursor, max(3, height - len(found) - len(said) - 9))]
    parts += [Text(line(cursor.problem), "bold red")] if cursor.problem else []
    return Group(*parts, Text(KEYS, "dim"))


def _none(shown: Board) -> str:
    return "there is no cluster of trainium-cdk" if shown.complete else "looking for clusters ..."


def _jobs(chosen: Sequence[Shown], row: int, cursor: Cursor, most: int) -> list[RenderableType]:
    choice = cursor.choice
    whose = [f"of {choice.owner}"] if choice.owner else []
    where = [f"on {choice.cluster}"] if choice.cluster else []
    title = " ".join(["jobs", *whose, *where, f"by {choice.sort}"])
    if not chosen:
        return [Text(title, "bold"), Text("none run or wait, and none ended within a day", "dim")]
    first = max(0, min(row - most // 2, len(chosen) - most))
    made = _table(list(JOB))
    for number, one in enumerate(chosen[first : first + most], first):
        cells = [state_text(one.job.state) if name == "state" else _cell(JOB[name](one)) for name in JOB]
        made.add_row(*cells, style=_style(number == row))
    hidden = len(chosen) - most
    return [Text(title, "bold"), made, *([Text(f"and {hidden} more", "dim")] if hidden > 0 else [])]


def _table(columns: Sequence[str]) -> Table:
    made = Table(box=None, padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in RIGHT else "left", overflow="fold")
    return made


def _cell(text: str) -> Text:
    return Text(line(text), overflow="fold")


def _style(chosen: bool) -> str:
    return "reverse" if chosen else ""
