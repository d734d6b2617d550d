"""AWS PCS: versions, names, counts, Slurm settings, access to AWS."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.catalog.models import PcsSizeName, numbers
from trainium_cdk.description.catalog.slurm import check_line, check_together, release_of
from trainium_cdk.description.checks.cluster_configuration import slurm_problem
from trainium_cdk.description.checks.network import missing_endpoints, missing_s3_endpoint
from trainium_cdk.description.checks.rule import Rules, error, info, join_words, near
from trainium_cdk.description.settings import Environment, PcsQueue, PcsResource, Problem
from trainium_cdk.description.settings.slurm import group_name
from trainium_cdk.errors import similar
from trainium_cdk.problems import KeyPath

LOGIN = "login"
"""Name of the login node's group."""
SHORTEST = 3
"""Characters that the name of a queue or node group has at least (PCS API reference)."""

RULES = Rules()


@RULES.refuse("catalogue, pcs: AWS's images; catalogue, neuron: systems of its packages")
def system_without_image(env: Environment) -> Iterator[Problem]:
    known, images, p = env.catalog.parallelcluster.operating_systems, env.catalog.pcs.images, env.pcs
    if p.os not in known:
        yield error(("pcs", "os"), "Neuron cannot be installed on this operating system", f"write {near(p.os, images)}")
    elif p.os not in images and not p.custom_ami:
        yield error(
            ("pcs", "os"),
            f"AWS publishes no PCS-ready image of it, only of {join_words(images)}",
            f"write {join_words(images, 'or')}, or give pcs.custom_ami: an image with PCS's agent",
        )


@RULES.refuse("PCS user guide, slurm-versions: what new clusters may have")
def slurm_version_not_offered(env: Environment) -> Iterator[Problem]:
    facts, version = env.catalog.pcs, env.pcs.version
    if version is not None and version not in facts.versions:
        yield error(
            ("pcs", "version"), "PCS creates no cluster with this Slurm", f"write {join_words(facts.versions, 'or')}"
        )


@RULES.refuse("PCS API, CreateComputeNodeGroup: 3 to 25 characters, each name once")
def repeated_node_group_name(env: Environment) -> Iterator[Problem]:
    limit, seen = env.catalog.pcs.limits.name, {LOGIN: "the login node"}
    for i, queue in enumerate(env.pcs.queues):
        if len(queue.name) < SHORTEST:
            key: KeyPath = ("pcs", "queues", i, "name")
            yield error(
                key, f"it has {len(queue.name)} characters, PCS needs {SHORTEST}", f"write {queue.name:q<{SHORTEST}}"
            )
    for cpu in env.pcs.cpu_queues:
        if len(cpu.name) < SHORTEST or cpu.name in seen:
            fix = f"write another name of at least {SHORTEST} characters"
            yield error(("pcs", "cpu_queue", "name"), "PCS cannot have a node group of this name", fix)
        seen[cpu.name] = "the CPU queue"
    for at, queue, resource in _resources(env):
        name, key = group_name(queue, resource), (*at, "name")
        if len(name) > limit:
            reason = f"its node group is named {name}: {len(name)} characters, and PCS accepts {limit}"
            yield error(key, reason, "shorten the name of the queue or of the compute resource")
        elif other := seen.get(name):
            yield error(key, f"its node group would be named {name}, as the group of {other} is", "choose another name")
        seen.setdefault(name, f"{queue.name}/{resource.name}")


@RULES.refuse("PCS user guide, service-endpoints-quotas: node groups and queues of a cluster")
def node_group_limits(env: Environment) -> Iterator[Problem]:
    limits, groups = env.catalog.pcs.limits, [r for _, _, r in _resources(env)]
    key = ("pcs", "queues")
    cpu = len(env.pcs.cpu_queues)
    count = len(env.pcs.queues) + cpu
    with_cpu, without = (" with the CPU queue", "write cpu_queue: null, ") if cpu else ("", "")
    if count > limits.queues:
        reason = f"a cluster has at most {limits.queues} queues, and here are {count}{with_cpu}"
        yield error(key, reason, f"{without}remove queues, or use a second environment", value=count)
    if len(groups) + cpu + 1 > limits.compute_node_groups:
        reason = (
            f"a cluster has at most {limits.compute_node_groups} node groups: one for the login node and, here, "
            f"{len(groups)} for compute resources{', one for the CPU queue' if cpu else ''}"
        )
        yield error(key, reason, f"{without}remove compute resources, or use a second environment", value=len(groups))


@RULES.refuse("PCS API, CreateCluster: instances of a size")
def cluster_size_exceeded(env: Environment) -> Iterator[Problem]:
    sizes, p = env.catalog.pcs.sizes, env.pcs
    nodes = sum(r.max_nodes for _, _, r in _resources(env)) + sum(q.max_nodes for q in p.cpu_queues) + 1
    if nodes <= sizes[p.size].nodes:
        return
    larger: list[PcsSizeName] = [name for name, size in sizes.items() if size.nodes >= nodes]
    fix = f"write size: {larger[0]}, or lower max_nodes" if larger else "lower max_nodes, or use several environments"
    if p.cpu_queues:
        fix += ", or write cpu_queue: null"
    reason = f"it has at most {sizes[p.size].nodes:,} nodes, and this cluster up to {nodes:,}, the login node{' and the CPU queue' if p.cpu_queues else ''} included"
    yield error(("pcs", "size"), reason, fix)


@RULES.refuse("catalogue, pcs: parameters and values that PCS takes")
def slurm_setting_of_pcs(env: Environment) -> Iterator[Problem]:
    known, version = env.catalog.pcs.cluster_settings, release_of(env.pcs.version or env.catalog.pcs.default)
    given, at = env.pcs.slurm_settings, ("pcs", "slurm_settings")
    for name, value in given.items():
        line = {name: value}
        if name not in known:
            close = similar(name, known)
            fix = f"remove it{f', or write {close}' if close else ''}; PCS's user guide lists what it supports"
            yield error(("pcs", "slurm_settings", name), "PCS does not let a cluster set this", fix)
        elif wrong := check_line(version, line) or next(
            check_together(version, given, line, accounting=env.pcs.accounting), None
        ):
            yield slurm_problem(at, wrong, line)
        elif (only := env.catalog.pcs.setting_values.get(name)) and str(value) not in only:
            yield error(
                (*at, name),
                "PCS does not take this value, and creates no cluster with it",
                f"write {join_words(only, 'or')}",
            )
        elif options := _newer_options(env, name, str(value), version):
            reason = f"Slurm {version} does not have {join_words(options)}"
            yield error(
                ("pcs", "slurm_settings", name), reason, f"remove {join_words(options)}, or write a newer pcs.version"
            )


def _newer_options(env: Environment, name: str, value: str, version: str) -> list[str]:
    """Options in the value of a parameter that only newer Slurm releases have."""
    since = env.catalog.pcs.options_since.get(name, {})
    return [o for o in value.split(",") if o in since and numbers(version) < numbers(since[o])]


@RULES.refuse("catalogue, pcs: endpoints; stack: the node script ends without Neuron's repositories")
def pcs_nodes_without_aws(env: Environment) -> Iterator[Problem]:
    network, p = env.network, env.pcs
    yield from missing_endpoints(env, env.catalog.pcs.endpoints, engine="pcs")
    yield from missing_s3_endpoint(env, engine="pcs")
    if not network.reaches_internet and not p.custom_ami:
        reason = "without access to the internet nodes cannot install Neuron, and AWS's image does not contain it"
        yield error(("pcs", "custom_ami"), reason, "give an image that contains Neuron and PCS's agent")


@RULES.add
def undocumented_capacity_blocks(env: Environment) -> Iterator[Problem]:
    for i, queue in enumerate(env.pcs.queues):
        if queue.capacity_type == "capacity-block":
            yield info(
                ("pcs", "queues", i, "capacity_type"),
                "PCS's user guide names only P types for capacity blocks; others have run Trainium on one, without AWS's support for it",
                "try it with one node, or use TrnPclusterStack or TrnEksStack for a block",
            )


def _resources(env: Environment) -> Iterator[tuple[KeyPath, PcsQueue, PcsResource]]:
    for i, queue in enumerate(env.pcs.queues):
        for j, resource in enumerate(queue.compute_resources):
            yield ("pcs", "queues", i, "compute_resources", j), queue, resource
