"""`trn kinds`: the kinds of jobs that can be submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.cli.common import Json, answer, put

if TYPE_CHECKING:
    from trainium_cdk.jobs.models import Job


def register(app: typer.Typer) -> None:
    app.command()(kinds)


def kinds(
    name: Annotated[str | None, typer.Argument(metavar="KIND", help="Only this one, with its options.")] = None,
    as_json: Json = False,
) -> None:
    """List the kinds of jobs: what they train, on which instances, with which Neuron SDK, and where their program comes from."""
    from trainium_cdk.jobs.errors import JobError
    from trainium_cdk.jobs.kinds import kinds as known

    every = known()
    if name is not None and name not in every:
        raise JobError(f"there is no kind of job {name[:80]!r}. It is one of {', '.join(every)}")
    described = [_describe(kind, every[kind]) for kind in ([name] if name else every)]
    if as_json:
        put(described)
        return
    for one in described:
        for label in ("kind", "title", "families", "frameworks", "releases", "upstream"):
            value = one[label]
            text = ", ".join(value) if isinstance(value, list) else str(value)
            answer(text if label == "kind" else f"  {label + ':':12}{text or 'any'}")
        if name:
            for option, help in one["options"].items():
                answer(f"  --{option.replace('_', '-')}\n      {help}")


def _describe(name: str, kind: type[Job]) -> dict[str, Any]:
    first, before = kind.RELEASES
    bounds = [f"from {first}"] * bool(first) + [f"before {before}"] * bool(before)
    hidden = {"kind", "filename", "content", "args"}
    return {
        "kind": name,
        "title": kind.TITLE,
        "families": list(kind.FAMILIES),
        "frameworks": list(kind.FRAMEWORKS),
        "releases": ", ".join(bounds),
        "upstream": str(kind.UPSTREAM or "your own"),
        "options": {n: field.description or "" for n, field in kind.model_fields.items() if n not in hidden},
    }
