"""The near end of a tunnel: what a page of another origin sends is refused, and everything else passes as it is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from trainium_cdk.client.jobs.forward import Listener, join

LONG = b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: evil.example\r\n\r\n"


@pytest.fixture
def port() -> Iterator[int]:
    """A tunnel to a program that says `hello`, and repeats what it gets."""

    def program(far: socket.socket) -> None:
        with far:
            far.sendall(b"hello ")
            while data := far.recv(65_536):
                far.sendall(data)

    def serve(here: socket.socket) -> None:
        near, far = socket.socketpair()
        threading.Thread(target=program, args=(far,), daemon=True).start()
        with here, near:
            join(here, near)

    with Listener(serve) as listener:
        yield listener.port


def talk(port: int, *pieces: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as it:
        it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = it.recv(6)
        for piece in pieces:
            it.sendall(piece)
            time.sleep(0.05)  # so that each is read by itself
        it.shutdown(socket.SHUT_WR)
        while data := it.recv(65_536):
            said += data
    return said


@pytest.mark.parametrize(
    "pieces",
    [
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8265\r\n\r\n",),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"more"),
        (b"POST /x HTTP/1.1\r\nAccept: */*\r\nHOST:localhost:1\r\n\r\nbody",),
        (b"GET / HTTP/1.1\r\nHo", b"st: localhost\r\n", b"\r\n"),
        (
            b"POST /api HTTP/1.1\r\nHost: localhost:6006\r\nOrigin: http://localhost:6006\r\nSec-Fetch-Site: same-origin\r\n\r\n{}",
        ),
        (b"GET /data HTTP/1.1\r\nHost: 127.0.0.1:6006\r\nSec-Fetch-Site: none\r\n\r\n",),  # typed
        # a form of a page with `Referrer-Policy: no-referrer`
        (b"POST /login HTTP/1.1\r\nHost: localhost:8888\r\nOrigin: null\r\nSec-Fetch-Site: same-origin\r\n\r\n",),
        (
            b"GET /ws HTTP/1.1\r\nHost: localhost:8888\r\nUpgrade: websocket\r\nOrigin: http://localhost:8888\r\n\r\n",
            b"\x81\x85abcd",
        ),
        (b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", b"cd /tmp x"),
        (b"GET / HTTP/1.0\r\n\r\n",),  # no browser
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n",),  # by hand
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\x12\x04"),  # gRPC
        (b"GET key\r\n",),
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"\0\xff"),
        (b"HELO me\r\n",),
        (),
    ],
)
def test_what_is_for_this_machine_passes(port: int, pieces: tuple[bytes, ...]) -> None:
    assert talk(port, *pieces) == b"hello " + b"".join(pieces)


@pytest.mark.parametrize(
    "pieces",
    [
        (b"GET / HTTP/1.1\r\nHost: evil.example:8265\r\n\r\n",),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n",),
        (b"GET / HTTP/1.1\r\nHost: localhost.evil.example:80\r\n\r\n",),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n",),
        (b"POST / HTTP/1.1\r\nAccept: x\r\n", b"hos", b"t:\tevil.example\r\n", b"\r\nbody"),
        (b"OPTIONS /a HTTP/1.1\r\nHost:\r\n\r\n",),
        (b"PROPFIND / HTTP/1.1\r\nHost: evil.example\r\n\r\n",),
        (b"m-get! / HTTP/1.1\r\nHost: evil.example\r\n\r\n",),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nhost: evil.example\r\n\r\n",),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: https://evil.example\r\n\r\nbody",),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: https://127.0.0.1:1\r\n\r\nbody",),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: null\r\nSec-Fetch-Site: cross-site\r\n\r\n",),
        # a page of another job's port
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:2\r\nSec-Fetch-Site: same-site\r\n\r\n",),
        (b"GET /?run HTTP/1.1\r\nHost: localhost:1\r\nSec-Fetch-Site: cross-site\r\n\r\n",),
        (b"GET /ws HTTP/1.1\r\nHost: localhost:1\r\nUpgrade: websocket\r\nOrigin: https://evil.example\r\n\r\n",),
    ],
)
def test_a_page_of_another_name_is_refused(port: int, pieces: tuple[bytes, ...]) -> None:
    said = talk(port, *pieces)
    assert said.startswith(b"hello HTTP/1.1 403 Forbidden\r\n") or b"HTTP/1.1 403" in said
    assert b"evil" not in said
    assert said.endswith(b"links and requests of other pages are refused.\n")


def test_a_later_request_of_a_connection_is_judged(port: int) -> None:
    own = b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n"
    said = talk(port, own, own, b"POST / HTTP/1.1\r\nHost: localhost:1\r\nOrigin: https://evil.example\r\n\r\nbody")
    assert said.startswith(b"hello " + own + own)
    assert b"HTTP/1.1 403" in said
    assert b"body" not in said


def test_a_request_whose_name_comes_too_late_is_refused(port: int) -> None:
    said = talk(port, LONG, b"more")
    assert b"HTTP/1.1 403" in said
    assert b"xxxx" not in said
