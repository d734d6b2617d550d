"""TensorBoard's event files as a second source of a training's numbers: `runner events FOLDER SINCE LOG`, with the program of the first node.

It runs in the job's own Python, and reads with that one's `tensorboard`. Each step becomes a line of the log, where every command finds it. Where
the program prints steps itself, or there is no `tensorboard`, it writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..readers import field, is_loss, split
from ..readers.log import progress
from .process import Output

TYPE_CHECKING = False
if TYPE_CHECKING:  # else the reader would load all that starts a program
    from .places import StageNode

BEGIN = "trn: of TensorBoard's files: "
SECONDS = 30.0
"""How often it looks."""
_ENDS_SECONDS = 20.0
_TAIL = 65_536
_MOST_FILES, _MOST_FOLDERS = 64, 10_000
_LONGEST_NAME = 80
_FILE = "events.out.tfevents."


@contextlib.contextmanager
def beside(node: StageNode, log: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Read them while a program runs, and once more at its end. Nothing is started before there is one."""
    began, ended = time.time(), threading.Event()
    reader = threading.Thread(target=_read, args=(node.job, began, log, variables, ended), daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join(_ENDS_SECONDS)


def _read(folder: Path, began: float, log: Path, variables: Mapping[str, str], ended: threading.Event) -> None:
    there = False
    while not there:
        over = ended.wait(SECONDS)
        there = bool(find(folder, began))
        if over and not there:
            return
    python = shutil.which("python3", path=variables.get("PATH"))
    if not python:
        return
    words = [python, str(Path(sys.argv[0]).resolve()), "events", str(folder), str(began), str(log)]
    with (
        contextlib.suppress(OSError),
        subprocess.Popen(words, env=dict(variables), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader,
    ):
        ended.wait()
        assert reader.stdin  # noqa: S101
        reader.stdin.close()  # which tells it that the program has ended


def main(folder: str, began: str, log: str) -> None:
    output, reader, ended = Output(Path(log)), _Reader(), False
    while not _prints_steps(Path(log)):
        for line in reader.read(find(Path(folder), float(began))):
            output.write(f"{BEGIN}{line}\n".encode())
        if ended:
            return
        ended = bool(select.select([sys.stdin], [], [], SECONDS)[0])


def find(folder: Path, since: float) -> list[Path]:
    """The event files below a folder that were written after a time, in their order: an earlier attempt has left others."""
    found: list[Path] = []
    for count, (place, folders, names) in enumerate(os.walk(folder)):
        folders.sort()
        for name in sorted(names):
            file = Path(place, name)
            with contextlib.suppress(OSError):
                if _FILE in name and file.is_file() and file.stat().st_mtime >= since - 1:
                    found.append(file)
        if len(found) >= _MOST_FILES or count >= _MOST_FOLDERS:
            break
    return found[:_MOST_FILES]


def counts(name: str) -> bool:
    """Return whether a step's line may have a number of this name.

    >>> [counts(name) for name in ("train/loss", "eval_loss", "lr", "grad_norm", "weights/mean", "train/epoch")]
    [True, True, True, True, False, False]
    """
    words = split(name[:_LONGEST_NAME])
    return is_loss(words) or field(words, "")[0] != ""


class _Reader:
    """Gives each step once: workers that write the same are not read twice."""

    def __init__(self) -> None:
        self._files: dict[Path, Any] = {}
        self._last: dict[str, int] = {}

    def read(self, files: list[Path]) -> Iterator[str]:
        """Read new values of some files. Yield a line for each step."""
        loader = import_module("tensorboard.backend.event_processing.event_file_loader").EventFileLoader
        make_ndarray = import_module("tensorboard.util.tensor_util").make_ndarray
        steps: dict[int, dict[str, float]] = {}
        for file in files:
            news: dict[str, int] = {}
            for event in self._files.setdefault(file, loader(str(file))).Load():
                for value in event.summary.value if event.HasField("summary") else ():
                    if not counts(value.tag) or event.step <= self._last.get(value.tag, -1):
                        continue
                    with contextlib.suppress(TypeError, ValueError):
                        number = float(make_ndarray(value.tensor))
                        steps.setdefault(event.step, {"time": round(event.wall_time, 3)})[value.tag] = number
                        news[value.tag] = event.step
            self._last.update(news)
        for step in sorted(steps):
            yield json.dumps({"step": step, **steps[step]})


def _prints_steps(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            end = file.read()
    except OSError:
        return False
    return bool(progress(b"\n".join(line for line in end.split(b"\n") if BEGIN.encode() not in line)))
