"""The virtual node that this process runs on."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path


class NodeError(RuntimeError):
    """A requirement of this node is missing; the message is for the user."""


def name() -> str:
    return os.environ.get("SLURMD_NODENAME", "head")


def in_a_pod() -> None:
    """In a pod of the local Kubernetes: set the Slurm variables that the fakes read."""
    env = os.environ
    if pod := env.get("TRN_SANDBOX_POD"):
        env["SLURM_JOB_ID"] = pod.partition("-train-")[0]
        env["SLURM_STEP_ID"] = env.get("NEURON_EXTRACT_GRAPHS_ONLY", "0")
        env["SLURM_RESTART_COUNT"] = env.get("TRN_ATTEMPT", "0")
        env["SLURMD_NODENAME"] = env.get("TRN_NODE", "node")
        env["SLURM_NODEID"] = env.get("JOB_COMPLETION_INDEX", "0")


def stamp() -> str:
    """The time in the format of the compiler's tools: three zeros after the milliseconds."""
    now = datetime.now()
    return f"{now:%Y-%m-%d %H:%M:%S}.000{now.microsecond // 1000:03d}"


def fault(kind: str) -> str | None:
    """The requested failure in TRN_SANDBOX_FAIL: `precompile`, or `train@STEP` (the step, as text). None: no failure of this kind."""
    wanted, _, detail = os.environ.get("TRN_SANDBOX_FAIL", "").partition("@")
    return (detail or "1") if wanted == kind else None


def address_of(node: str) -> str:
    """The address of a node's ports: virtual node names do not resolve, but Slurm has their addresses.

    Raises:
        NodeError: neither Slurm nor the resolver knows the node.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(node))
    if "SLURM_CONF" in os.environ:
        shown = subprocess.run(["scontrol", "-o", "show", "node", node], capture_output=True, text=True, check=False)
        for part in shown.stdout.split():
            if part.startswith("NodeAddr="):
                return part.removeprefix("NodeAddr=")
    try:
        return socket.gethostbyname(node)
    except OSError:
        raise NodeError(
            f"the master address {node!r} is not a node of this cluster, and this machine does not resolve it"
        ) from None


class MasterPort:
    """Virtual nodes share one machine's ports, so port 2022 of a virtual node is a free port here.

    Rank 0 listens on a free port and writes it to a file; the others read it. The file is specific to job, step, restart,
    node and port, so that two jobs can use the same port at the same time.
    """

    def __init__(self, master: str, port: int):
        job = "-".join(os.environ.get(f"SLURM_{key}", "0") for key in ("JOB_ID", "STEP_ID", "RESTART_COUNT"))
        home = Path(os.environ.get("TRN_SANDBOX", os.environ.get("TMPDIR", "/tmp")))  # noqa: S108  no sandbox: any job's
        self._note = home / "ports" / f"{job}.{master}.{port}"

    def announce(self, port: int) -> None:
        self._note.parent.mkdir(parents=True, exist_ok=True)
        part = self._note.with_suffix(".part")
        part.write_text(str(port))
        part.replace(self._note)

    def find(self, seconds: float) -> int:
        """The announced port.

        Raises:
            NodeError: rank 0 did not announce one in time.
        """
        if not wait_for(self._note.exists, seconds):
            raise NodeError(f"rank 0 did not open its port within {seconds:.0f} s; its node's log has the reason")
        return int(self._note.read_text())


def wait_for(done: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
