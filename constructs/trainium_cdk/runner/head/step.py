"""Steps in addition to a running job's own, on its nodes: they share them, and end with the job."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

from .. import layout, requests, slurm
from ..errors import Refused
from ..spec import SpecError, StageSpec
from ..words import shared_root
from .answers import own_job
from .nodes import hostnames
from .status import JobStatus

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
    count = len(hostnames(job.current.nodes))
    words = [*_srun(job), "--label", f"--nodes={count}", "--ntasks-per-node=1", f"--ntasks={count}"]
    found = [""] * count
    for line in slurm.run(*words, *PYTHON, layout.path_for_jobs(cluster), "step", *given.words).splitlines():
        number, colon, rest = line.partition(":")
        if colon and number.strip().isdecimal() and int(number) < count:
            found[int(number)] += rest.strip()
    return [base64.b64decode(text).decode(errors="replace") for text in found]


def main(*words: str) -> None:
    """Run on a node: print the output of a program as base64, as srun breaks a labelled line after 1,024 bytes."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError as e:
        sys.exit(f"{words[0]} cannot be started: {e.strerror}")
    text = base64.b64encode(done.stdout).decode()
    for at in range(0, len(text), 512):
        print(text[at : at + 512])
    sys.exit(done.returncode)


def words_on_node(cluster: requests.Cluster, given: requests.WordsOnNode) -> list[str]:
    """Return the words before a program that its user starts on one node of a job, with a terminal. Raises as `start_relay`."""
    job = _running(cluster, given.id)
    return [*_srun(job), *_on(_name(job, given.node)), "--pty"]


def node_of(cluster: requests.Cluster, job: JobStatus, rank: int) -> int:
    """The node of a rank. Ranks are in the order of the nodes.

    Raises:
        Refused: there is no such rank, or the job's record is damaged.
    """
    try:
        made = layout.read_job(cluster.jobs / layout.split(job.id)[0])
    except SpecError as e:
        raise Refused(f"the record of {job.id}, job.json, is damaged: {e}. Give the node instead of the rank") from None
    last = made.stages[-1] if made.stages else StageSpec("train")
    each = last.ranks(made.environment.cores)
    if not 0 <= rank < job.nodes * each:
        raise Refused(f"{job.id} has ranks 0 to {job.nodes * each - 1}, not {rank}. Choose one of them")
    return rank // each


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
    names = hostnames(job.current.nodes)
    if not 0 <= node < len(names):
        raise Refused(f"{job.id} has nodes 0 to {len(names) - 1}, not {node}. Choose one of them")
    return names[node]
