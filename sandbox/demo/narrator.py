"""Prints the demo's progress: numbered steps, the commands, their output, and how long each took."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

# `Stack |  5/80 | 10:02:03 | CREATE_COMPLETE | AWS::EC2::VPC | Network/Vpc (NetworkVpc1234)`
_EVENT = re.compile(r"^\S+ \|\s*(\d+)/(\d+) \|[^|]*\| (\w+)\s*\| (\S+)\s*\|")


class StepFailed(RuntimeError):
    """A command of the demo failed; the message has the end of its output."""


class Narrator:
    """Prints the steps of a demo.

    Args:
        env: the environment of every command.
        cwd: working directory of every command.
        assembly: folder for the CDK's cloud assembly, separate from a user's `cdk.out`.
    """

    def __init__(self, env: Mapping[str, str], cwd: Path, assembly: Path):
        self.console = Console(highlight=False, soft_wrap=True)
        self._env, self._cwd, self._assembly = dict(env), cwd, assembly
        self._steps = 0
        self._began = time.monotonic()

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self.console.print(f"\n[bold]{self._steps}. {title}[/]  [dim]{self.elapsed:.0f} s[/]")

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def print(self, text: str) -> None:
        self.console.print(f"   {text}", markup=False)

    def run(
        self,
        *command: str,
        on_line: Callable[[str], None] | None = None,
        errors: int | None = subprocess.STDOUT,
        fails: bool = False,
    ) -> str:
        """Run a command as a user would type it, and print its output line by line.

        Args:
            errors: where its standard error goes. None: to this process's own, and not into what is returned.
            fails: it is to fail.

        Raises:
            StepFailed: it exited with a non-zero code, or did not where it should have.
        """
        self.console.print(f"   [cyan]$ {shlex.join(command)}[/]")
        lines: list[str] = []
        rows: list[list[str]] = []
        show = on_line or (lambda line: self._show(line, rows))
        with subprocess.Popen(
            command,
            env=self._env,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
        ) as process:
            try:
                for line in process.stdout or ():
                    lines.append(line.rstrip())
                    show(line.rstrip())
            except BaseException:
                process.terminate()
                raise
        self._align(rows)
        if bool(process.returncode) is not fails:
            tail = "\n".join(lines[-30:])
            raise StepFailed(f"`{shlex.join(command)}` exited with {process.returncode}:\n{tail}")
        return "\n".join(lines)

    def _show(self, line: str, rows: list[list[str]]) -> None:
        """Print a line; a table's lines, which have tabs in a pipe, when it has ended."""
        if "\t" in line:
            rows.append(line.split("\t"))
        else:
            self._align(rows)
            self.print(line)

    def _align(self, rows: list[list[str]]) -> None:
        widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
        for row in rows:
            self.print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())
        rows.clear()

    def cdk(self, *arguments: str) -> str:
        """Run a `cdk` command with a progress bar for its resource events. Raises like `run`."""
        with Progress(
            TextColumn("   {task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} {task.fields[now]}"),
            TimeElapsedColumn(), console=self.console, transient=True,
            disable=not self.console.is_terminal,
        ) as bar:  # fmt: skip
            task = bar.add_task(arguments[0], total=None, now="")
            command = ("cdk", *arguments, "--output", str(self._assembly), "--no-notices")
            return self.run(*command, on_line=lambda line: _advance(bar, task, line))


def _advance(bar: Progress, task: TaskID, line: str) -> None:
    if event := _EVENT.match(line):
        done, total, status, kind = event.groups()
        bar.update(task, completed=int(done), total=int(total), now=f"{kind} {status}")


def plain_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables for the demo's commands: colours as in this terminal, and no environment file of the user's."""
    kept = {k: v for k, v in os.environ.items() if k in {"TERM", "COLUMNS", "COLORTERM"}}
    return {**{k: v for k, v in env.items() if k != "TRN_ENV"}, **kept}
