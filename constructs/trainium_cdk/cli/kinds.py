"""`trn kinds`: the kinds of jobs that can be submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.cli.options import Json
from trainium_cdk.cli.output import answer, put, say
from trainium_cdk.errors import JobError

if TYPE_CHECKING:
    from trainium_cdk.jobs.models import Job


def kinds(
    name: Annotated[str | None, typer.Argument(metavar="KIND", help="Only this one, with its options.")] = None,
    as_json: Json = False,
) -> None:
    """List the kinds of jobs: what they train, on which instances, with which Neuron SDK, and where their program comes from."""
    from trainium_cdk.jobs.kinds import kinds as known

    every = known()
    if name is not None and name not in every:
        raise JobError(f"there is no kind of job {name[:80]!r}. Use one of {', '.join(every)}")
    described = [_describe(kind, every[kind]) for kind in ([name] if name else every)]
    if as_json:
        put(described)
        return
    width = max(len(one["kind"]) for one in described) + 2
    for one in described:
        needs = [", ".join(one["families"]) or "any instance", " or ".join(one["frameworks"]) or "any framework"]
        needs.append(f"Neuron SDK {one['releases']}" if one["releases"] else "any Neuron SDK")
        for label, text in ((one["kind"], one["title"]), ("", "; ".join(needs)), ("", one["upstream"])):
            answer(f"{label:{width}}{text}")
        for option, help in one["options"].items() if name else ():
            answer(f"  --{option.replace('_', '-')}\n      {help}")
    if name is None:
        say("options of a kind: trn kinds KIND. Submit it: trn submit KIND. Submit your own script: trn submit FILE")


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
        "options": {n: _help(kind, n) for n in kind.model_fields if n not in hidden},
    }


def _help(kind: type[Job], name: str) -> str:
    """The help text of an option, with its choices and its default."""
    from trainium_cdk.cli.submit import choices_of

    field = kind.model_fields[name]
    text, choices = field.description or "", choices_of(field)
    if name == "restarts":
        text += f" This kind {'resumes' if kind.RESTARTS else 'does not resume'}."
    if choices:
        text += f" One of {', '.join(choices)}."
    plain = isinstance(field.default, str | int | float) and not isinstance(field.default, bool)
    return f"{text} Default: {field.default}." if plain and "Default" not in text else text
