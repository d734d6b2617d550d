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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainium_cdk.catalog.slurm import parameters, release_of
from trainium_cdk.checks.cluster_schema import rendered
from trainium_cdk.settings import Environment

SECONDS = 5
_LEFT_OUT = re.compile(
    r"(prog|prolog|epilog|script|dir|loc|file|host|addr|user|pass|port|machine|plugstack|accounting|controller)", re.I
)
"""Parameters that run a program, write a file, reach another machine, or need an accounting database."""
_NOISE = re.compile(r"specified more than once|gettimeofday|Unable to process|MailProg is invalid")


def ask(environment: Environment, engine: str) -> str:
    """What the slurmctld that TRN_SLURMCTLD names, or that of PATH, says of the environment's lines; in one line.

    It runs at most five seconds, in a temporary folder, as the current user, and listens on 127.0.0.1 alone.
    """
    lines = _lines(environment, engine)
    program = os.environ.get("TRN_SLURMCTLD") or shutil.which("slurmctld")
    if not lines:
        return ""
    if not program:
        return "slurm.conf: no slurmctld was asked, as none is on PATH and TRN_SLURMCTLD names none"
    try:
        said = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=SECONDS, check=True).stdout
        version = ".".join(re.findall(r"\d+", said)[:3])
        with tempfile.TemporaryDirectory() as folder:
            answer = _answer(program, Path(folder), [line for line in lines if _known(line, version)])
    except (OSError, subprocess.SubprocessError) as e:
        return f"slurm.conf: {program} could not be asked: {e}"
    level = "warning: " if answer.startswith("stops") else ""
    return f"{level}slurm.conf: slurmctld {version} of this machine {answer}"


def _lines(environment: Environment, engine: str) -> list[Mapping[str, Any]]:
    if engine == "pcs":
        return [{name: value} for name, value in environment.pcs.slurm_settings.items()]
    if engine != "slurm":
        return []
    slurm = (rendered(environment).get("Scheduling") or {}).get("SlurmSettings") or {}
    return [line for line in slurm.get("CustomSlurmSettings") or () if len(line) == 1]


def _known(line: Mapping[str, Any], version: str) -> bool:
    """Whether a line may be given to a controller of another release."""
    [(name, value)] = line.items()
    names = {known.lower() for known in parameters(release_of(version))}
    return name.lower() in names and not _LEFT_OUT.search(name) and not re.search(r"(^|[=,])[/~.]|\n", str(value))


def _answer(program: str, folder: Path, lines: list[Mapping[str, Any]]) -> str:
    """Whether it starts, and if not, the last lines of its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "state").mkdir()
    (folder / "cgroup.conf").write_text("")
    host, conf, log = socket.gethostname().partition(".")[0], folder / "slurm.conf", folder / "log"
    own = [f"{name}={value}" for line in lines for name, value in line.items()]
    conf.write_text("\n".join([
        "ClusterName=x", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmUser={getpass.getuser()}", "AuthType=auth/none", "CredType=cred/none",
        "SelectType=select/cons_tres", "ProctrackType=proctrack/linuxproc", "NodeName=n1 CPUs=1 State=FUTURE", "PartitionName=q Nodes=n1",
        *own, "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny", f"SlurmctldPort={port}", f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/pid", "",
    ]))  # fmt: skip
    with log.open("w") as out:
        process = subprocess.Popen([program, "-D", "-f", str(conf)], cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    ends = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < ends and "Running as primary" not in log.read_text():
        time.sleep(0.05)
    stopped = process.poll() is not None
    process.kill()
    process.wait()
    text = log.read_text()
    if not stopped:
        return "takes it" if "Running as primary" in text else f"is not ready after {SECONDS} s"
    said = [line for line in text.splitlines() if re.search("(error|fatal): ", line) and not _NOISE.search(line)]
    why = "; ".join(re.sub(r"^.*?(?:error|fatal): ", "", line) for line in said[-2:])
    return f"stops: {why or 'its log has no reason'}"
