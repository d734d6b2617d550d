"""The stage `prepare`: carries out a job's steps, in their order. What they make is made once for all jobs, and after an interruption it continues."""

from __future__ import annotations

import dataclasses
import fnmatch
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import aws, layout
from ..errors import Refused
from ..files import read_json
from ..spec import JobSpec
from . import Failed, Here, NotFetched, say

STEPS: Mapping[str, str] = {
    "source": "fetching.source",
    "archive": "fetching.archive",
    "file": "fetching.file",
    "prefix": "fetching.prefix",
    "model": "fetching.model",
    "dataset": "fetching.dataset",
    "packages": "packages.packages",
    "requirements": "packages.requirements",
    "code": "fetching.code",
    "modules": "main.modules",
    "tools": "main.tools",
    "files": "main.files",
    "compiled": "compiled.compiled",
}
"""Each step's function, as MODULE.FUNCTION of this folder: it gets `Here`, and the step's arguments by their names."""


def check(folder: Path, job: JobSpec, variables: Mapping[str, str], addresses: Mapping[str, str] | None = None) -> None:
    """Check that all is there which a job needs, so that its stage `prepare` is not needed. A small folder of code is fetched.

    Args:
        folder: the job's.
        variables: the job's own.
        addresses: presigned ones of the client's, by what they stand for; where there is none, the node's identity is not used either.

    Raises:
        NotFetched: something must be fetched.
        Refused: the job cannot run with what is on the cluster.
    """
    try:
        _steps(Here.of(folder, job, variables, check=True, addresses=addresses or {}), job)
    except Failed as e:
        raise Refused(str(e)) from None
    if any(value.startswith(aws.SECRET_BEGINS) for value in variables.values()):
        raise NotFetched  # that the job may read them shows before its nodes are asked for


def carry_out(folder: Path, job: JobSpec, variables: Mapping[str, str]) -> None:
    """Fetch all that a job needs and the cluster does not have yet. Then remove virtual environments that no job uses any more.

    Raises:
        Refused: the job cannot run with what is on the cluster: a second attempt would not help.
        Failed: something could not be fetched: a second attempt continues from there.
    """
    here = Here.of(folder, job, variables)
    try:
        _steps(dataclasses.replace(here, check=True), job)
        say("everything is already fetched")
    except NotFetched:
        _steps(here, job)
    from . import packages

    packages.remove_unused(here)


_ALONE = ("files", "tools")
"""Steps that need nothing of those before them: they refuse a job also where something is to be fetched first."""


def _steps(here: Here, job: JobSpec) -> None:
    absent = None
    for step in job.prepare:
        if step.do not in STEPS:
            raise Refused(f"this runner knows no step {step.do[:60]!r} of prepare")
        if absent and step.do not in _ALONE:
            continue
        given = {name: here.plain(value) for name, value in step.with_.items()}
        try:
            module, _, function = STEPS[step.do].partition(".")
            getattr(import_module(f".{module}", __package__), function)(here, **given)
        except NotFetched as e:
            absent = e
    if job.checkpoints and job.checkpoints.source:
        from . import resume

        resume.resume(here, job)
    if absent:
        raise absent


def main(folder: str, secret: str) -> None:
    """Run `runner prepare JOB FILE`. FILE has the job's variables. Exit codes: 64 refused, 75 failed."""
    place = Path(folder)
    variables: Any = read_json(Path(secret).resolve())
    try:
        job = layout.read_job(place)
        given = {str(key): str(value) for key, value in variables.items()} if isinstance(variables, dict) else {}
        carry_out(place, job, aws.secret_values(given, job.environment.region))
    except (Refused, ValueError) as e:
        print(f"trn: {e}", file=sys.stderr)
        sys.exit(64)
    except (Failed, OSError) as e:
        print(f"trn: {e}", file=sys.stderr)
        sys.exit(75)


# --- what nobody fetches: without it, a job is refused before Trainium nodes are paid for -----------------------------------------------


def modules(here: Here, names: Sequence[str], fix: str) -> None:
    """Refuse a job where Python does not find a module."""
    if absent := here.absent_modules(names):
        raise Refused(f"the nodes' Python has no {absent}. {fix}")


def tools(here: Here, names: Sequence[str], fix: str) -> None:
    """Refuse a job where there is no such program."""
    for name in names:
        if not shutil.which(name, path=here.variables.get("PATH")):
            raise Refused(f"there is no {name} here. {fix}")


def files(_here: Here, folder: str, pattern: str, count: int, fix: str, says: str = "") -> None:
    """Refuse a job where a folder, with those right below it, has fewer files. `says`: all of the message; then the folder must be there too."""
    place = Path(folder)
    if not place.is_dir():
        if says:
            raise Refused(says)
        return  # not visible from here, or fetched later
    found = [one for below in (place, *(f for f in place.iterdir() if f.is_dir())) for one in below.iterdir()]
    there = sum(fnmatch.fnmatchcase(one.name, pattern) for one in found)
    if there < count:
        raise Refused(says or f"{folder} has {there} files {pattern}, and the job needs {count}. {fix}")


__all__ = ["Failed", "NotFetched", "Refused", "carry_out", "check", "main"]
