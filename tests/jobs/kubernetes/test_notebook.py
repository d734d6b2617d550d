"""examples/notebook.sh in pods, reached through the API's port-forward."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT
from tests.jobs.kubernetes.conftest import Running, text
from tests.jobs.test_notebook import get, jupyter
from tests.support import swept, until
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
from trainium_cdk.jobs import Script

pytestmark = pytest.mark.sweep


@pytest.mark.parametrize("ends", swept(["by itself", "cancelled"], "by itself"))
def test_a_notebook(backend: KubernetesBackend, running: Running, ends: str) -> None:
    """Two pods; the token reaches the caller, and is in no log; both end with the server."""
    jupyter(running.tools)
    job = Script.from_file(ROOT / "examples/notebook.sh", nodes=2, args=("/tmp",), env={"IDLE_MINUTES": "5"})
    id = backend.submit(job, f"notebook-{ends.replace(' ', '-')}").id
    assert until(lambda: backend.status(id).state == "RUNNING")
    with backend.forward(id, patience=120) as tunnel:
        page, _, token = tunnel.url.partition("?token=")
        assert (page, len(token) > 30) == (f"{tunnel.address}lab", True)
        options = get(tunnel.url).decode()
        assert '"ServerApp.ip": "127.0.0.1"' in options
        assert 'cull_idle_timeout": "300"' in options
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(tunnel.address)
        folder = running.shared / Path(backend.status(id).directory).relative_to("/efs")
        holders = [file for file in folder.rglob("*") if file.is_file() and token in file.read_text(errors="replace")]
        assert {file.name.partition("-")[0] for file in holders} == {"token", "forward", "jpserver"}
        assert {oct(file.stat().st_mode & 0o777) for file in holders} == {"0o600"}
        log = text(backend.logs(id, stage="train"))
        assert ("JupyterLab runs: trn forward" in log, token in log) == (True, False)
        if ends == "cancelled":
            backend.cancel(id)
        else:
            get(f"{tunnel.address}api/shutdown?token={token}")
        assert backend.wait(id, 300).state == ("CANCELLED" if ends == "cancelled" else "COMPLETED")
    assert until(lambda: not (folder / "forward").exists(), 60)
