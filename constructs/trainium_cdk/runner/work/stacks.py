"""The processes of a program: their list, whether one compiles, and the stacks of all that are Python, into the log."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from .output import Output

_PROC = Path("/proc")
_MOST = 8192
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
    while rest and len(found) < _MOST:
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
