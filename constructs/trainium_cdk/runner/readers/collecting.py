"""The cause of a program's end, collected while its output passes: exceptions, lines that look like errors, the last line.

Memory and time for each line are bounded, whatever is printed: a cause that lies a million lines before the end is kept.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from . import Said
from .step_lines import read_line

LONGEST_LINE = 4000
"""Characters of a line that are read."""
LONGEST = 300
"""Characters of a line that are kept."""
_FIRST, _LAST = 6, 4
"""Lines of each weight that are kept."""
_RECENT = 3600.0
"""Seconds: an exception of longer ago was survived."""
_WORKERS = 1024
_PATIENCE = 5000
"""Lines for which the end of a traceback is waited for: a worker that is killed never writes it."""
_TAIL = 4096

_LOOKS_BAD = (
    "error", "traceback", "exception", "fail", "fatal", "kill", "abort", "panic", "segmentation", "dumped", "oom", "out of memory", "no space",
    "quota", "denied", "forbidden", "unauthorized", "refused", "reset by", "broken", "timeout", "timed out", "cannot ", "can't", "could not", "unable",
    "invalid", "not found", "no such", "not available", "unrecognized", "undefined", "corrupt", "exhausted", "uncorrectable", " hang", "stale",
    "cancelled", "terminat", "exitcode", "local_rank: ", "root cause", "nrt_", "ncc_", "interrupt", "assert", "no module", "err: ", " nan",
)  # fmt: skip
"""Each line that may explain an end has one of these words."""
_SERIOUS = re.compile(
    r"\[?\b(?:F137|N[A-Z]{2}\d{3}|NCC_\w+)\b|NRT_\w+|\bnrt_\w+ status=|FATAL|uncorrectable|suspected hang|oom[-_ ]|[Oo]ut [Oo]f [Mm]emory|\bOOM\b|"
    r"\bKilled\b|forcibly killed|RESOURCE_EXHAUSTED|No space left|[Qq]uota exceeded|Segmentation fault|core dumped"
)
"""Lines that are kept apart, so that many others do not displace them."""
_WORDS = tuple(word.encode() for word in _LOOKS_BAD)
_SIGN = re.compile(b"|".join(map(re.escape, _WORDS)))
_DIGITS = b"0123456789"
_SEEN = 4096
"""Lines that are recognised when they are repeated with other numbers."""

_OWN = "trn: "
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_LABEL = re.compile(
    r"(?: {0,9}\d{1,6}: |\[(?:rank|default)? ?\d{1,6}\]:? ?|\(\w[^()\n]{0,80} pid=\d{1,9}[^()\n]{0,80}\) )+"
)
"""What srun, torchrun, PyTorch or Ray put before each line of a worker."""
_RANK = re.compile(r"\[rank ?(\d{1,6})\]")
_FRAME = re.compile(r"[ |+\-]*[|+][ |+\-]*")
"""What Python draws before the lines of an exception group."""
_FRAMED = re.compile(rb"[^\w]{0,80}[|+]")
_BEGINS = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|ExceptionGroup|StopIteration)(?::.*)?$"
)
"""The line of an exception, where no traceback is in front."""
_ASIDE = re.compile(r"Exception ignored in|--- Logging error ---|Error in atexit|Exception in thread")
"""What comes before the traceback of an exception that did not end the program."""
_CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_CONSEQUENCES = frozenset({
    "ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException", "SignalException", "SystemExit",
    "KeyboardInterrupt", "ConnectionResetError", "BrokenPipeError", "DistNetworkError", "DistBackendError", "RayTaskError",
    "BackendCompilerFailed",
})  # fmt: skip
"""Exceptions of a launcher, or of a worker that another one has left: named only if there is no other."""
_LEFT = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|recvValue failed|JAX distributed service detected|CoordinationService|"
    r"Barrier timed out|(?:Xla|Jax)RuntimeError: (?:DEADLINE_EXCEEDED|UNAVAILABLE|ABORTED|CANCELLED)\b"
)
"""What a process says that another one has left: in Gloo's, gRPC's and JAX's words."""
_LAUNCHED = re.compile(r"exits with return code = (-?\d{1,6})")
"""DeepSpeed's launcher's line about a worker."""
_TERMINATE = re.compile(r"terminate called after throwing an instance of '(.{1,200}?)'")
_WHAT = re.compile(r"what\(\): +(.+)")
"""The C++ library's line: the class of an exception that nothing caught, and its text."""
_FATAL = re.compile(
    r"(?:F\d{4} [\d:.]{5,30} {1,9}\d{1,9}|[\d:. -]{15,40}: F|\[libprotobuf FATAL) \S{1,300}:\d{1,6}\] (.+)|"
    r"((?:\S{1,60}: )?\S{1,300}:\d{1,6}: .{1,300}: Assertion `.{1,300}' failed\.|(?:free|malloc|realloc|munmap_chunk)\(\): .{1,80}|"
    r"double free or corruption.{0,40}|corrupted (?:size vs\. prev_size|double-linked list).{0,40}|\*\*\* stack smashing detected \*\*\*.{0,80})"
)
"""Lines of glog, absl, protobuf and the C library, before they abort: XLA, its plug-ins and JAX print so why they stop. Addresses follow."""
_ADVICE = re.compile(r" This most likely indicates.{1,300}?(?= absl::Status: )")
"""JAX's words before the reason: a line is cut to 300 characters."""
_ANNOUNCES = re.compile(r":$|\bvalidation errors? for \S+$")
SECOND_LINE = 'error message="'
"""How the second line of TorchNeuron's exceptions begins, which has the reason."""
_AUTOLOAD = "Failed to load the backend extension"
"""PyTorch's words about the exception that it was raised from."""
_MORE_LINES = 2
"""Indented lines after an exception's line which belong to its message."""
_WORKER = re.compile(r"\s*(exitcode|rank) {0,9}: (-?\d{1,6})\b")
"""Lines of torchrun's report of its workers."""
_ASIDE_LINES = re.compile(
    r"(?:srun|slurmstepd|slurm_script): |[^\w]*$|[EWI]\d{4} .{0,80}torch/distributed/|.{0,200}torch\.distributed\.elastic|@ +0x|\*\*\* Check failure"
)
"""Lines of Slurm, of a launcher, of a C++ stack, and lines without a word."""


class _Raised:
    def __init__(self, text: str, label: str, number: int, at: float) -> None:
        self.text, self.label, self.number, self.at = text[:LONGEST], label, number, at
        self.lines = 0

    def goes_on(self, line: str, raw: bytes, number: int) -> bool:
        """Return whether the exception's message continues in the next line: after a colon, in an indented one, or in TorchNeuron's second line."""
        if not re.search(r"\w", line) or line.lstrip().startswith("File "):
            return False
        if line.startswith(SECOND_LINE) or (not self.lines and _ANNOUNCES.search(self.text)):
            return True
        return line[:1].isspace() and not _FRAMED.match(raw) and number == self.number + self.lines + 1

    @property
    def kind(self) -> str:
        return self.text.partition(":")[0].rpartition(".")[2].strip()


class _Open(NamedTuple):
    indent: int
    number: int
    before: bytes


class _Kept:
    """The first and the last of many lines; of those that differ in numbers alone, the first."""

    def __init__(self) -> None:
        self._first: list[tuple[int, str]] = []
        self._last: deque[tuple[int, str]] = deque(maxlen=_LAST)
        self._shapes: deque[bytes] = deque(maxlen=_FIRST + _LAST)

    def add(self, number: int, line: str) -> None:
        shape = line.encode(errors="replace").translate(None, _DIGITS)
        if shape in self._shapes:
            return
        self._shapes.append(shape)
        (self._first if len(self._first) < _FIRST else self._last).append((number, line[:LONGEST]))

    def lines(self) -> list[tuple[int, str]]:
        return [*self._first, *self._last]


class Collector:
    """Takes the output of a program, or of its many workers, in pieces."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._rest, self._tail, self._number = b"", b"", 0
        self._serious, self._others = _Kept(), _Kept()
        self._seen: set[bytes] = set()
        self._open: dict[str, _Open] = {}
        self._announced: dict[str, _Raised] = {}
        self._aside: set[str] = set()
        self._chained: set[str] = set()
        self._first: _Raised | None = None
        self._latest: _Raised | None = None
        self._of: dict[str, _Raised] = {}
        self._follows: _Raised | None = None
        self._launched: bytes | None = None
        self._worker: dict[str, int] = {}
        self._cause = False

    def feed(self, piece: bytes) -> None:
        """Take a piece of the output, which may end within a line."""
        block, newline, rest = (self._rest + piece.replace(b"\r", b"\n")).rpartition(b"\n")
        # of a line without an end, only its beginning is read
        self._rest = rest if len(rest) < 2 * LONGEST_LINE else rest[:LONGEST_LINE]
        if newline:
            self._block(block)

    def close(self) -> Said:
        """Take the last line, which may have no end, and tell what was collected."""
        if self._rest.strip():
            self._block(self._rest)
            self._rest = b""
        said, every = self._explain(), _texts(self._tail)
        kept = [line for _, line in sorted(self._serious.lines() + self._others.lines())]
        last = every[-1][:LONGEST] if every else ""
        if last and (not kept or kept[-1] != last):
            kept.append(last)
        line = _last_line(every)
        if self._launched is not None:  # other workers print steps until they are stopped
            before = _texts(self._launched)
            line = _last_line([one for one in before if not read_line(one)]) or _last_line(before)
        return replace(said, line=line, lines=tuple(kept))

    def _explain(self) -> Said:
        finals = sorted(self._of.values(), key=lambda one: one.number)
        raised: list[_Raised] = []
        if self._latest and self._first:
            # of several workers the first counts, and of one the last
            several = len(finals) > 1 or self._launched is not None
            main = (finals[0] if len(finals) > 1 else self._first) if several else self._latest
            other = self._latest if several else self._first
            raised = [main] if len(finals) > 1 or other.text == main.text else [main, other]
        rank = _RANK.search(raised[0].label) if raised else None
        return Said(
            raised=tuple(one.text.rstrip(": ") for one in raised),
            at=self._first.at if self._first else 0.0,
            follows=self._follows.text.rstrip(": ") if self._follows else "",
            rank=int(rank[1]) if rank else self._worker.get("rank", -1),
            launcher=self._launched is not None,
            code=self._worker.get("exitcode", 0),
        )

    def _block(self, block: bytes) -> None:
        """Take whole lines. Only lines with a sign of an error are looked at, and lines of a traceback."""
        low, at = block.lower(), 0
        bad = any(word in low for word in _WORDS)
        while at <= len(block) and (bad or self._open or self._announced):
            begin = at
            if not (self._open or self._announced):
                found = _SIGN.search(low, at)
                if not found:
                    break
                begin = block.rfind(b"\n", at, found.start()) + 1 or at
            end = block.find(b"\n", begin)
            end = len(block) if end < 0 else end
            raw, at = block[begin:end], end + 1
            shape = raw[:LONGEST_LINE].translate(None, _DIGITS)
            if shape not in self._seen or self._open or self._announced:
                self._number += 1
                if self._line(raw, block[max(0, begin - _TAIL) : begin]):
                    if len(self._seen) >= _SEEN:
                        self._seen.clear()
                    self._seen.add(shape)
        self._tail = (self._tail + b"\n" + block)[-_TAIL:] if len(block) < _TAIL else block[-_TAIL:]

    def _line(self, raw: bytes, before: bytes) -> bool:
        """Take a line. Returns whether it needs not be taken again where it is repeated with other numbers."""
        label, line = _parts(raw[: 2 * LONGEST_LINE].decode(errors="replace"))
        for waiting in (self._open, self._announced):
            oldest = next(iter(waiting), None)
            if oldest is not None and self._number - waiting[oldest].number > _PATIENCE:
                del waiting[oldest]
        text = line.strip()
        if not text:
            return False
        if (announced := self._announced.pop(label, None)) and announced.goes_on(line, raw, self._number):
            announced.text = f"{announced.text} {_WHAT.sub(lambda what: what[1], text)}"[:LONGEST]
            announced.lines += 1
            if announced.lines <= _MORE_LINES:
                self._announced[label] = announced
        if self._launched is not None:
            self._report(text)
        if _BEGINS in line:
            if len(self._open) < _WORKERS:
                said = (self._tail + b"\n" + before)[-_TAIL:]
                self._open[label] = _Open(_indent(line), self._number, said)
                if _ASIDE.match(_last_of(label, said)):
                    self._aside.add(label)
            return False
        if begun := self._open.get(label):
            if _indent(line) <= begun.indent:
                del self._open[label]
                self._raise(text, label, begun.before)
                self._keep(text)
            return False
        if _CHAINED.search(text):
            self._chained.add(label)
        elif found := _TERMINATE.search(text):
            self._raise(f"{found[1]}:", label, b"")
            self._keep(text)
        elif found := _FATAL.match(text):
            fatal = _ADVICE.sub("", found[1] or found[2])
            self._raise(fatal, label, b"")
            self._keep(fatal)
        elif (found := _LAUNCHED.search(text)) and self._launched is None:
            self._launched, self._worker = (self._tail + b"\n" + before)[-_TAIL:], {"exitcode": int(found[1])}
            self._keep(text)
        elif _EXCEPTION.match(text):
            self._raise(text, label, b"")
            self._keep(text)
        elif looks_bad(text):
            self._keep(text)
            return self._launched is None
        if len(self._chained) + len(self._aside) > _WORKERS:
            self._chained.clear()
            self._aside.clear()
        return False

    def _keep(self, text: str) -> None:
        (self._serious if _SERIOUS.search(text) else self._others).add(self._number, text)

    def _raise(self, text: str, label: str, before: bytes) -> None:
        """Take the line of an exception. `before`: what was printed before its traceback."""
        one = _Raised(text, label, self._number, self._clock())
        if len(self._announced) < _WORKERS:
            self._announced[label] = one
        aside, chained = label in self._aside, label in self._chained
        self._aside.discard(label)
        self._chained.discard(label)
        if one.kind == "ChildFailedError":
            self._launched, self._worker, self._cause = before, {}, False
        if aside:
            return
        if one.kind in _CONSEQUENCES or _LEFT.search(text) or (chained and _AUTOLOAD in text):
            self._follows = one
            return
        if self._first and (one.at - self._first.at > _RECENT or (chained and self._first is self._of.get(label))):
            self._first = None
        self._first = self._first or one
        self._latest = one
        if label in self._of or len(self._of) < _WORKERS:
            self._of[label] = one
        if one.kind.endswith("ExceptionGroup"):
            self._chained.add(label)  # its members explain it

    def _report(self, text: str) -> None:
        """Take a line of torchrun's report. Its block `Root Cause` alone counts: torchrun itself has stopped the workers in the block `Failures`."""
        if text.startswith("Root Cause"):
            self._cause = True
        elif self._cause and (found := _WORKER.match(text)) and found[1] not in self._worker:
            self._worker[found[1]] = int(found[2])


def looks_bad(line: str) -> bool:
    """Return whether a line may explain an end. Only such lines are compared with the known errors, and the last one."""
    low = line[:LONGEST_LINE].lower()
    return any(word in low for word in _LOOKS_BAD)


def _parts(raw: str) -> tuple[str, str]:
    """The label of a line's worker, and the line without it."""
    line = _COLOUR.sub("", raw)[:LONGEST_LINE].rstrip()
    if label := _LABEL.match(line):
        line = line[label.end() :]
    if line.startswith(_OWN):  # the stage `prepare`
        line = line[len(_OWN) :]
    if framed := _FRAME.match(line):
        line = " " * framed.end() + line[framed.end() :]
    return label[0].strip() if label else "", line


def _last_of(label: str, said: bytes) -> str:
    """The last line of a worker."""
    found = (_parts(one) for one in reversed(said.decode(errors="replace").split("\n")))
    return next((line.strip() for of, line in found if of == label and line.strip()), "")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _texts(raw: bytes) -> list[str]:
    """The lines that are not empty, without their labels."""
    found = (_parts(one)[1].strip() for one in raw.decode(errors="replace").split("\n"))
    return [one for one in found if one]


def _last_line(lines: list[str]) -> str:
    return next((one[:LONGEST] for one in reversed(lines) if not _ASIDE_LINES.match(one)), "")
