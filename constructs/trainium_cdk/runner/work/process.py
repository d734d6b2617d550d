"""One program on one node, or several copies of it: its output, its time, its signals, its end.

Each copy has its own session, so that a signal reaches what it has started, too. As process 1 of a container this process also waits for what
others have left behind.

Output goes to standard output, which Slurm or Kubernetes keeps, and to a file of the job's folder. A full disk, a file system that is gone, or nobody
who listens ends no job: what cannot be written is lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..readers import Said
from ..readers.collecting import Collector

SAVING_SECONDS = 50
"""Seconds in which a program that must end may save its state: less than a pod's time for that."""
LIMIT_SECONDS = 60
"""The same, once its time limit is reached."""
OPEN_FILES = 65_535
"""Each worker holds many connections at once ("Failed accept4: Too many open files")."""

TERMINATED, LIMIT, ORDERED = "terminated", "limit", "ordered"
"""Why a program was ended: this process got a signal to end; the time limit; an order (`health`)."""

_PIECE = 65_536
_CGROUP, _CGROUPS = Path("/proc/self/cgroup"), "/sys/fs/cgroup"
_OVERLAP = 200  # bytes in which a pattern is looked for again
_OTHERS_SECONDS = 10.0  # for which the other copies may go on after one has failed
_LATE_SECONDS = 0.5  # by which Slurm's SIGTERM may reach this process after its program


class CannotStart(Exception):
    """The program does not exist, or cannot be started; the message is for the user."""


@dataclass(frozen=True)
class ProgramStart:
    """The words of a program, its folder, and all of its variables."""

    words: Sequence[str]
    folder: str
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Ended:
    """The end of a program.

    Attributes:
        code: exit code, of the first copy that failed; -N: signal N ended it.
        why: TERMINATED, LIMIT, ORDERED, or empty if nothing ended it.
        found: whether its output had what was looked for.
        said: what of its output explains the end.
        copy: which copy failed first: 0, 1, ...
        at: when it failed, in seconds since 1970; 0 if it did not.
        kills: how many processes the kernel has killed meanwhile, because the memory was full.
    """

    code: int
    why: str
    found: bool = False
    said: Said = field(default_factory=Said)
    copy: int = 0
    at: float = 0.0
    kills: int = 0


def run(
    starts: Sequence[ProgramStart],
    output: Output,
    *,
    passes_on: bool,
    seconds: float | None = None,
    looks_for: str = "",
    watcher: Watches | None = None,
) -> Ended:
    """Start one program, or several copies of it, and wait until all have ended. As soon as one fails, all end.

    What a copy leaves behind in its session is killed at its end. It may save its state, too, only if the copy got a signal to end, or its time is over.

    Args:
        passes_on: whether SIGTERM is passed on to the program, which then has `SAVING_SECONDS`. Slurm itself sends it to all processes, and ends
            them after its KillWait: a program that gets it twice may not save its state.
        seconds: time limit.
        looks_for: regular expression that is looked for in the output.
        watcher: watches it while it runs.

    Raises:
        CannotStart: a copy cannot be started.
    """
    running, reader, kills = Running(passes_on), _Reader(output, looks_for), memory_kills()
    with running.signals(seconds), _watched(watcher):
        try:
            for one in watcher.prepare(starts) if watcher else starts:
                running.start(one, reader.into)
        except CannotStart:
            running.end(signal.SIGKILL, running.left)
            raise
        finally:
            reader.start()
        if watcher:
            watcher.begin(running)
        code = running.wait(reader)
    return Ended(code, running.why, reader.found, reader.said(), running.copy, running.at, memory_kills() - kills)


def memory_kills() -> int:
    """Count the kernel's kills of processes in this one's cgroup because its memory was full; 0 where nothing counts them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        own = next(one for one in _CGROUP.read_text().splitlines() if one.startswith("0::"))
        events = Path(f"{_CGROUPS}{own[3:].rstrip('/')}/memory.events").read_text()
        return int(re.findall(r"^oom_kill (\d{1,9})$", events, re.MULTILINE)[0])
    return 0


def allow_open_files(output: Output | None) -> None:
    """Let this process, and all that it starts, open many files. `output` has a line if it cannot; None: no line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES:
        return
    unlimited = hard == resource.RLIM_INFINITY
    for limits in ((OPEN_FILES, hard if unlimited else max(hard, OPEN_FILES)), (hard, hard)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if output and soft < OPEN_FILES:
        say(f"at most {soft} files may be open here; large jobs need {OPEN_FILES}")


class Watches(Protocol):
    """Watches programs (`pulse.Watcher`)."""

    def prepare(self, starts: Sequence[ProgramStart]) -> Sequence[ProgramStart]: ...

    def begin(self, running: Running) -> None: ...

    def end(self) -> None: ...


@contextlib.contextmanager
def _watched(watcher: Watches | None) -> Iterator[None]:
    try:
        yield
    finally:
        if watcher:
            watcher.end()


class _Reader(threading.Thread):
    """Copies the output of programs, which write to `into`, until all of them have closed it."""

    def __init__(self, output: Output, looks_for: str) -> None:
        super().__init__(daemon=True)
        self._from, self.into = os.pipe()
        self._output, self._wanted = output, re.compile(looks_for.encode())
        self._last, self.found = b"", False
        self._collector, self._lock = Collector(), threading.Lock()
        self._looks = bool(looks_for)

    def start(self) -> None:
        os.close(self.into)
        super().start()

    def run(self) -> None:
        while True:
            piece = os.read(self._from, _PIECE)
            if not piece:
                os.close(self._from)
                return
            self._output.write(piece)
            if self._looks:
                self.found = self.found or self._wanted.search(self._last + piece) is not None
                self._last = (self._last + piece)[-_OVERLAP:]
            with self._lock, contextlib.suppress(Exception):  # no fault of it may stop the program
                self._collector.feed(piece)

    def said(self) -> Said:
        """Return the part of the output so far that explains the end."""
        with self._lock:
            return self._collector.close()


class Running:
    """The copies of a program that run."""

    def __init__(self, passes_on: bool) -> None:
        self.why = ""
        self.copy, self.at = 0, 0.0
        self.left: set[int] = set()
        self._passes_on = passes_on
        self._started: list[int] = []
        self._ending = False
        self._until: float | None = None

    @contextlib.contextmanager
    def signals(self, seconds: float | None) -> Iterator[None]:
        handlers: dict[signal.Signals, Any] = {signal.SIGTERM: self._told, signal.SIGALRM: self._alarm}
        # sent to all processes of a job, as by `sbatch --signal`, for its program
        handlers.update(dict.fromkeys((signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT), lambda *_: None))
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        if seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, program: ProgramStart, into: int) -> None:
        if self.why:
            return
        try:
            made = subprocess.Popen(
                program.words,
                cwd=program.folder,
                env=program.variables,
                stdin=subprocess.DEVNULL,
                stdout=into,
                stderr=into,
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            what = getattr(e, "filename", None) or program.words[0]
            raise CannotStart(f"{what} cannot be started: {getattr(e, 'strerror', None) or e}") from None
        made.returncode = 0  # `wait` waits for it
        self.left.add(made.pid)
        self._started.append(made.pid)
        if self._ending:  # told while it was started
            self.end(signal.SIGTERM, [made.pid])

    def wait(self, reader: _Reader) -> int:
        """The exit code of the first copy that failed; 0 if none did."""
        code = 0
        while self.left:
            now: Any = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            ours, failed = now.si_pid in self.left, now.si_code != os.CLD_EXITED or now.si_status != 0
            if ours and failed and not self._passes_on and not self.why:
                time.sleep(_LATE_SECONDS)
            if ours and not self.why:
                self.end(signal.SIGKILL, [now.si_pid])  # before it is waited for: until then its number is its own
            _, status = os.waitpid(now.si_pid, 0)
            if not ours:
                continue
            self.left.discard(now.si_pid)
            if failed and not code:
                code, self.copy, self.at = (
                    os.waitstatus_to_exitcode(status),
                    self._started.index(now.si_pid),
                    time.time(),
                )
                if self.left and not self.why:
                    self._end_within(_OTHERS_SECONDS)
        if self.why:
            self._let_save(reader)
        signal.setitimer(signal.ITIMER_REAL, 0)
        reader.join(10)
        return code

    def end(self, how: signal.Signals, whom: Iterable[int]) -> None:
        for pid in tuple(whom):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, how)

    def obey(self) -> None:
        """Note that the programs are ordered to end: their exit codes mean nothing."""
        if not (self.why or self._ending):
            self.why = ORDERED

    def finish(self, *, at_once: bool) -> None:
        """End those that were ordered to, at once or with time to save."""
        if self.why != ORDERED:
            return
        if at_once:
            self._ending, self._until = True, time.monotonic()
            self.end(signal.SIGKILL, self._started)
        else:
            self._end_within(LIMIT_SECONDS)

    def _let_save(self, reader: _Reader) -> None:
        """Wait for those that a copy has started: a shell ends at once where its program saves its state."""
        until = self._until or time.monotonic() + SAVING_SECONDS
        while reader.is_alive() and time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            reader.join(0.1)
        self.end(signal.SIGKILL, self._started)

    def _told(self, *_: object) -> None:
        if self.why or self._ending:
            return
        self.why = TERMINATED
        if self._passes_on:
            self._end_within(SAVING_SECONDS)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _alarm(self, *_: object) -> None:
        if self._ending:
            self.end(signal.SIGKILL, self._started)
        else:
            self.why = LIMIT
            self._end_within(LIMIT_SECONDS)

    def _end_within(self, seconds: float) -> None:
        self._ending, self._until = True, time.monotonic() + seconds
        self.end(signal.SIGTERM, self.left)
        signal.setitimer(signal.ITIMER_REAL, seconds)


# --- where output goes ------------------------------------------------------------------------------------------------------------------

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
