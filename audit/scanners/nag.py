"""cdk-nag: AWS Solutions, and NIST 800-53 revision 5."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

from audit.findings import Finding, ScannerFailed, Subjects
from audit.scanners.process import HERE, THERE, run

_APP = Path(__file__).parent / "nag_app.py"


def aws_solutions(subjects: Subjects) -> list[Finding]:
    """The pack `AwsSolutions`."""
    return [f for f in _scanned(tuple(subjects.templates.items())) if f.scanner == "AwsSolutions"]


def nist(subjects: Subjects) -> list[Finding]:
    """The pack `NIST.800.53.R5`."""
    return [f for f in _scanned(tuple(subjects.templates.items())) if f.scanner == "NIST.800.53.R5"]


@functools.cache
def _scanned(templates: tuple[tuple[str, Path], ...]) -> list[Finding]:
    """Both packs over the finished templates; as plug-ins at synth they would slow down every deployment."""
    names = {f"T{i}": subject for i, (subject, _) in enumerate(templates)}
    with tempfile.TemporaryDirectory() as folder:
        run(
            [THERE / "python", _APP, folder, *(path for _, path in templates)],
            env={"JSII_NODE": str(HERE / "node")},
        )
        report = Path(folder) / "validation-report.json"
        if not report.exists():
            raise ScannerFailed("cdk-nag wrote no report")
        packs = json.loads(report.read_text("utf-8"))["pluginReports"]
    found = []
    for pack in packs:
        for violation in pack["violations"]:
            for construct in violation["violatingConstructs"]:
                stack, _, resource = construct["constructPath"].split("/", 2)
                found.append(
                    Finding(
                        scanner=pack["pluginName"],
                        rule=violation["ruleName"],
                        subject=names[stack],
                        resource=resource,
                        message=violation["description"].partition(" - (Control IDs")[0],
                    )
                )
    return found
