"""`trn plan`: what a job would need on several numbers of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.catalog.plain import counted
from trainium_cdk.cli.described import planned
from trainium_cdk.cli.options import Json, Target, deployed, described, on_cluster
from trainium_cdk.cli.output import marked, put, say, say_if_sandbox, table
from trainium_cdk.cli.submit import make, of_kinds
from trainium_cdk.errors import JobError

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs.forecast import Forecast
    from trainium_cdk.outputs import Cluster


def listed() -> None:
    """Print what a job would need on several numbers of nodes.

    Batch, published throughput, hours and cost.

    Nothing is submitted. The cluster is that of the environment file, deployed or not, else that of the stack.
    """


def with_options() -> Callable[..., None]:
    """The command with the options of every kind."""
    return of_kinds(plan, listed.__doc__)


@on_cluster(local=False)
def plan(
    ctx: typer.Context,
    on: Target,
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A kind of job (`trn kinds` lists them), or your own script file.")
    ],
    *,
    nodes: Annotated[str, typer.Option("--nodes", "-N", metavar="N,N,...", help="Numbers of compute nodes.")] = "1",
    as_json: Json = False,
    fields: dict[str, Any],
) -> None:
    """See `listed`. `fields` are the options of the kinds; None if not given."""
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.cli.preflight import engine_of
    from trainium_cdk.jobs.forecast import forecast
    from trainium_cdk.jobs.places import known

    counts = _counts(nodes)
    environment = described(ctx)
    catalog = environment.catalog if environment else Catalog.load()
    cluster = planned(ctx, on) or deployed(on)
    given = {name: value for name, value in fields.items() if value is not None}
    made = make(job, (), {**given, "nodes": counts[0]})
    said = known(environment, engine_of(on.stack, environment)) if environment and planned(ctx, on) else None
    found = forecast(made, counts, cluster, catalog, said)
    if as_json:
        data = {
            "job": job,
            "stack": cluster.stack,
            "region": cluster.region,
            "prices": str(catalog.prices_date),
            "plans": [f.to_dict() for f in found],
        }
        put(marked(data))
    else:
        say_if_sandbox()
        _show(found)
        for line in _notes(found, cluster, catalog):
            say(line)
    if all(f.refused for f in found):
        raise typer.Exit(1)


def _counts(text: str) -> list[int]:
    """Raises JobError: it is not a list of numbers."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and 1 <= int(word[:6]) <= 10_000 for word in words) or len(words) > 100:
        raise JobError(f"--nodes is {text[:80]!r}. Write numbers of nodes, from 1 on, for example --nodes 1,2,4,8")
    return list(dict.fromkeys(int(word) for word in words))


def _show(found: list[Forecast]) -> None:
    rows = []
    for one in found:
        if one.refused:
            rows.append([str(one.nodes), "", "refused", "", "", "", ""])
            continue
        speed = f"{one.expected.sequences_per_second:,.0f} (published)" if one.expected else "not published"
        rows.append([
            f"{one.nodes} x {one.instance_type}", f"{one.cores:,}", one.batch or "set by the program", speed,
            _number(one.hour_usd), _number(one.hours), _number(one.usd),
        ])  # fmt: skip
    table("", ["nodes", "NeuronCores", "global batch size", "sequences/s", "USD/h", "hours", "USD"], rows)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


def _notes(found: list[Forecast], cluster: Cluster, catalog: Catalog) -> list[str]:
    lines = [f"{counted(one.nodes, 'node')} refused: {one.refused}" for one in found if one.refused]
    good = [one for one in found if not one.refused]
    lines += dict.fromkeys(str(place) for one in good for place in one.places)
    lines += dict.fromkeys(note for one in good for note in one.notes)
    if steps := next((one.steps for one in good if one.steps), None):
        lines.append(f"hours: of all {steps:,} steps, without compilation")
    lines += [f"{counted(one.nodes, 'node')}: {one.expected}" for one in good if one.expected]
    if any(one.expected is None for one in good):
        lines.append(
            "not published: AWS has published no throughput of this very job. Nothing is extrapolated: measure it with a short run "
            "(--run-steps, --steps), and look at `trn report`"
        )
    if any(one.hour_usd is None for one in good):
        lines += dict.fromkeys(one.price for one in good if one.hour_usd is None)
    elif good:
        of = ", ".join(
            dict.fromkeys(f"{o.instance_type} {catalog.describe_price(o.instance_type, cluster.region)}" for o in good)
        )
        lines.append(f"list prices, nodes only: {of}; `trn cost` has the rest")
    return lines
