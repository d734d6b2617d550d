"""What would fail on AWS, refused before anything is made: rules as small pure functions over an environment.

>>> from trainium_cdk import checks, settings
>>> [p.dotted for p in checks.check(settings.load()) if p.level == "error"]
[]

A rule takes an `Environment` and yields a `Problem` for each mistake: key, value, reason, fix, and a level. An `error` would fail, or
cost money for nothing; a `warning` may be meant; an `info` is worth knowing. Each rule looks at one thing and leaves values that
another rule refuses alone, so one mistake is said once.
"""

from __future__ import annotations

from dataclasses import replace

import trainium_cdk.checks.addresses as addresses
import trainium_cdk.checks.capacity as capacity
import trainium_cdk.checks.cluster_configuration as cluster_configuration
import trainium_cdk.checks.eks as eks
import trainium_cdk.checks.encryption as encryption
import trainium_cdk.checks.network as network
import trainium_cdk.checks.neuron as neuron
import trainium_cdk.checks.nodes as nodes
import trainium_cdk.checks.pcluster as pcluster
import trainium_cdk.checks.peering as peering
import trainium_cdk.checks.storage as storage
import trainium_cdk.checks.zones as zones
from trainium_cdk import engines
from trainium_cdk.checks.rule import Rule
from trainium_cdk.errors import SettingsError
from trainium_cdk.settings import Environment, Problem
from trainium_cdk.settings.problems import errors

__all__ = ["RULES", "Rule", "check", "require"]

RULES: tuple[Rule, ...] = (
    *capacity.RULES,
    *neuron.RULES,
    *zones.RULES,
    *addresses.RULES,
    *network.RULES,
    *peering.RULES,
    *pcluster.RULES,
    *cluster_configuration.RULES,
    *eks.RULES,
    *nodes.RULES,
    *storage.RULES,
    *encryption.RULES,
)
"""Every rule, in the order in which its problems are told."""


def check(env: Environment, *names: str) -> list[Problem]:
    """Every problem of an environment, each with the name of the rule that found it; empty where there is none.

    Args:
        names: of the engines whose stacks the problems concern. Default: those that the environment describes.
    """
    wanted = {None, *(names or env.engines)}
    sections: dict[str | int, str] = {e.section: e.name for e in engines.every().values()}
    found = [
        replace(p, rule=rule.__name__, engine=p.engine or sections.get(p.key[0])) for rule in RULES for p in rule(env)
    ]
    return [p for p in _said_once(found) if p.engine in wanted]


def require(env: Environment, *names: str) -> list[Problem]:
    """The warnings and infos of an environment without errors. Arguments as of `check`.

    Raises:
        SettingsError: there are errors; names each, with the file and line it comes from.
    """
    found = check(env, *names)
    if wrong := errors(found):
        raise SettingsError(wrong, env.source)
    return found


def _said_once(problems: list[Problem]) -> list[Problem]:
    """What is wrong for both engines in the same words concerns them both, and is said once."""
    kept: list[Problem] = []
    for problem in problems:
        same = next((i for i, p in enumerate(kept) if replace(p, engine=None) == replace(problem, engine=None)), None)
        if same is None:
            kept.append(problem)
        elif kept[same].engine != problem.engine:
            kept[same] = replace(problem, engine=None)
    return kept
