"""The output of a stage: it goes to standard output, which Slurm or Kubernetes keeps, and to a file of the job's folder.

A full disk, a file system that is gone, or nobody who listens ends no job: what cannot be written is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def say(text: str) -> None:
    """Tell something that is not of the job's program, on standard output."""
    show(f"trn: {text}")


def show(line: str) -> None:
    """Write a line to standard output."""
    _write(STANDARD_OUTPUT, _line(line))


@contextlib.contextmanager
def output_to(file: Path) -> Iterator[None]:
    """Append standard output and standard error to a file, also of programs that are started meanwhile. Where it cannot be opened, they stay."""
    kept = [os.dup(one) for one in (STANDARD_OUTPUT, STANDARD_ERROR)]
    try:
        to = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        for one in (STANDARD_OUTPUT, STANDARD_ERROR):
            os.dup2(to, one)
        os.close(to)
    except OSError as e:
        say(f"{file} cannot be written: {e.strerror}")
    try:
        yield
    finally:
        for one, before in zip((STANDARD_OUTPUT, STANDARD_ERROR), kept):
            os.dup2(before, one)
            os.close(before)


class Output:
    """Standard output, and a file as well. Several processes may append to the same file.

    Args:
        file: None: standard output alone. What is not a regular file, such as a pipe, is not opened.

    Attributes:
        ear: is given each piece, too.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._to, self.file = [STANDARD_OUTPUT], file
        self.ear: Callable[[bytes], None] | None = None
        if file is None:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._to.append(os.open(file, flags, 0o644))
        except OSError as e:
            say(f"{file} cannot be written: {e.strerror}")

    def write(self, piece: bytes) -> None:
        for to in self._to:
            _write(to, piece)
        if self.ear:
            self.ear(piece)

    def say(self, text: str) -> None:
        self.write(_line(f"trn: {text}"))


def _line(text: str) -> bytes:
    return f"{text}\n".encode(errors="replace")


def _write(to: int, piece: bytes) -> None:
    with contextlib.suppress(OSError):
        while piece:
            piece = piece[os.write(to, piece) :]
