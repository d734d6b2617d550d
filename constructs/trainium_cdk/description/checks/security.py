"""Keys and topics that an environment names by their ARNs: of its region, and of its account. And exposure: access that an environment would open
beyond its jobs' needs. The rules of exposure hold on every engine that has the key."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from trainium_cdk.description import engines
from trainium_cdk.description.checks.cluster_configuration import wide_policy
from trainium_cdk.description.checks.rule import Rules, error, info, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.environment import KEY_ARN
from trainium_cdk.description.settings.pcluster import PROVIDER_POLICIES
from trainium_cdk.problems import KeyPath
from trainium_cdk.text import is_placeholder

RULES = Rules()


@RULES.add
def root_volume_key(env: Environment) -> Iterator[Problem]:
    if env.encryption != "aws-managed":
        yield info(
            ("encryption",),
            "the root volumes of nodes, with /home on the head node, are encrypted with the account's default key of EBS: ParallelCluster has no "
            "setting for it",
            "if they need your key, make it the account's default key of EBS: the cluster may use it. `trn check` then asks for the rest",
            engine="slurm",
        )


@RULES.refuse("KMS guide, multi-region-keys-overview: a key is used in its region")
def volume_key_of_another_region(env: Environment) -> Iterator[Problem]:
    for i, arn in enumerate(env.pcluster.volume_keys):
        if not is_placeholder(arn) and (region := arn.split(":")[3]) != env.region:
            text = f"the key is in {region}, but the volumes are in {env.region}"
            yield error(("pcluster", "volume_keys", i), text, f"give a key in {env.region}")
    most = PROVIDER_POLICIES - 1
    if (env.pcluster.volume_keys or env.encryption != "aws-managed") and len(env.pcluster.provider.policies) > most:
        text = f"with a key of volumes the function's role has room for {most} policies: IAM allows ten on a role where the account's quota was not raised"
        yield warning(
            ("pcluster", "provider", "policies"), text, "combine policies, or give provider.role your own role"
        )


@RULES.refuse("KMS guide, multi-region-keys-overview: a key is used in its region")
def foreign_key(env: Environment) -> Iterator[Problem]:
    key = KEY_ARN.fullmatch(env.encryption)
    if key is None:
        return
    if key["region"] != env.region:
        yield error(
            ("encryption",),
            f"the key is in {key['region']}, but the environment is in {env.region}: services cannot use a key of another region",
            f"give a key in {env.region}, or write encryption: customer-key",
        )
    if env.account and key["account"] != env.account:
        yield warning(
            ("encryption",),
            f"the key is in account {key['account']}, which must allow its use in {env.account}: this stack cannot change the key's policy",
            f"give a key of {env.account}, or let the key's policy allow the roles and services of this account",
        )


@RULES.refuse("CloudWatch user guide, Notify_Users_Alarm_Changes: a topic of the alarm's region")
def topic_of_another_region(env: Environment) -> Iterator[Problem]:
    for key, topic in _topics(env):
        if not topic or is_placeholder(topic):
            continue
        _, _, service, region, *_ = topic.split(":")
        if service != "sns":
            yield error(key, f"this is an ARN of {service}", "give the ARN of an SNS topic")
        elif region != env.region:
            why = f"the alarms are in {env.region}: CloudWatch notifies topics of its region only"
            if key[-1] == "job_topic":
                why = f"the cluster is in {env.region}, whose function sends to topics of its region only"
            yield error(key, f"the topic is in {region}, but {why}", f"give a topic in {env.region}")


def _topics(env: Environment) -> Iterator[tuple[KeyPath, str | None]]:
    if seen := env.observability:
        yield ("observability", "alarm_topic"), seen.alarm_topic
        yield ("observability", "job_topic"), seen.job_topic


# --- exposure ---------------------------------------------------------------------------------------------------------

_WIDEST = 8
"""Prefix length of the widest network that VPCs use: 10.0.0.0/8."""
_OF_THE_NODE = ipaddress.ip_network("169.254.0.0/16")
_PASSWORD = re.compile(r"(?<=://)[^/@]*@")

EXPOSURE = Rules()


@EXPOSURE.refuse("promise: no job owns the account")
def wide_node_policies(env: Environment) -> Iterator[Problem]:
    for engine, section in env.slurm_sections.items():
        for i, arn in enumerate(section.node_policies):
            yield from wide_policy((engines.get(engine).section, "node_policies", i), arn)


@EXPOSURE.refuse("promise: on EKS no job has the credentials of its node")
def wide_job_networks(env: Environment) -> Iterator[Problem]:
    for i, cidr in enumerate(env.eks.job_networks):
        network = ipaddress.ip_network(cidr)
        if network.subnet_of(_OF_THE_NODE):  # type: ignore[arg-type]  # both are of version 4
            text = "these addresses are the node's own, where its credentials are"
            yield error(("eks", "job_networks", i), text, "remove it: jobs get what they need of them")
        elif network.prefixlen < _WIDEST:
            text = "jobs could connect to every machine of your networks, on every port"
            yield error(("eks", "job_networks", i), text, "give the networks that jobs need, for example 10.20.0.0/24")


@EXPOSURE.refuse("promise: no secret is in; promise: what nodes install is pinned, and verified")
def unsafe_repositories(env: Environment) -> Iterator[Problem]:
    for name, url in env.overrides.repositories.items():
        key = ("catalog", "repositories", name)
        if _PASSWORD.search(url):
            text = "the user and the password would be in files that every job reads"
            yield error(key, text, "give the address without them, and let the mirror accept the nodes' network")
        elif name == "pip" and url.startswith("http://"):
            text = "packages of pip have no signature, so that anyone on the way could replace them"
            yield error(key, text, f"write https://{url.removeprefix('http://')}")
