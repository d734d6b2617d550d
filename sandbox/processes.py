"""Processes that can be stopped even after the process that started them has ended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 500
_FIRST, _LAST = 20_000, 32_000  # below the ephemeral range
_held: list[int] = []  # first ports of this process's blocks
_latest = 0


@dataclass(frozen=True)
class Started:
    """A process, identified by id and start time (clock ticks since boot), because ids are reused."""

    pid: int
    began: int

    @property
    def alive(self) -> bool:
        return began(self.pid) == self.began


def began(pid: int) -> int | None:
    """The process's start time, or None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def start(command: list[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a daemon in the foreground, in its own session, with its output appended to `log`."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(env), start_new_session=True
        )


def identity(process: subprocess.Popen[bytes]) -> Started:
    return Started(process.pid, began(process.pid) or -1)


def stop_all(processes: Iterable[Started], patience: float = 5.0) -> None:
    """SIGTERM, then SIGKILL for the rest after `patience` seconds. Returns when all have ended."""
    every = list(processes)
    for how, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 60.0)):
        for process in (p for p in every if p.alive):
            _send(process, how)
        if wait_until(lambda: not any(p.alive for p in every), wait):
            return


def kill_together(first: Iterable[Started], others: Callable[[], list[Started]]) -> None:
    """Kill processes, and others until none is left of them. All are stopped before one is killed: none may report another's end."""
    killed = [*first, *others()]
    while killed:
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for process in killed:
                if process.alive:
                    _send(process, how)
        killed = others()


def reap(children: Iterable[subprocess.Popen[bytes]]) -> None:
    """Wait, up to 60 s each, for children that have been stopped: one whose threads are still ending looks dead before it can be waited for."""
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(60)


def _send(process: Started, how: signal.Signals) -> None:
    try:
        os.kill(process.pid, how)
    except ProcessLookupError:
        return


def wait_until(done: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Whether `done` became true before the deadline."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def with_environment(
    wanted: Callable[[Mapping[str, str]], bool],
) -> list[tuple[Started, str, dict[str, str]]]:
    """This user's processes with these variables: (process, command name, environment)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            raw = (entry / "environ").read_bytes()
            name = (entry / "comm").read_text().strip()
        except OSError:
            continue  # ended meanwhile, or another user's
        pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
        env = {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}
        when = began(int(entry.name))
        if when is not None and wanted(env):
            found.append((Started(int(entry.name), when), name, env))
    return found


def free_ports(number: int) -> list[int]:
    """Free TCP ports on 127.0.0.1, in blocks reserved for this process until it ends. Used ones
    are returned again only after all others, because a daemon may bind its port up to a minute later.

    Raises:
        OSError: fewer than `number` are free.
    """
    global _latest
    found: list[int] = []
    for block in _blocks():
        # continue after the last returned port
        for port in sorted(range(block, min(block + _BLOCK, _LAST)), key=lambda port: (port <= _latest, port)):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            found.append(port)
            if len(found) == number:
                _latest = port
                return found
    raise OSError(f"only {len(found)} of {number} TCP ports between {_FIRST} and {_LAST} are free on 127.0.0.1")


def _blocks() -> Iterator[int]:
    """First ports of this process's blocks, then of unreserved blocks, which this process reserves."""
    yield from list(_held)
    others = [block for block in range(_FIRST, _LAST, _BLOCK) if block not in _held]
    random.shuffle(others)
    for block in others:
        with socket.socket(socket.AF_UNIX) as lock:
            try:
                lock.bind(f"\0trainium-cdk ports from {block}")  # an abstract name: released when its owner ends
            except OSError:
                continue
            lock.detach()  # it stays open until this process ends
            _held.append(block)
        yield block
