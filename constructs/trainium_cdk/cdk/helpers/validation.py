"""The offline rules in the CDK's own validation report: printed at synth, and kept in `validation-report.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version

import aws_cdk as cdk
import jsii

from trainium_cdk.description.settings import Problem, Source


@jsii.implements(cdk.IPolicyValidationPlugin)
class RulesPlugin:
    """The findings of the rules as a validation plugin's report: value, reason and fix, with the stack.

    The conclusion is always `success`: a stack with errors fails on its own, and the others stay deployable.

    Args:
        found: the problems of each stack.
        source: the file of the environment.
    """

    def __init__(self, by_stack: Mapping[cdk.Stack, Sequence[Problem]], source: Source):
        self._found = {stack.node.path: tuple(problems) for stack, problems in by_stack.items()}
        self._source = source

    @property
    def name(self) -> str:
        """Prefix of the ids with which findings are acknowledged, for example `trn::static-nodes`."""
        return "trn"

    @property
    def version(self) -> str | None:
        return version("trainium-cdk")

    @property
    def rule_ids(self) -> list[str] | None:
        return sorted({p.rule for problems in self._found.values() for p in problems}) or None

    def validate(self, context: cdk.IPolicyValidationContext) -> cdk.PolicyValidationPluginReport:  # noqa: ARG002
        """The report. A problem of several stacks is listed once."""
        known: list[tuple[Problem, list[str]]] = []
        for path, problems in self._found.items():
            for problem in problems:
                paths = next((paths for p, paths in known if p == problem), None)
                if paths is None:
                    known.append((problem, [path]))
                else:
                    paths.append(path)
        return cdk.PolicyValidationPluginReport(
            success=True, violations=[self._violation(problem, paths) for problem, paths in known]
        )

    def _violation(self, problem: Problem, paths: Sequence[str]) -> cdk.PolicyViolation:
        return cdk.PolicyViolation(
            rule_name=problem.rule,
            description=self._source.describe(problem).rpartition(" Fix: ")[0],
            fix=problem.fix,
            severity=problem.level,
            rule_metadata={"key": problem.dotted, "where": self._source.where(problem.key)},
            violating_resources=[
                cdk.PolicyViolatingResource(construct_path=path, locations=[problem.dotted]) for path in paths
            ],
        )
