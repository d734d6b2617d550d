"""The packages of a job on top of the framework, and the check that a cluster can have them. `prepare` makes a virtual environment of these packages alone
(`runner.prepare.packages`). Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from trainium_cdk.client.jobs import quote
from trainium_cdk.description import engines
from trainium_cdk.description.requirements import Requirements, read
from trainium_cdk.errors import JobError, RequirementError
from trainium_cdk.text import join_words

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.workdir import Workdir
    from trainium_cdk.description.catalog import Catalog, Stack
    from trainium_cdk.description.outputs import ClusterOutputs, Fleet


class JobWithPackages(Protocol):
    """The fields of a job that are read here."""

    PACKAGES: ClassVar[Packages | None]
    FAMILIES: ClassVar[tuple[str, ...]]
    FRAMEWORKS: ClassVar[tuple[str, ...]]
    RELEASES: ClassVar[tuple[str, str]]

    @property
    def kind(self) -> str: ...

    @property
    def image(self) -> str | None: ...


class Packages(NamedTuple):
    """The packages of a kind, at versions that go together. They are installed on top of the cluster's packages (Slurm) or the
    image's packages (Kubernetes). PyTorch, the compiler and the runtime are never replaced.

    Attributes:
        pins: requirements, as pip takes them.
        libraries: packages of the Neuron SDK, at the version of the cluster's release in the catalogue. An image of the user's own,
            or a release that the catalogue does not know, must have them.
        pythons: versions of Python that all of them have wheels for; empty: every one that the framework has.
        megabytes: disk space, without the framework; as measured.
        also: what else is installed, for the user to read; empty for nothing.
    """

    pins: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    megabytes: int = 0
    also: str = ""

    def describe(self) -> str:
        """Describe in one line the packages, and the Python versions that they need."""
        words = [*self.libraries, *self.pins, *([self.also] if self.also else [])]
        return ", ".join(words) + (f" (Python {join_words(self.pythons)})" if self.pythons else "")

    def requirements(self, job: JobWithPackages, cluster: ClusterOutputs) -> tuple[str, ...]:
        """The requirements on a cluster, libraries with their versions.

        Raises:
            JobError: the cluster's Neuron release has no such library.
        """
        from trainium_cdk.description.catalog import Catalog

        release = None if job.image else Catalog.load().releases.get(cluster.neuron_release)
        if release is None:
            return self.pins
        absent = [library for library in self.libraries if library not in release.libraries]
        if absent:
            raise JobError(
                f"{job.kind} needs {join_words(absent)}, which Neuron SDK {release.version} of {cluster.stack} does not have. "
                f"{how_to_deploy(job, cluster)}"
            )
        return (*(f"{library}=={release.libraries[library]}" for library in self.libraries), *self.pins)


def python_on(image: str | None, cluster: ClusterOutputs) -> str:
    """The Python of a cluster's packages, or of the image that a job uses; empty if it is not known."""
    from trainium_cdk.description.catalog import Catalog, python_of

    catalog = Catalog.load()
    if cluster.containers:
        known = catalog.images.get(image or cluster.image)
        return known.python if known else ""
    release = catalog.releases.get(cluster.neuron_release)
    frameworks = release.frameworks.items() if release else ()
    framework = next((found for name, found in frameworks if name == cluster.framework), None)
    if framework is None or cluster.os not in catalog.parallelcluster.operating_systems:
        return ""
    return python_of(catalog, framework, cluster.os) or ""


def check(job: JobWithPackages, cluster: ClusterOutputs) -> None:
    """Check that the packages of a job's kind exist for the cluster.

    Raises:
        JobError: they have no wheels for its Python, or its Neuron release does not have all of them.
    """
    packages = job.PACKAGES
    if packages is None:
        return
    python = python_on(job.image, cluster)
    if python and packages.pythons and python not in packages.pythons:
        where = f"the image {job.image or cluster.image}" if cluster.containers else cluster.stack
        fix = "Use another image" if cluster.containers else how_to_deploy(job, cluster)
        raise JobError(
            f"the packages of {job.kind} have wheels for Python {join_words(packages.pythons)}, and {where} has Python {python}. {fix}"
        )
    packages.requirements(job, cluster)


def describe(packages: Packages, job: JobWithPackages, cluster: ClusterOutputs) -> str:
    """Describe the packages that `prepare` installs, their base, and their size, for the user, before the job runs."""
    python = python_on(job.image, cluster)
    container = cluster.containers
    on = "the image" if container else f"Neuron SDK {cluster.neuron_release}"
    words = [*packages.requirements(job, cluster), *([packages.also] if packages.also else [])]
    size = f", about {packages.megabytes:,} MB" if packages.megabytes else ""
    return (
        f"own packages, on top of {on}{f' with Python {python}' if python else ''}: {', '.join(words)} (installed once in "
        f"{cluster.shared_dir}{size})"
    )


class Needs(Protocol):
    """The fields of a job that the advice reads: the needs of its kind."""

    FRAMEWORKS: ClassVar[tuple[str, ...]]
    RELEASES: ClassVar[tuple[str, str]]
    FAMILIES: ClassVar[tuple[str, ...]]
    PACKAGES: ClassVar[Any]


def how_to_deploy(kind: Needs, cluster: ClusterOutputs) -> str:
    """The sentence: `Deploy with` and the settings with which the kind runs on the cluster's instance types, supported by AWS where that is
    possible; or why no settings do."""
    from trainium_cdk.description.catalog import Catalog, evaluate

    catalog = Catalog.load()
    families = tuple(dict.fromkeys(f.family for f in cluster.fleets if f.devices))
    found = sorted(_stacks(kind, cluster, catalog, families), key=lambda stack: _rank(catalog, cluster, stack))
    if not found and (alone := [f for f in families if [*_stacks(kind, cluster, catalog, (f,))]]) and len(families) > 1:
        return f"No Neuron release supports it together with the other instance types. Describe {' and '.join(alone)} nodes in their own environment"
    if not found:
        return "No Neuron release of the catalogue runs it on these nodes"
    best = found[0]
    section = engines.get(cluster.engine).section
    words = f"Deploy with `bootstrap: {{framework: {best.framework}, neuron_release: {best.release}}}`"
    if best.installed and best.system != cluster.os:
        words += f" and `{section}: {{os: {best.system}}}`"
    if cluster.containers:
        words += ", without eks.ami_release"
    statement = evaluate(catalog, best).statement
    return f"{words} (AWS: {statement})" if statement else words


def other_kinds(cluster: ClusterOutputs, instance_type: str) -> str:
    """Describe a way without a change of the cluster: the kinds of job that AWS recommends for its nodes, or another kind."""
    from trainium_cdk.description.catalog import Catalog

    of = Catalog.load().recommended(instance_type)
    if of and (of.framework, of.release) == (cluster.framework, cluster.neuron_release):
        return f"submit what runs there ({', '.join(of.kinds)})"
    return "choose another kind of job (`trn submit --list --here` says which run)"


def with_efa(kind: Needs, cluster: ClusterOutputs, fleet: Fleet) -> str:
    """Describe nodes with EFA: the same nodes without `efa: off`, another queue, or an instance type with the same framework."""
    from trainium_cdk.description.catalog import Catalog

    known = Catalog.load()
    own, here = known.instances.get(fleet.instance_type), known.recommended(fleet.instance_type)
    if own and own.efa_interfaces:
        return ", or deploy its nodes without `efa: off`"
    if queues := [f.queue for f in cluster.fleets if f.efa and (not kind.FAMILIES or f.family in kind.FAMILIES)]:
        return f", or --queue {queues[0]}"
    frameworks = {name: of.framework for name in known.instances if (of := known.recommended(name))}
    able = [
        n for n, type in known.instances.items() if type.efa_interfaces and here and frameworks.get(n) == here.framework
    ]
    return f", or a queue of an instance type with EFA{f', for example {able[0]}' if able else ''}"


def _stacks(kind: Needs, cluster: ClusterOutputs, catalog: Catalog, families: tuple[str, ...]) -> Iterator[Stack]:
    """Every working combination of versions for the kind."""
    from trainium_cdk.description.catalog import Stack, evaluate, python_of
    from trainium_cdk.description.catalog.models import within

    packages = kind.PACKAGES
    pythons, libraries = (packages.pythons, packages.libraries) if packages else ((), ())
    for release in catalog.releases.values():
        if not within(release.version, *kind.RELEASES) or not {*libraries} <= {*release.libraries}:
            continue
        for name, framework in release.frameworks.items():
            if kind.FRAMEWORKS and name not in kind.FRAMEWORKS:
                continue
            if cluster.containers:
                image = catalog.images.get(catalog.container(release, name) or "")
                stack = Stack.eks(catalog, families, release=release.version, framework=name)
                stacks = [(stack, image.python if image else "")]
            else:
                stacks = [
                    (Stack.slurm(catalog, families, release=release.version, framework=name, system=system), python_of(catalog, framework, system) or "")
                    for system in catalog.parallelcluster.operating_systems
                ]  # fmt: skip
            for stack, python in stacks:
                if evaluate(catalog, stack) and not (pythons and python and python not in pythons):
                    yield stack


def _rank(catalog: Catalog, cluster: ClusterOutputs, stack: Stack) -> tuple[object, ...]:
    from trainium_cdk.description.catalog import evaluate
    from trainium_cdk.description.catalog.models import numbers

    verdict = evaluate(catalog, stack)
    recommended = [catalog.recommended(family) for family in stack.families]
    return (
        verdict.level != "works",
        verdict.statement is not None,
        any(r and (r.framework, r.release) != (stack.framework, stack.release) for r in recommended),
        stack.installed and stack.system != cluster.os,
        list(catalog.parallelcluster.operating_systems).index(stack.system) if stack.installed else 0,
        tuple(-n for n in numbers(stack.release)),
    )


def read_own(value: Any) -> Requirements | None:
    """Requirements as a job takes them: the path of a file, or lines. Raises RequirementError: see `requirements.read`."""
    return value if value is None or isinstance(value, Requirements) else read(value)


def check_sent(requirements: Requirements, workdir: Workdir | None, variables: Mapping[str, str]) -> None:
    """Check that a job sends what its requirements name, files and variables. Raises RequirementError: it does not."""
    for name in requirements.variables:
        if not variables.get(name):
            raise RequirementError(
                f"{requirements.file} needs the variable {name}", f"give it to the job: --env {name}"
            )
    for path in requirements.paths:
        if workdir is None or not files_at(path, workdir):
            raise RequirementError(
                f"{requirements.file} names {path}, which is not sent",
                "give the folder of your code that has it (--workdir DIR); its .gitignore and .trnignore leave files out",
            )


def check_own(cluster: ClusterOutputs, file: str) -> None:
    """Check that a cluster has packages to add them to. Raises JobError: it has none."""
    if not cluster.containers and cluster.framework == "none":
        raise JobError(
            f"{cluster.stack} installs no packages to add {file} to (framework: none). Deploy with another "
            "`bootstrap: {framework: ...}`, or submit without --requirements"
        )


def files_at(path: str, workdir: Workdir) -> list[str]:
    """List the files at a path of the workdir, each with its kind and digest."""
    return [
        f"{one.name} {one.kind} {one.digest}"
        for one in workdir.entries
        if path == "." or one.name == path or one.name.startswith(f"{path}/")
    ]


def describe_own(requirements: Requirements, job_image: str | None, cluster: ClusterOutputs) -> str:
    """Describe the packages that `prepare` installs, and their base, for the user, before the job runs."""
    python = python_on(job_image, cluster)
    on = "the image" if cluster.containers else f"Neuron SDK {cluster.neuron_release}"
    names = [line.partition(" --")[0] for line in requirements.lines if not line.startswith("-")]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (
        f"packages of {requirements.file}, on top of {on}{f' with Python {python}' if python else ''}: {', '.join(names[:5])}{more} "
        f"(installed once in {cluster.shared_dir})"
    )


def offer_own(workdir: Workdir) -> str:
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


class Upstream(NamedTuple):
    """The origin of the program that a kind runs.

    Attributes:
        repository: `owner/name` on GitHub; empty for a program of the Neuron SDK itself.
        commit: the pinned commit; empty if none is pinned.
        path: the file in the repository, or the program's name.
        note: for users: legacy, beta, not pinned.
    """

    repository: str
    commit: str
    path: str
    note: str = ""

    def __str__(self) -> str:
        where = f"{self.repository}@{self.commit[:12] or 'main'}: {self.path}" if self.repository else self.path
        return f"{where} ({self.note})" if self.note else where
