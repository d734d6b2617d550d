"""Rules that report what would fail on AWS before anything is created. Each is a small pure function over an
environment.

>>> from trainium_cdk.description import checks, settings
>>> [p.dotted for p in checks.check(settings.load()) if p.level == "error"]
[]

A rule takes an `Environment` and yields a `Problem` for each mistake: key, value, reason, fix, and a level. An `error` would fail, and its
rule names the source. A `warning` may be intended. An `info` is worth knowing. Each rule checks one thing and ignores values that
another rule
rejects, so that each mistake is reported once.
"""

from __future__ import annotations

from dataclasses import replace

from trainium_cdk.description import engines
from trainium_cdk.description.checks import (
    capacity,
    effects,
    eks,
    eks_nodes,
    network,
    neuron,
    nodes,
    overrides,
    pcluster,
    pcs,
    security,
    storage,
)
from trainium_cdk.description.checks.rule import Rule, rule_id
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.errors import SettingsError
from trainium_cdk.problems import errors

__all__ = ["RULES", "Rule", "check", "require"]

RULES: tuple[Rule, ...] = (
    *capacity.RULES,
    *neuron.RULES,
    *capacity.ZONES,
    *network.RULES,
    *nodes.RULES,
    *storage.RULES,
    *security.RULES,
    *effects.RULES,
    *security.EXPOSURE,
    *pcluster.RULES,
    *overrides.RULES,
    *storage.SHARED_RULES,
    *eks.RULES,
    *eks_nodes.RULES,
    *pcs.RULES,
)
"""Every rule, in the order in which problems are reported: first for any cluster, then for each engine."""


def check(env: Environment, *names: str) -> list[Problem]:
    """Every problem of an environment, with the name of the rule that reports it.

    Args:
        names: of the engines whose stacks the problems concern. Default: those that the environment describes.
    """
    wanted = {None, *(names or env.engines)}
    sections: dict[str | int, str] = {e.section: e.name for e in engines.ENGINES.values()}
    problems = [
        replace(p, rule=rule_id(rule), engine=p.engine or sections.get(p.key[0])) for rule in RULES for p in rule(env)
    ]
    return _without_duplicates([p for p in problems if p.engine in wanted])


def require(env: Environment, *names: str) -> list[Problem]:
    """The warnings and infos of an environment without errors. Takes the same arguments as `check`.

    Raises:
        SettingsError: there are errors; the message lists each, with its file and line.
    """
    problems = check(env, *names)
    if failures := errors(problems):
        raise SettingsError(failures, env.source)
    return problems


def _without_duplicates(problems: list[Problem]) -> list[Problem]:
    """The problems, with one entry for all engines that have the same problem."""
    kept: list[Problem] = []
    for problem in problems:
        same = next((i for i, p in enumerate(kept) if replace(p, engine=None) == replace(problem, engine=None)), None)
        if same is None:
            kept.append(problem)
        elif kept[same].engine != problem.engine:
            kept[same] = replace(problem, engine=None)
    return kept
