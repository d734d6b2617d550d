"""Advice for the environment file: values with which a kind of job runs on a cluster's nodes. The catalogue decides, so it works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from trainium_cdk.description import engines

if TYPE_CHECKING:
    from trainium_cdk.description.catalog import Catalog, Stack
    from trainium_cdk.description.outputs import ClusterOutputs, Fleet


class Needs(Protocol):
    """The fields of a job that the advice reads: the needs of its kind."""

    FRAMEWORKS: ClassVar[tuple[str, ...]]
    RELEASES: ClassVar[tuple[str, str]]
    FAMILIES: ClassVar[tuple[str, ...]]
    PACKAGES: ClassVar[Any]


def deploy(kind: Needs, cluster: ClusterOutputs) -> str:
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


def others(cluster: ClusterOutputs, instance_type: str) -> str:
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
