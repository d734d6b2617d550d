"""`--watch` of `trn list` and `trn status`: the terminal shows them again and again."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from trainium_cdk._aws import SANDBOX, sandboxed
from trainium_cdk.client.cli.output import Row, draws, line, lines, state_text
from trainium_cdk.client.drawing import number
from trainium_cdk.client.jobs.report.curve import METRICS, Curve
from trainium_cdk.client.jobs.report.page import figures
from trainium_cdk.client.jobs.report.run import PAUSE, Live, begun
from trainium_cdk.client.jobs.status import last_step
from trainium_cdk.errors import TrnError
from trainium_cdk.runner.readers import FOUND
from trainium_cdk.text import duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from trainium_cdk.client.jobs.report import Run
    from trainium_cdk.client.jobs.status import JobStatus

_CURVE, _LOG = 16, 3
"""The most lines of a curve's panel, and the least of a log's, both with their borders."""
_BLOCKS, _ASCII = " ▁▂▃▄▅▆▇█", " .:#"
"""Levels of a curve within one line; the second of a terminal without Unicode."""


def check(as_json: bool) -> None:
    """Raises TrnError: the output is not a terminal, or JSON."""
    if as_json:
        raise TrnError("--json is of one moment. Leave out --watch")
    if not draws(sys.stdout):
        raise TrnError("--watch needs a terminal. Leave it out; `trn status --wait JOB` prints a line for each change")


def rows(columns: Row, ask: Callable[[], Sequence[Row]], drop: Row) -> None:
    """Show a table until Ctrl-C; while the cluster does not answer, the last one with the reason. `drop`: see `lines`."""
    found = ask()
    problem: list[str] = []

    def draw(console: Console, height: int) -> list[Any]:
        return [*problem, *lines(console, columns, found, drop, height - len(problem))]

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

    def draw(console: Console, height: int) -> list[Any]:
        problem = [live.problem] if live.problem else []
        each = (height - len(problem)) // max(1, len(live.statuses))
        return [*problem, *(part for one in live.statuses for part in _job(one, live.runs, console, each))]

    def again() -> bool:
        live.look()
        return not live.ended

    _show(draw, again if not live.ended else lambda: False, live.pause)
    return not live.problem and all(status.ok for status in live.statuses)


def _show(draw: Callable[[Console, int], list[Any]], again: Callable[[], bool], pause: float) -> None:
    """Draw frames of so many lines on their own screen, each second, as the terminal may have another size. The last one stays on the
    terminal. A text in a frame is a problem."""
    from rich.console import Console, Group
    from rich.live import Live as Screen
    from rich.text import Text

    console, going = Console(highlight=False), True

    def frame(height: int) -> Group:
        mark = [Text(SANDBOX, "bold black on yellow")] if sandboxed() else []
        drawn = draw(console, height - len(mark))
        return Group(*mark, *(Text(line(one), "bold red") if isinstance(one, str) else one for one in drawn))

    try:
        with Screen(frame(console.height), console=console, auto_refresh=False, screen=True) as screen:
            while going:
                until = time.monotonic() + pause
                while (left := until - time.monotonic()) > 0:
                    time.sleep(min(1.0, left))
                    screen.update(frame(console.height), refresh=True)
                going = again()
    finally:
        console.print(frame(console.height - 1))


def _job(status: JobStatus, runs: Sequence[Run], console: Console, height: int) -> list[RenderableType]:
    """A job's figures and stages, with its curve and the end of its log in the lines that are left; of an array, its members."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    place = line(f"  {status.nodes} x {status.instance_type}, queue {status.queue}")
    state = state_text(line(f"{status.current.name} {status.state}"))
    head = Text.assemble((line(status.id), "bold"), "  ", state, (place, "dim"))
    if status.members:
        return [head, *_members(status, runs, console, height - 1)]
    run = next((run for run in runs if run.status.id == status.id), None)
    parts: list[RenderableType] = [head]
    shown = figures(run)[1:] if run else []
    if run and run.age is not None and "last step" not in [name for name, _, _ in shown]:
        shown.insert(2, ("last step", f"{duration(run.age)} ago", ""))
    cells = [Text.assemble((name, "dim"), " ", (value, "bold"), f" {note}".rstrip()) for name, value, note in shown]
    parts += [*(_bar(run) if run else []), Columns(cells, padding=(0, 3))]
    problems = [one.text for one in (run or status).findings] + [s.why or s.reason for s in status.stages]
    parts += [Text(line(one), "bold yellow") for one in dict.fromkeys(filter(None, problems))]
    stages = [[s.name, s.state, duration(run.seconds(s), "") if run else "", s.nodes] for s in status.stages]
    parts += lines(console, ["stage", "state", "time", "nodes"], stages, ["nodes"])
    left = height - len(console.render_lines(Group(*parts), console.options))
    return parts + (_panels(run, console, left) if run else [])


def _bar(run: Run) -> list[RenderableType]:
    """The part of the steps, or before them of the graphs, that is done; nothing where their number is not known."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    done, total, of = run.step, run.last_step, "steps"
    if done is None and run.cache:
        done, total, of = run.cache.done, run.cache.total, "compiled graphs"
    if done is None or not total:
        return []
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_row(ProgressBar(total, done), f"{done / total:.0%} of {total:,} {of}")
    return [grid]


def _panels(run: Run, console: Console, height: int) -> list[RenderableType]:
    """The loss, or the first other metric, as a curve; below it the end of the log."""
    from rich.panel import Panel
    from rich.text import Text

    texts: dict[str, Text] = {}
    stage = begun(run.status)[-1:]
    log = [line(one) for name in stage for one in run.tail(name) if not one.startswith(FOUND)]
    room = min(_CURVE, height - max(_LOG, height // 3) * bool(log))
    name = next((name for name in METRICS if name in run.curves), "")
    if name and room > _LOG and len(points := run.curves[name].all()) > 1:
        low, high = (number(end(y for _, y in points)) for end in (min, max))
        title = f"{run.curves.label(name)} {low} to {high}, step {points[0][0]:,.0f} to {points[-1][0]:,.0f}"
        texts[title] = Text("\n".join(_curve(run.curves[name], console, console.width - 4, room - 2)), "cyan")
        height -= room
    if log and height >= _LOG:
        texts[f"log of {stage[0]}"] = Text("\n".join(log[2 - height :]), no_wrap=True, overflow="crop")
    panel = partial(Panel, title_align="left", border_style="dim")
    return [panel(text, title=Text(line(title))) for title, text in texts.items()]


def _curve(curve: Curve, console: Console, width: int, height: int) -> list[str]:
    """Draw a curve with block characters: each column is the mean of neighbours, and the least value is not empty."""
    blocks = _BLOCKS if console.encoding.startswith("utf") else _ASCII
    few = [y for _, y in curve.few(width) if math.isfinite(y)]
    most, low, high = len(blocks) - 1, min(few, default=0.0), max(few, default=0.0)
    each = [few[i * len(few) // width] for i in range(width) if few]
    levels = [1 + round((y - low) / (high - low or 1) * (height * most - 1)) for y in each]
    below = [row * most for row in reversed(range(height))]
    return ["".join(blocks[max(0, min(most, level - full))] for level in levels) for full in below]


def _members(status: JobStatus, runs: Sequence[Run], console: Console, height: int) -> list[RenderableType]:
    """The members of an array, one line each, by their index; where there are too many, those that run."""
    by_id = {run.status.id: run for run in runs}
    order = {"RUNNING": 0, "PENDING": 2}
    first = sorted(status.members, key=lambda m: order.get(m.state, 1))
    most = len(first) if len(first) < height else max(0, height - 2)
    names = list(dict.fromkeys(name for member in first for name in member.values))
    members = []
    for member in [*sorted(first[:most], key=lambda m: int(m.name)), *first[most:]]:
        run = by_id.get(f"{status.id}/{member.name}")
        values = {name: value for name, value, _ in figures(run)} if run else {}
        [curve] = _curve(run.curves.get("loss", Curve()) if run else Curve(), console, 12, 1)
        reason = "; ".join(filter(None, (last_step(run.age or 0.0) if run else "", member.reason)))
        swept = (member.values.get(name, "") for name in names)
        step, loss = values.get("step", ""), values.get("loss", "")
        members.append([member.name, *swept, member.state, step, loss, curve, reason])
    columns = ["member", *names, "state", "step", "loss", "curve", "reason"]
    return [*lines(console, columns, members, ["curve", "step", "reason"], height)]
