"""How nodes reach AWS and the internet."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.checks.rule import Rule, error, info, listed, queues, twice, warning
from trainium_cdk.settings import Environment, Problem

WIDEST_SSH = 8
"""Shortest prefix that may connect to port 22: wider networks are nobody's own."""


def nodes_reach_aws_without_nat(env: Environment) -> Iterator[Problem]:
    network, facts = env.network, env.catalog.parallelcluster
    if network.existing or network.nat != "none":
        return
    needed = {
        *facts.endpoints,
        *(facts.endpoints_with_accounting if env.pcluster.accounting else ()),
        *(facts.endpoints_with_login_nodes if env.pcluster.login_nodes else ()),
    }
    if missing := sorted(needed - set(network.interface_endpoints)):
        yield error(
            ("network", "interface_endpoints"),
            listed(network.interface_endpoints),
            f"without a NAT gateway nodes do not reach {listed(missing)}",
            f"add {listed(missing)}, or write nat: one",
            "slurm",
        )
    if "monitoring" not in network.interface_endpoints:
        yield info(
            ("network", "interface_endpoints"),
            listed(network.interface_endpoints),
            "without a NAT gateway nodes do not reach CloudWatch's metrics: the head node's memory and disk are not shown",
            "add monitoring to see them",
            "slurm",
        )
    if not network.s3_endpoint:
        yield error(
            ("network", "s3_endpoint"),
            False,
            "without a NAT gateway nodes reach S3 through its endpoint only, and start from scripts that lie there",
            "write s3_endpoint: true, or nat: one",
            "slurm",
        )


def _no_way_out(env: Environment) -> str:
    return "without a way to the internet" if env.network.existing else "without a NAT gateway"


def _way_out(env: Environment) -> str:
    return "network.existing.internet: true" if env.network.existing else "nat: one"


def packages_are_on_the_image_without_nat(env: Environment) -> Iterator[Problem]:
    if env.network.reaches_internet or env.pcluster.custom_ami:
        return
    for at, queue in queues(env):
        if not queue.custom_ami:
            yield error(
                (*at, "custom_ami"),
                "(absent)",
                f"{_no_way_out(env)} nodes cannot install Neuron, and ParallelCluster's own images do not carry it",
                f"give an image that carries Neuron (`trn image bake`; here, or as pcluster.custom_ami for all nodes), or write {_way_out(env)}",
            )


def framework_is_on_the_image_without_nat(env: Environment) -> Iterator[Problem]:
    if env.network.reaches_internet or env.framework == "none":
        return
    yield warning(
        ("bootstrap", "framework"),
        env.framework,
        f"{_no_way_out(env)} no framework is installed: jobs find only what the image carries at bootstrap.venv",
        "write framework: none, or see that the image carries it",
        "slurm",
    )


def endpoints_are_named_once(env: Environment) -> Iterator[Problem]:
    names = env.network.interface_endpoints
    for i in twice(names):
        yield error(("network", "interface_endpoints", i), names[i], "this endpoint is there already", "remove it")


def ssh_is_for_own_networks(env: Environment) -> Iterator[Problem]:
    head = env.pcluster.head
    if not head.ssh:
        if head.subnet == "public":
            yield info(
                ("pcluster", "head", "ssh"),
                "(absent)",
                "the head node has a public address, but nobody may connect to it: SSM Session Manager works without",
                "write subnet: private, or give ssh.from_cidrs",
            )
        return
    cidrs = head.ssh.from_cidrs
    for i in twice(cidrs):
        key = ("pcluster", "head", "ssh", "from_cidrs", i)
        yield error(key, cidrs[i], "this network is there already: EC2 refuses a rule given twice", "remove it")
    for i, cidr in enumerate(cidrs):
        if int(cidr.split("/")[1]) < WIDEST_SSH:
            yield error(
                ("pcluster", "head", "ssh", "from_cidrs", i),
                cidr,
                "this opens SSH to a large part of the internet",
                "give your own network, as 203.0.113.0/24, or use SSM",
            )


RULES: tuple[Rule, ...] = (
    nodes_reach_aws_without_nat,
    packages_are_on_the_image_without_nat,
    framework_is_on_the_image_without_nat,
    endpoints_are_named_once,
    ssh_is_for_own_networks,
)
