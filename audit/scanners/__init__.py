"""The scanners, by name. Each takes the subjects and returns all findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from audit.findings import Finding, Subjects
from audit.scanners.cloudformation import cfn_lint, cloudformation_validate
from audit.scanners.configuration import cluster_configuration
from audit.scanners.files import bandit, detect_secrets, shellcheck
from audit.scanners.guard import cfn_guard
from audit.scanners.nag import aws_solutions, nist
from audit.scanners.scan import checkov, checkov_kubernetes

Scanner = Callable[[Subjects], list[Finding]]

OF_TEMPLATES: Mapping[str, Scanner] = {
    "checkov": checkov,
    "cfn-lint": cfn_lint,
    "cloudformation-validate": cloudformation_validate,
    "AwsSolutions": aws_solutions,
    "NIST.800.53.R5": nist,
    "cfn-guard": cfn_guard,
    "cluster-configuration": cluster_configuration,
}
OF_OBJECTS: Mapping[str, Scanner] = {"checkov-kubernetes": checkov_kubernetes}
OF_FILES: Mapping[str, Scanner] = {"shellcheck": shellcheck, "bandit": bandit, "detect-secrets": detect_secrets}
ALL: Mapping[str, Scanner] = {**OF_TEMPLATES, **OF_OBJECTS, **OF_FILES}

__all__ = ["ALL", "OF_FILES", "OF_OBJECTS", "OF_TEMPLATES", "Scanner"]
