"""`trn plot`: the metrics of jobs as a picture, a table, or events of TensorBoard."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk._aws import SANDBOX, sandboxed
from trainium_cdk.cli.named import unknown, whole
from trainium_cdk.cli.options import JobIds, Target, backend, on_cluster
from trainium_cdk.cli.output import answer, say
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.jobs.report import Run

PICTURES = (".svg", ".png")
TABLES = (".csv", ".json")


@on_cluster()
def plot(
    on: Target,
    jobs: JobIds,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file: .png, .svg, .csv or .json; or a folder, for TensorBoard's events.")
    ] = Path("plot.svg"),
    metric: Annotated[
        str, typer.Option(help="Of a picture: loss, throughput, tokens_per_second, learning_rate or grad_norm.")
    ] = "loss",
) -> None:  # fmt: skip
    """Write the metrics of jobs as a picture, a table or events.

    A picture shows one metric; a table, or events for TensorBoard, have all of them.

    Several jobs, or the members of an array, are drawn over each other. Prints the path.
    """
    from trainium_cdk.jobs.report import collect_all
    from trainium_cdk.jobs.report.curve import METRICS

    if metric not in METRICS:
        raise TrnError(unknown("there is no metric", metric, METRICS))
    kind = output.suffix.lower()
    if kind and kind not in PICTURES + TABLES:
        known = ", ".join(PICTURES + TABLES)
        raise TrnError(f"{output} ends in {kind}. Use {known}, or a folder without an ending for TensorBoard")
    there = backend(on)
    sandbox = sandboxed()
    try:
        with _writer(output, kind, sandbox=sandbox) as (take, place):
            runs = collect_all(there, [whole(there, job) for job in jobs], take=take, say=say)
            _check(runs, metric if kind in PICTURES else None)
            if kind in PICTURES:
                place.write_bytes(_picture(runs, metric, kind, SANDBOX if sandbox else ""))
    except OSError as e:
        raise TrnError(f"cannot write {output}: {e.strerror}. Give another place") from None
    answer(str(output.resolve()))


@contextmanager
def _writer(output: Path, kind: str, *, sandbox: bool) -> Iterator[tuple[Callable[..., None] | None, Path]]:
    """What takes the steps, and the file to write. A file appears when it is complete."""
    from trainium_cdk.jobs.report import export

    if not kind:
        with export.as_events(output, sandbox=sandbox) as take:
            yield take, output
        return
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        new = Path(folder) / output.name
        writers: dict[str, Any] = {".csv": export.as_csv, ".json": export.as_json}
        with writers[kind](new, sandbox=sandbox) if kind in writers else nullcontext() as take:
            yield take, new
        new.replace(output)


def _check(runs: Sequence[Run], metric: str | None) -> None:
    """Raises TrnError where there is nothing to write: with the reason, instead of an empty plot."""
    from trainium_cdk.jobs.report.page import why_no_curve

    for run in runs:
        if run.problem:
            say(f"{run.status.id}: {run.problem}")
        if not run.curves or (metric and metric not in run.curves):
            say(f"no {metric or 'metrics'} of {run.status.id}: {why_no_curve(run)}")
    if not any(metric in run.curves if metric else run.curves for run in runs):
        raise TrnError(f"there is nothing to write: none of the jobs has {metric or 'metrics'} in its log")


def _picture(runs: Sequence[Run], metric: str, kind: str, title: str) -> bytes:
    from trainium_cdk.drawing.chart import Line, chart
    from trainium_cdk.drawing.markup import svg
    from trainium_cdk.drawing.png import png
    from trainium_cdk.jobs.report.curve import METRICS

    lines = [Line(run.status.id, run.curves[metric].all() if metric in run.curves else ()) for run in runs]
    zero = metric in ("throughput", "tokens_per_second")
    drawn = chart(lines, x="step", y=METRICS[metric], zero=zero, title=title)
    return png(drawn) if kind == ".png" else f"{svg(drawn)}\n".encode()
