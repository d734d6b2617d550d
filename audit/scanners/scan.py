"""checkov, for templates and for Kubernetes objects."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from audit.findings import Finding, ScannerFailed, Subjects
from audit.scanners.process import THERE, run

_APP = Path(__file__).parent / "scan_app.py"


def checkov(subjects: Subjects) -> list[Finding]:
    """All its checks for CloudFormation."""
    return [
        Finding(
            scanner="checkov",
            rule=check["rule"],
            subject=subjects.of_template(check["file"]),
            resource=check["resource"].rpartition(".")[2],
            message=check["name"],
        )
        for check in _found(subjects).get("cloudformation", [])
    ]


def checkov_kubernetes(subjects: Subjects) -> list[Finding]:
    """All its checks for Kubernetes."""
    found = []
    for check in _found(subjects).get("kubernetes", []):
        subject, _, name = subjects.of_objects(check["file"]).partition(":")
        found.append(
            Finding(
                scanner="checkov-kubernetes",
                rule=check["rule"],
                subject=subject,
                resource=f"{name}/{check['resource']}",
                message=check["name"],
            )
        )
    return found


def _found(subjects: Subjects) -> dict[str, list[dict[str, Any]]]:
    """Framework -> failed checks."""
    folders = {"cloudformation": subjects.templates, "kubernetes": subjects.objects}
    return _scan(tuple(f"{name}={next(iter(files.values())).parent}" for name, files in folders.items() if files))


@functools.cache
def _scan(what: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """Both frameworks in one process, which takes seconds to start.

    Raises:
        ScannerFailed: a file could not be read.
    """
    report = json.loads(run([THERE / "python", _APP, *what]))
    if unread := report["unread"]:
        raise ScannerFailed(f"checkov could not read {', '.join(unread)}")
    found: dict[str, list[dict[str, Any]]] = report["found"]
    return found
