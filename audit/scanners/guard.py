"""cfn-guard with AWS Control Tower's proactive controls."""

from __future__ import annotations

import json
import platform
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from audit.findings import Finding, ScannerFailed, Subjects
from audit.scanners.process import THERE, run
from sandbox.archives import unpack

_RESOURCE = re.compile(r'"/Resources/(\w+)')
_CONTROL = re.compile(r"\[(CT\.[A-Z0-9]+\.PR\.\d+)\]: ([^\n\\]+)")


def cfn_guard(subjects: Subjects) -> list[Finding]:
    """The controls for every service that the templates use."""
    kinds = {r["Type"] for path in subjects.templates.values() for r in _resources(path).values()}
    with tempfile.TemporaryDirectory() as folder:
        program, controls = _unpack(Path(folder), kinds)
        report = json.loads(
            run(
                [program, "validate", "--structured", "--output-format", "json", "--show-summary", "none",
                 *(part for control in controls for part in ("--rules", control)),
                 "--data", next(iter(subjects.templates.values())).parent],
                accepted=(0, 19),
            )
        )  # fmt: skip
    if len(report) != len(subjects.templates):
        raise ScannerFailed(f"cfn-guard scanned {len(report)} of {len(subjects.templates)} templates")
    found = []
    for file in report:
        for broken in file["not_compliant"]:
            rule = broken["Rule"]
            text = json.dumps(rule)
            control = _CONTROL.search(text)
            for resource in sorted(set(_RESOURCE.findall(text))) or [""]:
                found.append(
                    Finding(
                        scanner="cfn-guard",
                        rule=control[1] if control else rule["name"],
                        subject=subjects.of_template(file["name"]),
                        resource=resource,
                        message=control[2].strip() if control else rule["name"],
                    )
                )
    return found


def _resources(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))["Resources"]
    return found


def _unpack(folder: Path, kinds: set[str]) -> tuple[Path, list[Path]]:
    """The program and its controls, both part of the CDK's plug-in."""
    system = {"linux": "ubuntu", "darwin": "macos"}.get(sys.platform)
    machine = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(platform.machine())
    if not system or not machine:
        raise ScannerFailed(f"there is no cfn-guard for {sys.platform} on {platform.machine()}")
    packages = sorted(THERE.parent.glob("lib/python3*/site-packages/cdklabs/cdk_validator_cfnguard/_jsii/*.tgz"))
    if not packages:
        raise ScannerFailed(
            "cdklabs.cdk-validator-cfnguard is not installed: run `make audit`, which installs the scanners"
        )
    with tarfile.open(packages[0]) as package:
        unpack(package, folder)
    rules = folder / "package/rules/control-tower"
    controls = []
    for about in sorted(rules.glob("metadata/*/*.metadata.json")):
        if kinds & set(json.loads(about.read_text("utf-8"))["EvaluatedResourceTypes"]):
            name = about.name.removesuffix(".metadata.json")
            controls.append(rules / "cfn-guard" / about.parent.name / f"{name}.guard")
    program = folder / "package/bin" / system / machine / "cfn-guard"
    program.chmod(0o755)
    return program, controls
