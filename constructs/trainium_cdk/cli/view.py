"""What `trn watch` shows in a terminal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trainium_cdk.cli.terminal import line
from trainium_cdk.drawing.braille import overlay, plot
from trainium_cdk.drawing.chart import number
from trainium_cdk.jobs.report.curve import METRICS, points_of_each
from trainium_cdk.jobs.report.page import why_no_curve
from trainium_cdk.jobs.report.text import dollars, duration, late

if TYPE_CHECKING:
    from trainium_cdk.jobs import JobStatus
    from trainium_cdk.jobs.report import Run

_STYLES = {"COMPLETED": "green", "RUNNING": "cyan", "PENDING": "yellow", "CANCELLED": "magenta"}
_BAR = 20
_FRAME = 6
"""Characters of a panel's frame in the line of its title."""
KEYS = "q leave  m metrics  r write the report"


def fitted(made: Callable[[int], Group], most: int, width: int, height: int | None) -> Group:
    """What `made` makes with as many parts as fit on a screen, at most `most`.

    Args:
        height: default: without a limit.
    """
    if height is None:
        return made(most)
    console = Console(width=width, height=height)

    def fits(parts: int) -> bool:
        return len(console.render_lines(made(parts), console.options)) <= height

    fit, too_many = (most, most) if fits(most) else (0, most)
    while too_many - fit > 1:
        middle = (fit + too_many) // 2
        fit, too_many = (middle, too_many) if fits(middle) else (fit, middle)
    return made(fit)


def job_view(
    run: Run,
    *,
    answered: float,
    problem: str,
    width: int,
    metrics: Sequence[str],
    height: int | None = None,
    said: str = "",
) -> Group:
    """One job: stages, compilation, steps, money, and curves of two metrics, or fewer where the screen is lower.

    Args:
        said: what the last key did.
    """
    status = run.status
    batch = f", global batch size {status.global_batch_size:,}" if status.global_batch_size else ""
    where = f"{status.nodes} x {status.instance_type} in queue {status.queue}{batch}"
    parts: list[RenderableType] = [
        Text.assemble((line(status.id), "bold"), "  ", state_text(status.state), "  ", line(where))
    ]
    parts += _late(run.now - answered, problem)
    parts += [_stages(run), _numbers(run)]
    last = [Text(line(said), overflow="fold")] if said else []

    def made(curves: int) -> Group:
        return Group(*parts, *_curves(run, width, metrics, curves), *last, Text(KEYS, "dim"))

    return fitted(made, 2, width, height)


def _late(seconds: float, problem: str) -> list[RenderableType]:
    """That the cluster does not answer, if it does not."""
    return [Text(line(said), "bold red")] if (said := late(seconds, problem)) else []


_MEMBERS = 30
"""Rows of members: those that run first."""


def array_view(
    status: JobStatus,
    runs: Sequence[Run],
    *,
    now: float,
    answered: float,
    problem: str,
    width: int,
    height: int | None = None,
) -> Group:
    """An array: its members with their newest values, as many as fit, and the losses over each other."""
    first: list[RenderableType] = [
        Text.assemble((line(status.id), "bold"), "  ", state_text(status.state), "  ", line(status.current.reason)),
        *_late(now - answered, problem),
    ]
    last: list[RenderableType] = []
    most = points_of_each(len(runs) or 1)
    if losses := [run.curves["loss"].few(most) for run in runs if "loss" in run.curves]:
        lines = overlay(losses, min(width, 120) - 4, 10)
        title = f"loss of {len(losses)} members"
        last = [Panel(Text("\n".join(lines), "cyan"), title=title, title_align="left", width=min(width, 120))]
    last.append(Text("q leave; one member: trn watch JOB/INDEX; all curves: trn report JOB", "dim"))

    def made(members: int) -> Group:
        rest = more(len(status.members) - members)
        return Group(*first, _members(status, runs, members), *rest, *last)

    return fitted(made, min(_MEMBERS, len(status.members)), width, height)


def more(hidden: int) -> list[Text]:
    """How many rows are not shown, if any."""
    return [Text(f"and {hidden} more", "dim")] if hidden > 0 else []


def _members(status: JobStatus, runs: Sequence[Run], most: int) -> Table:
    made = Table("member", "state", "step", "loss", "sequences/s", "reason", box=None, padding=(0, 2, 0, 0))
    by_id = {run.status.id: run for run in runs}
    rank = {"RUNNING": 0, "PENDING": 2}
    for member in sorted(status.members, key=lambda m: rank.get(m.state, 1))[:most]:
        run = by_id.get(f"{status.id}/{member.name}")
        values = [run.curves.newest(name) if run and name in run.curves else "" for name in ("loss", "throughput")]
        step = f"{run.curves.step:,}" if run and run.curves.step is not None else ""
        made.add_row(member.name, state_text(member.state), step, *values, Text(line(member.reason), overflow="fold"))
    return made


def jobs_view(jobs: Sequence[JobStatus], problem: str, width: int, height: int | None = None) -> Group:
    """The jobs of a cluster, as many as fit."""
    none = Text("there are no jobs. Submit one: trn submit KIND (trn kinds)")
    late = [Text(f"no answer, still trying: {line(problem)}", "bold red")] if problem else []
    keys = Text("q leave; one job with its curves: trn watch JOB", "dim")

    def made(rows: int) -> Group:
        return Group(*late, _jobs(jobs[:rows]) if jobs else none, *more(len(jobs) - rows), keys)

    return fitted(made, len(jobs), width, height)


def _jobs(jobs: Sequence[JobStatus]) -> Table:
    made = Table("job", "stage", "state", "nodes", "queue", "reason", expand=True)
    for job in jobs:
        now = job.current
        made.add_row(
            Text(line(job.id), overflow="fold"), now.name, state_text(now.state), str(job.nodes), line(job.queue), Text(line(now.reason))
        )  # fmt: skip
    return made


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, _STYLES.get(state, "bold red"))


def _stages(run: Run) -> Table:
    made = Table("stage", "state", "time", "nodes", "reason", box=None, padding=(0, 2, 0, 0))
    for stage in run.status.stages:
        took = run.seconds(stage)
        made.add_row(
            stage.name, state_text(stage.state), duration(took, ""), Text(line(stage.nodes), overflow="fold"), Text(line(stage.reason), overflow="fold")
        )  # fmt: skip
    return made


def _numbers(run: Run) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    if run.cache is not None and run.cache.total:
        failed = f", {run.cache.failed} failed" if run.cache.failed else ""
        made.add_row(
            "compiled", f"{_bar(run.cache.done, run.cache.total)}{run.cache.done} of {run.cache.total} graphs{failed}"
        )
    elif "graphs" in run.compiled:
        made.add_row("compiled", f"{run.compiled['graphs']} graphs, {run.compiled.get('failed', 0)} failed")
    step, last = run.curves.step, run.last_step
    if step is not None:
        left = f", {duration(run.left)} left" if run.left is not None else ""
        made.add_row("step", f"{_bar(step, last)}{step:,} of {last:,}{left}" if last else f"{step:,}")
    if run.throughput is not None:
        made.add_row("throughput", f"{run.throughput:,.1f} sequences/s on average")
    expected = f", {dollars(run.expected_cost)} expected" if run.expected_cost is not None else ""
    made.add_row("cost", f"not known: {run.no_cost}" if run.cost is None else f"{dollars(run.cost)} so far{expected}")
    made.add_row("restarts", str(run.restarts))
    return made


def _bar(done: int, total: int) -> str:
    full = min(_BAR, done * _BAR // total)
    return f"{'█' * full}{'░' * (_BAR - full)} "


def _curves(run: Run, width: int, metrics: Sequence[str], most: int) -> list[RenderableType]:
    shown = [name for name in metrics if name in run.curves][:most]
    if not shown:
        return [] if run.curves else [Text(line(f"no curves: {why_no_curve(run)}"), "dim")]
    each = max(30, width // len(shown) - 2) if width >= 70 else width
    panels = []
    for name in shown:
        points = run.curves[name].all()
        values = [value for _, value in points]
        lines = plot(points, each - 4, 8)
        ends = f"{number(min(values))} to {number(max(values))}"
        label, now, missing = METRICS[name], run.curves.newest(name), run.curves.missing(name)
        titles = [f"{label}: {now}; {ends}" if missing else f"{label}: {ends}, now {now}", f"{label}: {now}", now]
        title = next((one for one in titles if len(one) <= each - _FRAME), "")  # a number is not cut
        panels.append(Panel(Text("\n".join(lines), "cyan"), title=title, title_align="left", width=each))
    return [Columns(panels, padding=(0, 1))]
