"""A bad network: a proxy on 127.0.0.1 that cuts connections and throttles requests, at random but the same each time."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections import Counter
from typing import Self

_BODIES = {
    b"POST": (b"400 Bad Request", b'{"__type":"ThrottlingException","message":"Rate exceeded"}'),  # SSM's own message
    b"": (b"503 Slow Down", b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"),
}
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a reset instead of a goodbye


class _Proxy:
    """Forwards each connection to one port of this machine, in a thread of its own (`_one`)."""

    def __init__(self, port: int, seed: int):
        self._port, self._random = port, random.Random(seed)  # noqa: S311  the same each time
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        raise NotImplementedError


class Cuts(_Proxy):
    """Forwards to one port, one request a connection; `share` of them fail, until there have been `most`.

    Failures, in `seen`: `refused` before a byte is sent, `unsent` in the middle of the request, `unheard` after the
    request has arrived (it is carried out, without a response), `half` in the middle of the response, `throttled`.
    """

    KINDS = ("refused", "unsent", "unheard", "half", "throttled")

    def __init__(self, port: int, *, share: float, most: int, seed: int):
        super().__init__(port, seed)
        self._share, self.most = share, most
        self.seen: Counter[str] = Counter()
        self.endpoint = f"http://127.0.0.1:{self.port}"

    @property
    def total(self) -> int:
        return sum(count for kind, count in self.seen.items() if kind in self.KINDS)

    def _fault(self) -> tuple[str, float]:
        with self._lock:
            bad = self.total < self.most and self._random.random() < self._share
            kind = self._random.choice(self.KINDS) if bad else "passed"
            self.seen[kind] += 1
            return kind, self._random.random()

    def _one(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(600)
            request = _message(client)
            if not request:
                return
            kind, where = self._fault()
            if kind == "throttled":
                status, body = _BODIES.get(request.partition(b" ")[0], _BODIES[b""])
                length = b"Content-Length: %d" % len(body)
                client.sendall(b"HTTP/1.1 %s\r\n%s\r\nConnection: close\r\n\r\n%s" % (status, length, body))
                return
            if kind == "refused":
                _reset(client)
                return
            with socket.create_connection(("127.0.0.1", self._port), timeout=600) as server:
                if kind == "unsent":
                    server.sendall(request[: int(len(request) * where)])
                    _reset(client)
                    return
                server.sendall(request)
                answer = _message(server)
                if kind == "unheard":
                    _reset(client)
                    return
                if kind == "half":
                    client.sendall(answer[: int(len(answer) * where)])
                    _reset(client)
                    return
                head, _, body = answer.partition(b"\r\n\r\n")
                client.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def _message(connection: socket.socket) -> bytes:
    """One HTTP message with a Content-Length; b"" where the other side has hung up."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
    if fields.get(b"expect", b"").lower() == b"100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    while len(body) < int(fields.get(b"content-length", b"0")):
        more = connection.recv(65536)
        if not more:
            break
        body += more
    return head + b"\r\n\r\n" + body


class Scissors(_Proxy):
    """Forwards to one port, any protocol (such as TLS), and cuts each connection at a random moment of its first
    `seconds`, whatever is transferred, until there have been `most` cuts."""

    def __init__(self, port: int, *, seconds: float, most: int, seed: int):
        super().__init__(port, seed)
        self._seconds, self._most = seconds, most
        self.cut = 0

    def _life(self) -> float:
        with self._lock:
            return self._random.random() * self._seconds if self.cut < self._most else 1e9

    def _one(self, client: socket.socket) -> None:
        end = time.monotonic() + self._life()
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as server:
            other = {client: server, server: client}
            while (left := end - time.monotonic()) > 0:
                ready, _, _ = select.select(list(other), [], [], min(left, 30))
                for side in ready:
                    data = side.recv(4096)
                    if not data:
                        return
                    other[side].sendall(data)
            with self._lock:
                self.cut += 1
            _reset(client)
            _reset(server)
