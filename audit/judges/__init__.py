"""The judges, by name. Each takes what is judged and answers with all it found, in its own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from audit.findings import Finding, Subjects
from audit.judges.cloudformation import cfn_lint, cloudformation_validate
from audit.judges.configuration import cluster_configuration
from audit.judges.files import bandit, detect_secrets, shellcheck
from audit.judges.guard import cfn_guard
from audit.judges.nag import aws_solutions, nist
from audit.judges.scan import checkov, checkov_kubernetes

Judge = Callable[[Subjects], list[Finding]]

OF_TEMPLATES: Mapping[str, Judge] = {
    "checkov": checkov,
    "cfn-lint": cfn_lint,
    "cloudformation-validate": cloudformation_validate,
    "AwsSolutions": aws_solutions,
    "NIST.800.53.R5": nist,
    "cfn-guard": cfn_guard,
    "cluster-configuration": cluster_configuration,
}
OF_OBJECTS: Mapping[str, Judge] = {"checkov-kubernetes": checkov_kubernetes}
OF_FILES: Mapping[str, Judge] = {"shellcheck": shellcheck, "bandit": bandit, "detect-secrets": detect_secrets}
ALL: Mapping[str, Judge] = {**OF_TEMPLATES, **OF_OBJECTS, **OF_FILES}

__all__ = ["ALL", "OF_FILES", "OF_OBJECTS", "OF_TEMPLATES", "Judge"]
