"""Running commands in a pod, and forwarding ports to it.

Not by `kubectl port-forward`. It listens on its own port and checks no name, so a web page that makes its own name point there reads what
answers (Linkerd's audit of 2019: linkerd2 issue 3083). It also ends all connections when one of them is refused, and with containerd when one is
reset (client-go 0.36, tools/portforward/portforward.go, `handleConnection`; kubernetes issue 111825, containerd issue 9875).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainium_cdk.client.jobs.backend import until
from trainium_cdk.client.jobs.forward import OFFER, Listener, Tunnel, join, offered, patiently, refused
from trainium_cdk.client.jobs.kubernetes import status
from trainium_cdk.client.jobs.kubernetes.look import JobSource
from trainium_cdk.client.jobs.kubernetes.parts import TRAIN
from trainium_cdk.client.jobs.runner import MOST_PACKED
from trainium_cdk.errors import JobError, TransportError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.kubernetes.api import Api

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = 0, 1, 2, 3, 4
_SHOW = "import os, sys; print(open(os.environ.get('TRN_SHARED_ROOT', '') + sys.argv[1]).read(1000))"
_REFUSAL_SECONDS = 2.0
"""Seconds in which a pod reports that nothing listens."""
_OUTPUT_SECONDS = 600.0
"""Seconds in which a command whose output is read ends."""
_CLOSE_SECONDS = 30.0
"""Seconds; longer than the client waits for the server to close the connection."""


def place(backend: JobSource, id: str, node: int | str) -> tuple[str, str]:
    """The names of the pod and the container of a job on a node, which is given by its number in the job or by its name.

    Raises:
        JobError: the job has no such node, or no pod runs there.
    """
    seen = backend.seen(id)
    now = status.status(seen)
    if isinstance(node, int) and not 0 <= node < max(1, now.nodes):
        raise JobError(f"{now.id} has nodes 0 to {now.nodes - 1}, not {node}. Choose one of them")
    for pod in seen.pods:
        here = status.index(pod) if isinstance(node, int) else pod["spec"].get("nodeName")
        if (status.task(pod), here) == (TRAIN, node):
            for container in (TRAIN, "precompile"):
                if "running" in status.container_state(pod, container):
                    return pod["metadata"]["name"], container
    raise JobError(f"no pod of {now.id} runs on node {node}: the job is {now.state}. See trn status {now.id}")


def run(api: Api, pod: str, container: str, command: Sequence[str], *, terminal: bool | None = None) -> int:
    """Run a command in a container, with this process's input and output; its exit code.

    Args:
        terminal: whether it gets a terminal. Default: if this process has one.

    Raises:
        TransportError: the API rejected the request, or the connection was lost.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty() if terminal is None else terminal
    with _session(api, pod, container, command, terminal) as session:
        with contextlib.ExitStack() as stack:
            if terminal:
                stack.enter_context(_raw())
                stack.enter_context(_resized(session))
            _pump(session)
        return _exit_code(session)


def output(api: Api, pod: str, container: str, command: Sequence[str]) -> str:
    """The output of a command in a container, with its errors.

    Raises:
        TransportError: the API rejected the request, or the connection was lost.
    """
    found, end = bytearray(), time.monotonic() + _OUTPUT_SECONDS
    with _session(api, pod, container, command, False) as session:
        while session.is_open():
            session.update(timeout=1)
            found += (session.read_channel(_STDOUT) or b"") + (session.read_channel(_STDERR) or b"")
            if len(found) > MOST_PACKED or time.monotonic() > end:
                what = "printed more than an answer can be" if time.monotonic() < end else "did not end"
                raise TransportError(f"{command[0]} in pod {pod} {what}", again=False)
        _exit_code(session)
    return found.decode(errors="replace")


@contextlib.contextmanager
def _session(api: Api, pod: str, container: str, command: Sequence[str], terminal: bool) -> Iterator[Any]:
    session = _exec(api, pod, container, command, terminal)
    try:
        yield session
    finally:
        session.close()
        session.sock.shutdown()  # `close` does not do this if the server has closed first


def _exec(api: Api, pod: str, container: str, command: Sequence[str], terminal: bool) -> Any:
    from kubernetes.client.api.core_v1_api import CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import stream

    try:
        return stream(
            CoreV1Api(api.client).connect_get_namespaced_pod_exec,
            pod,
            api.namespace,
            container=container,
            command=list(command),
            stdin=True,
            stdout=True,
            stderr=not terminal,
            tty=terminal,
            _preload_content=False,
            binary=True,
        )
    except ApiException as e:
        raise TransportError(f"{command[0]} cannot be run in {pod}: {e.reason}") from None


def _pump(session: Any) -> None:
    from websocket import WebSocketException

    source = sys.stdin.fileno() if _usable(sys.stdin) else -1
    while session.is_open():
        try:
            session.update(timeout=0.05)
        except (WebSocketException, OSError):
            break  # the server has closed first; the exit code shows whether the command had ended
        _hand_out(session)
        if source >= 0 and select.select([source], [], [], 0)[0]:
            typed = os.read(source, 65_536)
            try:
                if typed:
                    session.write_channel(_STDIN, typed)
                else:
                    session.close_channel(_STDIN)
            except (WebSocketException, OSError):
                typed = b""  # likewise; what it has sent is still to be read
            if not typed:
                source = -1
    _hand_out(session)  # output that arrived with the end


def _hand_out(session: Any) -> None:
    for channel, out in ((_STDOUT, sys.stdout), (_STDERR, sys.stderr)):
        if text := session.read_channel(channel):
            out.buffer.write(text)
            out.buffer.flush()


def _usable(stream: Any) -> bool:
    try:
        return stream is not None and stream.fileno() >= 0
    except (OSError, ValueError):
        return False


def _exit_code(session: Any) -> int:
    """The exit code that the API reported. Raises TransportError if it reported none."""
    try:
        result = json.loads(session.read_channel(_ERROR) or b"{}")
    except ValueError:
        result = {}
    if result.get("status") == "Success":
        return 0
    for cause in result.get("details", {}).get("causes", []):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    message = str(result.get("message", "")).strip()
    if found := re.search(r"exit status (\d+)$", message):  # from container runtimes that report no separate code
        return int(found[1])
    raise TransportError(f"the command did not complete: {message or 'the connection was lost'}")


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Send keys to the pod as they are typed, also Ctrl-C."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setraw(sys.stdin.fileno())
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resized(session: Any) -> Iterator[None]:
    """Keep the pod's terminal as large as this one."""

    def send_size(*_: object) -> None:
        size = shutil.get_terminal_size()
        session.write_channel(_RESIZE, b'{"Width": %d, "Height": %d}' % (size.columns, size.lines))

    before = signal.signal(signal.SIGWINCH, send_size)
    try:
        send_size()
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


class Forward(Listener):
    """A port of this machine that leads to a port of a pod. Arguments and errors as of `Listener`."""

    def __init__(self, api: Api, pod: str, port: int, *, local: int = 0, prefer: int = 0) -> None:
        self._api, self._pod, self._port, self._opening = api, pod, port, threading.Lock()
        super().__init__(self._forward, local, prefer)

    def refusal(self) -> str:
        """Describe why the pod does not answer at its port; empty if it does."""
        with self._opened() as (opened, there):
            there.settimeout(_REFUSAL_SECONDS)
            with contextlib.suppress(TimeoutError):  # a server that waits for a request
                if not there.recv(1):
                    return str(opened.error(self._port) or "the connection was closed")
        return ""

    def _forward(self, here: socket.socket) -> None:
        # the pod was deleted or does not listen: the browser's connection is closed
        with here, contextlib.suppress(TransportError), self._opened() as (_, there):
            there.setblocking(True)
            join(here, there)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """A connection, and its socket. Raises TransportError: the API has refused it."""
        from kubernetes.client.api.core_v1_api import CoreV1Api
        from kubernetes.stream import portforward

        try:
            with self._opening:  # the client modifies itself during this call
                opened = portforward(
                    CoreV1Api(self._api.client).connect_get_namespaced_pod_portforward,
                    self._pod,
                    self._api.namespace,
                    ports=str(self._port),
                )
            there = opened.socket(self._port)
        except Exception as e:  # of many types
            reason = getattr(e, "reason", "") or type(e).__name__
            raise TransportError(f"port {self._port} of pod {self._pod} cannot be forwarded: {reason}") from None
        try:
            yield opened, there
        finally:
            there.close()  # then the client's thread closes the connection
            until(lambda: opened.websocket.sock is None, _CLOSE_SECONDS, pause=0.05)  # that thread uses it until then
            opened.websocket.shutdown()  # which the client leaves out where the server has closed first


@contextlib.contextmanager
def forward(backend: JobSource, id: str, node: int | str, port: int, local: int, patience: float) -> Iterator[Tunnel]:
    """Arguments and errors as of `Backend.forward`."""
    pod, container = place(backend, id, node)
    uid, path = backend.api.get("Pod", pod)["metadata"]["uid"], "/"
    if not port:
        file = f"{backend.status(id).directory}/{OFFER}"
        show = ["python3", "-I", "-c", _SHOW, file]
        port, path = patiently(patience, lambda: offered(output(backend.api, pod, container, show), file))

    def alive() -> bool:
        found = backend.api.find("Pod", pod)
        return bool(found and found["metadata"]["uid"] == uid and "running" in status.container_state(found, container))

    def answers() -> None:
        if reason := far.refusal():
            raise refused(id, node, port, reason)

    ended = f"the tunnel to {id} has ended: its job has ended or started again. See trn status {id}"
    far = Forward(backend.api, pod, port, local=local, prefer=port)
    patiently(patience, answers)
    with far:
        yield Tunnel(far.port, alive, ended, path, port)
