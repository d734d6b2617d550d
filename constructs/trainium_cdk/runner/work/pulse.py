"""The pulse of a program on its node: its last step and line, written down while it runs; and what is ordered of it, carried out (`health`).

A look every `spec.HealthRules.every` seconds reads the end of what the program has printed since the last one, however much that is, so that it takes
next to nothing. No fault of a look may stop the program. At the end, what it looks at besides: whether a compiler runs, and the stacks of a program that
hangs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .. import files
from ..readers import Step
from ..readers.course import Course
from ..readers.log import JobLog, Lines
from ..spec import HealthRules
from . import health
from .events import BEGIN
from .health import Order, Pulse
from .process import Output, ProgramStart, Running

VARIABLE = "TRN_PROGRESS"
"""Name of the file into which a program may write its step."""
_FOLDER = "trn-progress-"
_MOST = 65_536
_LONGEST = 4096
_TIMES = 101  # of the last steps
_PHASES = {
    "compile": re.compile(r"(?i)\bcompil|neuronx-cc|\bneff\b|NEURON_C(?:ACHE|C_WRAPPER)"),
    "checkpoint": re.compile(r"(?i)\bsav(?:e|es|ing)\b|\bwrit(?:e|es|ing)\b.{0,80}\b(?:checkpoint|ckpt|shard|state)|\bcheckpoint(?:ing)?\b"),
    "evaluation": re.compile(r"(?i)\b(?:eval(?:uat(?:e|es|ing|ion))?|validat(?:e|es|ing|ion))\b"),
}  # fmt: skip
_DONE = re.compile(r"(?i)\b(?:saved|written|finished|completed?|done|compiled|evaluated|validated)\b")
_LAST_LINES = 20
_WARM_UP = 3
"""Steps in which graphs are compiled: they do not measure later ones."""
_SILENT = 60.0
"""Seconds without a step after which it is looked for a compiler that runs."""


class Progress:
    """The steps of a program, as its output, its event files and its own file tell them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lines = clock, Lines()
        self._log = JobLog(self._lines)
        self._seen: dict[str, tuple[int | None, ...]] = {}
        self._times: deque[float] = deque(maxlen=_TIMES)
        self.began, self.said, self.line = clock(), 0.0, ""
        self.step: int | None = None
        self.rank = -1
        self.steps, self.at, self.first, self.longest, self.gap, self.quiet = 0, 0.0, 0.0, 0.0, 0.0, 0.0
        self.nans, self.nan_at = 0, 0.0
        self.nan_step: int | None = None
        self.phase = ""
        self.free = 0.0
        self.compiles = False
        """Whether a compiler runs now."""

    @property
    def prints(self) -> bool:
        """True if the program prints its steps itself."""
        return "printed" in self._seen

    def read(self, text: bytes, said: float, *, gap: bool = False) -> None:
        """Take what was printed since the last look.

        Args:
            said: when the last of it was.
            gap: whether what came before it was left out.
        """
        if gap:
            self._log.close()
            text = text.partition(b"\n")[2]
        if not text:
            return
        self.said = said
        lines = [one.strip() for one in text[-_LONGEST:].decode(errors="replace").replace("\r", "\n").split("\n")]
        lines = [one for one in lines if one][-_LAST_LINES:]
        self.line = lines[-1][:300] if lines else self.line
        steps = [record for _, record in self._log.feed("train", text) if isinstance(record, Step)]
        lost, at = self._log.lost_at is not None, self._log.course.position
        for one in steps:
            self._loss(one.step, lost=lost and one.loss is None)
        if self._log.steps or (at and at.step is not None):
            step = at.step if at else None
            self._advanced("printed", (self._log.steps, step), step, self._log.steps)
            total = at.total_steps if at else None
            if step is not None and total and step >= total:
                self.phase = "end"
        if self.phase != "end":
            self._find_phase(lines)

    def read_events(self, line: bytes) -> None:
        """Take the newest step of TensorBoard's files."""
        log = JobLog(self._lines)
        log.feed("train", line + b"\n")
        if log.last and log.last.step is not None:
            self._advanced("events", (log.last.step,), log.last.step)

    def read_file(self, name: str, text: bytes) -> None:
        """Take a file into which a program writes its step: a number, or JSON with `step`, `loss`, `rank`, `phase`."""
        try:
            told = json.loads(text)
            told = {"step": told} if isinstance(told, int) else told
            step, loss, rank, phase = (told.get(key) for key in ("step", "loss", "rank", "phase"))
        except (ValueError, AttributeError, RecursionError):
            return
        if type(step) is not int or not 0 <= step < 10**12:
            return
        self.rank = rank if type(rank) is int and 0 <= rank < 10**9 else self.rank
        if self._advanced(f"file {name}", (step,), step):
            self._loss(step, lost=isinstance(loss, float) and not math.isfinite(loss))
        self.phase = phase if phase in health.PHASES else ""

    def pulse(self, node: int, task: int, *, over: bool = False) -> Pulse:
        usual = statistics.median(self._times) if self._times else 0.0
        return Pulse(
            node, task, self._clock(), self.began, self.step, self.rank, self.steps, self.at, self.first, usual, self.longest, self.nans, self.nan_at, self.nan_step,
            "compile" if self.compiles else self.phase, self.free, self.said, self.line, over, self.gap, self.quiet,
        )  # fmt: skip

    def _advanced(self, source: str, seen: tuple[int | None, ...], step: int | None, printed: int = 1) -> bool:
        """Record a source's step. Return whether it changed since the last look. `printed`: steps so far; a look may be the first one of several."""
        if seen == self._seen.get(source):
            return False
        now, missed = self._clock(), max(1, min(printed, health.LEARNT - 1))
        if source in self._seen:
            missed = 1
            self._times.append(now - self.at)
            if self.free < self.at and not self.phase:
                self.gap = max(self.gap, now - self.at)
            if self.steps > _WARM_UP and self.free < self.at and self.phase != "compile":
                self.longest = max(self.longest, now - self.at)
            if step is not None and self.step is not None:
                missed = max(1, min(step - self.step, health.LEARNT))
        if not self.steps:
            self._was_quiet(now)
        self._seen[source], self.first = seen, self.first or max(now - self.began, 0.001)
        self.steps, self.at, self.step, self.phase = self.steps + missed, now, step, ""
        return True

    def _loss(self, step: int | None, *, lost: bool) -> None:
        if lost and not self.nans:
            self.nan_at, self.nan_step = self._clock(), step
        self.nans = self.nans + 1 if lost else 0

    def sees_compiler(self, runs: bool) -> None:
        """Take whether a compiler runs."""
        now = self._clock()
        if runs and not self.compiles and not self.steps:
            self._was_quiet(now)
        self.compiles = runs and now - (self.at or self.began) < health.PHASES["compile"]
        self.free = now if self.compiles else self.free

    def _was_quiet(self, now: float) -> None:
        """Note that nothing was seen until now, before the first step."""
        self.quiet = max(self.quiet, now - max(self.began, self.free))

    def _find_phase(self, lines: Sequence[str]) -> None:
        """Set the phase that these lines show after the last step."""
        for line in reversed(lines):
            if _DONE.search(line):
                self.free = self._clock() if self.phase else self.free
                self.phase = ""
                return
            found = next((name for name, pattern in _PHASES.items() if pattern.search(line)), "")
            course = Course()
            is_step = any(isinstance(one, Step) for one in self._lines.parse(line, course))
            # the bar of an evaluation may have no word; it counts to another number than the training's
            trained = self._log.course.position
            other = bool(course.at and trained and course.at.total_steps != trained.total_steps)
            found = found or ("evaluation" if other and not is_step else "")
            if found or is_step:
                self.phase = found if found and not is_step else self.phase
                return


class Watcher:
    """Watches what runs on one node.

    Args:
        folder: the job's own.
        output: of the program, which it hears.
        judge: is asked after each look, where this node judges; what it answers is an order, too.
    """

    def __init__(
        self, folder: Path, stage: str, run: str, node: int, task: int, rules: HealthRules, output: Output, judge: Callable[[], Order | None] | None = None
    ) -> None:  # fmt: skip
        self._folder, self._stage, self._run, self._node, self._task = folder, stage, run, node, task
        self._rules, self._output, self._judge = rules, output, judge
        self._heard: deque[bytes] = deque()
        self._size, self._gap, self._said = 0, False, 0.0
        self._lock, self._over = threading.Lock(), threading.Event()
        self._progress = Progress()
        self._running: Running | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._place: Path | None = None
        self._held = contextlib.ExitStack()
        self._variables: Mapping[str, str] = {}
        self._written = False
        self.order: Order | None = None

    def prepare(self, starts: Sequence[ProgramStart]) -> Sequence[ProgramStart]:
        """The same with the variables that watching them needs."""
        with contextlib.suppress(OSError):
            self._place = _new_folder(self._held)
        more = {"PYTHONFAULTHANDLER": "1"} if self._rules.hang == "restart" else {}
        self._variables = starts[0].variables if starts else {}
        into = self._place if self._variables.get(VARIABLE) != "" else None  # empty: it writes none
        places = [{VARIABLE: str(into / str(number))} if into else {} for number in range(len(starts))]
        return [replace(one, variables={**more, **one.variables, **place}) for one, place in zip(starts, places)]

    def begin(self, running: Running) -> None:
        self._running, self._progress.began = running, time.time()
        self._output.ear = self.hear
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._output.ear = None
        if self._thread.is_alive():
            self._thread.join(60 if self.order else 10)
        if self._written:
            with contextlib.suppress(OSError):
                self._write(self._progress.pulse(self._node, self._task, over=True))
        if self._place:
            shutil.rmtree(self._place, ignore_errors=True)
        self._held.close()

    def hear(self, piece: bytes) -> None:
        """Take what the program prints. It only keeps the end of it."""
        with self._lock:
            self._said = time.time()
            self._heard.append(piece[-_MOST:])
            self._size += len(self._heard[-1])
            while self._size > _MOST and len(self._heard) > 1:
                self._size -= len(self._heard.popleft())
                self._gap = True

    def _watch(self) -> None:
        while not self._over.wait(self._rules.every):
            order = None
            with contextlib.suppress(Exception):
                self.look()
            with contextlib.suppress(Exception):
                order = self._judge() if self._judge else None
            with contextlib.suppress(Exception):
                self._obey(order)

    def look(self) -> None:
        with self._lock:
            text, said, gap = b"".join(self._heard), self._said, self._gap
            self._heard.clear()
            self._size, self._gap = 0, False
        progress = self._progress
        progress.read(text, said, gap=gap)
        for file in self._told():
            with contextlib.suppress(OSError):
                progress.read_file(file.name, files.read(file, _LONGEST).strip())
        if not progress.prints and self._output.file:
            progress.read_events(_of_events(self._output.file))
        silent = time.time() - max(progress.at, progress.began) > min(_SILENT, self._rules.least / 2)
        compiles = silent and self._running is not None and is_compiling(descendants(self._running.left))
        progress.sees_compiler(compiles)
        self._write(progress.pulse(self._node, self._task))

    def _told(self) -> list[Path]:
        """List the program's own files. A node may have cleaned its folder of temporary files since."""
        with contextlib.suppress(OSError):
            return sorted(self._place.iterdir()) if self._place else []
        return []

    def _write(self, pulse: Pulse) -> None:
        health.write_pulse(self._folder, self._stage, self._run, pulse)
        self._written = True

    def _obey(self, order: Order | None) -> None:
        order = order or health.order(self._folder, self._stage, self._run)
        if order is None or self.order is not None or self._running is None:
            return
        if (
            order.at < self._progress.began - 1
        ):  # on Kubernetes, an attempt that was preempted begins again by the same name
            return
        self.order = order
        self._running.obey()
        self._output.say(f"{order.do}: {order.why}")
        if order.do == health.RESTART:
            with contextlib.suppress(Exception):
                write_stacks(self._running.left, self._variables, self._output)
        self._running.finish(at_once=order.do == health.STOP)


def _new_folder(held: contextlib.ExitStack) -> Path:
    """A folder of this process, which is held. Those of killed processes go."""
    files.remove_left(Path(tempfile.gettempdir()), f"{_FOLDER}*")
    made = Path(tempfile.mkdtemp(prefix=f".{_FOLDER}"))  # a name that nobody looks for before it is held
    held.enter_context(files.hold(made))
    return made.rename(made.with_name(made.name[1:]))


def _of_events(log: Path) -> bytes:
    """The newest step that was read of TensorBoard's files; the log of the node has a line about it."""
    with contextlib.suppress(OSError):
        lines = [one for one in files.read_end(log, _MOST).split(b"\n") if BEGIN.encode() in one]
        return lines[-1] if lines else b""
    return b""


# --- the processes of a program ---------------------------------------------------------------------------------------------------------

_PROC = Path("/proc")
_PROCESSES = 8192
"""A node of 64 devices has 64 ranks, each with its loaders of data. A compiler is the last that they start."""
_SECONDS = 40.0
"""For which stacks may be written, of all processes together."""
_EACH_SECONDS = 10.0
_COMPILERS = (b"neuronx-cc", b"neuron-cc", b"walrus_driver", b"hlo2penguin")
"""TorchNeuron and torch-xla start `neuronx-cc compile`, a script of Python's, which starts the others."""
_FIRST = 4
"""Words of a command line in which its program is, behind its interpreter. Later ones are its arguments, and may name a compiler."""


def descendants(first: Collection[int]) -> list[int]:
    """List these processes, and all that they have started, also in their own sessions; those started later come first."""
    children: dict[int, list[int]] = {}
    for place in _PROC.iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(place.name))
    found, rest = list[int](), list(first)
    while rest and len(found) < _PROCESSES:
        one = rest.pop(0)
        found.append(one)
        rest += children.get(one, [])
    return found[::-1]


def is_compiling(pids: Collection[int]) -> bool:
    """Return whether one of the processes is a compiler of Neuron's."""
    words = (word for pid in pids for word in _words(pid).split()[:_FIRST])
    return any(word.rpartition(b"/")[2].startswith(_COMPILERS) for word in words)


def write_stacks(first: Collection[int], variables: Mapping[str, str], output: Output) -> None:
    """Write the stacks of all Python processes into the log: by py-spy, where the job has it and it may look at them; else the process does it itself,
    which ends it. A signal goes only to one that Python's own variable has told to answer it so: it would end another one without a word.
    """
    until = time.monotonic() + _SECONDS
    tool = shutil.which("py-spy", path=variables.get("PATH"))
    for pid in descendants(first):
        if b"python" not in _words(pid)[:4096] or time.monotonic() > until:
            continue
        output.say(f"stack of process {pid}: {_words(pid)[:200].decode(errors='replace')}")
        if tool and _spy(tool, pid, output):
            continue
        if _answers(pid):
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGABRT)
                time.sleep(0.05)  # the lines of one, and then those of the next one


def _spy(tool: str, pid: int, output: Output) -> bool:
    try:
        done = subprocess.run(
            [tool, "dump", "--pid", str(pid)], stdin=subprocess.DEVNULL, capture_output=True, timeout=_EACH_SECONDS, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode == 0:
        output.write(done.stdout[:65_536])
    return done.returncode == 0


def _words(pid: int) -> bytes:
    """Return the words of a process, with a space between them."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").strip()
    return b""


def _answers(pid: int) -> bool:
    """Return whether Python's fault handler was on when the process began."""
    with contextlib.suppress(OSError):
        found = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        return any(one.startswith(b"PYTHONFAULTHANDLER=") and one[-1:] != b"=" for one in found)
    return False
