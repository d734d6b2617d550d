"""Options of Slurm's sbatch that a job passes on (`--sbatch`), and those that it may not, as `trn` sets them itself. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from trainium_cdk.client.jobs.words import shown, wrong
from trainium_cdk.text import Text

_WHOLE = "a job has its nodes to itself"
_LOG = "trn logs prints it"
_ITSELF = "trn calls sbatch, and reads its answer"
_SET = {
    "account": "write --account", "array": "write --array", "constraint": "write --compute-resource or --instance-type",
    "job-name": "write --name", "nodes": "write --nodes", "partition": "write --queue", "qos": "write --qos", "time": "write --time-limit",
    "ntasks-per-node": "write --tasks-per-node", "ntasks": "write --nodes and --tasks-per-node", "no-requeue": "write --restarts 0",
    "requeue": "trn requeues a job whose node fails", "comment": "trn knows its jobs by it", "exclusive": _WHOLE, "oversubscribe": _WHOLE,
    "overcommit": _WHOLE, "mem": _WHOLE, "mem-per-cpu": _WHOLE, "mem-per-gpu": _WHOLE, "output": _LOG, "error": _LOG, "open-mode": _LOG,
    "input": "a job has no input", "chdir": "--workdir sends the folder", "export": "--env sets variables", "export-file": "--env sets variables",
    "get-user-env": "--env sets variables", "wrap": "a job's program is its script", "hold": "trn begins a job when all its stages are known",
    "kill-on-invalid-dep": "trn cancels a stage that can no longer begin", "signal": "a program gets SIGTERM, and time to save its state",
    "batch": "the nodes of a job are alike", "clusters": "write --cluster", "wait": "trn status --wait waits for a job", "uid": "trn submits as the jobs' user",
    "gid": "trn submits as the jobs' user", "parsable": _ITSELF, "quiet": _ITSELF, "verbose": _ITSELF, "test-only": _ITSELF, "help": _ITSELF,
    "usage": _ITSELF, "version": _ITSELF,
}  # fmt: skip
"""Options that `trn` sets, or that change what it relies on -> why, or what to write instead (sbatch's manual, Slurm 25.11)."""


def may_pass_on(name: str) -> bool:
    """Return whether an option of this name is passed on: `trn` sets none that begins with it. sbatch takes a prefix for the whole."""
    return not any(one.startswith(name) for one in _SET)


def _passed_on(option: str) -> str:
    name = option[2:].partition("=")[0]
    if reason := _SET.get(name):
        _, own, instead = reason.rpartition("write ")
        why = f"but trn sets --{name} itself. Remove it, and use {instead} of trn submit"
        raise wrong(
            f"sbatch is {shown(option)}, {why if own else f'which trn does not pass to sbatch: {reason}. Remove it'}"
        )
    if not may_pass_on(name):
        alike = next(one for one in _SET if one.startswith(name))
        raise wrong(f"sbatch is {shown(option)}, which sbatch may read as --{alike}. Write the option in full")
    return option


SbatchOption = Annotated[
    str,
    Text(
        r"^--[a-z][a-z-]{1,40}(=[^\x00-\x1f\x7f]*)?$",
        "an option in full, --NAME or --NAME=VALUE",
        "--exclude=node-3",
        max_length=1000,
    ),
    AfterValidator(_passed_on),
]
