"""A training whose steps can be counted: what a job of the benchmark runs on each of its nodes. It needs the standard library alone.

All nodes do a step together, over a socket in the folder PLACE: where one is lost, the others wait. A checkpoint follows each EACH steps.
FAULTS is a list of [kind, node, step]; each happens once. The folder has what is counted:

    steps     a line for each step: attempt, step, time, loss        begun    a line for each start: node, attempt, time
    saved     a line for each checkpoint: step, loss                 two      there was another copy of a node
    fault-N   when fault N began
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

NODE, NODES = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
STEPS, EACH, SECONDS = int(os.environ["STEPS"]), int(os.environ["EACH"]), float(os.environ["SECONDS"])
FAULTS = json.loads(os.environ["FAULTS"])
ATTEMPT = time.time_ns()


def main() -> None:
    saves = Path(os.environ["TRN_CHECKPOINTS"]).resolve()
    os.chdir(os.environ["PLACE"])  # the name of a socket is short
    alone = os.open(f"lock-{NODE}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        append("two", NODE, ATTEMPT)
        fcntl.flock(alone, fcntl.LOCK_EX)
    append("begun", NODE, ATTEMPT, time.time())
    step, state = newest(saves)
    print(f"begins after step {step}", flush=True)
    others = meet()
    lost = False
    while step < STEPS:
        step += 1
        lost = fail(step) or lost
        time.sleep(SECONDS)
        wait(others)
        state = (state * 1_103_515_245 + step) % 2**31
        loss = float("nan") if lost else 4 - step / 1000 + state / 2**35
        if NODE == 0:
            append("steps", ATTEMPT, step, time.time(), loss)
        print(f"step {step}/{STEPS} | loss {loss:.9f}", flush=True)
        if step % EACH == 0 and NODE == 0 and loss == loss:
            part = saves / "part"
            part.write_text(json.dumps([step, state]))
            part.replace(saves / f"step-{step}")
            append("saved", step, loss)
    wait(others)


def append(name: str, *words: object) -> None:
    with Path(name).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def newest(saves: Path) -> tuple[int, int]:
    found = max(saves.glob("step-*"), key=lambda one: int(one.name[5:]), default=None)
    step, state = json.loads(found.read_text()) if found else (0, 1)
    return step, state


def meet() -> list[socket.socket]:
    """Connections to the others, of node 0; else the one to it."""
    if NODE == 0:
        Path("meeting").unlink(missing_ok=True)
        place = socket.socket(socket.AF_UNIX)
        place.bind("meeting")
        place.listen(NODES)
        return [place.accept()[0] for _ in range(NODES - 1)]
    while True:
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect("meeting")
        except OSError:
            one.close()
            time.sleep(0.2)
        else:
            return [one]


def wait(others: list[socket.socket]) -> None:
    """Until all have come this far."""
    if NODE:
        with contextlib.suppress(OSError):
            others[0].sendall(b".")
    for one in others:
        try:
            there = one.recv(1)
        except ConnectionError:
            there = b""
        if not there:
            print("waits for a node that is lost", flush=True)
            sleep_forever()
    for one in others if NODE == 0 else ():
        with contextlib.suppress(OSError):
            one.sendall(b".")


def sleep_forever() -> NoReturn:
    while True:
        time.sleep(0.1)


def fail(step: int) -> bool:
    """Do what the faults of this step say. Returns whether the loss is not a number from now on."""
    for number, (kind, node, at) in enumerate(FAULTS):
        if (node, at) != (NODE, step) or Path(f"fault-{number}").exists():
            continue
        part = Path(f"fault-{number}.part")
        part.write_text(str(time.time()))
        part.replace(f"fault-{number}")
        if kind == "disk":
            Path("/dev/full").write_text(str(step))
        if kind == "device":
            sys.exit("NRT_EXEC_HW_ERR_HBM_UE")
        if kind in ("hang", "dead"):
            sleep_forever()
        return kind == "nan"
    return False


main()
