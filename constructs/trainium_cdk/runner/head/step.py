"""Steps beside a running job's own, on its nodes: they share them, and end with the job."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from .. import program, requests, slurm
from ..errors import Refused
from ..words import shared_root
from .nodes import hostnames

PYTHON = ("/usr/bin/python3", "-I")
HOURS = 24
"""After which a relay ends, even if its caller has gone without a word."""
_BEGIN_SECONDS = 30.0


def start_relay(cluster: requests.Cluster, asked: requests.StartRelay) -> dict[str, Any]:
    """Start a relay (`relay`) in the background; the address and the port at which it listens.

    Raises:
        Refused: there is no such node, or Slurm refuses the step.
    """
    words = [*_on(asked.place), *PYTHON, program.path_for_jobs(cluster), "relay"]
    words += [asked.digest, shared_root() + asked.offer]
    with tempfile.TemporaryFile() as out:
        begun = subprocess.Popen(
            ["timeout", f"{HOURS}h", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        end = time.monotonic() + _BEGIN_SECONDS
        while True:
            ended = begun.poll() is not None or time.monotonic() > end
            said = os.pread(out.fileno(), 10_000, 0).decode(errors="replace").splitlines()
            for line in said:
                if line.startswith("trn-relay "):
                    begun.returncode = 0  # it stays when this program ends
                    _, address, port = line.split()
                    return {"address": address, "port": int(port)}
            if ended:
                break
            time.sleep(0.1)
    with contextlib.suppress(OSError):
        os.killpg(begun.pid, signal.SIGTERM)
    begun.wait()
    raise Refused(f"no step of the job could be started: {' '.join(said[-3:])[:2000]}")


def run_on_nodes(cluster: requests.Cluster, asked: requests.RunOnNodes) -> dict[str, str]:
    """Run a short program on every node of a job; its output, by the node's number in the job.

    Raises:
        Refused: Slurm refuses the step, or the program failed on one of them.
    """
    count = f"--ntasks={asked.nodes}"
    words = [*_srun(asked.number), "--label", f"--nodes={asked.nodes}", "--ntasks-per-node=1", count]
    found: dict[str, str] = {}
    for line in slurm.run(*words, *PYTHON, program.path_for_jobs(cluster), "step", *asked.words).splitlines():
        number, colon, rest = line.partition(":")
        if colon and number.strip().isdecimal():
            found[number.strip()] = found.get(number.strip(), "") + rest.strip()
    return {number: base64.b64decode(text).decode(errors="replace") for number, text in found.items()}


def main(*words: str) -> None:
    """On a node: print the output of a program as base64, as srun breaks a labelled line after 1,024 bytes."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError as e:
        sys.exit(f"{words[0]} cannot be started: {e.strerror}")
    text = base64.b64encode(done.stdout).decode()
    for at in range(0, len(text), 512):
        print(text[at : at + 512])
    sys.exit(done.returncode)


def words_on_node(_: requests.Cluster, place: requests.NodeOfJob) -> list[str]:
    """What stands before a program that its user starts on one node of a job, with a terminal."""
    return [*_on(place), "--pty"]


def _on(place: requests.NodeOfJob) -> list[str]:
    return [*_srun(place.number), "--nodes=1", "--ntasks=1", f"--nodelist={place.name or _name(place)}"]


def _srun(number: str) -> list[str]:
    if "_" in number:  # of a member: srun of Slurm 22.05 takes only the number of its own that Slurm gives it
        number = "".join(slurm.run("squeue", "--noheader", f"--jobs={number}", "--format=%A").split()[:1])
    return ["srun", f"--jobid={number}", "--overlap", "--quiet"]


def _name(place: requests.NodeOfJob) -> str:
    names = hostnames(slurm.run("squeue", "--noheader", f"--jobs={place.number}", "--format=%N").strip())
    if not 0 <= place.index < len(names):
        raise Refused(f"the job has {len(names)} nodes now, and no node {place.index}")
    return names[place.index]
