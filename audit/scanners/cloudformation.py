"""cfn-lint, and the validator that the CDK runs at synth: what CloudFormation would reject."""

from __future__ import annotations

import json

import cloudformation_validate as engine  # type: ignore[import-untyped]

from audit.findings import Finding, Subjects
from audit.scanners.process import HERE, run

_ERRORS = {engine.Severity.ERROR, engine.Severity.FATAL}


def cfn_lint(subjects: Subjects) -> list[Finding]:
    """Errors only: its warnings are about style, mostly of what the CDK generates."""
    files: dict[str, list[str]] = {}
    for subject, path in subjects.templates.items():
        files.setdefault(subjects.regions.get(subject, "us-east-1"), []).append(str(path))
    return [finding for region, there in files.items() for finding in _linted(subjects, region, there)]


def _linted(subjects: Subjects, region: str, files: list[str]) -> list[Finding]:
    """Knows which instance types a region offers."""
    command = [HERE / "cfn-lint", "--ignore-checks", "W", "I", "--regions", region, "--format", "json", "--", *files]
    # its exit code is a set of bits: errors 2, warnings 4, information 8
    return [
        Finding(
            scanner="cfn-lint",
            rule=match["Rule"]["Id"],
            subject=subjects.of_template(match["Filename"]),
            resource=_resource(match["Location"].get("Path")),
            message=match["Message"],
        )
        for match in json.loads(run(command, accepted=range(16)) or "[]")
    ]


def cloudformation_validate(subjects: Subjects) -> list[Finding]:
    """Errors, as with cfn-lint."""
    validator = engine.RegoEngine()
    return [
        Finding(
            scanner="cloudformation-validate",
            rule=found.rule_id,
            subject=subject,
            resource=str(getattr(found.entity, "logical_id", None) or found.entity or ""),
            message=found.message,
        )
        for subject, path in subjects.templates.items()
        for found in validator.validate_template(engine.TemplateContent(path.read_text("utf-8"), path.name)).diagnostics
        if found.severity in _ERRORS
    ]


def _resource(path: list[str] | None) -> str:
    return str(path[1]) if path and path[0] == "Resources" and len(path) > 1 else ""
