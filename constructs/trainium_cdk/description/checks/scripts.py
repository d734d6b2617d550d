"""Scripts of one's own that nodes run when they start: a node fails with its script, and the cluster with its head node."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from trainium_cdk.description.checks.rule import Rules, error, groups
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.problems import KeyPath

SHELLS = ("bash", "sh", "dash")
SECONDS = 10

RULES = Rules()


@RULES.refuse(
    "Linux manual, man2/execve.2: the first line names a program; Bash manual, The-Set-Builtin: -n reads alone"
)
def unreadable_script(env: Environment) -> Iterator[Problem]:
    scripts: list[tuple[KeyPath, str, str]] = [
        (("bootstrap", "scripts", i, "script"), own.name, own.script) for i, own in enumerate(env.bootstrap.scripts)
    ]
    scripts += [((*at, "user_data"), group.name, group.user_data or "") for at, group in groups(env)]
    for key, name, script in scripts:
        first = script.partition("\n")[0]
        words = first.removeprefix("#!").split() if first.startswith("#!") else []
        if first.endswith("\r"):
            text = "its first line ends as Windows writes it (CR LF), and Linux finds no such interpreter"
            yield error(key, text, "save it with Unix line ends (LF), for example with dos2unix", value=name)
        elif any(PurePosixPath(word).name in SHELLS for word in words[:2]) and (wrong := _syntax(script)):
            yield error(key, f"bash cannot read it: {wrong}", "correct it; `bash -n FILE` checks it", value=name)


@cache
def _syntax(script: str) -> str:
    """The first fault that bash of this machine finds, without running anything; empty if there is none, or no bash."""
    program = shutil.which("bash")
    if not program:
        return ""
    try:
        done = subprocess.run([program, "-n"], input=script.encode(), capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stderr.decode(errors="replace").splitlines() if done.returncode else []
    return lines[0].partition(": ")[2] if lines else ""
