"""examples/serve.sh in a pod, reached through the API's port-forward."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT
from tests.jobs.kubernetes.conftest import Running, text
from tests.jobs.test_serve import checkpoint, served, vllm
from tests.support import until
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
from trainium_cdk.jobs import Script

pytestmark = pytest.mark.sweep


def test_a_server(backend: KubernetesBackend, running: Running) -> None:
    """It serves a folder of the shared file system until it is cancelled; its key is in no log, and what was compiled is kept."""
    vllm(running.tools)
    checkpoint(running.shared / "tuned")
    id = backend.submit(Script.from_file(ROOT / "examples/serve.sh", args=("/efs/tuned",)), "serve").id
    assert until(lambda: backend.status(id).state == "RUNNING")
    with backend.forward(id, patience=120) as tunnel:
        assert tunnel.url == f"{tunnel.address}v1"
        folder = running.shared / Path(backend.status(id).directory).relative_to("/efs")
        assert served(tunnel.address, folder)["data"] == [{"id": "tuned", "root": "/efs/tuned"}]
        log = text(backend.logs(id, stage="train"))
        assert ("vLLM answers" in log, (folder / "serve/key").read_text().strip() in log) == (True, False)
        backend.cancel(id)
        assert backend.wait(id, 300).state == "CANCELLED"
    assert until(lambda: not (folder / "forward").exists(), 60)
    assert list(running.shared.glob("trn/**/vllm.tar"))
