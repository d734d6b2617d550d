"""Into the running jobs of a real Slurm: commands, NeuronCores, TensorBoard; through Session Manager where this is not the head node."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend, use
from trainium_cdk.jobs.slurm import inside
from trainium_cdk.jobs.use import Use

TENSORBOARD = """#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in --logdir) logdir=$2 ;; --port) port=$2 ;; --host) host=$2 ;; esac
  shift 2
done
exec {python} -m http.server --bind "$host" --directory "$logdir" "$port"
"""


@pytest.fixture(scope="module")
def running(slurm: LocalSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SlurmBackend, str]]:
    """A job that runs on two nodes."""
    programs = tmp_path_factory.mktemp("programs")
    (programs / "tensorboard").write_text(TENSORBOARD.format(python=sys.executable))
    (programs / "tensorboard").chmod(0o755)
    env = slurm.node_env()
    transport = LocalTransport(env={**env, "PATH": f"{programs}:{env['PATH']}"}, interval=0.2)
    jobs = SlurmBackend(make_cluster(fleet(nodes=4)), transport)
    sent = jobs.submit(Script(filename="w.sh", content=b"sleep 600", nodes=2))
    assert wait_until(lambda: jobs.status(sent.id).state == "RUNNING", 300)
    yield jobs, sent.id
    jobs.cancel(sent.id)


def test_the_use_of_the_nodes(running: tuple[SlurmBackend, str]) -> None:
    jobs, id = running
    assert jobs.on_nodes(id, 'echo a; echo "it\'s $SLURM_NODEID"') == {0: "a\nit's 0\n", 1: "a\nit's 1\n"}
    found = [use.parse(node, text) for node, text in sorted(jobs.on_nodes(id, use.SCRIPT).items())]
    assert found == [Use(node, 32, 51.5, 50.0, 3_000_000_000, 64_000_000_000, 512_000_000_000) for node in (0, 1)]


def test_a_command_on_a_node(
    running: tuple[SlurmBackend, str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    slurm: LocalSlurm,
) -> None:
    jobs, id = running
    for name, value in slurm.node_env().items():
        monkeypatch.setenv(name, value)
    assert jobs.execute(id, 1, ["bash", "-c", 'echo "on $SLURMD_NODENAME"; exit 7']) == 7
    assert "on compute1-dy-trn-2" in capfd.readouterr().out
    with pytest.raises(JobError, match=r"nodes 0 to 1, not 5"):
        jobs.execute(id, 5, ["true"])


def test_through_session_manager(
    running: tuple[SlurmBackend, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    jobs, id = running
    status = jobs.status(id)
    far: Any = SimpleNamespace(instance="i-1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(TransportError, match=r"is not installed: a shell needs"):
        inside.execute(jobs.cluster, far, status, 0, ["bash"])
    for name in ("aws", "session-manager-plugin"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert inside.execute(jobs.cluster, far, status, 1, ["echo", "it's $HOME"]) == 0
    *start, parameters = capfd.readouterr().out.splitlines()
    assert start[:6] == ["ssm", "start-session", "--region", "us-east-1", "--target", "i-1"]
    assert start[6:] == ["--document-name", "AWS-StartInteractiveCommand", "--parameters"]
    command = json.loads(parameters)["command"]
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    for name in ("sudo", "srun"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["sh", "-c", *command], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["echo", "it's $HOME"], "quoted once"


def test_tensorboard(running: tuple[SlurmBackend, str], slurm: LocalSlurm) -> None:
    jobs, id = running
    said: list[str] = []
    with jobs.tensorboard(id, say=said.append) as board:
        page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(board.url).read().decode()  # type: ignore[attr-defined]
        assert "train.sbatch" in page
    assert said == ["TensorBoard starts on the head node"]
    with pytest.raises(TransportError, match="TensorBoard has ended"):
        board.wait()
    with pytest.raises(JobError, match="Leave out --image"), jobs.tensorboard(id, image="x"):
        pass
    without = SlurmBackend(jobs.cluster, LocalTransport(env=slurm.node_env()))
    with (
        pytest.raises(TransportError, match=r"there is no tensorboard in /\S+venv\S*\. Install it"),
        without.tensorboard(id),
    ):
        pass


def test_what_is_no_report() -> None:
    assert [use.parse(0, text) for text in ("", "x", "[]", '{"neuron_runtime_data": [{}]}', '{"a": 1}')] == [None] * 5
    assert use.parse(1, '{"neuron_runtime_data": []}') == Use(1, 0, None, None, None, None, None)
