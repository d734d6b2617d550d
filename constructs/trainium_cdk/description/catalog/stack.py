"""Compatibility of versions: one rule for the checks, the defaults and the submission of jobs.

>>> from trainium_cdk.description.catalog import Catalog, Stack, evaluate, nearest
>>> catalog = Catalog.load()
>>> jammy = Stack.slurm(catalog, ("trn1",), release="2.30.0", framework="torch-xla", system="ubuntu2204")
>>> evaluate(catalog, jammy).reason
'torch-neuronx 2.9.0.2.14.27725 of Neuron 2.30.0 has wheels for Python 3.11, 3.12 and 3.13; ubuntu2204 has 3.10'
>>> nearest(catalog, jammy).release
'2.28.1'
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

from trainium_cdk.description.catalog.lookup import Catalog
from trainium_cdk.description.catalog.models import Framework, FrameworkName, NeuronRelease, Statement, numbers
from trainium_cdk.text import join_words

Part = Literal["release", "framework", "system", "ami", "version"]
FrameworkChoice = FrameworkName | Literal["none"]
NODE_SYSTEM = "al2023"
"""The operating system of EKS nodes. Only the driver runs on it, everything else runs in the container."""


@dataclass(frozen=True)
class Stack:
    """The versions that a job uses on its nodes.

    Attributes:
        engine: name of the engine.
        families: instance families of the nodes, for example trn1.
        release: Neuron SDK release of the packages that jobs load: runtime, collectives, compiler, framework.
        framework: torch-xla, torch-native, jax, or none if no framework is installed.
        system: operating system of the nodes.
        driver: version of aws-neuronx-dkms on the nodes; None = not known.
        runtime: version of the Neuron runtime that jobs load.
        version: version of ParallelCluster, or of Kubernetes (for example 1.36); None = the catalogue's default.
        ami: release date of the EKS node image; None = the one that is chosen (see `best_ami`), or another image.
    """

    engine: str
    families: tuple[str, ...]
    release: str
    framework: FrameworkChoice
    system: str
    driver: str | None
    runtime: str
    version: str | None = None
    ami: str | None = None

    @property
    def installed(self) -> bool:
        """True if the release's packages are installed on the nodes' system. Otherwise jobs bring them in a container image."""
        return self.system != NODE_SYSTEM

    @classmethod
    def slurm(
        cls,
        catalog: Catalog,
        families: Iterable[str],
        *,
        release: str,
        framework: FrameworkChoice,
        system: str,
        version: str | None = None,
    ) -> "Stack":
        """Slurm nodes: the driver and the runtime are both the release's.

        Raises:
            UnknownCatalogEntry: the release is not in the catalogue.
        """
        known = catalog.release(release)
        return cls("slurm", tuple(families), release, framework, system, known.dkms, known.runtime, version)

    @classmethod
    def eks(
        cls,
        catalog: Catalog,
        families: Iterable[str],
        *,
        release: str,
        framework: FrameworkChoice,
        version: str | None = None,
        ami: str | None = None,
        image: str | None = None,
        custom_ami: bool = False,
    ) -> "Stack":
        """EKS nodes: the driver is the node image's, or the release's where nodes install it; the runtime is the
        container image.

        Args:
            ami: None = the newest known image whose driver is compatible; if there is none, nodes install the release's driver,
                unless it is older than every known image's: then EKS's newest image is used, with its driver.
            image: container image. If it is not given, or its runtime is not known, the release's runtime is assumed.
            custom_ami: the nodes use the user's own image, whose driver is not known.

        Raises:
            UnknownCatalogEntry: the release is not in the catalogue.
        """
        known = catalog.release(release)
        image = image or catalog.container(known, framework)
        runtime = (catalog.runtime_of(image) if image else None) or known.runtime
        amis, driver = catalog.amis(version or catalog.eks.default), None
        if not custom_ami and ami is None:
            best = best_ami(catalog, release=release, version=version or catalog.eks.default)
            installed = boot_driver(catalog, release=release, version=version or catalog.eks.default)
            driver = amis[best].driver if best else installed or _newest_driver(catalog)
        elif not custom_ami and ami in amis:
            driver = amis[ami].driver
        return cls("eks", tuple(families), release, framework, NODE_SYSTEM, driver, runtime, version, ami)


@dataclass(frozen=True)
class Verdict:
    """The result of the rule for a stack.

    Attributes:
        level: `works`; `unsupported`: it runs, but AWS no longer supports it; `cannot`: it cannot run.
        reason: why it cannot run, in one clause; empty if it runs.
        part: the part of the stack that the reason or the statement is about.
        statement: what AWS has published about it: an end of support, or advice.
    """

    level: Literal["works", "unsupported", "cannot"]
    reason: str = ""
    part: Part = "release"
    statement: Statement | None = None

    def __bool__(self) -> bool:
        return self.level != "cannot"


@lru_cache(maxsize=4096)
def evaluate(catalog: Catalog, stack: Stack) -> Verdict:
    """Judge whether the versions of a stack are compatible.

    Raises:
        UnknownCatalogEntry: the release is not in the catalogue.
    """
    release = catalog.release(stack.release)
    for part, reason in _obstacles(catalog, stack, release):
        return Verdict("cannot", reason, part)
    statements = sorted(_statements(catalog, stack, release), key=lambda s: s[1].supported)
    for part, statement in statements:
        return Verdict("works" if statement.supported else "unsupported", part=part, statement=statement)
    return Verdict("works")


def python_of(catalog: Catalog, framework: Framework, system: str) -> str | None:
    """The Python version of an operating system's own repositories that a framework has wheels for; None if there is
    none."""
    own = catalog.parallelcluster.operating_systems[system].pythons
    return next((p for p in own if not framework.pythons or p in framework.pythons), None)


@lru_cache(maxsize=1024)
def nearest(catalog: Catalog, stack: Stack) -> Stack | None:
    """The working stack for the same engine, families and engine version that differs least; None if none works.

    Order: supported by AWS, then the fewest changes, then the nearest release, then the newer one.
    """
    order = sorted(catalog.releases, key=numbers)
    systems = list(catalog.parallelcluster.operating_systems)
    at = order.index(stack.release)

    def distance(other: Stack) -> tuple[object, ...]:
        verdict = evaluate(catalog, other)
        changed = [p for p in ("framework", "release", "system", "ami") if getattr(other, p) != getattr(stack, p)]
        steps = abs(order.index(other.release) - at)
        return (
            verdict.level != "works",
            verdict.statement is not None,
            len(changed),
            "framework" in changed,
            systems.index(other.system) if other.system in systems else 0,
            steps,
            -order.index(other.release),
            -int(other.ami or 0),
        )

    return min((s for s in alternatives(catalog, stack) if evaluate(catalog, s)), key=distance, default=None)


def alternatives(catalog: Catalog, stack: Stack) -> Iterator[Stack]:
    """Every stack of the catalogue for the same engine, families and engine version. It has a framework if `stack` has
    one: JAX, or a PyTorch. A program in one of them does not run in the other."""
    for release in catalog.releases.values():
        if release.only_named and release.version != stack.release:
            continue
        frameworks: Iterable[FrameworkChoice] = ("none",) if stack.framework == "none" else release.frameworks
        for framework in frameworks:
            if (framework == "jax") is not (stack.framework == "jax"):
                continue
            make = partial(
                Stack.slurm if stack.installed else Stack.eks,
                catalog,
                stack.families,
                release=release.version,
                framework=framework,
                version=stack.version,
            )
            if stack.installed:
                yield from (make(system=system) for system in catalog.parallelcluster.operating_systems)
            else:
                yield from (make(ami=ami) for ami in (*catalog.amis(stack.version or catalog.eks.default), None))


@dataclass(frozen=True)
class Need:
    """Requirements of one engine for a release.

    Attributes:
        system: operating system that the release's packages are installed on; empty where jobs bring them in a container image.
        version: version of ParallelCluster or Kubernetes.
        custom_ami: EKS nodes have an image of the user's own, with a driver that is not known.
    """

    engine: str
    families: tuple[str, ...]
    system: str = ""
    version: str | None = None
    custom_ami: bool = False


@lru_cache(maxsize=1024)
def choose(
    catalog: Catalog,
    needs: tuple[Need, ...],
    *,
    release: str | None = None,
    framework: FrameworkChoice | None = None,
) -> tuple[str, FrameworkChoice]:
    """The best release and framework for nodes that satisfy all needs. A value that is given is kept.

    Order: the framework that AWS recommends for all of the families, supported by AWS, no advice against it, the release that it
    recommends, one with a training image of JAX where jobs of JAX need one, then the newest. If nothing works, one that at least trains on
    the families is returned, the recommended or the default one if possible, and the checks report what does not fit.
    """
    if release is not None and framework is not None:
        return release, framework
    framework_choices: tuple[FrameworkChoice, ...] = (framework,) if framework else ("torch-xla", "torch-native")
    recommended = [catalog.recommended(family) for family in {f for need in needs for f in need.families}]
    candidates: list[tuple[tuple[object, ...], str, FrameworkChoice]] = []
    for known in catalog.releases.values():
        if known.only_named and release is None:
            continue
        for kind in framework_choices:
            if release not in (None, known.version) or (kind != "none" and kind not in known.frameworks):
                continue
            verdicts = [evaluate(catalog, _stack(catalog, need, known.version, kind)) for need in needs]
            wrong = {v.part for v in verdicts if not v}
            unfit = bool(wrong & {"framework", "release"})  # worse than a system that can be changed
            rank = (
                unfit,
                bool(wrong),
                kind != "none" and any(r and r.framework != kind for r in recommended),
                any(v.level == "unsupported" for v in verdicts),
                any(v.statement for v in verdicts),
                kind != "none" and any(r and (r.framework, r.release) != (kind, known.version) for r in recommended),
                kind == "jax" and any(not n.system for n in needs) and not catalog.container(known, kind),
                (bool(wrong) or kind == "none") and known.version != catalog.default_release,
                tuple(-n for n in numbers(known.version)),
            )
            candidates.append((rank, known.version, kind))
    if candidates:
        _, version, kind = min(candidates)
        return version, kind
    return release or catalog.default_release, framework or "torch-xla"


def driver_fits(catalog: Catalog, driver: str, release: str, runtime: str | None = None) -> bool:
    """Return whether a driver is compatible with a release's runtime, and not older than AWS requires for this runtime.

    Args:
        runtime: runtime in an image for the release. Default: the release's.

    Raises:
        UnknownCatalogEntry: the release is not in the catalogue.
    """
    known = catalog.release(release)
    stack = Stack("eks", (), release, "none", NODE_SYSTEM, driver, runtime or known.runtime, ami="known")
    return not any(_driver_obstacles(catalog, stack)) and not _older_driver(stack, known)


@lru_cache(maxsize=1024)
def best_ami(catalog: Catalog, *, release: str, version: str) -> str | None:
    """Date of the newest known EKS node image whose driver is compatible with the release's training image.

    None if there is none, for example for a release that is newer than every known node image. Nodes then install the
    release's own driver when they start.
    """
    known = catalog.release(release)
    runtime = (catalog.runtime_of(known.container) if known.container else None) or known.runtime
    return next(
        (date for date, ami in catalog.amis(version).items() if driver_fits(catalog, ami.driver, release, runtime)),
        None,
    )


@lru_cache(maxsize=1024)
def boot_driver(catalog: Catalog, *, release: str, version: str) -> str | None:
    """The driver that EKS nodes install when they start: the release's, where no known node image has a compatible one.

    None: an image has one, or the release's driver is older than every known image's, so that it may not build on them.
    """
    wanted, newest = catalog.release(release).dkms, _newest_driver(catalog)
    older = newest is not None and numbers(wanted) < numbers(newest)
    return None if older or best_ami(catalog, release=release, version=version) else wanted


def _newest_driver(catalog: Catalog) -> str | None:
    drivers = (ami.driver for of in catalog.eks.amis.values() for ami in of.values())
    return max(drivers, key=numbers, default=None)


def _stack(catalog: Catalog, need: Need, release: str, framework: FrameworkChoice) -> Stack:
    if need.system:
        return Stack.slurm(
            catalog, need.families, release=release, framework=framework, system=need.system, version=need.version
        )
    return Stack.eks(
        catalog,
        need.families,
        release=release,
        framework=framework,
        version=need.version,
        custom_ami=need.custom_ami,
    )


def _obstacles(catalog: Catalog, stack: Stack, release: NeuronRelease) -> Iterator[tuple[Part, str]]:
    systems = catalog.parallelcluster.operating_systems
    if stack.installed and stack.system not in systems:
        yield "system", f"Neuron on ParallelCluster nodes needs {join_words(systems, 'or')}, not {stack.system}"
        return
    if stack.framework == "none":
        if wrong := sorted(set(stack.families) - set(release.families)) if release.families else []:
            yield "release", f"the driver of Neuron {release.version} does not support {join_words(wrong)}"
    else:
        framework = release.frameworks.get(stack.framework)
        if framework is None:
            yield "framework", f"Neuron {release.version} has no {stack.framework} for training"
            return
        if wrong := sorted(set(stack.families) - set(framework.families)):
            only = join_words(framework.families)
            yield (
                "framework",
                f"{stack.framework} of Neuron {release.version} does not support training on {join_words(wrong)}, only on {only}",
            )
        if stack.installed:
            yield from _on_system(catalog, stack, release, framework)
    yield from _driver_obstacles(catalog, stack)


def _on_system(
    catalog: Catalog, stack: Stack, release: NeuronRelease, framework: Framework
) -> Iterator[tuple[Part, str]]:
    system = catalog.parallelcluster.operating_systems[stack.system]
    what = f"{framework.package} {framework.version} of Neuron {release.version}"
    if framework.glibc and numbers(system.glibc) < numbers(framework.glibc):
        yield "system", f"{what} needs glibc {framework.glibc} or newer; {stack.system} has {system.glibc}"
    if framework.systems and stack.system not in framework.systems:
        yield "system", f"{what} is for {join_words(framework.systems, 'or')}, not for {stack.system}"
    if python_of(catalog, framework, stack.system) is None:
        wheels, own = join_words(framework.pythons), join_words(system.pythons)
        yield "system", f"{what} has wheels for Python {wheels}; {stack.system} has {own}"


def _driver_obstacles(catalog: Catalog, stack: Stack) -> Iterator[tuple[Part, str]]:
    driver = stack.driver
    for rule in catalog.incompatible:
        if driver and driver in rule.driver and stack.runtime in rule.runtime:
            newer = " or newer (EKS's newest node image)" if not stack.installed and stack.ami is None else ""
            yield "ami", f"driver {driver}{newer} and runtime {stack.runtime} are not compatible: {rule}"


def _older_driver(stack: Stack, release: NeuronRelease) -> bool:
    if stack.driver is None or stack.runtime != release.runtime:
        return False
    return numbers(stack.driver) < numbers(release.dkms)


def _statements(catalog: Catalog, stack: Stack, release: NeuronRelease) -> Iterator[tuple[Part, Statement]]:
    if _older_driver(stack, release):
        yield "ami", catalog.older_driver
    for notice in catalog.notices:
        if stack.framework == notice.framework and stack.release in notice.releases:
            yield "framework", notice
