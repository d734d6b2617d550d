"""TensorBoard over all of a job's directory: on the head node of Slurm, or as the program of a pod: `runner board DIRECTORY PORT`. It comes from
the job's own packages, else the cluster's, else the one on the PATH."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from .. import requests
from ..errors import Refused
from ..head.answers import own_job
from ..prepare import making
from ..spec import Word
from ..words import shared_root

PROGRAM = "tensorboard"
HOURS = 12
"""After which it ends, even if its viewer has gone without a word."""


def main(directory: str, port: str) -> None:
    """Become TensorBoard, in a pod, where only a port-forward reaches its loopback address: that needs permissions in the cluster."""
    folder = Path(shared_root() + directory)
    variables, _ = _variables(folder, "")
    found = shutil.which(PROGRAM, path=variables["PATH"])
    if not found:
        print("trn: the image has no tensorboard. Give one that has it as --image", file=sys.stderr)
        sys.exit(64)
    host = os.environ.get("TRN_TENSORBOARD_HOST", "127.0.0.1")
    os.execve(found, _words(found, folder, port, host), variables)  # noqa: S606  words


def start(cluster: requests.Cluster, asked: requests.StartBoard) -> requests.StartedBoard:
    """Start it in the background, at a free port of the loopback address.

    Raises:
        Refused: there is no such program, or job.
    """
    folder = Path(shared_root() + own_job(cluster, asked.id, "see its curves").directory)
    variables, place = _variables(folder, asked.venv)
    found = shutil.which(PROGRAM, path=variables["PATH"])
    if not found:
        raise Refused(f"there is no tensorboard in {place or 'PATH'}. Install it there: pip install tensorboard")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = ["timeout", f"{HOURS}h", *_words(found, folder, str(port), "127.0.0.1")]
    nothing = subprocess.DEVNULL
    begun = subprocess.Popen(
        words, env=variables, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    begun.returncode = 0  # it stays when this program ends
    return requests.StartedBoard(begun.pid, port)


def stop(_: requests.Cluster, asked: requests.StopBoard) -> None:
    """End it, if that is still what has this number."""
    with contextlib.suppress(OSError):
        if PROGRAM.encode() in Path(f"/proc/{asked.number}/cmdline").read_bytes():
            os.killpg(asked.number, signal.SIGTERM)


def _words(program: str, folder: Path, port: str, host: str) -> list[str]:
    return [program, "--logdir", str(folder), "--port", port, "--host", host]


def _variables(folder: Path, venv: Word) -> tuple[dict[str, str], Path | None]:
    """The variables with which it is found, and the virtual environment that it should be in."""
    base = making.find_base(venv, shared_root())
    own = making.find_own(folder) or making.find_own(folder.parent)  # a member of an array has its array's
    variables = {"PATH": os.defpath, **os.environ}
    for place in (base, own):
        if place and (place / "bin").is_dir():
            variables = making.activate(place, variables)
    return variables, own or base
