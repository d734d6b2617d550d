"""Slurm's power saving, as AWS PCS uses it: nodes are started for jobs, and ended when they are idle.

`write` makes the two programs that slurmctld runs; they ask the local AWS for EC2 instances, and start or stop the slurmd of each
node. A node without an instance gets the reason that PCS gives it, and is powered down again (user guide, questions about capacity
blocks, read 2026-11-24); Slurm tries again when it starts the job again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from sandbox import attach, paths, processes
from sandbox.processes import Started
from sandbox.slurm_layout import command_path, slurmd_command
from sandbox.slurm_packages import SYSTEM_PATH

PROGRAM = "power"
"""`TRN_SANDBOX_NODE` of the programs' processes."""


def write(directory: Path, link: str, environment: Mapping[str, str]) -> None:
    """Write `etc/resume` and `etc/suspend`."""
    env = {
        "PATH": SYSTEM_PATH,
        "PYTHONPATH": paths.python_path(),
        "SLURM_CONF": f"{link}/etc/slurm.conf",
        "TRN_SANDBOX": str(directory),
        "TRN_SANDBOX_NODE": PROGRAM,
        **{k: v for k, v in environment.items() if k in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")},
    }
    given = " ".join(shlex.quote(f"{key}={value}") for key, value in env.items())
    for verb in ("resume", "suspend"):
        run = f"{shlex.quote(sys.executable)} -m sandbox.slurm_power {verb} {shlex.quote(str(directory))}"
        program = directory / "etc" / verb
        program.write_text(
            f'#!/bin/sh\nexec env -i {given} {run} "$1" >>{shlex.quote(str(directory))}/log/power.log 2>&1\n'
        )
        program.chmod(0o700)
    commands = {name: shlex.quote(command_path(name)) for name in ("squeue", "scontrol")}
    (prolog := directory / "etc" / "prolog").write_text(_PROLOG.format(given=given, **commands), encoding="utf-8")
    prolog.chmod(0o700)


_PROLOG = """#!/bin/sh
# Slurm looks every 30 s whether the nodes of a job have started, and when its prolog has ended.
export {given}
while [ "$({squeue} -h -j "$SLURM_JOB_ID" -o %T)" = CONFIGURING ] &&
  {scontrol} -o show node "$SLURM_JOB_NODELIST" | grep -q 'POWER'; do sleep 0.2; done
"""


def running(directory: Path) -> dict[str, Started]:
    """The slurmds of the nodes that Slurm has started."""
    found = {file.stem: attach.read(file) for file in (directory / "power").glob("*.json")}
    return {name: Started(*who["process"]) for name, who in found.items() if who}


def _resume(directory: Path, state: Mapping[str, Any], nodes: Sequence[str]) -> None:
    started = _request("ResumeNodes", state["service"], nodes)
    for node in nodes:
        if code := started.get(node, {}).get("code"):
            reason = f"Failed to launch backing instance (Error Code: {code})"
            _scontrol("update", f"nodename={node}", "state=POWER_DOWN_FORCE", f"reason={reason}")
            continue
        # Slurm forgets the address of a node that is powered down.
        _scontrol("update", f"nodename={node}", "nodeaddr=127.0.0.1", f"nodehostname={state['host']}")
        command = slurmd_command(node, f"{state['link']}/etc/{state['order'].index(node)}.conf")
        command += ["-b"]  # a new machine: its uptime is the daemon's
        env = {"PATH": SYSTEM_PATH, "TRN_SANDBOX": str(directory), "TRN_SANDBOX_NODE": node, "LC_ALL": "C.UTF-8"}
        child = processes.start(command, directory / "log" / f"{node}.out", env)
        attach.write(directory / "power" / f"{node}.json", {"process": astuple(processes.identity(child))})


def _suspend(directory: Path, state: Mapping[str, Any], nodes: Sequence[str]) -> None:
    here = running(directory)
    processes.stop_all((here[node] for node in nodes if node in here), patience=1.0)
    for node in nodes:
        (directory / "power" / f"{node}.json").unlink(missing_ok=True)
    _request("SuspendNodes", state["service"], nodes)


def _request(action: str, cluster: str, nodes: Sequence[str]) -> dict[str, Any]:
    """What the local AWS's PCS responds; empty where there is none."""
    endpoint, region = os.environ.get("AWS_ENDPOINT_URL"), os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
    if not endpoint or not cluster:
        return {}
    headers = {
        "x-amz-target": f"AWSParallelComputingService.{action}",
        "content-type": "application/x-amz-json-1.0",
        "authorization": f"AWS4-HMAC-SHA256 Credential=test/20260101/{region}/pcs/aws4_request, SignedHeaders=host, Signature=0",
    }
    body = json.dumps({"cluster": cluster, "nodes": list(nodes)}).encode()
    with urllib.request.urlopen(urllib.request.Request(endpoint, body, headers), timeout=60) as response:  # noqa: S310  loopback
        found: dict[str, Any] = json.load(response)
    return found


def _scontrol(*words: str) -> str:
    done = subprocess.run([command_path("scontrol"), *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        print(f"scontrol {words}: {done.stderr.strip()}", flush=True)
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """`resume|suspend DIRECTORY NODES`, with nodes as Slurm lists them: n-[1-2]."""
    verb, directory, listed = arguments[0], Path(arguments[1]), arguments[2]
    state = attach.read(directory / "local-slurm.json")
    nodes = _scontrol("show", "hostnames", listed).split()
    print(f"{verb} {' '.join(nodes)}", flush=True)
    with (directory / "power" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a node may be resumed while the program that suspended it still runs
        (_resume if verb == "resume" else _suspend)(directory, state, nodes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
