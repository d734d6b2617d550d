"""The commands of a verification: the same that a person types, each a process of its own, with a time limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainium_cdk.errors import Stopped
from trainium_cdk.jobs.quote import printed
from trainium_cdk.operations.updates.spec import command

_PATIENCE = 30.0
"""Seconds that a command has to end after Ctrl-C, before it is killed."""
_OF_OTHERS = ("TRN_ENV", "TRN_STACK", "TRN_CLUSTER", "TRN_TEAM", "TRN_CLUSTER_USER")
"""Variables that would lead a command to another cluster."""


@dataclass(frozen=True)
class Answer:
    """How a command ended.

    Attributes:
        code: its exit code; None if its time was over.
        out: its standard output.
        err: its standard error.
    """

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def data(self) -> Any:
        """Its output as JSON; None if it is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    @property
    def reason(self) -> str:
        """Why it failed: its last line."""
        if self.code is None:
            return "its time was over"
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}, without a word"


class Call(Protocol):
    """Runs `trn` or `cdk` with these words."""

    def __call__(self, program: str, *words: str, seconds: float) -> Answer: ...


@dataclass
class Commands:
    """Runs commands in a folder, and writes what they print into its `log.txt`.

    Ctrl-C reaches this program, and not them: `stop` ends the one that runs.
    """

    folder: Path
    stopping: threading.Event = field(default_factory=threading.Event)

    def __call__(self, program: str, *words: str, seconds: float) -> Answer:
        """Run one.

        Raises:
            TrnError: the CDK's command line is not found.
            Stopped: while it ran, or before.
        """
        self._stop_here()
        first = [sys.executable, "-m", "trainium_cdk.cli"] if program == "trn" else [str(command().absolute())]
        environment = {key: value for key, value in os.environ.items() if key not in _OF_OTHERS}
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            print(f"\n$ {printed(program, *words)}", file=log, flush=True)
            began = log.tell()
            with (self.folder / "out").open("w+", encoding="utf-8", errors="replace") as out:
                process = subprocess.Popen(
                    [*first, *words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True,
                )  # fmt: skip
                code = self._wait(process, seconds)
                out.seek(0)
                text = out.read()
        with (self.folder / "log.txt").open("r+", encoding="utf-8", errors="replace") as log:
            log.seek(began)
            err = log.read()
            print(text, f"[{'time limit' if code is None else code}]", sep="\n", file=log)
        self._stop_here()
        return Answer(code, text, err)

    def sleep(self, seconds: float) -> None:
        """Wait so long. Raises Stopped."""
        self.stopping.wait(seconds)
        self._stop_here()

    def _stop_here(self) -> None:
        """Each signal stops once: what comes after it is the removal."""
        if self.stopping.is_set():
            self.stopping.clear()
            raise Stopped

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end and not self.stopping.wait(0.1):
            pass
        if process.poll() is not None:
            return process.returncode
        for number, patience in ((signal.SIGINT, _PATIENCE), (signal.SIGKILL, _PATIENCE)):
            try:
                os.killpg(process.pid, number)
                process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break
        process.wait(_PATIENCE)
        return None
