"""The commit of a workdir, and its changes: of files that are sent alone; and what trackers get of a job, on a real Slurm."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.conftest import make_cluster
from tests.jobs.test_workdir import write
from trainium_cdk.client.jobs import workdir
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.jobs import Script, SlurmBackend


def git(folder: Path, *words: str) -> str:
    own = ["git", "-c", "user.name=n", "-c", "user.email=e@h.org", "-C", str(folder), *words]
    return subprocess.run(own, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = write(tmp_path / "repo/project", {"train.py": "1\n", "*.py": "1\n", ".env": "KEY=secret\n", "left": "1\n"})
    git(folder.parent, "init", "-q")
    git(folder.parent, "add", "-A")
    git(folder.parent, "commit", "-q", "-m", "first")
    return folder


def test_the_commit_is_that_of_the_repository(project: Path) -> None:
    assert workdir.read(project).commit == workdir.Commit(git(project, "rev-parse", "HEAD"), b"")


def test_changes_are_those_of_the_files_that_are_sent(project: Path) -> None:
    (project / ".trnignore").write_text("left\n")
    write(project, {"train.py": "2\n", "*.py": "3\n", ".env": "KEY=other\n", "left": "2\n"})
    found = workdir.read(project)
    assert found.commit is not None
    text = (found.commit.diff or b"").decode()
    assert ("+2" in text, "+3" in text, text.count("diff --git"), "KEY" in text) == (True, True, 2, False)
    assert "and uncommitted changes" in str(found)
    job = Script.from_workdir(project, "train.py")
    planned = plan(job, make_cluster())
    assert job.files(planned) == {"uncommitted.diff": found.commit.diff}
    assert job.program(planned).variables["TRN_GIT_COMMIT"] == found.commit.id


def test_too_many_changes_are_said(project: Path) -> None:
    (project / "train.py").write_text("x" * 300_000)
    found = workdir.read(project)
    assert found.commit is not None
    assert found.commit.diff is None
    assert "changes too large to be recorded" in str(found)


@pytest.mark.parametrize("what", ["no repository", "no commit"])
def test_a_folder_without_a_commit(what: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", {"train.py": "1\n"})
    if what == "no commit":
        git(folder, "init", "-q")
    assert workdir.read(folder).commit is None


Request = tuple[str, str, Any]


@pytest.fixture
def server() -> Iterator[tuple[str, list[Request]]]:
    """An HTTP server of this machine, and what it was sent: path, authorization and content."""
    got: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.append((self.path, self.headers.get("Authorization", ""), content))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", got
        running.shutdown()
        thread.join()


CLIENT = b"""import base64, json, os, urllib.request as u
e = os.environ
def post(address, authorization, content):
    head = {"Authorization": authorization, "Content-Type": "application/json"}
    u.urlopen(u.Request(address, json.dumps(content).encode(), head)).read()
key = base64.b64encode(("api:" + e["WANDB_API_KEY"]).encode()).decode()
run = {"name": e["WANDB_RUN_ID"], "displayName": e["WANDB_NAME"], "resume": e["WANDB_RESUME"]}
post(e["WANDB_BASE_URL"] + "/graphql", "Basic " + key, {"operationName": "UpsertBucket", "variables": run})
tags = [{"key": k, "value": v} for k, v in json.loads(e["MLFLOW_RUN_CONTEXT"]).items()]
post(e["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/create", "Bearer " + e["MLFLOW_TRACKING_TOKEN"], {"tags": tags})
"""
"""The first requests of wandb 0.31 and mlflow 3.17, in their form."""


def test_trackers_of_a_real_job(backend: SlurmBackend, server: tuple[str, list[Request]]) -> None:
    address, got = server
    own = {
        "WANDB_API_KEY": "k3y",
        "WANDB_BASE_URL": address,
        "MLFLOW_TRACKING_URI": address,
        "MLFLOW_TRACKING_TOKEN": "t0k",
    }
    sent = backend.submit(Script(filename="t.py", content=CLIENT, env=own), "track")
    log = (
        b"".join(chunk.data for chunk in backend.logs(sent.id)).decode()
        if not backend.wait(sent.id, timeout=120).ok
        else ""
    )
    assert log == ""
    (path, key, run), (other, token, tagged) = got
    assert (path, key) == ("/graphql", "Basic YXBpOmszeQ==")
    assert run["variables"] == {"name": "t-track", "displayName": "t-track", "resume": "allow"}
    assert (other, token) == ("/api/2.0/mlflow/runs/create", "Bearer t0k")
    assert {"key": "trn.job", "value": "t-track"} in tagged["tags"]
