"""Into the running jobs of a real Slurm: commands, NeuronCores, TensorBoard; through Session Manager where this is not the head node."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import typer

from sandbox import LocalAws
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from tests.support import completed, head_node, session_manager_plugin
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.jobs import metrics
from trainium_cdk.client.jobs.forward import offered
from trainium_cdk.client.jobs.metrics import Use
from trainium_cdk.client.jobs.slurm.transport import Result
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.runner.requests import ReadLog
from trainium_cdk.runner.work import relay

TENSORBOARD = """#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in --logdir) logdir=$2 ;; --port) port=$2 ;; --host) host=$2 ;; esac
  shift 2
done
exec {python} -m http.server --bind "$host" --directory "$logdir" "$port"
"""

SERVICE = """if [ "$NODE_RANK" = 0 ]; then exec sleep 600; fi
umask 077
echo 'the page' > page
exec PYTHON -c 'if 1:
    import http.server, os
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    open("../offer", "w").write(f"{server.server_port} /page?token=s3cret\\n")
    os.rename("../offer", "../forward")
    server.serve_forever()'
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
    sent = jobs.submit(Script(filename="w.sh", content=SERVICE.replace("PYTHON", sys.executable).encode(), nodes=2))
    assert wait_until(lambda: jobs.status(sent.id).state == "RUNNING", 300)
    yield jobs, sent.id
    jobs.cancel(sent.id)


def test_the_use_of_the_nodes(running: tuple[SlurmBackend, str]) -> None:
    jobs, id = running
    said = jobs.on_nodes(id, ["bash", "-c", 'echo a; echo "it\'s $SLURM_NODEID"'])
    assert said == ("a\nit's 0\n", "a\nit's 1\n")
    assert jobs.on_nodes(id, ["bash", "-c", "[ $SLURM_NODEID = 0 ] || echo b"]) == ("", "b\n")
    found = [metrics.use_of(node, text) for node, text in enumerate(jobs.on_nodes(id, metrics.ask_use()))]
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


def test_a_command_on_the_node_of_a_member(
    running: tuple[SlurmBackend, str], monkeypatch: pytest.MonkeyPatch, slurm: LocalSlurm
) -> None:
    """srun takes no number such as 2_5: a member's own one is Slurm's."""
    jobs, _ = running
    for name, value in slurm.node_env().items():
        monkeypatch.setenv(name, value)
    sent = jobs.submit(Script(filename="w.sh", content=b"sleep 600", array="5-6"))
    assert wait_until(lambda: all(m.state == "RUNNING" for m in jobs.status(sent.id).members), 300)
    for member in jobs.status(sent.id).members:
        assert jobs.on_nodes(f"{sent.id}/{member.name}", ["printenv", "SLURMD_NODENAME"]) == (f"{member.nodes}\n",)
        assert jobs.execute(f"{sent.id}/{member.name}", 0, ["test", "-d", "."]) == 0
    with pytest.raises(JobError, match=f"{sent.id} is an array of 2. Name a member, for example {sent.id}/5"):
        jobs.execute(sent.id, 0, ["true"])
    jobs.cancel(sent.id)


@pytest.fixture
def far(
    running: tuple[SlurmBackend, str], slurm: LocalSlurm, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmBackend]:
    """The backend of a machine that reaches the head node by Session Manager, with AWS's own plug-in."""
    for name, value in {**local_aws.variables, "PATH": f"{session_manager_plugin()}:/usr/bin:/bin"}.items():
        monkeypatch.setenv(name, value)
    with head_node(local_aws, "inside") as head:
        attached = slurm.attach(local_aws.directory / "clusters/inside")

        class Far(LocalTransport):
            instance = head

        yield SlurmBackend(running[0].cluster, Far(env=slurm.node_env()))
        left = local_aws.client("ssm").describe_sessions(State="Active")["Sessions"]
        assert head not in [session["Target"] for session in left]
        attached.unlink()
        attached.parent.rmdir()


def test_a_command_through_session_manager(
    running: tuple[SlurmBackend, str],
    far: SlurmBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, id = running
    assert far.execute(id, 1, ["bash", "-c", 'echo "on $SLURMD_NODENAME: it\'s $0"', "quoted once"]) == 0
    assert "on compute1-dy-trn-2: it's quoted once" in capfd.readouterr().out
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(TransportError, match=r"session-manager-plugin is not installed"):
        far.execute(id, 0, ["bash"])


def test_tensorboard(running: tuple[SlurmBackend, str], slurm: LocalSlurm) -> None:
    jobs, id = running
    said: list[str] = []
    with jobs.tensorboard(id, say=said.append) as board:
        page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(board.url).read().decode()
        assert "submitted.json" in page
    assert said == ["TensorBoard starts on the head node"]
    with pytest.raises(TransportError, match="TensorBoard has ended"):
        board.wait()
    with pytest.raises(JobError, match="Leave out --image"), jobs.tensorboard(id, image="x"):
        pass
    without = SlurmBackend(jobs.cluster, LocalTransport(env=slurm.node_env()))
    with (
        pytest.raises(JobError, match=r"there is no tensorboard in /\S+venv\S*\. Install it"),
        without.tensorboard(id),
    ):
        pass


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["status", "JOB"],
        ["status", "latest"],
        ["status", "BEGIN"],
        ["logs", "latest"],
        ["logs", "BEGIN"],
        ["logs", "--rank", "40", "BEGIN"],
        ["nodes", "top", "BEGIN"],
        ["shell", "latest", "--", "true"],
        ["logs", "JOB"],
        ["logs", "--tail", "3", "--metrics", "JOB"],
        ["report", "BEGIN", "--output", "PAGE"],
        ["nodes"],
        ["nodes", "top", "JOB"],
        ["shell", "JOB", "--", "true"],
        ["submit", "w.sh", "--name", "counted", "--token", "20261127-000000"],
        ["cancel", "counted-2"],
    ],
    ids=" ".join,
)
def test_each_command_is_one_request(
    words: list[str], running: tuple[SlurmBackend, str], sent: list[str], slurm: LocalSlurm, tmp_path: Path
) -> None:
    """Each takes seconds through Run Command."""
    jobs, id = running
    (Path(slurm.node_env()["TRN_SHARED_ROOT"]) / f"efs/trn/jobs/{id}/submitted.json").touch()  # the latest
    (tmp_path / "cluster.json").write_text(jobs.cluster.model_dump_json())
    (tmp_path / "w.sh").write_text("#!/bin/bash\nsleep 600\n")
    known = {"w.sh": str(tmp_path / "w.sh"), "JOB": id, "BEGIN": id[:-1], "PAGE": str(tmp_path / "page.html")}
    before = [known.get(word, word) for word in words]
    end = before.index("--") if "--" in before else len(before)
    options = ["--local", "--cluster", str(tmp_path / "cluster.json")]
    with contextlib.suppress(typer.Exit):
        cli.app([*before[:end], *options, *before[end:]], standalone_mode=False)
    assert len(sent) == 1, sent


def test_each_tunnel_is_one_request(running: tuple[SlurmBackend, str], sent: list[str]) -> None:
    """And one more, where what was started on the head node is to end."""
    jobs, id = running
    with jobs.forward(id, node=1, patience=60):
        assert sent == ["start relay"]
    assert (jobs.ask(ReadLog(id, rank=40)).node, sent[1:]) == (1, ["log"])
    with pytest.raises(JobError, match=rf"{id} has ranks 0 to 63, not 64\. Choose one of them"):
        jobs.ask(ReadLog(id, rank=64))
    with jobs.forward(id, rank=40, patience=60):
        assert sent[3:] == ["start relay"]
    with jobs.tensorboard(id, say=lambda _: None):
        assert sent[4:] == ["start tensorboard"]
    assert sent[5:] == ["stop tensorboard"]


@pytest.fixture
def sent(running: tuple[SlurmBackend, str], slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations of the requests that are sent during a test."""
    found: list[str] = []
    ask = LocalTransport.ask

    def noted(self: LocalTransport, cluster: SlurmCluster, request: str, *more: Any) -> Result:
        found.append(json.loads(request)["op"])
        return ask(self, cluster, request, *more)

    monkeypatch.setattr(LocalTransport, "ask", noted)
    for name, value in slurm.node_env().items():
        monkeypatch.setenv(name, value)
    return found


def page(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as answer:
        return bytes(answer.read())


def test_a_port_of_a_job(running: tuple[SlurmBackend, str], slurm: LocalSlurm) -> None:
    """The one that the job offers, and one that is named; many connections at once; nothing is left."""
    jobs, id = running

    def steps() -> list[str]:
        """Those that are named after Python: the job's own, and the relay's."""
        command = ["squeue", "--noheader", "--steps", "--format=%j"]
        names = completed(command, env=slurm.node_env(), check=True).stdout.split()
        return [name for name in names if name == "python3"]

    own = steps()

    with jobs.forward(id, node=1, patience=60) as tunnel:
        assert len(steps()) == len(own) + 1
        assert tunnel.url == f"{tunnel.address}page?token=s3cret"
        with ThreadPoolExecutor(6) as browser:
            assert set(browser.map(page, [tunnel.url] * 30)) == {b"the page\n"}
        with jobs.forward(id, tunnel.there) as second, socket.create_server(("127.0.0.1", 0)) as taken:
            assert tunnel.there != second.port != tunnel.port, (
                "taken by the server itself, as all nodes are on this machine"
            )
            assert page(f"{second.address}page") == b"the page\n"
            number = taken.getsockname()[1]
            with pytest.raises(JobError, match=f"port {number} of this machine cannot be used: Address already in use"):
                jobs.forward(id, tunnel.there, local=number).__enter__()
        assert tunnel.alive()
        with pytest.raises(JobError, match=r"nothing answers at port 1 of node 0 of \S+: Connection refused. Has the"):
            jobs.forward(id, 1).__enter__()
        with pytest.raises(JobError, match=r"nodes 0 to 1, not 5"):
            jobs.forward(id, 1, node=5).__enter__()
    assert not tunnel.alive()
    with pytest.raises(TransportError, match=r"the tunnel to \S+ has ended: its job has ended or started again"):
        tunnel.wait()
    assert wait_until(lambda: steps() == own, 60), steps()
    waiting = jobs.submit(Script(filename="w.sh", content=b"true", nodes=4))
    with pytest.raises(JobError, match=r"does not run: it is PENDING"):
        jobs.forward(waiting.id, 8888).__enter__()
    jobs.cancel(waiting.id)


def test_a_port_through_session_manager(
    running: tuple[SlurmBackend, str], far: SlurmBackend, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many connections at once, of pages of any size. Neither the job's secret nor the caller's is in the session's parameters."""
    _, id = running
    with far.forward(id, node=1, patience=60) as tunnel, ThreadPoolExecutor(6) as browser:
        assert set(browser.map(page, [tunnel.url] * 30)) == {b"the page\n"}
        [session] = local_aws.client("ssm").describe_sessions(State="Active")["Sessions"]
    assert session["DocumentName"] == "AWS-StartPortForwardingSessionToRemoteHost"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(TransportError, match="session-manager-plugin is not installed, by which"):
        far.forward(id, node=1, patience=60).__enter__()


def test_forward_in_a_pipe(running: tuple[SlurmBackend, str], slurm: LocalSlurm, tmp_path: Path) -> None:
    """One line, without the secret; Ctrl-C ends the tunnel, and not the job."""
    jobs, id = running
    (tmp_path / "cluster.json").write_text(jobs.cluster.model_dump_json())
    trn = [str(Path(sys.executable).with_name("trn")), "forward", id]
    options = ["--local", "--cluster", str(tmp_path / "cluster.json")]
    env = {**os.environ, **slurm.node_env()}
    command = [*trn, "--node", "1", "--wait", *options]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert page(f"{url}page") == b"the page\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert f"of node 1 of {id} (its path is shown on a terminal only). Ctrl-C ends the tunnel; the job continues" in err
    assert err.endswith(f"the tunnel has ended; {id} still runs. To end it: trn cancel {id}\n")
    assert "s3cret" not in url + err
    assert jobs.status(id).state == "RUNNING"
    wrong = completed([*trn, "8888:0", *options], env=env)
    assert (wrong.returncode, "'8888:0' is not PORT or PORT:LOCAL" in wrong.stderr) == (1, True), wrong.stderr


def test_forward_by_the_name_of_a_node(running: tuple[SlurmBackend, str], slurm: LocalSlurm, tmp_path: Path) -> None:
    """As a step of the job that runs there: Slurm refuses a node that is not the job's."""
    jobs, id = running
    mine = [node.name for node in jobs.nodes() if node.job == f"{id}:train"]
    idle = next(node.name for node in jobs.nodes() if not node.job)
    with jobs.forward(id, node=mine[1], patience=60) as tunnel:
        assert page(tunnel.url) == b"the page\n"
        port = tunnel.there
    with pytest.raises(JobError, match="no step of the job could be started: srun: error"):
        jobs.forward(id, port, node=idle).__enter__()
    with pytest.raises(JobError, match=f"nothing answers at port 1 of node {mine[0]} of {id}"):
        jobs.forward(id, 1, node=mine[0]).__enter__()
    (tmp_path / "cluster.json").write_text(jobs.cluster.model_dump_json())
    trn, env = str(Path(sys.executable).with_name("trn")), {**os.environ, **slurm.node_env()}

    def forward(*words: str) -> subprocess.Popen[str]:
        command = [trn, "forward", *words, "--local", "--cluster", str(tmp_path / "cluster.json")]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with forward(mine[1], str(port)) as process:
        assert process.stdout
        assert page(f"{process.stdout.readline().strip()}page") == b"the page\n"
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
    assert (process.returncode, f"port {port} of node {mine[1]} of {id}. Ctrl-C ends" in err) == (0, True), err
    for words, code, message in (
        (
            (idle, "1"),
            1,
            f"a port of node {idle} is forwarded through a job of trn, and none runs there. `trn nodes` shows",
        ),
        (
            ("compute1-dy-trn-99",),
            1,
            "`trn nodes` lists them. Also, there is no job",
        ),
        ((mine[0], "--node", "1"), 1, f"{mine[0]} is a node: leave out --node and --rank"),
    ):
        with forward(*words) as process:
            assert message in (err := process.communicate(timeout=120)[1]), err
        assert process.returncode == code


@pytest.mark.parametrize(
    ("mode", "asked", "answer"),
    [
        (0o600, "right offer", b"8888 /lab?token=x\n"),
        (0o640, "right offer", b""),
        (0o600, "wrong offer", b""),
        (0o600, "wrong stay", b""),
        (0o600, "right 1", b"Connection refused\n"),
        (0o600, "right x", None),
    ],
)
def test_the_relay_serves_its_caller_only(mode: int, asked: str, answer: bytes | None, tmp_path: Path) -> None:
    offer = tmp_path / "forward"
    offer.write_text("8888 /lab?token=x\n")
    offer.chmod(mode)
    near, far = socket.socketpair(socket.AF_UNIX)
    with near:
        near.sendall(f"{asked}\n".encode())
        relay.serve(far, hashlib.sha256(b"right").hexdigest(), str(offer), threading.Event())
        found = near.recv(1000)
    assert found == answer if answer is not None else found


@pytest.mark.parametrize("text", ["", "x", "0 /a", "65536", "88 lab", "88 /a b", "88 /\x1b[2J", "88 //evil\n/x"])
def test_offers_that_are_none(text: str) -> None:
    with pytest.raises(JobError, match=r"offers no port: f has no line like `8888 /lab`"):
        offered(text, "f")


def test_what_is_no_report() -> None:
    assert [metrics.use_of(0, text) for text in ("", "x", "[]", '{"neuron_runtime_data": [{}]}', '{"a": 1}')] == [
        None
    ] * 5
    assert metrics.use_of(1, '{"neuron_runtime_data": []}') == Use(1, 0, None, None, None, None, None)
