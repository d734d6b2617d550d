"""Asks real `slurmctld`s what they do with lines of slurm.conf, and writes their answers into the table of cases.

    python -m tools.slurm_answers tests/catalog/slurm_answers.yaml ROOT [ROOT ...]
ROOT is a folder with a system that has slurmctld, for example one that `debootstrap` or `dpkg -x` of Debian's packages made; / is this
one. It needs root for `chroot`. The answer of a release is `refused` (the controller ends), `ignored` (it logs that it does not use the
value) or `taken`, with the first line of its log that is about the case.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from sandbox.processes import free_ports

SECONDS = 8
RUNNING = re.compile(r"Running as primary controller|slurmctld version [\d.]+ started")
SAID = re.compile(r"(fatal|error|warning): (?!.* specified more than once)")
NOT_OURS = re.compile(
    r"latency|munge|Munge|slurmdbd|getaddrinfo|cgroup|Primary|not resumed|UID|SIG|state (file|save)|No (job|last|node|trigger|reservation|parameter)|default partition"
)


def configuration(case: dict[str, Any], folder: str, port: int) -> str:
    """A slurm.conf with a case's lines where ParallelCluster has them: at the end, and in the line of a queue's partition."""
    queue = " ".join(f"{name}={value}" for name, value in case.get("queue", {}).items())
    lines = (" ".join(f"{name}={value}" for name, value in line.items()) for line in case.get("lines", ()))
    accounting = (
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        "AccountingStoragePort=1",
    )
    return "\n".join([
        "ClusterName=x", f"SlurmctldHost={socket.gethostname().partition('.')[0]}(127.0.0.1)", f"SlurmctldPort={port}", "SlurmUser=root",
        "AuthType=auth/none", "CredType=cred/none", "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        f"StateSaveLocation={folder}/state", f"SlurmctldPidFile={folder}/pid",
        "ReturnToService=1", "SchedulerType=sched/backfill", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU",
        "ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup,task/affinity", "MpiDefault=none",
        "SuspendProgram=/bin/true", "ResumeProgram=/bin/true", "SuspendTime=600",
        *(accounting if case.get("accounting") else ()),
        "NodeName=compute1-dy-trn-[1-2] CPUs=4 State=CLOUD",
        f"PartitionName=compute1 Nodes=compute1-dy-trn-[1-2] MaxTime=INFINITE State=UP Default=YES {queue}",
        *lines,
    ]) + "\n"  # fmt: skip


def ask(root: Path, case: dict[str, Any]) -> tuple[int | None, list[str]]:
    """The controller's exit code, None while it runs; and its log."""
    folder = Path(tempfile.mkdtemp(dir=root / "tmp"))
    inside = f"/{folder.relative_to(root)}"
    try:
        (folder / "state").mkdir()
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (folder / "slurm.conf").write_text(configuration(case, inside, free_ports(1)[0]))
        with (folder / "log").open("w+") as log:
            words = ["chroot", str(root), "/usr/sbin/slurmctld", "-D", "-f", f"{inside}/slurm.conf"]
            process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
            ends = time.monotonic() + SECONDS
            while (
                process.poll() is None and time.monotonic() < ends and not RUNNING.search((folder / "log").read_text())
            ):
                time.sleep(0.1)
            time.sleep(0.5)
            code = process.poll()
            process.kill()
            process.wait()
        text = (folder / "log").read_text().replace(inside, "DIR")
        return code, [re.sub(r"^(\[\S+\] )?(slurmctld: )?", "", line) for line in text.splitlines()]
    finally:
        shutil.rmtree(folder)


def answer(root: Path, case: dict[str, Any], usual: set[str]) -> dict[str, str]:
    """One release's answer to a case."""
    code, log = ask(root, case)
    said = [line for line in log if SAID.match(line) and line not in usual]
    if code is not None:
        why = [line for line in said if not line.startswith("fatal: Unable to process")]
        return {"refused": (why or said or log[-1:] or [""])[0]}
    said = [line for line in said if not NOT_OURS.search(line) or any(name in line for name in _names(case))]
    return {"ignored": said[0]} if said else {"taken": ""}


def answers(root: Path, cases: list[dict[str, Any]], usual: dict[bool, set[str]]) -> list[dict[str, str]]:
    """One release's answers, two cases at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda case: answer(root, case, usual[bool(case.get("accounting"))]), cases))


def _names(case: dict[str, Any]) -> list[str]:
    return [name for line in [*case.get("lines", ()), case.get("queue", {})] for name in line]


def main(table: str, *roots: str) -> None:
    """Write the answers of each root's release."""
    cases = yaml.safe_load(Path(table).read_text("utf-8"))
    head = "".join(line for line in Path(table).read_text("utf-8").splitlines(True) if line.startswith("#"))
    for root in map(Path, roots):
        said = subprocess.run(
            ["chroot", root, "/usr/sbin/slurmctld", "-V"], capture_output=True, text=True, check=True
        ).stdout
        release = ".".join(re.findall(r"\d+", said)[:2])
        usual = {accounting: set(ask(root, {"accounting": accounting})[1]) for accounting in (False, True)}
        for case, said_of_it in zip(cases, answers(root, cases, usual), strict=True):
            case.setdefault("answers", {})[release] = said_of_it
        print(release, len(cases))
    Path(table).write_text(
        head + yaml.safe_dump(cases, sort_keys=False, width=10_000, default_flow_style=None), "utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
