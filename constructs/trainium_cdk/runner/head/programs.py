"""Programs that a user starts in addition to a job's own. Steps on its nodes share them, and end with the job. TensorBoard reads all of its
directory: on the head node of Slurm, or as the program of a pod (`runner board DIRECTORY PORT`). It comes from the job's own packages, else the
cluster's, else the one on the PATH."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .. import layout, prepare, requests, slurm
from ..errors import Refused
from ..files import shared_root
from ..spec import Word
from ..status import JobStatus
from .answers import node_of, own_job

PYTHON = ("/usr/bin/python3", "-I")
HOURS = 24
"""After which a relay ends, even if its caller has gone without a word."""
_BEGIN_SECONDS = 30.0


def start_relay(cluster: requests.Cluster, given: requests.StartRelay) -> requests.StartedRelay:
    """Start a relay (`work.relay`) in the background.

    Raises:
        Refused: the job does not run, there is no such node, or Slurm refuses the step.
    """
    job, node = _running(cluster, given.id), given.node
    if given.rank is not None:
        node = node_of(cluster, job, given.rank)
    offer = f"{job.directory}/{layout.OFFER}"
    words = [*_srun(job), *_on(given.name or _name(job, node)), *PYTHON, layout.path_for_jobs(cluster), "relay"]
    words += [given.digest, shared_root() + offer]
    with tempfile.TemporaryFile() as out:
        begun = subprocess.Popen(
            ["timeout", f"{HOURS}h", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=slurm.environment(),
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
                    return requests.StartedRelay(address, int(port), offer, node)
            if ended:
                break
            time.sleep(0.1)
    with contextlib.suppress(OSError):
        os.killpg(begun.pid, signal.SIGTERM)
    begun.wait()
    raise Refused(f"no step of the job could be started: {' '.join(said[-3:])[:2000]}")


def run_on_nodes(cluster: requests.Cluster, given: requests.RunOnNodes) -> list[str]:
    """Run a short program on every node of a job; what it prints on each.

    Raises:
        Refused: the job does not run, Slurm refuses the step, or the program failed on one of them.
    """
    job = _running(cluster, given.id)
    count = len(slurm.hostnames(job.current.nodes))
    words = [*_srun(job), "--label", f"--nodes={count}", "--ntasks-per-node=1", f"--ntasks={count}"]
    found = [""] * count
    for line in slurm.run(*words, *PYTHON, layout.path_for_jobs(cluster), "step", *given.words).splitlines():
        number, colon, rest = line.partition(":")
        if colon and number.strip().isdecimal() and int(number) < count:
            found[int(number)] += rest.strip()
    return [base64.b64decode(text).decode(errors="replace") for text in found]


def words_on_node(cluster: requests.Cluster, given: requests.WordsOnNode) -> list[str]:
    """Return the words before a program that its user starts on one node of a job, with a terminal. Raises as `start_relay`."""
    job = _running(cluster, given.id)
    return [*_srun(job), *_on(_name(job, given.node)), "--pty"]


def _running(cluster: requests.Cluster, id: str) -> JobStatus:
    """A job whose nodes run now.

    Raises:
        Refused: it does not run, or is an array.
    """
    job = own_job(cluster, id, "work on its nodes")
    if job.members and job.current.name == "train":
        first = f"{job.id}/{job.members[0].name}"
        raise Refused(f"{job.id} is an array of {len(job.members)}. Name a member, for example {first}")
    if job.current.state != "RUNNING":
        raise Refused(f"{job.id} does not run: it is {job.state}. See trn status {job.id}")
    return job


def _srun(job: JobStatus) -> list[str]:
    number = job.current.number
    if "_" in number:  # of a member: srun of Slurm 22.05 takes only the number that Slurm gives this member
        number = "".join(slurm.run("squeue", "--noheader", f"--jobs={number}", "--format=%A").split()[:1])
    return ["srun", f"--jobid={number}", "--overlap", "--quiet"]


def _on(name: str) -> list[str]:
    return ["--nodes=1", "--ntasks=1", f"--nodelist={name}"]


def _name(job: JobStatus, node: int) -> str:
    names = slurm.hostnames(job.current.nodes)
    if not 0 <= node < len(names):
        raise Refused(f"{job.id} has nodes 0 to {len(names) - 1}, not {node}. Choose one of them")
    return names[node]


# --- TensorBoard over all of a job's directory ------------------------------------------------------------------------------------------

PROGRAM = "tensorboard"


def become_board(directory: str, port: str) -> None:
    """Become TensorBoard, in a pod, where only a port-forward reaches its loopback address: that needs permissions in the cluster."""
    folder = Path(shared_root() + directory)
    variables, _ = _board_variables(folder, "")
    found = shutil.which(PROGRAM, path=variables["PATH"])
    if not found:
        print("trn: the image has no tensorboard. Give one that has it as --image", file=sys.stderr)
        sys.exit(64)
    host = os.environ.get("TRN_TENSORBOARD_HOST", "127.0.0.1")
    os.execve(found, _board_words(found, folder, port, host), variables)  # noqa: S606  words


def start_board(cluster: requests.Cluster, asked: requests.StartBoard) -> requests.StartedBoard:
    """Start it in the background, at a free port of the loopback address.

    Raises:
        Refused: there is no such program, or job.
    """
    folder = Path(shared_root() + own_job(cluster, asked.id, "see its curves").directory)
    variables, place = _board_variables(folder, asked.venv)
    found = shutil.which(PROGRAM, path=variables["PATH"])
    if not found:
        raise Refused(f"there is no tensorboard in {place or 'PATH'}. Install it there: pip install tensorboard")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = ["timeout", f"{requests.BOARD_HOURS}h", *_board_words(found, folder, str(port), "127.0.0.1")]
    nothing = subprocess.DEVNULL
    begun = subprocess.Popen(
        words, env=variables, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    begun.returncode = 0  # it stays when this program ends
    return requests.StartedBoard(begun.pid, port)


def stop_board(_: requests.Cluster, asked: requests.StopBoard) -> None:
    """End it, if that is still what has this number."""
    with contextlib.suppress(OSError):
        if PROGRAM.encode() in Path(f"/proc/{asked.number}/cmdline").read_bytes():
            os.killpg(asked.number, signal.SIGTERM)


def _board_words(program: str, folder: Path, port: str, host: str) -> list[str]:
    return [program, "--logdir", str(folder), "--port", port, "--host", host]


def _board_variables(folder: Path, venv: Word) -> tuple[dict[str, str], Path | None]:
    """The variables with which it is found, and the virtual environment that it should be in."""
    base = prepare.find_base(venv, shared_root())
    own = prepare.find_own(folder) or prepare.find_own(folder.parent)  # a member of an array has its array's
    variables = {"PATH": os.defpath, **os.environ}
    for place in (base, own):
        if place and (place / "bin").is_dir():
            variables = prepare.activate(place, variables)
    return variables, own or base
