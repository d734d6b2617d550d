"""The far end of `trn forward` on Slurm: `runner relay DIGEST OFFER`, as a step of the job on one of its nodes.

It listens where the head node reaches it, and connects callers with ports of the node's loopback address. A caller sends a line with a
secret, whose SHA-256 is DIGEST, and a word: a port; `offer`, for the content of that file; or `stay`, which keeps the relay until
that connection closes. It ends automatically if no such caller comes.

And `runner step WORDS`: a short program on each node of a job.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import stat
import sys
import threading

_FIRST_SECONDS = 90
_LINE_SECONDS = 20
_MOST = 1000


def main(digest: str, offer: str) -> None:
    head = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or "127.0.0.1"
    family = socket.AF_INET6 if ":" in head else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((head, 9))  # sends nothing: it finds the address from which this node reaches that one
        address = probe.getsockname()[0]
    server = socket.create_server((address, 0), family=family, backlog=64)
    begun = threading.Event()
    threading.Thread(target=lambda: begun.wait(_FIRST_SECONDS) or os._exit(0), daemon=True).start()
    print("trn-relay", address, server.getsockname()[1], flush=True)
    while True:
        near, _ = server.accept()
        threading.Thread(target=serve, args=(near, digest, offer, begun), daemon=True).start()


def serve(near: socket.socket, digest: str, offer: str, begun: threading.Event) -> None:
    with near, contextlib.suppress(OSError):
        near.settimeout(_LINE_SECONDS)
        secret, _, what = line(near).partition(" ")
        if not hmac.compare_digest(hashlib.sha256(secret.encode()).hexdigest(), digest):
            return
        near.settimeout(None)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if what == "offer":
            near.sendall(content(offer))
        elif what == "stay":
            begun.set()
            near.sendall(b"ok\n")
            with contextlib.suppress(OSError):
                while data := near.recv(64):
                    near.sendall(data)
            os._exit(0)
        else:
            join(near, int(what) if what.isdecimal() else 0)


def line(near: socket.socket) -> str:
    got = b""
    while not got.endswith(b"\n") and len(got) < 200 and (byte := near.recv(1)):
        got += byte
    return got.decode("ascii", "replace").strip()


def content(offer: str) -> bytes:
    """Read a file that only this user can read; empty without one."""
    try:
        file = os.open(offer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        return opened.read(_MOST) if ours else b""


def join(near: socket.socket, port: int) -> None:
    try:
        far = socket.create_connection(("localhost", port), timeout=10)
    except OSError as e:
        near.sendall(f"{e.strerror or e}\n".encode())
        return
    with far:
        far.settimeout(None)
        near.sendall(b"ok\n")
        back = threading.Thread(target=copy, args=(far, near), daemon=True)
        back.start()
        copy(near, far)
        back.join()


def copy(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)


# --- a short program: `runner step WORDS` -----------------------------------------------------------------------------------------------------


def step(*words: str) -> None:
    """Print the output of a program as base64, as srun breaks a labelled line after 1,024 bytes."""
    import base64
    import subprocess  # which a relay does without

    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError as e:
        sys.exit(f"{words[0]} cannot be started: {e.strerror}")
    text = base64.b64encode(done.stdout).decode()
    for at in range(0, len(text), 512):
        print(text[at : at + 512])
    sys.exit(done.returncode)
