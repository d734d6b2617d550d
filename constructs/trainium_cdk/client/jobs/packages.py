"""The packages of a job on top of the framework, and the check that a cluster can have them. `prepare` makes a virtual environment of these packages alone
(`runner.prepare.packages`). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from trainium_cdk.client.jobs import advice
from trainium_cdk.errors import JobError
from trainium_cdk.text import join_words

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import ClusterOutputs


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
                f"{advice.deploy(job, cluster)}"
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
        fix = "Use another image" if cluster.containers else advice.deploy(job, cluster)
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
