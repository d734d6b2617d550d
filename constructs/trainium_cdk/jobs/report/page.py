"""The report: one HTML page about one or several jobs. Pure. It needs no network and no script, and prints well."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element

from trainium_cdk._aws import SANDBOX
from trainium_cdk.catalog import Catalog
from trainium_cdk.drawing.chart import NAMED, ChartLine, bars, chart, number
from trainium_cdk.drawing.markup import element, html
from trainium_cdk.jobs.report.cost import NOT_COUNTED
from trainium_cdk.jobs.report.curve import METRICS, points_of_each
from trainium_cdk.jobs.report.run import Run
from trainium_cdk.jobs.report.text import dollars, duration, moment, percent
from trainium_cdk.jobs.status import ACTIVE, Stage, last_step
from trainium_cdk.outputs import Cluster
from trainium_cdk.runner.readers.step_lines import what_to_print

_ALWAYS = ("loss", "throughput")
"""Charts whose absence is explained; of the others, only those with values are shown."""
_FROM_ZERO = ("throughput", "tokens_per_second", "seconds")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_OUT_OF_MEMORY = -9
_LARGE = 4
"""The most jobs whose figures are large."""
_LINES = 8
"""Lines of a failed stage's log that are shown."""


def report(
    runs: Sequence[Run],
    cluster: Cluster,
    catalog: Catalog,
    now: float,
    *,
    sandbox: bool = False,
) -> str:
    """The page.

    Args:
        runs: the jobs, at least one; each has its colour in all charts.
        now: when it is made, in seconds since 1970.
        sandbox: whether it is of the sandbox. Its first line then says so.
    """
    names = runs[0].status.id if len(runs) == 1 else f"{len(runs)} jobs"
    place = f"{cluster.stack} in {cluster.region}, Neuron SDK {cluster.neuron_release}, {cluster.framework}; made {moment(now)}"
    body = element(
        "body", element("h1", f"Training report: {names}"),
        element("p", place, class_="note"), *_figures(runs), *_sweep(runs), *_curves(runs), *_scaling(runs), *_times(runs), *_failures(runs), *_overview(runs), *_settings(runs),
        element("footer", *(element("p", line, class_="note") for line in _sources(runs, catalog))),
    )  # fmt: skip
    if sandbox:
        body.insert(0, element("p", SANDBOX, class_="sandbox"))
    head = element(
        "head", element("meta", charset="utf-8"), element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", f"Training report: {names}"), element("style", files(__package__).joinpath("style.css").read_text("utf-8")),
    )  # fmt: skip
    return html(element("html", head, body, lang="en"))


def figures(run: Run) -> list[tuple[str, str, str]]:
    """Return the figures that people look for first: a name, a short value, and a note."""
    step = "none" if run.step is None else f"{run.step:,}"
    last = f"of {run.last_step:,}" if run.last_step else "logged" if run.curves.counted else ""
    first = run.log.first_loss
    began = f"from {number(first)}" if first is not None else ""
    loss = run.curves.newest("loss") if "loss" in run.curves else "none"
    left = "0 s" if run.status.done else duration(run.left)
    expected = f"{dollars(run.expected_cost)} expected" if run.expected_cost is not None else ""
    cost = "not known" if run.cost is None else f"{_least(run)}{dollars(run.cost)}"
    ago = last_step(run.age or 0.0).removeprefix("last step ")
    old = [("last step", ago, "")] if ago else []
    return [("state", run.status.state, ""), ("step", step, last), ("loss", loss, began), *old, ("time left", left, ""), ("cost", cost, expected)]  # fmt: skip


def _figures(runs: Sequence[Run]) -> list[Element]:
    """The figures of a few jobs, large; of many, the table of details has them."""
    made: list[Element] = []
    for run in runs if len(runs) <= _LARGE else ():
        parts = [
            element("div", element("dt", name), element("dd", value, element("small", f" {more}") if more else None))
            for name, value, more in figures(run)
        ]
        made += [*([element("h2", run.status.id)] if len(runs) > 1 else []), element("dl", *parts, class_="figures")]
    return made


def _sweep(runs: Sequence[Run]) -> list[Element]:
    """The members of a sweep, that with the lowest loss first."""
    names = list(dict.fromkeys(name for run in runs for name in run.status.values))
    if not names:
        return []

    def loss(run: Run) -> float:
        known = "loss" in run.curves and not run.curves.missing("loss")  # it may be NaN since then
        return run.curves.last["loss"] if known else math.inf

    swept = sorted((run for run in runs if run.status.values), key=loss)
    rows = [
        [run.status.id, *(run.status.values.get(name, "") for name in names), _loss(run), _steps(run), run.status.state]
        for run in swept
    ]
    note = element("p", "The member with the lowest last loss is the first one.", class_="note")
    return [element("h2", "Sweep"), note, _grid(["member", *names, "loss", "steps", "state"], rows)]


def _overview(runs: Sequence[Run]) -> list[Element]:
    rows: list[tuple[str, Callable[[Run], str]]] = [
        ("state", lambda r: r.status.state),
        ("kind", lambda r: r.status.kind),
        ("nodes", lambda r: f"{r.status.nodes} x {r.status.instance_type}, queue {r.status.queue}"),
        ("global batch size", lambda r: f"{r.status.global_batch_size:,}" if r.status.global_batch_size else "not set"),
        ("began", lambda r: moment(next((t for s in r.status.stages if (t := r.began(s))), None), "not yet, or not known")),
        ("steps", _steps),
        ("loss", _loss),
        ("validation loss", lambda r: r.curves.newest("validation_loss") if "validation_loss" in r.curves else "none in its log"),
        ("throughput", _throughput),
        ("time of a step", lambda r: _each(r.step_seconds)),
        ("compile time", lambda r: _took(r, "precompile")),
        ("graphs", _graphs),
        ("training time", lambda r: _took(r, "train")),
        ("restarts", lambda r: str(r.restarts)),
        ("node hours", lambda r: "not known" if r.node_hours is None else f"{_least(r)}{r.node_hours:,.2f}"),
        ("cost of its nodes", _cost),
    ]  # fmt: skip
    return [element("h2", "Details"), _table(runs, [(name, [value(run) for run in runs]) for name, value in rows])]


def _least(run: Run) -> str:
    return "at least " if run.first_attempts_lost else ""


def _cost(run: Run) -> str:
    if run.cost is None:
        return f"not known: {run.no_cost}"
    whole = f" so far, {dollars(run.expected_cost)} expected" if run.expected_cost is not None else ""
    return f"{_least(run)}{dollars(run.cost)}{whole}"


def _steps(run: Run) -> str:
    if run.step is None:
        return "none yet" if not run.status.done else "none in its log"
    left = f", {duration(run.left)} left" if run.left is not None else ""
    left += f", {ago}" if (ago := last_step(run.age or 0.0)) else ""
    if not run.last_step and run.curves.counted:
        return f"{run.step:,} logged; the log does not number its steps"
    return f"{run.step:,}" + (f" of {run.last_step:,}" if run.last_step else "") + left


def _each(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{number(seconds)} s"


def _loss(run: Run) -> str:
    curve = run.curves.get("loss")
    if curve is None:
        return "none in its log"
    first = run.log.first_loss
    return run.curves.newest("loss") + (f", from {number(first)}" if first is not None else "")


def _throughput(run: Run) -> str:
    if run.throughput is None:
        tokens = run.curves.last.get("tokens_per_second")
        return f"{number(tokens)} {run.curves.label('tokens_per_second')} at last" if tokens else "none in its log"
    return f"{run.throughput:,.1f} {run.curves.label('throughput')} on average"


def _took(run: Run, name: str) -> str:
    stage = run.stage(name)
    if stage is None:
        return "no separate stage"
    if stage.state == "PENDING":
        return f"waits: {stage.reason}" if stage.reason else "waits"
    took = duration(run.seconds(stage))
    return took + (" so far" if stage.state in ACTIVE else "")


def _graphs(run: Run) -> str:
    counted = run.compiled.get("graphs")
    if counted is None and run.cache is None:
        return "none reported"
    if counted is None and run.cache is not None:
        return f"{run.cache.done} of {run.cache.total} compiled on one node, {run.cache.failed} failed"
    return f"{counted:,} on all nodes, {run.compiled.get('failed', 0):,} failed"


def _curves(runs: Sequence[Run]) -> list[Element]:
    figures: list[Element] = []
    for name, label in METRICS.items():
        lines = [
            ChartLine(run.status.id, curve.few(points_of_each(len(runs))) if (curve := run.curves.get(name)) else ())
            for run in runs
        ]
        if any(line.points for line in lines):
            missing = [line.name for line in lines if not line.points]
            units = dict.fromkeys(run.curves.label(name) for run in runs if name in run.curves)
            counted = all(run.curves.counted for run in runs)
            drawn = chart(lines, x="logged step" if counted else "step", y=" or ".join(units), zero=name in _FROM_ZERO)
            note = element("p", f"Not in the log of {', '.join(missing)}.", class_="note") if missing else None
            figures.append(element("figure", drawn, note))
        elif name in _ALWAYS and not (name == "throughput" and any("tokens_per_second" in r.curves for r in runs)):
            why = (element("p", f"No {label} of {run.status.id}: {why_no_curve(run)}.") for run in runs)
            figures.append(element("figure", element("figcaption", label), *why))
    return [element("h2", "Curves"), element("div", *figures, class_="charts")]


def why_no_curve(run: Run) -> str:
    """Describe why a job's log has no values of a metric."""
    train = run.stage("train")
    if run.problem:
        return run.problem
    if train is None or train.state == "PENDING":
        return f"the training has not begun{f' ({train.reason})' if train and train.reason else ''}"
    if run.curves:
        return "its log has no such values"
    return f"no line of its log is a training step that trn can read. In the script, {what_to_print(run.tail('train'))}"


def _scaling(runs: Sequence[Run]) -> list[Element]:
    """Throughput over nodes, of jobs of the same kind on the same instances."""
    points = {(r.status.kind, r.status.instance_type, r.status.nodes): r for r in runs if r.throughput is not None}
    groups = sorted({(kind, instance) for kind, instance, _ in points})
    lines, rows = [], []
    for kind, instance in groups:
        of = sorted((n, r) for (k, i, n), r in points.items() if (k, i) == (kind, instance))
        if len(of) < 2:
            continue
        least, first = of[0]
        lines.append(ChartLine(f"{kind} on {instance}", [(n, r.throughput or 0.0) for n, r in of], marked=True))
        for n, r in of:
            each = (r.throughput or 0.0) / n / ((first.throughput or 1.0) / least)
            batch = f"{r.status.global_batch_size:,}" if r.status.global_batch_size else "not set"
            rows.append([f"{kind}, {n} x {instance}", batch, f"{r.throughput:,.1f}", percent(each)])
    if not lines:
        return []
    head = ["job", "global batch size", "sequences/s", "of each node, compared with the fewest nodes"]
    return [
        element("h2", "Scaling"),
        element("figure", chart(lines, x="nodes", y="sequences/s", zero=True), class_="one"),
        _grid(head, rows),
    ]


def _times(runs: Sequence[Run]) -> list[Element]:
    rows = []
    for run in runs:
        times = [
            (s.name, b, took) for s in run.status.stages if (b := run.began(s)) and (took := run.seconds(s)) is not None
        ]
        first = min((b for _, b, _ in times), default=0.0)
        rows.append((run.status.id, [(name, (b - first) / 60, (b - first + took) / 60) for name, b, took in times]))
    drawn = [row for row in rows if row[1]]
    missing = [name for name, parts in rows if not parts]
    parts: list[Element] = [element("h2", "Time of the stages")]
    if drawn:
        parts.append(
            element("figure", bars(drawn, x="minutes since its first stage began", unit="minutes"), class_="one")
        )
    if missing:
        parts.append(
            element("p", f"Not known of {', '.join(missing)}: no stage has begun, or the scheduler has forgotten when.")
        )
    return parts


def _failures(runs: Sequence[Run]) -> list[Element]:
    found = [failure for run in runs for failure in _failed(run)]
    return [element("h2", "Failures"), *(found or [element("p", "None.")])]


def _failed(run: Run) -> Iterator[Element]:
    id = run.status.id
    for stage in run.status.stages:
        if stage.state in ACTIVE or stage.state in ("COMPLETED", "CANCELLED"):
            continue
        made = _failure(f"{id}: {stage.name} {stage.state}", _reason(stage), f"trn logs {id} --stage {stage.name}")
        tail = run.tail(stage.name)
        if stage.why and stage.why != stage.reason:
            made.append(element("p", f"{stage.why.removesuffix('.')}."))
        if tail:
            made.append(element("pre", "\n".join(line[:500] for line in tail[-_LINES:])))
        yield made
    for one in run.findings:
        yield _failure(f"{id}: {one.kind}", one.text, f"trn status {id}")
    if _OUT_OF_MEMORY in run.errors:
        why = "the compiler ran out of the host's memory (code -9). Compile fewer graphs at once, with NEURON_NUM_PARALLEL_COMPILE_WORKERS"
        yield _failure(
            f"{id}: {run.errors.count(_OUT_OF_MEMORY)} graphs were not compiled",
            why,
            f"trn logs {id} --stage precompile",
        )
    if others := [code for code in run.errors if code != _OUT_OF_MEMORY]:
        codes = ", ".join(sorted({str(code) for code in others}))
        yield _failure(
            f"{id}: {len(others)} graphs were not compiled",
            f"the compiler ended with code {codes}; its log has the reason",
            f"trn logs {id} --stage precompile",
        )
    if run.problem:
        yield _failure(f"{id}: incomplete", run.problem, f"trn report {id}")  # fmt: skip


def _reason(stage: Stage) -> str:
    where = f" Nodes: {stage.nodes}." if stage.nodes else ""
    code = f" Exit code {stage.exit_code}." if stage.exit_code and "exit code" not in stage.reason else ""
    text = stage.reason or ("it was cancelled" if stage.state == "CANCELLED" else "no reason was reported")
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}.{code}{where}"


def _failure(title: str, why: str, command: str) -> Element:
    return element(
        "div", element("h3", title), element("p", why), element("p", "See ", element("code", command)), class_="failed"
    )


def _settings(runs: Sequence[Run]) -> list[Element]:
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    if not names:
        return [element("h2", "Settings"), element("p", "Not known: the jobs' records could not be read.")]
    rows = [
        (name, [_value(run.settings[name]) if name in run.settings else "default" for run in runs]) for name in names
    ]
    note = element("p", "Settings other than the kind's defaults; what differs is bold.", class_="note")
    return [element("h2", "Settings"), note, _table(runs, rows, differences=True)]


def _value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(map(str, value))  # variables by their names: a value may be a secret
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sources(runs: Sequence[Run], catalog: Catalog) -> Iterator[str]:
    for note in dict.fromkeys(run.price.note for run in runs):
        yield f"Price of a node: {note}."
    if any(run.cost is not None for run in runs):
        yield (
            f"Cost: nodes x hours from the first attempt of each stage to its end x that price; {NOT_COUNTED}. "
            f"Prices: {catalog.prices_source}; an environment file may have replaced some."
        )
    yield f"Throughput: the mean after the first 5 steps. Curves: neighbouring steps are averaged where there are more than {points_of_each(len(runs)):,}."


def _table(runs: Sequence[Run], rows: Sequence[tuple[str, Sequence[str]]], *, differences: bool = False) -> Element:
    """A row for each value, a column for each job; of many jobs the other way round, and what all share in one row."""
    if len(runs) > NAMED:
        same = [(name, values[0]) for name, values in rows if len(set(values)) == 1]
        others = [(name, values) for name, values in rows if len(set(values)) > 1]
        each = [[run.status.id, *(values[i] for _, values in others)] for i, run in enumerate(runs)]
        parts = [_grid(["all", ""], same)] if same else []
        return element("div", *parts, *([_grid(["job", *(name for name, _ in others)], each)] if others else []))
    head = element("tr", element("th", ""), *(element("th", run.status.id, scope="col") for run in runs))
    lines = []
    for name, values in rows:
        cells = [element("td", value) for value in values]
        differs = differences and len(set(values)) > 1
        lines.append(element("tr", element("th", name, scope="row"), *cells, class_="differs" if differs else None))
    return element("div", element("table", element("thead", head), element("tbody", *lines)), class_="wide")


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Element:
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    titles = element("tr", *(element("th", title, scope="col") for title in head))
    return element("div", element("table", element("thead", titles), element("tbody", *lines)), class_="wide")
