"""The key that everything is encrypted with."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.checks.rule import Rule, error
from trainium_cdk.settings import Environment, Problem
from trainium_cdk.settings.environment import KEY_ARN


def key_is_in_the_region_and_account(env: Environment) -> Iterator[Problem]:
    key = KEY_ARN.fullmatch(env.encryption)
    if key is None:
        return
    if key["region"] != env.region:
        yield error(
            ("encryption",),
            env.encryption,
            f"the key is in {key['region']}, the environment in {env.region}: no service uses a key of another region",
            f"name a key in {env.region}, or write encryption: customer-key",
        )
    if env.account and key["account"] != env.account:
        yield error(
            ("encryption",),
            env.encryption,
            f"the key is account {key['account']}'s, the environment is deployed into {env.account}",
            f"name a key of {env.account}, or write encryption: customer-key",
        )


RULES: tuple[Rule, ...] = (key_is_in_the_region_and_account,)
