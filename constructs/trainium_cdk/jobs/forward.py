"""Ports of this machine that lead to a cluster: the near end, whatever leads there."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.runner.layout import OFFER as OFFER

_LOOK_SECONDS = 5.0
_PIECE = 65_536
_LINGER_SECONDS = 2.0
_ASKS = re.compile(rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) /")
_HOST = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)
_TOLD = b"Open this page at 127.0.0.1 or localhost.\n"
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


def _begun(here: socket.socket) -> bytes:
    """The first bytes of a connection; of a web page's request, with the name that it asks for."""
    data = here.recv(_PIECE)
    while _ASKS.match(data) and not (_HOST.search(data) or b"\r\n\r\n" in data) and len(data) < _PIECE:
        if not (more := here.recv(_PIECE)):
            break
        data += more
    return data


def _of_another_name(data: bytes) -> bool:
    """Return whether a connection begins with a web page's request to another host name than this machine's. Browsers name one on each."""
    found = _HOST.search(data)
    name = found[1].decode(errors="replace").lower() if found else ""
    if not _ASKS.match(data) or (not found and b"\r\n\r\n" in data):
        return False
    return re.sub(r":[0-9]*$", "", name) not in ("127.0.0.1", "localhost")


def _refuse(here: socket.socket) -> None:
    """Say so, and read what is still sent: a connection that is closed before loses the answer."""
    here.sendall(_NOT_HERE)
    here.shutdown(socket.SHUT_WR)
    here.settimeout(_LINGER_SECONDS)
    end = time.monotonic() + _LINGER_SECONDS
    while time.monotonic() < end and here.recv(_PIECE):
        pass


def join(here: socket.socket, there: Any) -> None:
    """Copy between two connections until both ends have closed. Of a browser, only pages of this machine get through: another page may
    have made its own name point here."""

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
        data = _begun(here)
        if _of_another_name(data):
            data = b""
            _refuse(here)
        while data:
            there.sendall(data)
            data = here.recv(_PIECE)
    with contextlib.suppress(OSError):
        there.shutdown(socket.SHUT_WR)
    thread.join()


def refused(id: str, node: int | str, port: int, reason: str) -> JobError:
    return JobError(
        f"nothing answers at port {port} of node {node} of {id}: {reason[:200]}. Has the program started, and does it listen on 127.0.0.1?"
    )
