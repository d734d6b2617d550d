"""Ports of this machine that lead to a cluster: the near end, whatever leads there; and sessions of Session Manager, which forward ports and open
terminals through an instance, with no open port and no key."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, Self, TypeVar

from trainium_cdk._aws import client, credentials_error, failures
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.runner.layout import OFFER as OFFER

_LOOK_SECONDS = 5.0
_PIECE = 65_536
_LINGER_SECONDS = 2.0
_HEAD_SECONDS = 1.0
"""After which a head that is still incomplete is not a browser's: those send it at once."""
_REQUEST = re.compile(rb"[!-~]+ /\S*(?: HTTP/1|\Z)")
_JUDGED = re.compile(rb"\r\n(host|origin|sec-fetch-site):[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.IGNORECASE)
_LOCAL = re.compile(rb"(?:127\.0\.0\.1|localhost)(?::[0-9]*)?")
_TOLD = b"Open this page at 127.0.0.1 or localhost, in the browser's address bar: links and requests of other pages are refused.\n"
_NOT_HERE = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
    % (len(_TOLD), _TOLD)
)


@dataclass(frozen=True)
class Tunnel:
    """A port of 127.0.0.1 that leads to a program in the cluster.

    Attributes:
        port: on this machine.
        alive: whether the other end is still there.
        ended: what to say when it is not.
        path: of the program's page; it may hold a token.
        there: the port at the other end, where it was asked for.
    """

    port: int
    alive: Callable[[], bool]
    ended: str
    path: str = "/"
    there: int = 0

    @property
    def address(self) -> str:
        """Return the address without the path."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def url(self) -> str:
        return self.address + self.path.removeprefix("/")

    def wait(self) -> None:
        """Wait until the other end has gone.

        Raises:
            TransportError: when it has.
        """
        while self.alive():
            time.sleep(_LOOK_SECONDS)
        raise TransportError(self.ended)


class Listener:
    """Listens on a port of 127.0.0.1 as long as its context lasts; each connection is served in a thread.

    Args:
        serve: serves one connection, and closes it.
        local: the port. Default: `prefer` if it is free, else any.

    Attributes:
        port: at which it listens.

    Raises:
        JobError: on entering: the port is taken.
    """

    def __init__(self, serve: Callable[[socket.socket], None], local: int = 0, prefer: int = 0) -> None:
        self._serve, self._local, self._prefer = serve, local, prefer

    def __enter__(self) -> Self:
        local = self._local
        try:
            self._server = socket.create_server(("127.0.0.1", local or self._prefer))
        except OSError as e:
            if local:
                raise JobError(
                    f"port {local} of this machine cannot be used: {e.strerror}. Choose another one, or leave it out"
                ) from None
            self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                here, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(here,), daemon=True).start()


def offered(text: str, file: str) -> tuple[int, str]:
    """The port and the path in a job's offer (`OFFER`).

    Raises:
        JobError: it is empty, or not like that.
    """
    port, _, path = text.strip().partition(" ")
    plain = path.startswith("/") and path.isascii() and path.isprintable() and " " not in path
    if not (port.isdecimal() and 0 < int(port) < 65_536 and (plain or not path)):
        raise JobError(
            f"the job offers no port: {file} has no line like `8888 /lab`. Give the port, or try again when its program has started"
        )
    return int(port), path or "/"


T = TypeVar("T")


def patiently(seconds: float, look: Callable[[], T]) -> T:
    """The first result of `look` that is no JobError, for which it is repeated.

    Raises:
        JobError: the last one, after that many seconds.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return look()
        except JobError:
            if time.monotonic() > end:
                raise
            time.sleep(1)


def _read(here: socket.socket) -> bytes:
    """Read the next bytes of a connection; of an HTTP request, the whole head."""
    data = here.recv(_PIECE)
    while _REQUEST.match(data) and b"\r\n\r\n" not in data and len(data) < _PIECE:
        if not select.select([here], [], [], _HEAD_SECONDS)[0] or not (more := here.recv(_PIECE)):
            break
        data += more
    return data


def _is_foreign(data: bytes) -> bool:
    """Return whether these bytes are a browser's request that a page of another origin made. Browsers name the host and the origin, and since 2023
    all send Sec-Fetch-Site (https://www.w3.org/TR/fetch-metadata/), which no page can change. Without these headers it is not a browser."""
    if not _REQUEST.match(data):
        return False
    head, end, _ = data.partition(b"\r\n\r\n")
    named: dict[bytes, set[bytes]] = {b"host": set(), b"origin": set(), b"sec-fetch-site": set()}
    for name, value in _JUDGED.findall(head + b"\r\n"):
        named[name.lower()].add(value.lower())
    hosts, origins, sites = named.values()
    own = {b"http://" + host for host in hosts} | ({b"null"} if sites == {b"same-origin"} else set())
    return (not end and len(data) >= _PIECE) or not (
        all(map(_LOCAL.fullmatch, hosts)) and origins <= own and sites <= {b"same-origin", b"none"}
    )


def _refuse(here: socket.socket) -> None:
    """Say so, and read what is still sent: a connection that is closed before loses the answer."""
    here.sendall(_NOT_HERE)
    here.shutdown(socket.SHUT_WR)
    here.settimeout(_LINGER_SECONDS)
    end = time.monotonic() + _LINGER_SECONDS
    while time.monotonic() < end and here.recv(_PIECE):
        pass


def join(here: socket.socket, there: Any) -> None:
    """Copy between two connections until both ends have closed. From a browser, only the program's own pages get through. Each request of
    a connection is judged: a browser may send several pages' requests over one."""

    def back() -> None:
        wanted = True  # all of it is read even if the caller has gone: the Kubernetes client's thread fails if nothing takes its data
        with contextlib.suppress(OSError):
            while data := there.recv(65_536):
                if wanted:
                    try:
                        here.sendall(data)
                    except OSError:
                        wanted = False
        with contextlib.suppress(OSError):
            here.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=back, daemon=True)
    thread.start()
    with contextlib.suppress(OSError):
        data = _read(here)
        web = _REQUEST.match(data)
        while data:
            if web and _is_foreign(data):
                _refuse(here)
                break
            there.sendall(data)
            data = _read(here) if web else here.recv(_PIECE)
    with contextlib.suppress(OSError):
        there.shutdown(socket.SHUT_WR)
    thread.join()


def refused(id: str, node: int | str, port: int, reason: str) -> JobError:
    return JobError(
        f"nothing answers at port {port} of node {node} of {id}: {reason[:200]}. Has the program started, and does it listen on 127.0.0.1?"
    )


PLUGIN = "session-manager-plugin"
TO_HOST = "AWS-StartPortForwardingSessionToRemoteHost"
"""The document that forwards to another host, as the instance reaches it."""
_COMMAND = "AWS-StartInteractiveCommand"
_RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
_LEAST = (1, 2, 497)
"""First version that takes the session's secret from a variable, and not from its command line, which other users can read."""
_READY_SECONDS = 30.0
_END_OF_INPUT_SECONDS = 1.0


def answers(host: str, port: int, timeout: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False


def serves(url: str) -> bool:
    """Return whether a server of this machine responds. No proxy is asked."""
    import urllib.request  # only here: it is large

    plain: Any = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), plain.open(url, timeout=5):  # urllib's errors are OSErrors
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def plugin() -> str:
    found = shutil.which(PLUGIN)
    if found is None:
        raise TransportError(
            f"{PLUGIN} is not installed, by which the VPC is reached. Install it (AWS Systems Manager user guide), or work from "
            "inside the VPC",
            again=False,
        )
    version = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=20, check=False
    ).stdout.strip()
    numbers = tuple(int(n) for n in version.split(".")[:3] if n.isdigit())
    if numbers < _LEAST:
        raise TransportError(
            f"{PLUGIN} is {version or 'of no known version'}; {'.'.join(map(str, _LEAST))} or newer is needed, which keeps the "
            "session's secret off its command line. Install a newer one"
        )
    return found


def _start(
    target: str, region: str, document: str, parameters: Mapping[str, str]
) -> tuple[list[str], dict[str, str], Callable[[], None]]:
    """Start a session: the plug-in's command line and environment, and a function that ends the session.

    Raises:
        TransportError: the plug-in is missing or too old, or the session cannot be started.
    """
    found = plugin()
    wanted: dict[str, Any] = {"Target": target}
    if document:
        wanted |= {"DocumentName": document, "Parameters": {name: [value] for name, value in parameters.items()}}
    try:
        ssm = client("ssm", region)
        session = ssm.start_session(**wanted)
    except failures() as e:
        reason = credentials_error(e) or f"{e}. Is it running, and may you call ssm:StartSession on it?"
        raise TransportError(f"no session with {target}: {reason}") from None
    secret = json.dumps({key: session[key] for key in ("SessionId", "TokenValue", "StreamUrl")})

    def end() -> None:
        with contextlib.suppress(*failures()):
            ssm.terminate_session(SessionId=session["SessionId"])

    command = [found, _RESPONSE, region, "StartSession", "", json.dumps(wanted), ssm.meta.endpoint_url]
    return command, {**os.environ, _RESPONSE: secret}, end


def terminal(target: str, region: str, command: str = "") -> int:
    """A shell on an instance, or a command there, with this terminal, until it ends. Ctrl-C is for the program there.

    Returns:
        The plug-in's exit code: Session Manager does not report the command's.

    Raises:
        TransportError: as of `forward`.
    """
    started, env, end = _start(target, region, _COMMAND if command else "", {"command": command} if command else {})
    ignored = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
    handlers = [signal.signal(one, signal.SIG_IGN) for one in ignored]
    try:
        with subprocess.Popen(started, env=env, stdin=None if os.isatty(0) else subprocess.PIPE) as process:
            if process.stdin:
                threading.Thread(target=_feed, args=(process.stdin,), daemon=True).start()
            return process.wait()
    finally:
        for one, handler in zip(ignored, handlers, strict=True):
            signal.signal(one, handler)
        end()


def _feed(plugin: IO[bytes]) -> None:
    """Give the plug-in this process's input, and then Ctrl-D for the program: at the end of its own input it would end the session, with
    what the program has still to print. Ctrl-D is repeated, as a terminal loses one that comes while a shell changes the terminal's mode."""
    with contextlib.suppress(OSError, ValueError):  # the plug-in has ended
        for data in chain(iter(lambda: os.read(0, 1024), b""), _ends_of_input()):
            plugin.write(data)
            plugin.flush()


def _ends_of_input() -> Iterator[bytes]:
    while True:
        yield b"\x04"
        time.sleep(_END_OF_INPUT_SECONDS)


def forward_port(
    target: str, region: str, document: str, parameters: Mapping[str, str], port: int
) -> Callable[[], None]:
    """Forward a port of this machine through an instance, as long as this process lasts, or until the function that it returns is called.

    Args:
        target: id of the instance.
        document: of Session Manager, which forwards ports; `parameters`: its own, without the local port.

    Raises:
        TransportError: the plug-in is missing or too old, or the session cannot be started.
    """
    command, env, terminate = _start(target, region, document, {**parameters, "localPortNumber": str(port)})
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is handled in this process, which then ends it
    )

    def end() -> None:
        atexit.unregister(end)
        process.send_signal(signal.SIGINT)  # SIGTERM ends the plug-in without the deletion of its socket
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr:
            process.stderr.close()
        terminate()

    atexit.register(end)
    until = time.monotonic() + _READY_SECONDS
    while not answers("127.0.0.1", port, 1.0):
        if process.poll() is not None:
            error = (process.stderr.read() if process.stderr else "").strip().splitlines()[-1:]
            raise TransportError(f"the tunnel through {target} ended: {' '.join(error) or 'no reason reported'}")
        if time.monotonic() > until:
            raise TransportError(
                f"the tunnel through {target} was not open within {_READY_SECONDS:.0f} s. Is its SSM agent online?"
            )
        time.sleep(0.2)
    return end
