"""Exposure: access that an environment would open beyond its jobs' needs. The same rules hold on every engine that has the key."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from trainium_cdk.description import engines
from trainium_cdk.description.checks.cluster_configuration import wide_policy
from trainium_cdk.description.checks.rule import Rules, error
from trainium_cdk.description.settings import Environment, Problem

_WIDEST = 8
"""Prefix length of the widest network that VPCs use: 10.0.0.0/8."""
_OF_THE_NODE = ipaddress.ip_network("169.254.0.0/16")
_PASSWORD = re.compile(r"(?<=://)[^/@]*@")

RULES = Rules()


@RULES.refuse("promise: no job owns the account")
def wide_node_policies(env: Environment) -> Iterator[Problem]:
    for engine, section in env.slurm_sections.items():
        for i, arn in enumerate(section.node_policies):
            yield from wide_policy((engines.get(engine).section, "node_policies", i), arn)


@RULES.refuse("promise: on EKS no job has the credentials of its node")
def wide_job_networks(env: Environment) -> Iterator[Problem]:
    for i, cidr in enumerate(env.eks.job_networks):
        network = ipaddress.ip_network(cidr)
        if network.subnet_of(_OF_THE_NODE):  # type: ignore[arg-type]  # both are of version 4
            text = "these addresses are the node's own, where its credentials are"
            yield error(("eks", "job_networks", i), text, "remove it: jobs get what they need of them")
        elif network.prefixlen < _WIDEST:
            text = "jobs could connect to every machine of your networks, on every port"
            yield error(("eks", "job_networks", i), text, "give the networks that jobs need, for example 10.20.0.0/24")


@RULES.refuse("promise: no secret is in; promise: what nodes install is pinned, and verified")
def unsafe_repositories(env: Environment) -> Iterator[Problem]:
    for name, url in env.overrides.repositories.items():
        key = ("catalog", "repositories", name)
        if _PASSWORD.search(url):
            text = "the user and the password would be in files that every job reads"
            yield error(key, text, "give the address without them, and let the mirror accept the nodes' network")
        elif name == "pip" and url.startswith("http://"):
            text = "packages of pip have no signature, so that anyone on the way could replace them"
            yield error(key, text, f"write https://{url.removeprefix('http://')}")
