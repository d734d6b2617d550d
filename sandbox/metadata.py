"""The instance metadata service of a local Slurm's nodes, at its own address (AWS_EC2_METADATA_SERVICE_ENDPOINT): what gives programs
on a node the credentials of its role.

metadata.py PORT [--secured]: as of a cluster with `HeadNode: {Imds: {Secured: true}}`. There, on the head node, only root, `pcluster-admin` and the
image's user reach it, by a rule of iptables on the owner of the connection (cookbook of ParallelCluster, attribute head_node_imds_allowed_users;
its page "Imds"). On other nodes it is so by the bootstrap's step `metadata`. A refused connection is closed at once, as by `REJECT`, and printed.
Only version 2 is served. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import struct
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_ROLE = "/latest/meta-data/iam/security-credentials/"
_ALLOWED = ("root", "pcluster-admin", "ubuntu", "ec2-user")
_HOURS = 6


def keys(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys among these variables; empty without them."""
    return {name: environment[name] for name in _KEYS if name in environment}


def on_nodes(environment: Mapping[str, str], port: int) -> dict[str, str]:
    """The variables with the address of the service instead of keys."""
    dropped = (*_KEYS, "AWS_SESSION_TOKEN")
    kept = {name: value for name, value in environment.items() if name not in dropped}
    return {**kept, ENDPOINT: f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "false"}


def caller(port: int) -> tuple[int, int | None]:
    """The user id, and the process, at the other end of a connection from this port of 127.0.0.1."""
    local = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == local:
            return int(fields[7]), _holder(f"socket:[{fields[9]}]")
    return -1, None


def _holder(name: str) -> int | None:
    for place in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(str(entry.readlink()) == name for entry in place.iterdir()):
                return int(place.parent.name)
        except OSError:
            continue  # ended, or another user's
    return None


def on_compute_node(process: int | None) -> bool:
    """Whether a process is one of a job."""
    try:
        return process is not None and b"\0SLURM_JOB_ID=" in b"\0" + Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return False


class Service(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, secured: bool) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.secured, self.allowed = secured, {os.getuid()}
        for name in _ALLOWED:
            with contextlib.suppress(KeyError):
                self.allowed.add(pwd.getpwnam(name).pw_uid)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        user, process = caller(client_address[1])
        if user in self.allowed or not (self.secured or on_compute_node(process)):
            return True
        print(f"refused user {user}", flush=True)
        request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False


class _Handler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self._answer(200 if self.path == "/latest/api/token" else 404, "token")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            self._answer(401, "")
        elif self.path == _ROLE:
            self._answer(200, "node")
        elif self.path == f"{_ROLE}node":
            times = {"LastUpdated": time.time(), "Expiration": time.time() + _HOURS * 3600}
            written = {name: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)) for name, when in times.items()}
            given = dict(
                zip(("AccessKeyId", "SecretAccessKey"), (os.environ.get(name, "test") for name in _KEYS), strict=True)
            )
            self._answer(200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", "Token": "test", **given, **written}))
        else:
            self._answer(404, "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        if self.command == "PUT":
            self.send_header("X-aws-ec2-metadata-token-ttl-seconds", str(_HOURS * 3600))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    Service(int(sys.argv[1]), "--secured" in sys.argv).serve_forever()
