"""The encryption key."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.checks.rule import Rules, error, info
from trainium_cdk.settings import Environment, Problem
from trainium_cdk.settings.environment import KEY_ARN

RULES = Rules()


@RULES.add
def root_volumes_have_another_key(env: Environment) -> Iterator[Problem]:
    if env.encryption != "aws-managed":
        yield info(
            ("encryption",),
            "the root volumes of nodes, with /home on the head node, are encrypted with the account's default key of EBS: ParallelCluster has no "
            "setting for it",
            "make your key the account's default key of EBS, if they need it",
            engine="slurm",
        )


@RULES.add
def key_is_in_the_region_and_account(env: Environment) -> Iterator[Problem]:
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
        yield error(
            ("encryption",),
            f"the key is in account {key['account']}, but the environment is deployed into {env.account}",
            f"give a key of {env.account}, or write encryption: customer-key",
        )
