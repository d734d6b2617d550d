"""Checkpoints on the disks of pods, on a real API server with Kueue and JobSet."""

from __future__ import annotations

import pytest

from tests.jobs.kubernetes.conftest import Running, text
from trainium_cdk.jobs import Script
from trainium_cdk.jobs.kubernetes import KubernetesBackend

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.sweep]

SAVES = b"""
import os
from pathlib import Path

fast, node = Path(os.environ["TRN_CHECKPOINTS_FAST"]), os.environ["NODE_RANK"]
for step in (8, 16):
    (fast / "part.part").mkdir()
    (fast / "part.part" / f"rank-{node}").write_text(str(step))
    (fast / "part.part").rename(fast / f"step-{step}")
"""


def test_they_are_complete_when_the_job_has_ended(backend: KubernetesBackend, running: Running) -> None:
    sent = backend.submit(Script(filename="train.py", content=SAVES, nodes=2))
    assert backend.wait(sent.id, 300).ok, text(backend.logs(sent.id))
    place = running.shared / "trn/jobs" / sent.id / "checkpoints"
    assert {str(one.relative_to(place)): one.read_text() for one in place.rglob("*") if one.is_file()} == {
        f"step-{step}/rank-{node}": str(step) for step in (8, 16) for node in (0, 1)
    }
