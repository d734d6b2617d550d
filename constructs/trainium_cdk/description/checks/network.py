"""Access of nodes to AWS and the internet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainium_cdk.description.checks.rule import Rules, error, info, join_words, queues, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.types import is_placeholder

WIDEST_SSH = 8
"""Shortest prefix that may connect to port 22. No user owns a wider network."""


RULES = Rules()


def missing_endpoints(env: Environment, needed: Iterable[str], *, engine: str, who: str = "nodes") -> Iterator[Problem]:
    """Find the endpoints that a cluster needs and a new network without a NAT gateway lacks."""
    if env.network.existing or env.network.nat != "none":
        return
    if missing := sorted(set(needed) - set(env.network.interface_endpoints)):
        reason = f"without a NAT gateway {who} cannot reach {join_words(missing)}"
        fix = f"add {join_words(missing)}, or write nat: one"
        yield error(("network", "interface_endpoints"), reason, fix, engine=engine)


def missing_s3_endpoint(env: Environment, *, engine: str) -> Iterator[Problem]:
    """The nodes of Slurm clusters start with scripts in S3."""
    if not (env.network.existing or env.network.nat != "none" or env.network.s3_endpoint):
        reason = "without a NAT gateway nodes need the S3 endpoint, because their start scripts are in S3"
        yield error(("network", "s3_endpoint"), reason, "write s3_endpoint: true, or nat: one", engine=engine)


@RULES.refuse("ParallelCluster user guide, aws-parallelcluster-in-a-single-public-subnet-no-internet-v3: its endpoints")
def nodes_without_aws(env: Environment) -> Iterator[Problem]:
    network, facts = env.network, env.catalog.parallelcluster
    needed = {
        *facts.endpoints,
        *(facts.endpoints_with_accounting if env.pcluster.accounting or env.pcluster.directory else ()),
        *(facts.endpoints_with_login_nodes if env.pcluster.login_nodes else ()),
    }
    yield from missing_endpoints(env, needed, engine="slurm")
    if not network.existing and network.nat == "none" and "monitoring" not in network.interface_endpoints:
        yield info(
            ("network", "interface_endpoints"),
            "without a NAT gateway nodes cannot send metrics to CloudWatch: the head node's memory and disk use is not shown",
            "add monitoring to see it",
            engine="slurm",
        )
    yield from missing_s3_endpoint(env, engine="slurm")


def _without_internet(env: Environment) -> str:
    return "without access to the internet" if env.network.existing else "without a NAT gateway"


@RULES.refuse("stack: the node script ends where it cannot reach Neuron's repositories")
def packages_without_nat(env: Environment) -> Iterator[Problem]:
    if env.network.reaches_internet or env.pcluster.custom_ami:
        return
    allow = "network.existing.internet: true" if env.network.existing else "nat: one"
    for at, queue in queues(env):
        if not queue.custom_ami:
            yield error(
                (*at, "custom_ami"),
                f"{_without_internet(env)} nodes cannot install Neuron, and ParallelCluster's own images do not contain it",
                f"give an image that contains Neuron (`trn image bake`), here or as pcluster.custom_ami for all nodes, or write {allow}",
            )


@RULES.add
def framework_without_nat(env: Environment) -> Iterator[Problem]:
    if env.network.reaches_internet or env.framework == "none":
        return
    yield warning(
        ("bootstrap", "framework"),
        f"{_without_internet(env)} no framework is installed: jobs can only use what the image contains at bootstrap.venv",
        "write framework: none, or make sure that the image contains the framework",
        value=env.framework,
        engine="slurm",
    )


@RULES.refuse("promise: no open SSH")
def open_ssh(env: Environment) -> Iterator[Problem]:
    head = env.pcluster.head
    if not head.ssh:
        if head.subnet == "public":
            yield info(
                ("pcluster", "head", "ssh"),
                "the head node has a public address, but no network may connect to it: SSM Session Manager does not need one",
                "write subnet: private, or set ssh.from_cidrs",
            )
        return
    cidrs = head.ssh.from_cidrs
    if not cidrs:
        yield info(
            ("pcluster", "head", "ssh"),
            "no network may connect: SSH only passes through Session Manager",
            "add ssh.from_cidrs if networks of yours shall connect",
        )
    for i, cidr in enumerate(cidrs):
        if "/" in cidr and not is_placeholder(cidr) and int(cidr.split("/")[1]) < WIDEST_SSH:
            yield error(
                ("pcluster", "head", "ssh", "from_cidrs", i),
                "this opens SSH to a large part of the internet",
                "give your own network, for example 203.0.113.0/24, or use SSM",
            )
