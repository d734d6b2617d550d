"""`trn submit --list`: the kinds of jobs that can be submitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.client.cli.named import did_you_mean, end_of_sentence
from trainium_cdk.client.cli.options import Json, Target, deployed, help_of, on_cluster
from trainium_cdk.client.cli.output import echo, echo_json, log
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.errors import JobError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.models import Job

_SUFFIXES = (".yaml", ".yml")


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


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line before `--`; and the rest, which begins with it."""
    end = words.index("--") if "--" in words else len(words)
    return list(words[:end]), list(words[end:])


def parsed(command: Any, own: Sequence[str]) -> dict[str, Any]:
    """The values of a command's parameters, by name. An unknown option is an argument. Empty for a line that Typer refuses later."""
    lenient = command.context_class(command, ignore_unknown_options=True)
    try:
        return dict(command.make_parser(lenient).parse_args(list(own))[0])
    except Exception:
        return {}


def job_file(words: Sequence[str], command_of: Callable[[Sequence[str]], Any]) -> str:
    """The job file among the words after `submit`; empty if there is none. `command_of`: returns the command for such words."""
    own, _ = split(words)
    if not any(word.endswith(_SUFFIXES) for word in own):
        return ""
    found = parsed(command_of(()), own)
    return next((w for w in (found.get("job"), *(found.get("args") or ())) if w and w.endswith(_SUFFIXES)), "")


def check_known(job: str) -> None:
    """Raises JobError: there is neither a kind nor a file of that name."""
    from trainium_cdk.client.jobs.kinds import by_name, submittable

    if by_name(job):
        return
    try:
        exists = "/" in job or "." in job or bool(job and Path(job).exists())
    except (OSError, ValueError):  # the name is too long, or contains a NUL byte
        exists = False
    if not exists:
        files = (one.name for one in Path().glob("*.[ps][yh]"))
        raise JobError(
            f"there is no kind of job and no file {job[:80]!r}{end_of_sentence(did_you_mean(job[:80], (*submittable(), *files)))} Give {', '.join(submittable())}, "
            f"the path of a script, or a command after --: trn submit -- {printed(job[:80])} ..."
        )
