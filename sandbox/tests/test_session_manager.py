"""AWS's own session-manager-plugin with the local Session Manager: tunnels and terminals."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pty
import re
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.local_aws import LocalAws
from sandbox.testing import completed, head_node, session_manager_plugin, until
from trainium_cdk.client.jobs.forward import TO_HOST, forward_port, free_port

pytestmark = pytest.mark.sweep

TERMINAL = "from trainium_cdk.client.jobs.forward import terminal; import sys; print(terminal(*sys.argv[1:]))"


@pytest.fixture(scope="module")
def node(local_aws: LocalAws) -> Iterator[str]:
    """A head node, whose commands run in this machine's shell."""
    with head_node(local_aws, "sessions") as instance:
        folder = local_aws.directory / "clusters/sessions"
        folder.mkdir(parents=True)
        (folder / "node.json").write_text(json.dumps({"env": {"WHERE": "head node"}, "cwd": str(folder)}))
        yield instance
        (folder / "node.json").unlink()
        folder.rmdir()


@pytest.fixture
def plugin(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{session_manager_plugin()}:{os.environ['PATH']}"
    for name, value in {**local_aws.variables, "PATH": path}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    class Page(http.server.BaseHTTPRequestHandler):
        """`GET /N` has a page of N bytes."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * int(self.path[1:]))

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_port
        found.shutdown()


def length(port: int, size: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as here:
        here.sendall(f"GET /{size} HTTP/1.0\r\n\r\n".encode())
        with here.makefile("rb") as file:
            return len(file.read().partition(b"\r\n\r\n")[2])


@pytest.mark.usefixtures("plugin")
def test_a_tunnel(node: str, server: int, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many connections, of any size, one of which ends early. Nothing is left of it."""
    sockets = Path(tempfile.mkdtemp())  # a short path, as sockets need
    monkeypatch.setenv("TMPDIR", str(sockets))
    port = free_port()
    end = forward_port(node, "us-east-1", TO_HOST, {"host": "localhost", "portNumber": str(server)}, port)
    sizes = [0, 1, 1015, 1016, 1017, 300_000] * 5
    with ThreadPoolExecutor(6) as some, socket.create_connection(("127.0.0.1", port)) as cut:
        cut.sendall(b"GET /1000000 HTTP/1.0\r\n\r\n")
        found = list(some.map(length, [port] * len(sizes), sizes))
    assert found == sizes
    assert list(sockets.iterdir())
    end()
    sockets.rmdir()
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port)):
        pass
    assert not local_aws.client("ssm").describe_sessions(State="Active")["Sessions"]


@pytest.mark.usefixtures("plugin")
def test_a_tunnel_to_a_closed_port(node: str) -> None:
    port, closed = free_port(), free_port()
    end = forward_port(node, "us-east-1", TO_HOST, {"host": "127.0.0.1", "portNumber": str(closed)}, port)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as here:
        assert here.recv(1) == b""
    end()


@contextlib.contextmanager
def terminal(*arguments: str) -> Iterator[int]:
    """The plug-in in a terminal of its own, of which this is our end."""
    process, ours = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", TERMINAL, *arguments])  # noqa: S606
    try:
        yield ours
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)


def read(terminal: int, pattern: bytes) -> re.Match[bytes]:
    found = b""
    while (match := re.search(pattern, found, re.DOTALL)) is None:
        assert select.select([terminal], [], [], 60)[0], found
        found += os.read(terminal, 10_000)
    return match


@pytest.mark.usefixtures("plugin")
def test_a_command_in_a_terminal(node: str) -> None:
    """Its input, and Ctrl-C, which ends the program there and not the session."""
    command = """trap 'echo "not $WHERE"' INT; read -r line; sh -c 'echo "got $0"; exec sleep 600' "$line"; echo done"""
    with terminal(node, "us-east-1", command) as screen:
        os.write(screen, b"a line\r")
        read(screen, b"got a line")
        os.write(screen, b"\x03")
        read(screen, b"not head node.*done.*Exiting session")


@pytest.mark.usefixtures("plugin")
def test_a_shell_ends_with_its_session(node: str, local_aws: LocalAws) -> None:
    ssm = local_aws.client("ssm")
    with terminal(node, "us-east-1") as screen:
        os.write(screen, b"sleep 600 & echo process=$!=\r")
        number = int(read(screen, rb"process=(\d+)=")[1])
        [session] = ssm.describe_sessions(State="Active")["Sessions"]
        ssm.terminate_session(SessionId=session["SessionId"])
        read(screen, b"Exiting session")
    with pytest.raises(ProcessLookupError):
        until(lambda: os.kill(number, 0), 60)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"Target": "i-0123456789abcdef0"}, "TargetNotConnected"),
        ({"DocumentName": "AWS-StartNothing"}, "InvalidDocument"),
        ({"DocumentName": TO_HOST, "Parameters": {"port": ["1"]}}, "InvalidParameters"),
    ],
)
def test_refused_requests(request_: dict[str, object], message: str, node: str, local_aws: LocalAws) -> None:
    ssm = local_aws.client("ssm")
    with pytest.raises(ssm.exceptions.ClientError, match=message):
        ssm.start_session(**{"Target": node, **request_})


@pytest.mark.usefixtures("plugin")
def test_a_wrong_token(node: str, local_aws: LocalAws) -> None:
    """Only the caller of StartSession opens the channel, and once."""
    session = local_aws.client("ssm").start_session(Target=node)
    secret = {key: session[key] for key in ("SessionId", "TokenValue", "StreamUrl")} | {"TokenValue": "wrong"}
    name = "AWS_SSM_START_SESSION_RESPONSE"
    done = completed(
        ["session-manager-plugin", name, "us-east-1", "StartSession", "", json.dumps({"Target": node}), ""],
        env={**os.environ, name: json.dumps(secret)},
        timeout=60,
    )
    assert "the token of the session is not valid" in done.stdout
