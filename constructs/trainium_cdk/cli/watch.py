"""`--watch` of `trn list` and `trn status`: the terminal shows them again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trainium_cdk._aws import SANDBOX, sandboxed
from trainium_cdk.cli.output import draws, line, state_text
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.report.live import PAUSE, Live
from trainium_cdk.jobs.report.page import figures
from trainium_cdk.jobs.report.text import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trainium_cdk.jobs.report import Run
    from trainium_cdk.jobs.status import JobStatus

_MEMBERS = 30
"""Members of an array that are shown, by their index: those that run before others."""


def check(as_json: bool) -> None:
    """Raises TrnError: the output is not a terminal, or JSON."""
    if as_json:
        raise TrnError("--json is of one moment. Leave out --watch")
    if not draws(sys.stdout):
        raise TrnError("--watch needs a terminal. Leave it out; `trn status --wait JOB` prints a line for each change")


def rows(columns: Sequence[str], ask: Callable[[], Sequence[Sequence[str]]]) -> None:
    """Show a table until Ctrl-C; while the cluster does not answer, the last one with the reason."""
    found: Sequence[Sequence[str]] = ask()
    problem: list[str] = []

    def draw() -> list[Any]:
        return [_table(columns, found), *problem]

    def again() -> bool:
        nonlocal found
        try:
            found, problem[:] = ask(), []
        except TrnError as e:
            problem[:] = [f"no answer, still trying: {e}"]
        return True

    _show(draw, again, PAUSE)


def jobs(live: Live) -> bool:
    """Show jobs until they have ended; whether all are well."""
    live.look()

    def draw() -> list[Any]:
        parts = [part for status in live.statuses for part in _job(status, live.runs)]
        return [*parts, live.problem] if live.problem else parts

    def again() -> bool:
        live.look()
        return not live.ended

    _show(draw, again if not live.ended else lambda: False, live.pause)
    return not live.problem and all(status.ok for status in live.statuses)


def _show(draw: Callable[[], list[Any]], again: Callable[[], bool], pause: float) -> None:
    from rich.console import Group
    from rich.live import Live as Screen
    from rich.text import Text

    def shown() -> Group:
        mark = [Text(SANDBOX, "bold black on yellow")] if sandboxed() else []
        return Group(*mark, *(Text(line(one), "bold red") if isinstance(one, str) else one for one in draw()))

    with Screen(shown(), auto_refresh=False) as screen:
        going = True
        while going:
            time.sleep(pause)
            going = again()
            screen.update(shown(), refresh=True)


def _job(status: JobStatus, runs: Sequence[Run]) -> list[RenderableType]:
    """A job's figures and stages; of an array, its members."""
    from rich.text import Text

    head = Text.assemble((line(status.id), "bold"), "  ", state_text(status.state))
    by_id = {run.status.id: run for run in runs}
    if not status.members:
        run = by_id.get(status.id)
        stages = [
            [s.name, s.state, duration(run.seconds(s), "") if run else "", s.nodes, s.reason] for s in status.stages
        ]
        shown = figures(run)[1:] if run else ()
        return [
            head,
            Text(line("   ".join(f"{name} {value}" for name, value, _ in shown))),
            *(Text(line(one.text), "bold yellow") for one in (run.findings if run else ())),
            _table(["stage", "state", "time", "nodes", "reason"], stages),
        ]
    order = {"RUNNING": 0, "PENDING": 2}
    first = sorted(status.members, key=lambda m: order.get(m.state, 1))[:_MEMBERS]
    names = list(dict.fromkeys(name for member in first for name in member.values))
    members = []
    for member in sorted(first, key=lambda m: int(m.name)):
        run = by_id.get(f"{status.id}/{member.name}")
        values = {name: value for name, value, _ in figures(run)} if run else {}
        swept = (member.values.get(name, "") for name in names)
        members.append(
            [
                member.name,
                *swept,
                member.state,
                values.get("step", ""),
                values.get("loss", ""),
                "; ".join(filter(None, (values.get("last step"), member.reason))),
            ]
        )
    more = [Text(f"and {len(status.members) - _MEMBERS} more", "dim")] if len(status.members) > _MEMBERS else []
    return [head, _table(["member", *names, "state", "step", "loss", "reason"], members), *more]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(Text(line(name)), overflow="fold")
    for row in rows:
        made.add_row(*(state_text(line(cell)) for cell in row))
    return made
