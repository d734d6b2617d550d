"""A real slurmctld of this machine, asked whether it takes an environment's lines of slurm.conf."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from trainium_cdk.description.catalog.slurm import parameters, release_of
from trainium_cdk.description.checks.cluster_configuration import rendered
from trainium_cdk.description.settings import Environment

SECONDS = 5
_LEFT_OUT = re.compile(
    "prog|epilog|prolog|script|dir|loc|file|host|addr|user|pass|port|machine|stack|account|backup", re.I
)
"""Parameters that run a program, write a file, reach another machine, or need an accounting database."""
_NOISE = re.compile(r"specified more than once|gettimeofday|Unable to process|MailProg is invalid")


def ask(environment: Environment, engine: str) -> str:
    """Return slurmctld's answer to the environment's lines; empty without lines. TRN_SLURMCTLD names the program. Default: the one on PATH.

    It runs at most five seconds, in a temporary folder, as the current user, and listens on 127.0.0.1 alone.
    """
    slurm = rendered(environment)["Scheduling"].get("SlurmSettings") or {} if engine == "slurm" else {}
    lines = [tuple(line.items()) for line in slurm.get("CustomSlurmSettings") or ()]
    given = (
        [*environment.pcs.slurm_settings.items()] if engine == "pcs" else [line[0] for line in lines if len(line) == 1]
    )
    program = os.environ.get("TRN_SLURMCTLD") or shutil.which("slurmctld")
    if not given:
        return ""
    if not program:
        return "slurm.conf: no slurmctld was asked, as none is on PATH and TRN_SLURMCTLD names none"
    try:
        said = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=SECONDS, check=True).stdout
        version = ".".join(re.findall(r"\d+", said)[:3])
        names = {name.lower() for name in parameters(release_of(version))} - {"communicationparameters"}
        taken = [
            f"{n}={v}"
            for n, v in given
            if n.lower() in names and not _LEFT_OUT.search(n) and not re.search(r"(^|[=,])[/~.]|\s", str(v))
        ]
        with tempfile.TemporaryDirectory() as folder:
            answer = _answer(program, Path(folder), taken)
    except (OSError, subprocess.SubprocessError) as e:
        return f"slurm.conf: {program} could not be asked: {e}"
    return (
        f"{'warning: ' if answer.startswith('stops') else ''}slurm.conf: slurmctld {version} of this machine {answer}"
    )


def _answer(program: str, folder: Path, lines: list[str]) -> str:
    """Start slurmctld and describe the result: it starts, is not ready in time, or stops with these last errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "state").mkdir()
    (folder / "cgroup.conf").touch()
    (folder / "slurm.conf").write_text("\n".join([
        "ClusterName=x", f"SlurmctldHost={socket.gethostname().partition('.')[0]}(127.0.0.1)", f"SlurmctldPort={port}",
        f"SlurmUser={getpass.getuser()}", "AuthType=auth/none", "CredType=cred/none", "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        f"StateSaveLocation={folder}/state", f"SlurmctldPidFile={folder}/pid", "SelectType=select/cons_tres",
        "ProctrackType=proctrack/linuxproc", "NodeName=n1 CPUs=1 State=FUTURE", "PartitionName=q Nodes=n1", *lines, "",
    ]))  # fmt: skip
    log, ends = folder / "log", time.monotonic() + SECONDS
    with log.open("w") as out:
        words = [program, "-D", "-f", str(folder / "slurm.conf")]
        process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    while process.poll() is None and time.monotonic() < ends and "Running as primary" not in log.read_text():
        time.sleep(0.05)
    stopped = process.poll() is not None
    process.kill()
    process.wait()
    text = log.read_text()
    if not stopped:
        return "takes it" if "Running as primary" in text else f"is not ready after {SECONDS} s"
    said = [line for line in text.splitlines() if re.search("(error|fatal): ", line) and not _NOISE.search(line)]
    return "stops: " + "; ".join(re.sub(r"^.*?(?:error|fatal): ", "", line) for line in said[-2:])
