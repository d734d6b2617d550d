"""The report: one HTML page about one or several jobs. Pure. It needs no network and no script, and prints well."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element

from trainium_cdk._aws import SANDBOX
from trainium_cdk.client.drawing import ChartLine, bars, chart, element, html, number
from trainium_cdk.client.jobs.report.curve import METRICS, points_of_each
from trainium_cdk.client.jobs.report.run import NOT_COUNTED, Run
from trainium_cdk.client.jobs.status import ACTIVE, Stage, last_step, shown_values
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.models import TITLES
from trainium_cdk.description.outputs import Cluster
from trainium_cdk.runner.readers.log import LASTING
from trainium_cdk.runner.readers.step_lines import what_to_print
from trainium_cdk.text import duration

_FROM_ZERO = ("throughput", "tokens_per_second", "seconds")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_OUT_OF_MEMORY = -9
_NO_MEMORY = "the compiler ran out of the host's memory (code -9). Compile fewer graphs at once, with NEURON_NUM_PARALLEL_COMPILE_WORKERS"
_FAILURES = 8
"""The most failures that are shown."""
_SECONDS = 180
"""The longest time that a chart shows in seconds."""
_NAMES = 4
"""The most jobs that a sentence names."""
_LINES = 8
"""Lines of a failed stage's log that are shown."""
_SIGNS = {"COMPLETED": "✓", "RUNNING": "▸", "PENDING": "○", "CANCELLED": "■"}
"""State -> its sign, next to its colour. Others are failures."""


def report(runs: Sequence[Run], cluster: Cluster, catalog: Catalog, now: float, *, sandbox: bool = False) -> str:
    """The page.

    Args:
        runs: the jobs, at least one; each has its colour in all charts.
        now: when it is made, in seconds since 1970.
        sandbox: whether it is of the sandbox. Its first line then says so.
    """
    runs = sorted(runs, key=_last_loss) if _members(runs) else runs
    id, several = runs[0].status.id, f"{len(runs)} jobs"
    several = f"{id.partition('/')[0]}, {len(runs)} members" if _members(runs) else several
    title = f"Training report: {several if len(runs) > 1 else id}"
    first, last = ([_large(runs[0]), *_failures(runs)], []) if len(runs) == 1 else (_several(runs), _failures(runs))
    framework = TITLES.get(cluster.framework, cluster.framework)
    work = {f"{_kind(run)} on {run.status.nodes} x {run.status.instance_type}; " for run in runs}
    place = f"{work.pop() if len(work) == 1 else ''}{cluster.stack} in {cluster.region}, Neuron SDK {cluster.neuron_release}, {framework}; made {_moment(now)}"
    body = element(
        "body", element("h1", title), *_note(place),
        *first, *_curves(runs), *_scaling(runs), *last, *_overview(runs), *_settings(runs),
        element("footer", *(one for line in _sources(runs, catalog) for one in _note(line))),
    )  # fmt: skip
    if sandbox:
        body.insert(0, element("p", SANDBOX, class_="sandbox"))
    head = element(
        "head", element("meta", charset="utf-8"), element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title), element("style", files(__package__).joinpath("style.css").read_text("utf-8")),
    )  # fmt: skip
    return html(element("html", head, body, lang="en"))


def figures(run: Run) -> list[tuple[str, str, str]]:
    """Return the figures that people look for first: a name, a short value, and a note."""
    step = "none" if run.step is None else f"{run.step:,}"
    last = f"of {run.last_step:,}" if run.last_step else "logged" if run.curves.counted else ""
    first = run.log.first_loss
    began = f"from {number(first)}" if first is not None else ""
    loss = run.curves.newest("loss") if "loss" in run.curves else "none"
    time = ("took", duration(run.took)) if run.status.done else ("time left", duration(run.left))
    expected = f"of {_dollars(run.expected_cost)} expected" if run.expected_cost is not None else ""
    ago = last_step(run.age or 0.0).removeprefix("last step ")
    old = [("last step", ago, "")] if ago else []
    return [("state", run.status.state, ""), ("step", step, last), ("loss", loss, began), *old, (*time, ""), ("cost", _spent(run), expected)]  # fmt: skip


def _members(runs: Sequence[Run]) -> bool:
    """True if they are several members of one array."""
    return len(runs) > 1 == len({run.status.id.partition("/")[0] for run in runs})


def _last_loss(run: Run) -> float:
    """The last loss, to sort by; infinite without one, also if it is NaN since then."""
    return run.curves.last["loss"] if "loss" in run.curves and not run.curves.missing("loss") else math.inf


def _labels(runs: Sequence[Run]) -> list[str]:
    """The names of jobs in charts and tables: a sweep's members have their values, where no two have the same; others their ids."""
    values = [shown_values(run.status.values) or run.status.id for run in runs]
    return values if len({*values}) == len(runs) else [run.status.id for run in runs]


def _badge(run: Run) -> Element:
    """The state, with what is wrong with it now, as a sign, a colour and words."""
    state, wrong = run.status.state, [one for one in run.findings if not one.over and one.kind not in LASTING]
    if wrong and state in _SIGNS:
        return element("b", f"! {state}, {wrong[0].text.partition(' since ')[0]}", class_="badge warning")
    return element("b", f"{_SIGNS.get(state, '✕')} {state}", class_=f"badge {state if state in _SIGNS else 'FAILED'}")


def _large(run: Run) -> Element:
    parts = [
        element("div", element("dt", name), element("dd", _badge(run) if name == "state" else value, element("small", f" {more}") if more else None))
        for name, value, more in figures(run)
    ]  # fmt: skip
    return element("dl", *parts, class_="figures")


def _several(runs: Sequence[Run]) -> list[Element]:
    """A row for each job. In an array, the member with the lowest last loss is the first, and has a mark."""
    names = list(dict.fromkeys(name for run in runs for name in run.status.values))
    members = _members(runs)
    rows: list[list[Element | str]] = []
    for run in runs:
        shown = {name: (value, more) for name, value, more in figures(run)}
        loss: Element | str = shown["loss"][0]
        if members and not rows and _last_loss(run) < math.inf:
            loss = element("span", element("b", "★ "), loss, element("b", " best"), class_="best")
        id = run.status.id.rpartition("/")[2] if members else run.status.id
        values = (run.status.values.get(name, "") for name in names)
        left = "" if run.left is None else f"{duration(run.left)} left"
        steps = ", ".join(filter(None, (" ".join(shown["step"]).strip(), left, last_step(run.age or 0.0))))
        rows.append([id, *values, loss, _badge(run), steps, _took(run, "train"), _spent(run)])
    head = ["member" if members else "job", *names, "loss", "state", "steps", "training time", "cost"]
    note = "Sorted by the last loss, as the curves are. A member that has not begun is not here." if members else ""
    return [element("h2", "Members" if members else "Jobs"), _grid(head, rows, "wide jobs"), *_note(note)]


def _note(text: str) -> list[Element]:
    return [element("p", text, class_="note")] if text else []


def _kind(run: Run) -> str:
    return f"{run.status.kind} of {run.model}" if run.model else run.status.kind


def _overview(runs: Sequence[Run]) -> list[Element]:
    rows: list[tuple[str, Callable[[Run], str]]] = [
        ("kind", _kind),
        ("nodes", lambda r: f"{r.status.nodes} x {r.status.instance_type}, queue {r.status.queue}"),
        ("global batch size", lambda r: f"{r.status.global_batch_size:,}" if r.status.global_batch_size else "not set"),
        ("began", lambda r: _moment(next((t for s in r.status.stages if (t := r.began(s))), None), "not yet, or not known")),
        ("validation loss", lambda r: r.curves.newest("validation_loss") if "validation_loss" in r.curves else "none in its log"),
        ("throughput", _throughput),
        ("time of a step", lambda r: f"{number(r.step_seconds)} s" if r.step_seconds is not None else "not known"),
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


def _spent(run: Run) -> str:
    return "not known" if run.cost is None else f"{_least(run)}{_dollars(run.cost)}"


def _cost(run: Run) -> str:
    if run.cost is None:
        return f"not known: {run.no_cost}"
    whole = f" so far, {_dollars(run.expected_cost)} expected" if run.expected_cost is not None else ""
    return f"{_spent(run)}{whole}"


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
    if counted is None:
        return (
            "none reported"
            if run.cache is None
            else f"{run.cache.done} of {run.cache.total} compiled on one node, {run.cache.failed} failed"
        )
    return f"{counted:,} on all nodes, {run.compiled.get('failed', 0):,} failed"


def _curves(runs: Sequence[Run]) -> list[Element]:
    figures, missing, labels = list[Element](), list[str](), _labels(runs)
    for name, label in METRICS.items():
        few = [run.curves.few(name, points_of_each(len(runs))) for run in runs]
        lines = list(map(ChartLine, labels, few))
        without = [line.name for line in lines if not line.points]
        if len(without) < len(lines):
            units = dict.fromkeys(run.curves.label(name) for run in runs if name in run.curves)
            counted = all(run.curves.counted for run in runs)
            drawn = chart(lines, x="logged step" if counted else "step", y=" or ".join(units), zero=name in _FROM_ZERO)
            note = f"Not in the log of {_some(without, runs)}." if without else ""
            figures.append(element("figure", drawn, *_note(note)))
        elif name == "loss" or (name == "throughput" and not any(r.throughput or r.step_seconds for r in runs)):
            missing.append(label)
    said = f"No {' and no '.join(missing)}: {why_no_curve(runs[0])}." if missing else ""
    if not any(run.curves.few("seconds", 3) for run in runs) and any("seconds" in run.curves for run in runs):
        said += " No curve of seconds a step: the log's times are whole seconds, too coarse for so few steps."
    grid = element("div", *figures, _times(runs), class_="charts")
    return [element("h2", "Curves and times"), grid, *_note(said.strip())]


def _some(names: Sequence[str], runs: Sequence[Run]) -> str:
    """A few names, or how many there are of all jobs."""
    return ", ".join(names) if len(names) <= _NAMES else f"{len(names)} of {len(runs)} jobs"


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
            rows.append([f"{kind}, {n} x {instance}", batch, f"{r.throughput:,.1f}", f"{each:.0%}"])
    if not lines:
        return []
    head = ["job", "global batch size", "sequences/s", "of each node, compared with the fewest nodes"]
    figure = element("figure", chart(lines, x="nodes", y="sequences/s", zero=True))
    return [element("h2", "Scaling"), element("div", figure, class_="charts"), _grid(head, rows)]


def _times(runs: Sequence[Run]) -> Element:
    """A figure of the stages, and a sentence on those whose times are not known."""
    unit, size = ("minutes", 60) if max(run.took or 0.0 for run in runs) > _SECONDS else ("seconds", 1)
    rows = []
    for label, run in zip(_labels(runs), runs, strict=True):
        first = min((b for _, b, _ in run.times), default=0.0)
        rows.append((label, [(name, (b - first) / size, (b - first + took) / size) for name, b, took in run.times]))
    drawn, missing = [row for row in rows if row[1]], [name for name, parts in rows if not parts]
    picture = bars(drawn, x=f"{unit} since its first stage began", unit=unit, title="stages") if drawn else None
    why = f"No times of {_some(missing, runs)}: no stage has begun, or the scheduler has forgotten when."
    return element("figure", picture, *_note(why if missing else ""))


def _failures(runs: Sequence[Run]) -> list[Element]:
    found = [failure for run in runs for failure in _failed(run)]
    more = len(found) - _FAILURES
    rest = [element("p", f"{more} more are not shown. trn status JOB names each.")] if more > 0 else []
    return [element("h2", "Failures"), *found[:_FAILURES], *rest] if found else []


def _failed(run: Run) -> Iterator[Element]:
    id = run.status.id
    for stage in run.status.stages:
        if stage.state in ACTIVE or stage.state in ("COMPLETED", "CANCELLED"):
            continue
        made = _failure(f"{id}: {stage.name} {stage.state}", _reason(stage), f"trn logs {id} --stage {stage.name}")
        if stage.why and stage.why != stage.reason:
            made.insert(1, element("p", element("b", f"{stage.why.removesuffix('.')}.")))
        if tail := run.tail(stage.name):
            made.append(element("pre", "\n".join(line[:500] for line in tail[-_LINES:])))
        yield made
    for one in run.findings:
        yield _failure(f"{id}: {one.kind}", one.text, f"trn status {id}")
    for code in sorted({*run.errors}):
        why = _NO_MEMORY if code == _OUT_OF_MEMORY else f"the compiler ended with code {code}; its log has the reason"
        count = run.errors.count(code)
        yield _failure(f"{id}: {count} graphs were not compiled", why, f"trn logs {id} --stage precompile")
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
    return [element("h2", "Settings"), *_note("Settings other than the kind's defaults."), _table(runs, rows)]


def _value(value: object) -> str:
    if isinstance(value, (list, dict)):
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


def _table(runs: Sequence[Run], rows: Sequence[tuple[str, Sequence[str]]]) -> Element:
    """What all jobs share; and the rest in a column for each of a few jobs, or a row for each of many."""
    labels = _labels(runs)
    same = [(name, values[0]) for name, values in rows if len({*values}) == 1]
    rest = [(name, *values) for name, values in rows if len({*values}) > 1]
    turned = [("", *labels), *rest] if len(runs) <= _NAMES else list(zip(("job", *labels), *rest, strict=True))
    shared = _grid(["all" if len(runs) > 1 else "", ""], same) if same else None
    return element("div", shared, _grid(turned[0], turned[1:]) if rest else None)


def _grid(head: Sequence[str], rows: Iterable[Sequence[Element | str]], class_: str = "wide") -> Element:
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    titles = element("tr", *(element("th", title, scope="col") for title in head))
    return element("div", element("table", element("thead", titles), element("tbody", *lines)), class_=class_)


def _moment(seconds: float | None, unknown: str = "not known") -> str:
    """A time in UTC, to the minute."""
    return unknown if seconds is None else f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M} UTC"


def _dollars(amount: float) -> str:
    """An amount in USD."""
    return f"{amount:,.2f} USD"
