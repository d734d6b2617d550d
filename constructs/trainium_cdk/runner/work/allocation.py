"""A stage's nodes as Slurm's controller knows them; it may be away for a while, or have forgotten the stage in a crash."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable

from .. import records, slurm
from ..errors import Later, Refused
from .output import say

CONTROLLER_SECONDS = 600
"""For which a controller that does not answer, as it is being restarted, is waited for."""
_CONNECT_SECONDS = 10

Pause = Callable[[float], None]


def find_address(nodes: str, pause: Pause) -> str:
    """The address of the first of some nodes: its name need not resolve before every node has booted.

    Raises:
        Later: the controller does not answer.
    """
    first = next(iter(slurm.run("scontrol", "show", "hostnames", nodes).split()), nodes)
    return slurm.field("NodeAddr", show_node(first, pause)) or first


def show_node(name: str, pause: Pause) -> str:
    """Slurm's line about a node.

    Raises:
        Later: the controller does not answer within 10 minutes.
    """
    until = time.monotonic() + CONTROLLER_SECONDS
    while True:
        try:
            return slurm.run("scontrol", "show", "node", name, "--oneliner")
        except (Later, Refused) as e:
            say(f"Slurm's controller does not answer: {str(e)[:300]}")
            if time.monotonic() >= until:
                raise Later(str(e)) from None
        pause(2)


def are_answering(nodes: str) -> bool:
    """Return whether the Slurm daemons of these nodes answer. If not, a machine is about to stop. If the controller does not tell, they do."""
    try:
        usual = re.search(r"^SlurmdPort *= *(\d+)", slurm.run("scontrol", "show", "config"), re.MULTILINE)
        lines = slurm.run("scontrol", "show", "node", nodes, "--oneliner").splitlines()
    except (Later, Refused):
        return True
    for line in lines:
        port = slurm.field("Port", line) or (usual[1] if usual else "")  # it is told only if it is not the usual one
        if not port.isdigit():
            continue
        try:
            socket.create_connection((slurm.field("NodeAddr", line), int(port)), _CONNECT_SECONDS).close()
        except OSError:
            return False
    return True


def is_known(nodes: str) -> bool:
    """Return whether the controller knows that this stage runs on these nodes."""
    try:
        found = _squeue("%j\x1f%T\x1f%N")
    except (Later, Refused):
        return False
    return found == [os.environ["SLURM_JOB_NAME"], "RUNNING", nodes]


def lower_limit(seconds: int) -> None:
    """Let Slurm end this job so many seconds from now, and not later. A shorter limit stays: only an administrator can raise it."""
    number = os.environ["SLURM_JOB_ID"]
    try:
        took, left = slurm.run("squeue", "-h", "-j", number, "-o", "%M %L").split()
        if seconds < (slurm.seconds(left) or 0):
            minutes = -(-((slurm.seconds(took) or 0) + seconds) // 60)
            slurm.run("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}")
    except (Later, Refused, ValueError) as e:
        say(f"the time limit still counts compiling: {str(e)[:300]}")


def why_stopped() -> str:
    """Return why Slurm has stopped this stage: it knows, as long as it remembers it."""
    try:
        found = _squeue("%j\x1f%r")
    except Refused as e:
        # the controller crashed before it had saved this job
        return records.LOST if "Invalid job id" in str(e) else records.CANCELLED
    except Later:
        return records.CANCELLED
    if found[0] != os.environ["SLURM_JOB_NAME"]:
        return records.LOST  # and has given its number to another one
    return records.TIMEOUT if found[-1] == "TimeLimit" else records.CANCELLED


def _squeue(fields: str) -> list[str]:
    said = slurm.run("squeue", "-h", "-a", "-t", "all", "-j", os.environ["SLURM_JOB_ID"], "-o", fields)
    return said.strip("\n").split("\x1f")
