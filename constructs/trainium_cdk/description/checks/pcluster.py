"""ParallelCluster: versions, names, counts, tags, Slurm settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainium_cdk.description.catalog import Stack, evaluate
from trainium_cdk.description.catalog.models import numbers
from trainium_cdk.description.checks.cluster_configuration import rendered, slurm_faults, slurm_release
from trainium_cdk.description.checks.rule import Rules, duplicates, error, info, near, queues, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.pcluster import LOG_DAYS
from trainium_cdk.description.settings.reserved import PLACEMENT_GROUP_ID, is_group
from trainium_cdk.errors import UnknownCatalogEntry
from trainium_cdk.problems import KeyPath
from trainium_cdk.text import is_placeholder

STACKS = ("TrnPclusterStack", "TrnEksStack", "TrnPcsStack")
"""Names of our stacks. An environment that is not named `trn` adds `-<name>`."""
HOST_NAME = 63
"""Maximum length of a fully qualified host name. With a longer one the Neuron collectives fail to start."""
DATABASE_PORT = 3306
_NODE_LINES = ("nodename", "nodeset", "partitionname", "downnodes")  # slurm.conf lines of several parameters
_TAG = re.compile(r"([\w.:/=+\-@]|[^\S\t-\r\x1c-\x1f\x85])*")
"""Letters, digits, some signs and Unicode's spaces, without line breaks and tabs."""
_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc"}
"""Prefixes of regions' names, and their partitions; all others are in `aws`."""
RULES = Rules()


@RULES.refuse("catalogue, parallelcluster: oldest release with the configuration's keys")
def old_pcluster_version(env: Environment) -> Iterator[Problem]:
    facts, version = env.catalog.parallelcluster, env.pcluster.version
    if version is None:
        return
    if len(numbers(version)) != len(numbers(facts.default)):
        yield error(
            ("pcluster", "version"),
            "a release of ParallelCluster has three numbers",
            f"write {near(version, facts.releases)}",
        )
    elif numbers(version) < numbers(facts.oldest):
        yield error(
            ("pcluster", "version"),
            f"this configuration needs ParallelCluster {facts.oldest} or newer",
            f"write {facts.default}, or remove the key",
        )
    elif numbers(version) > numbers(facts.default):
        yield info(
            ("pcluster", "version"),
            f"the configuration was only checked with ParallelCluster {facts.default}",
            f"write {facts.default} for the version that was checked",
        )


@RULES.refuse("catalogue, parallelcluster: each has its own")
def release_advisory(env: Environment) -> Iterator[Problem]:
    facts, version = env.catalog.parallelcluster, env.parallelcluster_version
    for advisory in facts.advisories:
        used = {
            "": True,
            "login_nodes": env.pcluster.login_nodes is not None,
            "static_nodes": any(r.min_nodes for queue in env.pcluster.queues for r in queue.compute_resources),
        }
        if version in advisory.releases and used[advisory.feature]:
            level = error if advisory.level == "error" else warning
            reason = f"it has known problems: {advisory}"
            yield level(("pcluster", "version"), reason, advisory.fix or f"write {facts.default}", engine="slurm")


@RULES.refuse("catalogue, neuron: systems of its packages")
def unknown_system(env: Environment) -> Iterator[Problem]:
    known = env.catalog.parallelcluster.operating_systems
    if env.pcluster.os in known:
        return
    works = [s for s in known if _works_on(env, s)]
    yield error(
        ("pcluster", "os"),
        "Neuron cannot be installed on this operating system",
        f"write {near(env.pcluster.os, works or known)}",
    )


def _works_on(env: Environment, system: str) -> bool:
    """Return whether the environment's nodes would work with another operating system."""
    other = env.model_copy(update={"pcluster": env.pcluster.model_copy(update={"os": system})})
    try:
        release = other.release
    except UnknownCatalogEntry:
        return True
    if other.framework != "none" and other.framework not in release.frameworks:
        return True
    families, framework = other.families["slurm"], other.framework
    return bool(
        evaluate(
            env.catalog,
            Stack.slurm(env.catalog, families, release=release.version, framework=framework, system=system),
        )
    )


@RULES.refuse("ParallelCluster, RegionValidator: its list")
def unlisted_region(env: Environment) -> Iterator[Problem]:
    facts = env.catalog.parallelcluster
    if env.region not in facts.regions:
        yield error(
            ("region",),
            f"ParallelCluster {facts.default} does not list this region: AWS may have no bucket there with the template of its function, and the "
            "name of such a bucket could be anybody's",
            f"write one that it lists, for example {near(env.region, facts.regions)}, or use a newer release of trainium-cdk",
            engine="slurm",
        )


@RULES.refuse("ParallelCluster, ClusterNameValidator: 60 characters, 40 with accounting, of a stack")
def cluster_name_form(env: Environment) -> Iterator[Problem]:
    name, limits = env.cluster_name, env.catalog.parallelcluster.limits
    key: KeyPath = ("pcluster", "cluster_name") if env.pcluster.cluster_name else ("name",)
    if name in STACKS or name in {f"{stack}-{env.name}" for stack in STACKS}:
        yield error(
            key,
            "ParallelCluster creates a stack with the cluster's name, and our stack already has this name",
            f"write another name, for example {env.name}-slurm",
            engine="slurm",
        )
    accounting = env.pcluster.accounting is not None
    most = limits.cluster_name_with_accounting if accounting else limits.cluster_name
    if len(name) > most:
        why = " with accounting" if accounting else ""
        reason = f"it has {len(name)} characters; a cluster's name{why} may have at most {most}"
        yield error(key, reason, f"write {name[:most]}", engine="slurm")


@RULES.add
def long_host_names(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        for i, resource in enumerate(queue.compute_resources):
            host = f"{queue.name}-dy-{resource.name}-{resource.max_nodes}.{env.cluster_name}.pcluster"
            if len(host) > HOST_NAME:
                yield warning(
                    (*at, "compute_resources", i, "name"),
                    f"the host name of its nodes is {host}: {len(host)} characters. With more than {HOST_NAME}, collectives may fail to start",
                    "shorten the names of the queue, the compute resource or the cluster",
                )


@RULES.refuse("ParallelCluster, NameValidator: not default")
def compute_resource_name_form(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        for i, resource in enumerate(queue.compute_resources):
            if resource.name == "default":
                yield error(
                    (*at, "compute_resources", i, "name"),
                    "ParallelCluster reserves this name",
                    "choose another name, for example trn",
                )


@RULES.refuse("ParallelCluster, MaxCountValidator: 50 queues, 50 compute resources")
def count_limits(env: Environment) -> Iterator[Problem]:
    facts, cpu = env.catalog.parallelcluster, env.pcluster.cpu_queues
    queue_list = [*env.pcluster.queues, *cpu]
    limits = facts.limits
    key: KeyPath = ("pcluster", "queues")
    with_cpu, without = (", the CPU queue included", ", or write cpu_queue: null") if cpu else ("", "")
    if len(queue_list) > limits.queues:
        yield error(
            key,
            f"a cluster can have at most {limits.queues} queues",
            f"combine queues, as a queue can have several compute resources{without}",
            value=f"{len(queue_list)} queues{with_cpu}",
        )
    if facts.many_queues <= len(queue_list) <= limits.queues:
        yield warning(
            key,
            f"with {facts.many_queues} queues or more, cluster updates may fail: the head node has 30 s to read the launch templates of all queues",
            f"combine queues, as a queue can have several compute resources{without}",
            value=f"{len(queue_list)} queues{with_cpu}",
            engine="slurm",
        )
    resources = sum(len(q.compute_resources) for q in env.pcluster.queues) + len(cpu)
    if len(queue_list) <= limits.queues and resources > limits.compute_resources:
        yield error(
            key,
            f"a cluster can have at most {limits.compute_resources} compute resources in all queues together",
            f"use two environments{without}",
            value=f"{resources} compute resources{with_cpu}",
        )


@RULES.refuse("ParallelCluster, ComputeResourceSizeValidator: MinCount is MaxCount")
def dynamic_capacity_block(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        for i, resource in enumerate(queue.compute_resources):
            least, most = resource.min_nodes, resource.max_nodes
            if queue.capacity_type == "capacity-block" and least != most:
                yield error(
                    (*at, "compute_resources", i, "min_nodes"),
                    f"all nodes of a capacity block are static, but min_nodes is {least} and max_nodes {most}",
                    f"write min_nodes: {most}",
                )


@RULES.refuse("IAM user guide, id_tags: characters, aws:, case; catalogue, parallelcluster: prefixes and number")
def reserved_tags(env: Environment) -> Iterator[Problem]:
    facts = env.catalog.parallelcluster
    if len(env.tags) > facts.limits.tags:
        yield error(
            ("tags",),
            f"a cluster can have at most {facts.limits.tags} tags",
            "remove some",
            value=f"{len(env.tags)} tags",
        )
    for name, value in env.tags.items():
        key: KeyPath = ("tags", name)
        prefix = next((p for p in facts.reserved_tag_prefixes if name.lower().startswith(p)), None)
        if prefix:
            yield error(
                key,
                f"tags that begin with {prefix} are reserved",
                f"rename it, for example to my-{name[len(prefix) :]}",
            )
        if not _TAG.fullmatch(name) or not _TAG.fullmatch(value):
            yield error(
                key,
                "a tag may only contain letters, digits, spaces and _ . : / = + - @",
                "remove the other characters, line breaks and tabs among them",
            )
    for i in duplicates(name.lower() for name in env.tags):
        yield error(
            ("tags", list(env.tags)[i]),
            "another tag differs from it only in capital letters, and IAM rejects roles with both",
            "keep one of them",
        )


@RULES.refuse("ParallelCluster, CustomSlurmSettingsValidator: its own; catalogue, slurm_values: the rest")
def controlled_slurm_setting(env: Environment) -> Iterator[Problem]:
    facts, accounting = env.catalog.parallelcluster, env.pcluster.accounting is not None
    denied = {*facts.denied_slurm_settings, *(facts.denied_slurm_settings_with_accounting if accounting else ())}
    forbidden: set[int] = set()
    for i, line in enumerate(env.pcluster.slurm_settings):
        at: KeyPath = ("pcluster", "slurm_settings", i)
        first = next(iter(line), "").lower()
        if len(line) != 1 and first not in _NODE_LINES:
            yield error(
                at, f"it has {len(line)} parameters in one line of slurm.conf", "write one parameter after each dash"
            )
            forbidden.add(i)
            continue
        problems = list(_forbidden(at, line, denied))
        yield from problems
        forbidden |= {i} if problems else set()
    if len(forbidden) == len(env.pcluster.slurm_settings):
        return
    for fault in slurm_faults(rendered(env), slurm_release(env)):
        place = fault.key[3] if fault.key[2] == "CustomSlurmSettings" else None
        if isinstance(place, int) and place < len(env.pcluster.slurm_settings) and place not in forbidden:
            yield replace(fault, key=("pcluster", "slurm_settings", *fault.key[3:]))


@RULES.add
def hidden_jobs(env: Environment) -> Iterator[Problem]:
    for i, line in enumerate(env.pcluster.slurm_settings):
        for name, value in line.items():
            hidden = {"jobs", "nodes"} & {one.strip().lower() for one in str(value).split(",")}
            if name.lower() == "privatedata" and hidden:
                reason = "Slurm then hides from `trn destroy`, `trn scale` and `trn nodes` whose jobs run where, and they refuse or ask"
                yield warning(
                    ("pcluster", "slurm_settings", i, name), reason, f"remove {' and '.join(sorted(hidden))} from it"
                )


def _forbidden(at: KeyPath, line: Mapping[str, Any], denied: Collection[str]) -> Iterator[Problem]:
    """Find parameters in a line of slurm.conf that ParallelCluster refuses, even if Slurm accepts them."""
    for name, value in line.items():
        key = (*at, name)
        if len(line) == 1 and name.lower() in denied:
            yield error(key, f"ParallelCluster sets {name} itself and rejects another value", "remove it")
        elif name.lower() == "clustername":
            yield error(key, "Slurm has the cluster's name, and its controller stops if it changes", "use cluster_name")
        elif not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            yield error(key, "not the name of a Slurm parameter", "write it as in slurm.conf, for example MaxJobCount")
        elif any(not c.isprintable() for c in str(value)):
            yield error(key, "it contains a character that is not allowed in slurm.conf", "remove line breaks and tabs")
        elif name.lower() == "nodename" and re.search(r"-(st|dy)-", str(value)):
            yield error(
                key, "-st- and -dy- are reserved for nodes that ParallelCluster manages", "choose another node name"
            )


@RULES.refuse("ParallelCluster, CloudWatchLogsSchema: its choices")
def log_days_of_parallelcluster(env: Environment) -> Iterator[Problem]:
    if env.log_days not in LOG_DAYS:
        near = min(LOG_DAYS, key=lambda days: abs(days - env.log_days))
        yield error(("log_days",), "ParallelCluster does not keep logs so many days", f"write {near}", engine="slurm")


@RULES.refuse("ParallelCluster, DatabaseUriValidator: a port; ParallelCluster, PasswordSecretArnValidator: a secret")
def accounting_database(env: Environment) -> Iterator[Problem]:
    accounting = env.pcluster.accounting
    if not accounting:
        return
    at: KeyPath = ("pcluster", "accounting")
    port = accounting.uri.partition(":")[2]
    if port and not is_placeholder(port) and not 0 < int(port) < 65536:
        yield error((*at, "uri"), f"{port} is not a valid port", f"write {DATABASE_PORT}, MySQL's default")
    if not port and not is_placeholder(accounting.uri):
        yield info((*at, "uri"), f"port {DATABASE_PORT} is used", "add :port if the database uses another one")
    yield from _secret(env, (*at, "password_secret"), accounting.password_secret)


def _secret(env: Environment, key: KeyPath, arn: str) -> Iterator[Problem]:
    if is_placeholder(arn):
        return
    _, found, service, region, account, *_ = arn.split(":")
    expected = partition(env.region)
    if service != "secretsmanager":
        yield error(key, f"this is an ARN of {service}", "give the ARN of a Secrets Manager secret")
    elif found != expected:
        yield error(key, f"it is in partition {found}, but {env.region} is in {expected}", "correct the ARN")
    elif region != env.region:
        yield error(
            key,
            f"the secret is in {region}, but the cluster is in {env.region}: ParallelCluster can only read secrets of its region",
            f"replicate the secret to {env.region}, and give the replica's ARN",
        )
    elif env.account and account != env.account:
        text = f"the secret is in account {account}, which must allow the head node's role of {env.account} to read it and its key"
        yield warning(key, text, "copy it into this account, or let the secret's policy and its key's allow that")


def partition(region: str) -> str:
    """The partition of AWS that a region is in, as in its ARNs."""
    return next((name for prefix, name in _PARTITIONS.items() if region.startswith(prefix)), "aws")


@RULES.refuse("ParallelCluster user guide, launch-instances-capacity-blocks: the id is required")
def node_group_block_without_id(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        for i, resource in enumerate(queue.compute_resources):
            if queue.capacity_type == "capacity-block" and is_group(resource.reservation):
                yield error(
                    (*at, "compute_resources", i, "reservation"),
                    "ParallelCluster finds a capacity block by its id, and not in a group",
                    "give the id of one block, and each further block its own compute resource",
                )


@RULES.refuse("ParallelCluster, PlacementGroupNamingValidator: looks for the name, in both keys")
def placement_group_without_name(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        if PLACEMENT_GROUP_ID.fullmatch(queue.placement_group):
            yield error(
                (*at, "placement_group"),
                "ParallelCluster finds a placement group by its name",
                "write its name instead of its id (aws ec2 describe-placement-groups)",
            )
