"""No scanner has a new finding in the default environment; `make trust` runs them over all."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.support import ROOT, completed, need

SCANNERS = ROOT / ".venvs/audit/bin"


def test_no_scanner_has_a_new_finding() -> None:
    need(SCANNERS.exists(), f"the scanners are not installed ({SCANNERS}): make .venvs/audit/.done")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = completed([ROOT / "tools/audit/run.sh", "default"], cwd=ROOT, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_not_acknowledged_is_printed(tmp_path: Path) -> None:
    """A template with something for each pack."""
    need(SCANNERS.exists(), f"the scanners are not installed ({SCANNERS}): make .venvs/audit/.done")
    node = {"JSII_NODE": str(Path(sys.executable).with_name("node"))}
    command = [SCANNERS / "python", "tools/audit/packs.py", tmp_path, "tests/audit/bad_template.yaml"]
    done = completed(command, cwd=ROOT, env={**os.environ, **node})
    assert done.returncode == 3, done.stderr
    found = set(re.findall(r"^bad_template: (\w+): ([\w.-]+)", done.stdout, re.MULTILINE))
    assert found >= {
        ("Cluster", "AwsSolutions-EKS1"),
        ("Door", "AwsSolutions-EC23"),
        ("Door", "NIST.800.53.R5-EC2RestrictedSSH"),
        ("Cluster", "CT.EKS.PR.1"),
    }
