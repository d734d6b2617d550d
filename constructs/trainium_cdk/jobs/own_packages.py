"""The packages that a job of the user's own brings (`--requirements`): whether a cluster can have them, and the lines of `prepare` that make
their environment (`runner.prepare.requirements`). Pure but for `offer`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import projects, quote
from trainium_cdk.jobs.packages import python_on
from trainium_cdk.requirements import Line, RequirementError, Requirements, of_lines, read
from trainium_cdk.runner.prepare.layer import FRAMEWORK

if TYPE_CHECKING:
    from trainium_cdk.catalog import Framework, NeuronRelease
    from trainium_cdk.jobs.archive import Workdir
    from trainium_cdk.jobs.plan import Plan
    from trainium_cdk.outputs import ClusterOutputs

CODE = "./code"
"""The folder of the code, from the job's directory."""


def given(value: Any) -> Requirements | None:
    """Requirements as a job takes them: the path of a requirements file, a pyproject.toml or a uv.lock, or lines.

    Raises:
        RequirementError: see `requirements.read` and `projects.read`.
    """
    if value is None or isinstance(value, Requirements):
        return value
    if isinstance(value, list | tuple):
        return of_lines([str(line) for line in value])
    if Path(value).name in projects.FILES:
        return projects.read(Path(value))
    return read(value)


def check_code(requirements: Requirements, workdir: Workdir | None, variables: Mapping[str, str]) -> None:
    """Check that a job sends what its requirements name, files and variables.

    Raises:
        RequirementError: it does not.
    """
    for name, at in requirements.variables.items():
        if not variables.get(name):
            raise RequirementError(f"{at} needs the variable {name}", f"give it to the job: --env {name}")
    for line in requirements.paths:
        if workdir is None:
            raise RequirementError(
                f"{line.at}: {line.path} is on this machine, and only the script is sent",
                "give the folder of your code: --workdir DIR",
            )
        if not files_of(line.path, workdir):
            raise RequirementError(
                f"{line.at}: {line.path} is not in the workdir {workdir.folder}, or left out of it by its .gitignore or .trnignore",
                "put it there, or add it to .trnignore with ! in front of it",
            )


def check(requirements: Requirements, plan: Plan) -> None:
    """Check that a cluster can have them.

    Raises:
        JobError: it has no Python environment; a line replaces a part of it, or names a file that it does not have.
    """
    cluster, job = plan.cluster, plan.job
    if not cluster.containers and cluster.framework == "none":
        raise JobError(
            f"{cluster.stack} has no Python environment to add {requirements.file} to (framework: none). Deploy with another "
            "`bootstrap: {framework: ...}`, or submit without --requirements"
        )
    python = python_on(job.image, cluster)
    known, has = _versions(job.image, cluster)
    for line in (*requirements.lines, *requirements.constraints):
        if line.address.startswith(("/", "file:", "git+file:")):
            _on_cluster(line, cluster)
        if line.name not in FRAMEWORK or not _applies(line, python):
            continue
        if line.specifier is None:
            raise JobError(_replaces(line, f"{line.name} of its own", has, "Remove the line"))
        version = known.get(line.name)
        if version and not _admits(line, version):
            wants = f"{line.name}{line.specifier}"
            raise JobError(
                _replaces(
                    line, wants, f"{has} has {version}", f"Write {line.name} without a version, or remove the line"
                )
            )


def _replaces(line: Line, wants: str, has: str, fix: str) -> str:
    return f"{line.at} wants {wants}, but {has}, and {line.name} is never replaced: the driver and the compiler need this one. {fix}"


def _on_cluster(line: Line, cluster: ClusterOutputs) -> None:
    path = line.address.removeprefix("git+").removeprefix("file://")
    if not any(f"{path}/".startswith(f"{mount}/") for mount in cluster.mount_dirs):
        places = " or ".join(f"{mount}/..." for mount in cluster.mount_dirs)
        raise JobError(
            f"{line.at}: {path[:100]} is not on the cluster's shared file system. Put it into the folder of your code (--workdir), or on {places} "
            "(trn cp)"
        )


def _versions(image: str | None, cluster: ClusterOutputs) -> tuple[dict[str, str], str]:
    """The versions of the framework that are known of a cluster or an image, of PyTorch's the first two numbers, and what has them."""
    from trainium_cdk.catalog import Catalog

    catalog, name = Catalog.load(), cluster.framework
    sdk: str | None = cluster.neuron_release
    has = f"the environment of {cluster.stack}"
    if cluster.containers:
        used = image or cluster.image
        of_image, sdk, has = catalog.images.get(used), Catalog.sdk_of(used), f"the image {used}"
        name = of_image.framework if of_image else "none"
    release: NeuronRelease | None = catalog.releases.get(sdk or "")
    if release is None and sdk:  # of an image: PyTorch is that of the release's first two numbers
        alike = (r for version, r in catalog.releases.items() if version.split(".")[:2] == sdk.split(".")[:2])
        release = next(alike, None)
    framework: Framework | None = (
        next((f for n, f in release.frameworks.items() if n == name), None) if release else None
    )
    if release is None or framework is None:
        return {}, has
    torch = ".".join(framework.version.split(".")[:2])
    known = {"torch": torch, **({"torch-xla": torch} if name == "torch-xla" else {})}
    if release.version == sdk:
        required = dict(pin.split("==") for pin in framework.requires)
        known |= {framework.package: framework.version, "neuronx-cc": release.compiler, **required}
    return known, has


def _admits(line: Line, version: str) -> bool:
    """Whether a line is content with a version; of two numbers, with one of those that begin with them."""
    from packaging.specifiers import SpecifierSet

    every = [f"{version}.{i}" for i in range(10)] if version.count(".") == 1 else [version]
    specifier = SpecifierSet(
        re.sub(r"\+[A-Za-z0-9.]+", "", str(line.specifier))
    )  # a build of a version is decided where it is installed
    return any(specifier.contains(one, prereleases=True) for one in every)


def _applies(line: Line, python: str) -> bool:
    """Whether a line installs anything on the nodes. With an unknown Python, pip decides there."""
    if line.marker is None:
        return True
    if not python and "python" in str(line.marker):
        return False
    full = f"{python or '3.12'}.0"
    return line.marker.evaluate(
        {
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "platform_machine": "x86_64",
            "extra": "",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "python_version": python or "3.12",
            "python_full_version": full,
            "implementation_version": full,
        }
    )


def files_of(path: str, workdir: Workdir) -> list[str]:
    """What a path of the workdir has, each file with its digest."""
    return [
        f"{one.name} {one.kind} {one.digest}"
        for one in workdir.entries
        if path == "." or one.name == path or one.name.startswith(f"{path}/")
    ]


def tools(requirements: Requirements) -> str:
    """Programs that pip needs to fetch them."""
    return "git" if any("git+" in line.address for line in requirements.lines) else ""


def describe(requirements: Requirements, job_image: str | None, cluster: ClusterOutputs) -> str:
    """For the user, before the job runs: what `prepare` installs, and on what."""
    python = python_on(job_image, cluster)
    on = "the image" if cluster.containers else f"Neuron SDK {cluster.neuron_release}"
    names = [line.text.partition(" --")[0] for line in requirements.packages]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    own = f"; not {' and '.join(requirements.left_out)}, as the nodes have their own" if requirements.left_out else ""
    return (
        f"packages of {requirements.file}, on top of {on}{f' with Python {python}' if python else ''}: {', '.join(names[:5])}{more}{own} "
        f"(installed once in {cluster.shared_dir}; trn environments)"
    )


def offer(workdir: Workdir) -> str:
    """What to do about the packages that a folder of code names, and a job without --requirements does not get; empty if it names none."""
    import tomllib

    names, folder = {entry.name for entry in workdir.entries}, workdir.folder
    found = next((name for name in ("requirements.txt", "uv.lock", "pyproject.toml") if name in names), None)
    if found == "pyproject.toml":
        try:
            project = tomllib.loads((folder / found).read_text("utf-8")).get("project")
        except (OSError, ValueError):
            return ""
        if not isinstance(project, dict) or not project.get("dependencies"):
            return ""
    if found is None:
        return ""
    return f"the packages of {found} are not installed. To install them, submit with {quote.printed('--requirements', folder / found)}"
