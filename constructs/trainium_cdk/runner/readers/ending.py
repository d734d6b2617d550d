"""Why a program ended: one sentence from its log."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_LONGEST_LINE = 4000
"""Characters of a line that are read."""
_LONGEST = 300
"""Characters of a line that are shown."""
_KILLED = 137
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_LABEL = re.compile(
    r"(?: {0,9}\d{1,6}: |\[(?:rank|default)? ?\d{1,6}\]:? ?|\(\w[^()\n]{0,80} pid=\d{1,9}[^()\n]{0,80}\) )+"
)
"""What srun, torchrun, PyTorch or Ray put before each line of a worker."""
_FRAME = re.compile(r"[ |+\-]*[|+][ |+\-]*")
"""What Python draws before the lines of an exception group."""
_BEGINS = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|ExceptionGroup|StopIteration)(?::.*)?$"
)
"""The line of an exception, where no traceback is in front."""
_ASIDE = re.compile(r"Exception ignored in|--- Logging error ---|Error in atexit|Exception in thread")
"""What comes before the traceback of an exception that did not end the program."""
_CONSEQUENCES = frozenset({
    "ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException", "SignalException", "SystemExit",
    "KeyboardInterrupt", "ConnectionResetError", "BrokenPipeError", "DistNetworkError", "DistBackendError", "RayTaskError",
})  # fmt: skip
"""Exceptions of a launcher, or of a worker that another one has left: named only if there is no other."""
_LEFT = re.compile(r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|recvValue failed")
_WORKER = re.compile(r"exitcode {0,9}: (-?\d{1,3})\b")
_OURS = re.compile(
    r"trn: |(?:srun|slurmstepd|slurm_script): |[^\w]*$|[EWI]\d{4} .{0,80}torch/distributed/|.{0,200}torch\.distributed\.elastic"
)
"""Lines of `trn`, of Slurm, of a launcher, and lines without a word."""
_SIGNALS = {
    signal.SIGILL: "it has instructions that this processor does not know",
    signal.SIGABRT: "it ended itself, and its last lines have the reason",
    signal.SIGBUS: "most often because the shared memory (/dev/shm) or a disk was full",
    signal.SIGKILL: "most often because the node's memory was full",
    signal.SIGSEGV: "a fault of a compiled library",
    signal.SIGTERM: "something told it to end",
}


class _Raised(NamedTuple):
    text: str
    begin: int
    aside: bool


class Known(NamedTuple):
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
        found = re.search(self.pattern, line[:_LONGEST_LINE])
        return found is not None and (self.minutes is None or float(found["minutes"]) >= self.minutes)


def explained(known: Sequence[Known], lines: Sequence[str], nodes: int) -> list[tuple[Known, str]]:
    """The known errors of the end of a job's log, each with its first line, in the order of the text.

    Args:
        known: the first whose pattern is in a line counts.
        lines: that are not empty.
        nodes: of the job.
    """
    found: dict[Known, str] = {}
    for at, line in enumerate(lines):
        error = next((one for one in known if one.is_in(line)), None)
        if error is None or (error.several_nodes and nodes < 2) or (error.at_end and at < len(lines) - 1):
            continue
        found.setdefault(error, line.strip())
    return list(found.items())


def why_it_ended(log: str, code: int | None, nodes: int, known: Sequence[Known]) -> str:
    """Why a program failed: its last exception, the signal that killed it, and what is known of its messages; else its last line.

    Args:
        log: of the node that failed first, or its end.
        code: of the program. 128+N and -N: killed by signal N. None: not known.
        nodes: of the job.
        known: errors, in their order.
    """
    lines = _lines(log)
    plain = [text for _, text in lines]
    raised = list(_raised(lines))
    own = [one for one in raised if not (one.aside or _follows(one.text))]
    # a launcher's report of its workers; an earlier exception is none of theirs, if one of them was killed
    wrapped = next((one for one in reversed(raised) if _class(one.text) == "ChildFailedError"), None)
    killed = _signal(code) or (_signal(_of_worker("\n".join(plain))) if wrapped else "")
    parts = [killed] if killed else []
    if own:
        parts.append(f"{'The last exception of its log: ' if killed else ''}{own[-1].text}")
    elif raised and not killed and not wrapped:
        parts.append(raised[-1].text)
    if found := _known(known, lines, nodes, alone=not parts, told=own[-1].text if own else ""):
        parts.append(found)
    if not parts and code is not None:
        end = wrapped.begin if wrapped else len(plain)
        last = next((text.strip() for text in reversed(plain[:end]) if not _OURS.match(text.strip())), "")
        parts = [f"the last line of its log: {last}"] if last else []
        parts = parts or ([wrapped.text] if wrapped else [])
    return ". ".join(part[:1000].rstrip(". ") if i < len(parts) - 1 else part[:1000] for i, part in enumerate(parts))


def _lines(log: str) -> list[tuple[str, str]]:
    """The lines that are not empty, each with its worker's label, and without it."""
    found = []
    for raw in _COLOUR.sub("", log).replace("\r", "\n").split("\n"):
        line = raw[:_LONGEST_LINE].rstrip()
        if label := _LABEL.match(line):
            line = line[label.end() :]
        if framed := _FRAME.match(line):
            line = " " * framed.end() + line[framed.end() :]
        if line.strip():
            found.append((label[0].strip() if label else "", line))
    return found


def _raised(lines: Sequence[tuple[str, str]]) -> Iterator[_Raised]:
    """The exceptions of a log, in their order. The lines of several workers may be mixed, if they have labels."""
    open_at: dict[str, tuple[int, int]] = {}
    aside: set[str] = set()
    for at, (label, line) in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if _BEGINS in line:
            open_at[label] = indent, at
        elif label in open_at:
            if indent <= open_at[label][0]:
                yield _Raised(_message(lines, at), open_at.pop(label)[1], label in aside)
                aside.discard(label)
        elif _ASIDE.match(line.strip()):
            aside.add(label)
        elif _EXCEPTION.match(line.strip()):
            yield _Raised(_message(lines, at), at, aside=False)


def _message(lines: Sequence[tuple[str, str]], at: int) -> str:
    """The line of an exception, with the next one if it only announces that."""
    label, line = lines[at]
    text = line.strip()
    if text.endswith(":"):
        after = next((other.strip() for of, other in lines[at + 1 : at + 200] if of == label), "")
        text = f"{text} {after}" if re.search(r"\w", after) else text
    return text[:_LONGEST]


def _class(text: str) -> str:
    return text.partition(":")[0].rpartition(".")[2].strip()


def _follows(text: str) -> bool:
    """Whether an exception only follows from that of another process."""
    return _class(text) in _CONSEQUENCES or _LEFT.search(text) is not None


def _of_worker(text: str) -> int | None:
    """The exit code in torchrun's report, of the worker that failed first."""
    found = _WORKER.search(text, max(0, text.rfind("Root Cause")))
    return int(found[1]) if found else None


def _signal(code: int | None) -> str:
    """An exit code in words, if a signal killed the program; else empty."""
    if code is None or not (code < 0 or code > 128):
        return ""
    number = -code if code < 0 else code - 128
    try:
        found = signal.Signals(number)
    except ValueError:
        return ""
    why = f", {_SIGNALS[found]}" if found in _SIGNALS else ""
    return f"killed by signal {number} ({found.name}){why}"


def known_error(log: str, nodes: int, known: Sequence[Known]) -> str:
    """The first known error of a log, with its line; empty if there is none."""
    return _known(known, _lines(log), nodes, alone=True)


def _known(known: Sequence[Known], lines: Sequence[tuple[str, str]], nodes: int, *, alone: bool, told: str = "") -> str:
    """The first known error that explains the end; of warnings, only one that the exception itself has, or if nothing else is known."""
    ours = re.compile(r"trn: ")
    found = explained(known, [text for _, text in lines if not ours.match(text)], nodes)
    errors = [(error, line) for error, line in found if not error.warning or (told and error.is_in(told))]
    if not errors and alone:
        errors = found
    if not errors:
        return ""
    error, line = errors[0]
    cause = f"{error.cause[:1].upper()}{error.cause[1:]}. {error.fix[:1].upper()}{error.fix[1:]}"
    return cause if told and line[:_LONGEST] in told else f"{cause}. The log has: {line[:_LONGEST]}"
