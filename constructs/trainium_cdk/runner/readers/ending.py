"""The reason of a program's end: one sentence from its log."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from . import Said
from .collecting import LONGEST, LONGEST_LINE, SECOND_LINE

_MEMORY = "a process of it was killed, because the node's memory was full"
_SIGNALS = {
    signal.SIGILL: "it has instructions that this processor does not know",
    signal.SIGABRT: "it ended itself, and its last lines have the reason",
    signal.SIGBUS: "most often because the shared memory (/dev/shm) or a disk was full",
    signal.SIGKILL: "most often because the node's memory was full",
    signal.SIGSEGV: "a fault of a compiled library",
    signal.SIGTERM: "something told it to end",
}


_TOLD_SIGNAL = re.compile(
    r"line \d{1,6}: {1,20}\d{1,10} (?P<word>Killed|Segmentation fault|Aborted|Bus error|Illegal instruction)\b|"
    r"\bSignal (?P<number>\d{1,2}) \(SIG[A-Z]{2,8}\) received by PID"
)
"""How bash, or torchrun, reports that a signal killed a program: the exit code may be another one's, as in a pipe."""
_SIGNAL_WORDS = {
    "Killed": signal.SIGKILL,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
}
_SURVIVED = re.compile(
    r"\b(User|Future|Deprecation|Runtime)Warning: |[Ff]alling back|, (skipping|using|ignor|continu|proceed)|\boptional\b|Could not load dynamic library"
)
"""A program that prints this continues without what it lacks."""

_ABORTS = re.compile(r"^(?:\w+::)+\w+:|\bTerminating process because the JAX distributed service")
"""What the C++ part of a program prints when it ends the program, because another process has ended."""

_BEGINNING = 60
"""Characters of a line by which it is found in an exception, whose text is cut."""


class ErrorPattern(NamedTuple):
    """A known error: the line that tells of it, what it means and what to do.

    Attributes:
        pattern: regular expression, searched in one line.
        warning: programs that work print it too: it is a cause only where nothing else explains the end.
        several_nodes: it means something only in a job of several nodes.
        at_end: it means something only as the last line of a log.
        minutes: the group `minutes` of the pattern must be at least this.
    """

    name: str
    pattern: str
    cause: str
    fix: str
    warning: bool = False
    several_nodes: bool = False
    at_end: bool = False
    minutes: float | None = None

    def is_in(self, line: str) -> bool:
        found = re.search(self.pattern, line[:LONGEST_LINE])
        return found is not None and (self.minutes is None or float(found["minutes"]) >= self.minutes)


def explained(known: Sequence[ErrorPattern], lines: Sequence[str], nodes: int) -> list[tuple[ErrorPattern, str]]:
    """The known errors of the end of a job's log, each with its first line, in the order of the text.

    Args:
        known: the first whose pattern is in a line counts.
        lines: that are not empty.
        nodes: of the job.
    """
    found: dict[ErrorPattern, str] = {}
    for at, line in enumerate(lines):
        error = next((one for one in known if one.is_in(line)), None)
        if error and error.warning and _SURVIVED.search(line):
            continue
        if error is None or (error.several_nodes and nodes < 2) or (error.at_end and at < len(lines) - 1):
            continue
        found.setdefault(error, line.strip())
    return list(found.items())


def why_it_ended(said: Said, code: int | None, nodes: int, known: Sequence[ErrorPattern], kills: int = 0) -> str:
    """Describe why a program failed: its exception, the signal that killed it, and what is known of its messages; else its last line.

    Args:
        said: by the program of the node that failed first.
        code: of the program. 128+N and -N: killed by signal N. None: not known.
        nodes: of the job.
        known: errors, in their order.
        kills: how many of its processes the kernel killed, because the memory was full.
    """
    # an exception of a launched worker's log is not the reason, if the launcher reports that one was killed
    killed = _signal(code, kills) or (_signal(said.code, kills) if said.launcher else "") or (_MEMORY if kills else "")
    if not killed and not said.raised and code and not (said.launcher and said.code):  # else siblings that it stopped
        told = next(filter(None, map(_TOLD_SIGNAL.search, said.lines)), None)
        killed = _signal(-int(told["number"] or _SIGNAL_WORDS[told["word"]]), kills) if told else ""
    if (
        "SIGABRT" in killed
        and said.follows
        and not said.launcher
        and any(map(_ABORTS.search, (said.follows, *said.lines)))
    ):
        killed = ""
    parts = [killed] if killed else []
    for at, text in enumerate(said.raised):
        first = at == (0 if said.launcher else 1) and len(said.raised) > 1
        parts.append(text if not (killed or at) else f"The {'first' if first else 'last'} exception of its log: {text}")
    if not parts and said.follows and not said.launcher:
        parts.append(said.follows)
    if found := _known(known, said, nodes, alone=not parts):
        parts.append(found)
    if not parts and said.launcher and said.code:
        parts.append(f"{'a worker' if said.rank < 0 else f'rank {said.rank}'} ended with exit code {said.code}")
        if said.line:
            parts.append(f"The last line of its log: {said.line}")
    if not parts and code is not None and (said.line or said.follows):
        parts.append(f"the last line of its log: {said.line}" if said.line else said.follows)
    return ". ".join(part[:1000].rstrip(". ") if i < len(parts) - 1 else part[:1000] for i, part in enumerate(parts))


def _signal(code: int | None, kills: int = 0) -> str:
    """An exit code in words, if a signal killed the program; else empty."""
    if code is None or not (code < 0 or code > 128):
        return ""
    number = -code if code < 0 else code - 128
    try:
        found = signal.Signals(number)
    except ValueError:
        return ""
    why = f", {_SIGNALS[found]}" if found in _SIGNALS else ""
    if found is signal.SIGKILL and kills:
        why = ", because the node's memory was full"
    return f"killed by signal {number} ({found.name}){why}"


def known_error(said: Said, nodes: int, known: Sequence[ErrorPattern]) -> str:
    """The first known error of a log, with its line; empty if there is none."""
    return _known(known, said, nodes, alone=True)


def _counts(error: ErrorPattern, line: str, told: str) -> bool:
    """Whether an error explains the end though an exception may tell another one. A second line of TorchNeuron's is also printed by an operation
    that then runs in another way: only the exception's counts."""
    if line.startswith(SECOND_LINE):
        return line[:_BEGINNING] in told
    return not error.warning or (bool(told) and error.is_in(told))


def _known(known: Sequence[ErrorPattern], said: Said, nodes: int, *, alone: bool) -> str:
    """The first known error that explains the end; of warnings, only one that the exception itself has, or if nothing else is known."""
    told = said.raised[0] if said.raised else said.follows
    found = explained(known, said.lines, nodes)
    errors = [(error, line) for error, line in found if _counts(error, line, told)]
    if not errors and alone:
        errors = found
    if not errors:
        return ""
    error, line = errors[0]
    cause = f"{error.cause[:1].upper()}{error.cause[1:]}. {error.fix[:1].upper()}{error.fix[1:]}"
    return cause if told and line[:LONGEST] in told else f"{cause}. The log has: {line[:LONGEST]}"
