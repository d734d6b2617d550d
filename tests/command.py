"""`trn` in the process of the tests: a process of its own takes longer to start than most commands to answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

from trainium_cdk.client.cli import app

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def trn(
    words: Sequence[str | Path], env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """What a command printed, in that environment and folder; nobody types. Processes that it starts print elsewhere."""
    argv = ["trn", *map(str, words)]
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace", newline=""))
            for _ in range(2)
        ]
        stack.enter_context(mock.patch.dict(os.environ, env, clear=True))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(mock.patch.object(sys, "argv", argv))
        stack.enter_context(mock.patch.object(sys, "stdin", stack.enter_context(Path(os.devnull).open())))
        stack.enter_context(contextlib.redirect_stdout(streams[0]))
        stack.enter_context(contextlib.redirect_stderr(streams[1]))
        try:
            app.main()
            code = 0
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        for stream in streams:
            stream.flush()
            stream.seek(0)
        out, err = (stream.read() for stream in streams)
    return subprocess.CompletedProcess(argv, code, out, err)
