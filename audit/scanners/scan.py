"""checkov, for templates and for Kubernetes objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from audit.findings import Finding, ScannerFailed, Subjects
from audit.scanners.process import THERE, run


def checkov(subjects: Subjects) -> list[Finding]:
    """All its checks for CloudFormation."""
    found = _scan("cloudformation", next(iter(subjects.templates.values())).parent)
    return [
        Finding(
            scanner="checkov",
            rule=check["check_id"],
            subject=subjects.of_template(check["file_path"]),
            resource=check["resource"].rpartition(".")[2],
            message=check["check_name"],
        )
        for check in found
    ]


def checkov_kubernetes(subjects: Subjects) -> list[Finding]:
    """All its checks for Kubernetes."""
    if not subjects.objects:
        return []
    found = []
    for check in _scan("kubernetes", next(iter(subjects.objects.values())).parent):
        subject, _, name = subjects.of_objects(check["file_path"]).partition(":")
        found.append(
            Finding(
                scanner="checkov-kubernetes",
                rule=check["check_id"],
                subject=subject,
                resource=f"{name}/{check['resource']}",
                message=check["check_name"],
            )
        )
    return found


def _scan(framework: str, folder: Path) -> list[dict[str, Any]]:
    """Failed checks.

    Raises:
        ScannerFailed: a file could not be read.
    """
    command = [THERE / "checkov", "--directory", folder, "--framework", framework, "--output", "json",
               "--quiet", "--compact", "--skip-download"]  # fmt: skip
    report = json.loads(run(command, cwd=folder))
    reports = report if isinstance(report, list) else [report]
    for part in reports:
        if unread := part.get("summary", part).get("parsing_errors"):
            raise ScannerFailed(f"checkov could not read {unread} files of {folder}")
    return [check for part in reports if "results" in part for check in part["results"]["failed_checks"]]
