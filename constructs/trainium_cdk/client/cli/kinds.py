"""The kinds of jobs that can be submitted: their list (`trn submit --list`), and the options of each, which are its fields."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from trainium_cdk.client.cli.options import CLUSTER_OPTIONS, Json, Target, deployed, help_of, on_cluster, parts_of
from trainium_cdk.client.cli.output import echo, echo_json, log

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from trainium_cdk.client.jobs.models import Job

_WHERE = frozenset(CLUSTER_OPTIONS) - {"_env"}
"""Options that say where. One file says it, or `trn use`: the short help has no other."""


@on_cluster(local=False)
def kinds(
    on: Target,
    _list: Annotated[bool, typer.Option("--list", help="List the kinds of jobs.")] = True,
    here: Annotated[
        bool, typer.Option("--here", help="Say for each whether the cluster (--stack or --cluster) can run it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the kinds of jobs, those that are recommended first.

    What each trains, on which instances, with which Neuron SDK, and where its program comes from. With --json also its options.
    """
    from trainium_cdk.client.jobs.kinds import kinds as known

    every, recommended = known(), _recommended()
    order = [*(kind for kind in recommended if kind in every), *(kind for kind in every if kind not in recommended)]
    described = [_describe(kind, every[kind], recommended.get(kind, ([], "")), details=as_json) for kind in order]
    if here:
        from trainium_cdk.client.jobs.plan import obstacle

        cluster = deployed(on)
        for one in described:
            one["here"] = obstacle(every[one["kind"]], cluster) or "yes"
    if as_json:
        echo_json(described)
        return
    width = max(len(one["kind"]) for one in described) + 2
    for one in described:
        needs = [", ".join(one["families"]) or "any instance", " or ".join(one["frameworks"]) or "any framework"]
        needs.append(f"Neuron SDK {one['releases']}" if one["releases"] else "any Neuron SDK")
        lines = [one["title"], "; ".join(needs), one["upstream"]]
        lines += [f"recommended for {', '.join(one['recommended_for'])}: {one['example']}"] if one["example"] else []
        lines += [f"own packages: {one['packages']}"] if one["packages"] else []
        lines += [f"on {cluster.stack}: {one['here']}"] if here else []
        for label, text in zip((one["kind"], *[""] * len(lines)), lines, strict=False):
            echo(f"{label:{width}}{text}")
    for line in _ended(described):
        log(line)
    log(
        "options of a kind: trn submit KIND --help. Submit it: trn submit KIND. Submit your own script: trn submit FILE"
    )


def _ended(described: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Describe the kinds that need a framework that AWS has ended, and the kinds that stay."""
    from trainium_cdk.description.catalog import Catalog
    from trainium_cdk.description.catalog.models import TITLES

    catalog = Catalog.load()
    for framework in TITLES:
        kinds = [one["kind"] for one in described if one["frameworks"] == [framework]]
        if kinds and (ended := catalog.ended(framework)):
            yield f"{', '.join(kinds)}: {ended}. For new work use a kind that is recommended for trn2"


def _recommended() -> dict[str, tuple[list[str], str]]:
    """Return the types and families that AWS recommends, and an example, by kind: those for the newest instance types first."""
    from trainium_cdk.description.catalog import Catalog

    found: dict[str, tuple[list[str], str]] = {}
    for one in reversed(Catalog.load().recommendations):
        for kind in one.kinds:
            found.setdefault(kind, ([], one.example(kind)))[0].extend(one.only)
    return found


def _describe(
    name: str, kind: type[Job], recommended: tuple[list[str], str] = ([], ""), *, details: bool
) -> dict[str, Any]:
    first, before = kind.RELEASES
    bounds = [f"from {first}"] * bool(first) + [f"before {before}"] * bool(before)
    hidden = {"kind", "filename", "content", "args", "command", "inside", "tree", "user"}
    return {
        "kind": name,
        "title": kind.TITLE,
        "recommended_for": recommended[0],
        "example": recommended[1],
        "families": list(kind.FAMILIES),
        "frameworks": list(kind.FRAMEWORKS),
        "releases": ", ".join(bounds),
        "upstream": str(kind.UPSTREAM or "your own"),
        "packages": kind.PACKAGES.describe() if kind.PACKAGES else "",
        "options": {n: help_of(kind, n) for n in kind.model_fields if details and n not in hidden},
    }


def is_own(kind: type[Job], name: str) -> bool:
    """Return whether scripts lack this field, or have it with another meaning."""
    from trainium_cdk.client.jobs.kinds.script import Script

    return name not in Script.model_fields or help_of(kind, name) != help_of(Script, name)


def option_of(kind: type[Job], name: str) -> inspect.Parameter:
    """The option of a field."""
    field, dashed = kind.model_fields[name], name.replace("_", "-")
    value: Any = _type(field)
    flags = f"--{dashed}/--no-{dashed}" if value is bool else f"--{dashed}"
    if any(get_origin(part) is tuple for part in parts_of(field.annotation)):
        value = list[str]
    annotation = Annotated[value | None, typer.Option(flags, help=help_of(kind, name))]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def in_brief(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter that is described by the first sentence of its help."""
    if get_origin(parameter.annotation) is not Annotated:
        return parameter
    value, described = get_args(parameter.annotation)
    short = copy(described)
    short.help, short.show_envvar = re.split(r"(?<=\.) ", described.help)[0], False
    short.hidden = short.hidden or parameter.name in _WHERE
    return parameter.replace(annotation=Annotated[value, short])


def _type(field: FieldInfo) -> type:
    parts = [_type_of_values(part) for part in parts_of(field.annotation)]
    return parts[0] if len(parts) == 1 and parts[0] in (int, float, bool) else str


def _type_of_values(part: Any) -> Any:
    """The type of a Literal's values, if it is one type: a field that allows 1 or 2 does not take the text '1'."""
    types = {type(value) for value in get_args(part)} if get_origin(part) is Literal else set()
    return types.pop() if len(types) == 1 else part
