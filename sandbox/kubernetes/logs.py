"""Files that `kubectl logs` can read."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import Self


class LogWriter:
    """Writes lines in the format of the kubelet's container runtime: time, stream, F for a full line."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._out = file.open("a", encoding="utf-8", errors="replace")
        self._lock = threading.Lock()

    def write(self, line: str, stream: str = "stdout") -> None:
        """Write a line, with or without its newline."""
        now = dt.datetime.now(dt.UTC)
        text = line.rstrip("\n")
        with self._lock:
            self._out.write(f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z {stream} F {text}\n")
            self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._out.close()
