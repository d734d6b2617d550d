"""The packages that a job of the user's own brings (`--requirements`): what it must send for them, and the lines that describe them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainium_cdk.client.jobs import quote
from trainium_cdk.client.jobs.packages import python_on
from trainium_cdk.description.requirements import Requirements, read
from trainium_cdk.errors import JobError, RequirementError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.archive import Workdir
    from trainium_cdk.description.outputs import ClusterOutputs


def given(value: Any) -> Requirements | None:
    """Requirements as a job takes them: the path of a file, or lines. Raises RequirementError: see `requirements.read`."""
    return value if value is None or isinstance(value, Requirements) else read(value)


def check_code(requirements: Requirements, workdir: Workdir | None, variables: Mapping[str, str]) -> None:
    """Check that a job sends what its requirements name, files and variables. Raises RequirementError: it does not."""
    for name in requirements.variables:
        if not variables.get(name):
            raise RequirementError(
                f"{requirements.file} needs the variable {name}", f"give it to the job: --env {name}"
            )
    for path in requirements.paths:
        if workdir is None or not files_of(path, workdir):
            raise RequirementError(
                f"{requirements.file} names {path}, which is not sent",
                "give the folder of your code that has it (--workdir DIR); its .gitignore and .trnignore leave files out",
            )


def check(cluster: ClusterOutputs, file: str) -> None:
    """Check that a cluster has packages to add them to. Raises JobError: it has none."""
    if not cluster.containers and cluster.framework == "none":
        raise JobError(
            f"{cluster.stack} installs no packages to add {file} to (framework: none). Deploy with another "
            "`bootstrap: {framework: ...}`, or submit without --requirements"
        )


def files_of(path: str, workdir: Workdir) -> list[str]:
    """List the files at a path of the workdir, each with its kind and digest."""
    return [
        f"{one.name} {one.kind} {one.digest}"
        for one in workdir.entries
        if path == "." or one.name == path or one.name.startswith(f"{path}/")
    ]


def describe(requirements: Requirements, job_image: str | None, cluster: ClusterOutputs) -> str:
    """Describe the packages that `prepare` installs, and their base, for the user, before the job runs."""
    python = python_on(job_image, cluster)
    on = "the image" if cluster.containers else f"Neuron SDK {cluster.neuron_release}"
    names = [line.partition(" --")[0] for line in requirements.lines if not line.startswith("-")]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (
        f"packages of {requirements.file}, on top of {on}{f' with Python {python}' if python else ''}: {', '.join(names[:5])}{more} "
        f"(installed once in {cluster.shared_dir})"
    )


def offer(workdir: Workdir) -> str:
    """Describe how to install the packages that a folder of code names, for a job without --requirements; empty if it names none."""
    names, folder = {entry.name for entry in workdir.entries}, workdir.folder
    found = next((name for name in ("requirements.txt", "uv.lock", "pyproject.toml") if name in names), None)
    if found == "pyproject.toml":
        try:
            found = found if tomllib.loads((folder / found).read_text("utf-8"))["project"]["dependencies"] else None
        except (OSError, ValueError, LookupError, TypeError):
            found = None
    if found is None:
        return ""
    return f"the packages of {found} are not installed. To install them, submit with {quote.printed('--requirements', folder / found)}"
