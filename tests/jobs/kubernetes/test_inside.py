"""Into running pods of a real Kubernetes: shells, ports, TensorBoard; and out again, with nothing left."""

from __future__ import annotations

import os
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from websocket import WebSocketConnectionClosedException

from sandbox.kubernetes.kwok_config import OPEN_PORTS
from sandbox.training.fakes import neuron_tools
from tests.jobs.kubernetes.conftest import Running, script, text
from tests.support import completed, swept, until
from trainium_cdk.client.jobs import metrics
from trainium_cdk.client.jobs.backend import named_node
from trainium_cdk.client.jobs.forward import answers
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, inside
from trainium_cdk.client.jobs.kubernetes.reader import serve_tensorboard
from trainium_cdk.jobs import JobError, TransportError, UnknownJob

SERVER = """#!/bin/bash
# Serves a directory as TensorBoard serves one, with its options
while [ $# -gt 0 ]; do
  case $1 in --logdir) logdir=$2 ;; --port) port=$2 ;; --host) host=$2 ;; esac
  shift 2
done
echo "serving $logdir"
exec "$PYTHON" -m http.server --bind "$host" --directory "$logdir" "$port"
"""


def test_a_command_runs_where_the_job_runs(
    backend: KubernetesBackend, running: Running, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    sent = backend.submit(script(b"sleep 3600"), "inside")
    assert until(lambda: text(backend.logs(sent.id)).count("attempt 0") == 2)
    pod, container = inside.place(backend, sent.id, 1)
    assert (pod.rpartition("-")[0], container) == ("run-inside-train-0-1", "train")
    capfdbinary.readouterr()
    command = ["bash", "-c", 'echo "task $JOB_COMPLETION_INDEX"; echo oh >&2; exit 7']
    assert inside.run(backend.api, pod, container, command, terminal=False) == 7
    assert capfdbinary.readouterr() == (b"task 1\n", b"oh\n")
    assert inside.run(backend.api, pod, container, ["true"], terminal=False) == 0
    assert capfdbinary.readouterr() == (b"", b"")
    much = ["bash", "-c", "seq 200000; seq 3 >&2"]
    assert inside.run(backend.api, pod, container, much, terminal=False) == 0
    out, err = capfdbinary.readouterr()
    assert out.split() == [b"%d" % n for n in range(1, 200_001)]
    assert err == b"1\n2\n3\n"
    with pytest.raises(JobError, match=r"nodes 0 to 1, not 5"):
        inside.place(backend, sent.id, 5)
    with pytest.raises(UnknownJob):
        inside.place(backend, "no-such", 0)


class Closing:
    """A connection that the server closes during one of the client's requests; the end of the command has arrived before."""

    def __init__(self, during: str) -> None:
        self.during, self.calls, self.sock = during, 0, self
        self.received = {1: b"last line\n", 3: b'{"status": "Success"}'}

    def _request(self, name: str) -> None:
        self.calls += 1
        if name == self.during:
            raise WebSocketConnectionClosedException("socket is already closed.")

    def is_open(self) -> bool:
        return self.calls < 10

    def update(self, timeout: float) -> None:
        self._request("update")

    def write_channel(self, channel: int, data: bytes) -> None:
        self._request("write")

    def close_channel(self, channel: int) -> None:
        self._request("end of input")

    def read_channel(self, channel: int) -> bytes:
        return self.received.pop(channel, b"")

    def close(self) -> None: ...
    def shutdown(self) -> None: ...


@pytest.mark.parametrize("during", swept(["update", "write", "end of input"], "write"))
def test_a_connection_that_the_server_closes_first_is_no_error(
    during: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    (tmp_path / "typed").write_text("exit\n")
    monkeypatch.setattr(inside, "_exec", lambda *_: Closing(during))
    with (tmp_path / "typed").open() as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        assert inside.run(cast(Any, None), "pod", "train", ["bash"], terminal=False) == 0
    assert capfdbinary.readouterr().out == b"last line\n"


def test_tensorboard_is_forwarded_and_deleted_with_its_viewer(
    backend: KubernetesBackend, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = running.tools / "tensorboard"
    tool.write_text(SERVER.replace('"$PYTHON"', sys.executable))
    tool.chmod(0o755)
    sent = backend.submit(script(b'mkdir -p "$HOME" && echo loss > /efs/trn/jobs/run-board/events.out'), "board")
    assert backend.wait(sent.id, 600).ok

    def boards() -> list[Any]:
        return [p for p in backend.api.list("Pod") if p["metadata"]["name"].startswith("trn-tensorboard-")]

    with serve_tensorboard(backend, sent.id, say=lambda _: None) as board:
        assert board.url.startswith("http://127.0.0.1:")
        plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def page(_: int) -> bytes:
            with plain.open(board.url + "events.out", timeout=900) as answer:
                return bytes(answer.read())

        assert {page(i) for i in range(3)} == {b"loss\n"}
        with ThreadPoolExecutor(6) as browser:  # which opens that many connections at once
            assert set(browser.map(page, range(30))) == {b"loss\n"}
        assert board.alive()
        [pod] = boards()
        assert pod["spec"]["nodeSelector"] == {"trainium-cdk/role": "system"}
    assert until(lambda: not boards())
    with pytest.raises(TransportError, match=r"TensorBoard's pod trn-tensorboard-\w+ has ended. Start it again"):
        board.wait()


SERVICE = """umask 077
if [ "$NODE_RANK" = 1 ]; then exec sleep 3600; fi
echo 'the page' > page
exec PYTHON -c 'if 1:
    import http.server, os
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), http.server.SimpleHTTPRequestHandler)
    open("../forward", "w").write("PORT /page?token=s3cret")
    server.serve_forever()'
"""


def test_a_port_of_a_job(backend: KubernetesBackend) -> None:
    port = next(p for p in OPEN_PORTS if not answers("127.0.0.1", p, 1))
    content = SERVICE.replace("PORT", str(port)).replace("PYTHON", sys.executable)
    sent = backend.submit(script(content.encode()), "offers")
    assert until(lambda: backend.status(sent.id).state == "RUNNING")
    waiting = backend.submit(script(nodes=1, cache="other"), "waits")
    with pytest.raises(JobError, match=r"no pod of run-waits runs on node 0: the job is \w+"):
        backend.forward(waiting.id, port).__enter__()
    backend.cancel(waiting.id)
    with backend.forward(sent.id, patience=60) as tunnel:
        assert (tunnel.there, tunnel.url) == (port, f"{tunnel.address}page?token=s3cret")
        plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with plain.open(tunnel.url, timeout=60) as answer:
            assert answer.read() == b"the page\n"
        [here, *_] = [node.name for node in backend.nodes() if node.job == f"{sent.id}:train"]
        with (
            backend.forward(sent.id, port, node=here) as by_name,
            plain.open(f"{by_name.address}page", timeout=60) as answer,
        ):
            assert answer.read() == b"the page\n"
        with pytest.raises(JobError, match=f"no pod of {sent.id} runs on node other: the job is RUNNING"):
            backend.forward(sent.id, port, node="other").__enter__()
        free = next(p for p in OPEN_PORTS if not answers("127.0.0.1", p, 1))
        with pytest.raises(JobError, match=rf"nothing answers at port {free} of node 1 of \S+: .*connection refused"):
            backend.forward(sent.id, free, node=1).__enter__()
        assert tunnel.alive()
        backend.cancel(sent.id)
        with pytest.raises(TransportError, match=r"the tunnel to \S+ has ended: its job has ended"):
            tunnel.wait()


@pytest.mark.sweep
def test_an_image_without_tensorboard_is_reported(backend: KubernetesBackend, running: Running) -> None:
    (running.tools / "tensorboard").unlink(missing_ok=True)
    sent = backend.submit(script(b"true", nodes=1), "boardless")
    assert backend.wait(sent.id, 600).ok
    with (
        pytest.raises(
            TransportError, match=r"TensorBoard ended: the image has no tensorboard. Give one that has it as --image"
        ),
        serve_tensorboard(backend, sent.id, say=lambda _: None),
    ):
        pass


def test_kubectl_works_with_the_kubeconfig(backend: KubernetesBackend, running: Running, tmp_path: Path) -> None:
    """The kubeconfig of `trn show kubeconfig`, whose tokens `trn token` creates, used by the real kubectl."""
    from sandbox.kubernetes import build

    trn = Path(sys.executable).with_name("trn")
    cluster = tmp_path / "cluster.json"
    cluster.write_text(running.cluster.model_dump_json())
    config = tmp_path / "kubeconfig"
    env = {**running.variables, "HOME": str(tmp_path), "PATH": f"{trn.parent}:/usr/bin:/bin", "KUBECONFIG": str(config)}

    def run(*command: object) -> str:
        done = completed([*map(str, command)], env=env, timeout=900)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(trn, "show", "kubeconfig", "--cluster", cluster, "-o", config)
    assert config.stat().st_mode & 0o777 == 0o600
    sent = backend.submit(script(b"echo hello", nodes=1), "kubectl")
    assert backend.wait(sent.id, 600).ok
    kubectl = build.program("kubectl")
    assert "run-kubectl" in run(kubectl, "get", "jobsets,workloads,localqueues")
    assert "hello" in run(kubectl, "logs", "-l", "trainium-cdk/job=run-kubectl", "-c", "train")
    assert "hello" in text(backend.logs(sent.id))


def test_the_nodes_their_use_and_the_instance_of_one(
    backend: KubernetesBackend, running: Running, tmp_path: Path
) -> None:
    sent = backend.submit(script(b"sleep 3600"), "nodes")
    assert until(lambda: text(backend.logs(sent.id)).count("attempt 0") == 2)
    monitor = tmp_path / "neuron-monitor"  # kwok runs commands outside the image
    fakes = Path(neuron_tools.__file__).parents[1]
    run = (
        f"TRN_SANDBOX_DEVICES='*=16x2x8' PYTHONPATH={fakes} exec {sys.executable} -m fakes.neuron_tools neuron-monitor"
    )
    monitor.write_text(f'#!/bin/sh\n{run} "$@"\n')
    monitor.chmod(0o755)
    said = backend.on_nodes(sent.id, ["env", f"PATH={tmp_path}:{os.environ['PATH']}", *metrics.ask_use()])
    assert [metrics.use_of(node, text) for node, text in enumerate(said)] == [
        metrics.Use(node, 32, 51.5, 50.0, 3_000_000_000, 64_000_000_000, 512_000_000_000) for node in (0, 1)
    ], said
    *training, system = backend.nodes()
    assert [(node.queue, node.instance_type, node.state, node.job) for node in training] == [
        ("trn", "trn1.32xlarge", "ready", f"{sent.id}:train")
    ] * 2
    assert (system.queue, system.state, system.job, system.reason) == ("", "ready", "", "")
    assert all(node.booted and node.address for node in (*training, system))
    assert re.fullmatch(r"i-[0-9a-f]+", backend.session(training[0])[0])
    with pytest.raises(JobError, match=rf"there is no node '{system.name}x'. Did you mean {system.name}\?"):
        named_node(backend.nodes(), f"{system.name}x")
    with pytest.raises(JobError, match=r"has no bastion host\. Name a node"):
        backend.session()
    running.kubernetes.kubectl("cordon", training[1].name)
    try:
        assert backend.nodes()[1].state == "ready+cordoned"
    finally:
        running.kubernetes.kubectl("uncordon", training[1].name)
