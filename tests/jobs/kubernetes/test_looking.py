"""`trn report` of a job on a real Kubernetes, while it runs and after its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.kubernetes.conftest import Running, script, text
from tests.support import until
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend

STEPS = b"""#!/bin/bash
log() { echo "LOG Fri Nov 20 08:00:05 2026 - (0, $1) step_loss : $2 learning_rate : 2.80e-06 throughput : $3 "; }
if [ "$NODE_RANK" = 0 ]; then
  for n in 1 2 3 4 5 6; do log $n 1$((9 - n)).5 100.25; done
fi
until [ -e "$1" ]; do sleep 0.2; done
exit 3
"""


def run(running: Running, folder: Path, *words: str) -> int:
    (folder / "eks.json").write_text(running.cluster.model_dump_json())
    return int(app([*words, "--cluster", str(folder / "eks.json")], standalone_mode=False) or 0)


def test_a_job_is_looked_at(backend: KubernetesBackend, running: Running, tmp_path: Path) -> None:
    sent = backend.submit(script(STEPS, args=("/efs/go-on",)), "looked-at")
    assert until(lambda: "(0, 6)" in text(backend.logs(sent.id)))
    page = tmp_path / "report.html"
    assert run(running, tmp_path, "report", sent.id, "-o", str(page)) == 0
    assert "RUNNING" in page.read_text()
    (running.shared / "go-on").touch()
    assert run(running, tmp_path, "status", "--wait", sent.id) == 1

    assert run(running, tmp_path, "report", sent.id, "-o", str(page)) == 0
    found = page.read_text()
    assert all(part in found for part in ("FAILED", "13.5", "100.2", "trn1.32xlarge", "<svg"))


@pytest.mark.sweep
def test_an_array_is_looked_at(backend: KubernetesBackend, running: Running, tmp_path: Path) -> None:
    steps = STEPS.replace(b".5 ", b".$TRN_ARRAY_INDEX ").replace(b"exit 3", b"exit 0")
    id = backend.submit(script(steps, nodes=1, args=("/efs/array-goes-on",), array="0,7"), "array-looked-at").id
    assert until(lambda: all("(0, 6)" in text(backend.logs(f"{id}/{n}")) for n in (0, 7)))
    page = tmp_path / "report.html"
    assert run(running, tmp_path, "report", id, "-o", str(page)) == 0
    assert page.read_text().count("RUNNING") == 4, "each as a figure, and in the table"
    (running.shared / "array-goes-on").touch()
    assert run(running, tmp_path, "status", "--wait", id) == 0
    assert run(running, tmp_path, "report", id, "-o", str(page)) == 0
    assert all(f"{id}/{n}" in page.read_text() for n in (0, 7))
