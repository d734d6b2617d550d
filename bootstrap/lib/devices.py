"""Whether a compute node still works, as root measures it: Neuron devices, disks and memory. Each 10 seconds.

    devices.py tell|replace drain|power_down_asap COUNTERS [--disks PATH ...] [--node NAME] [--root PATH] [--every SECONDS] [--looks N]

COUNTERS: files of the Neuron driver, by their names, separated by commas. One that rises is a device error: with `replace`, Slurm gives no job to this
node any more, with that as the reason. All that is found is the node's comment in Slurm, which only root can write.

Nothing that a job can write is evidence: no variable, no file of a user, no line of a log. The kernel's log is only reported, as any program that has
a device may write a line into it (the driver's PRINTK).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

MARK = "trn-devices"
"""What a comment, and a reason, of ours begin with."""
DEVICES = "sys/devices/virtual/neuron_device"
FULL, SOME = 98, 95
"""Percent of a disk, or of the memory: it is reported when it reaches FULL, until it is less than SOME."""
_DEEP, _MOST = 6, 900
_CODE = re.compile(rb"NEURON_HW_ERR=([A-Z_]{1,60})")


def counters(root, names):
    """The counters of all devices, by their places: {"neuron3/stats/hardware/mem_ecc_uncorrected": 0}. Drivers differ in the folders between."""
    found, top = {}, Path(root, DEVICES)
    for folder, folders, files in os.walk(top):
        place = Path(folder).relative_to(top)
        if len(place.parts) >= _DEEP:
            folders.clear()
        for name in names:
            if name in files:
                file, at = Path(folder, name), place / name
            elif place.name == name and "total" in files:
                file, at = Path(folder, "total"), place
            else:
                continue
            with contextlib.suppress(OSError, ValueError):
                found[str(at)] = int(file.read_text())
    return found


def risen(first, now):
    """What counters say that are higher than at first. One that was not there at first begins at 0."""
    higher = {at: (first.get(at, 0), value) for at, value in now.items() if value > first.get(at, 0)}
    return ", ".join(f"{at} {before} to {value}" for at, (before, value) in sorted(higher.items()))


def lower(first, now):
    """What to compare with from now on: the driver was loaded again, or the device reset, and counts from 0."""
    return {**first, **{at: value for at, value in now.items() if value <= first.get(at, value)}}


def used(path):
    """How full a file system is, in percent: as df(1), of blocks or of files. None if that is not known."""
    try:
        s = os.statvfs(path)
    except OSError:
        return None
    blocks, files = s.f_blocks - s.f_bfree + s.f_bavail, s.f_files - s.f_ffree + s.f_favail
    parts = [100 * (s.f_blocks - s.f_bfree) / blocks] if blocks else []
    parts += [100 * (s.f_files - s.f_ffree) / files] if s.f_files and files else []
    return max(parts, default=None)


def memory(text):
    """How full the memory is, in percent, from /proc/meminfo; None if that is not known."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable): +([0-9]+) kB$", text, re.MULTILINE))
    if len(found) < 2 or not int(found["MemTotal"]):
        return None
    return 100 - 100 * int(found["MemAvailable"]) / int(found["MemTotal"])


def own_name(said, host, addresses):
    """This node's name, from the lines of `scontrol -o show node`; empty if it is not the only one that can be."""
    names = set()
    for line in said.splitlines():
        told = dict(re.findall(r"(?:^| )(NodeName|NodeHostName|NodeAddr)=(\S+)", line))
        if host in (told.get("NodeName"), told.get("NodeHostName")) or told.get("NodeAddr") in addresses:
            names.add(told.get("NodeName", ""))
    return names.pop() if len(names) == 1 else ""


class Kernel:
    """Hardware errors in the kernel's log, from now on. A program may have written them."""

    def __init__(self, path):
        self._log = None
        with contextlib.suppress(OSError):
            self._log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._log, 0, os.SEEK_END)
        self._codes = []

    def look(self):
        for _ in range(10_000 if self._log is not None else 0):
            try:
                line = os.read(self._log, 8192)
            except BrokenPipeError:  # lines were lost
                continue
            except OSError:
                break
            if not line:
                break
            self._codes += [one.decode() for one in _CODE.findall(line) if one.decode() not in self._codes]
        return ", ".join(self._codes[:5])


class Watch:
    """What is found on this node, by kind and what it is about: since when, and the evidence."""

    def __init__(self, root, names, disks):
        self._root, self._names, self._disks = root, names, disks
        self._kernel = Kernel(Path(root, "dev/kmsg"))
        self._first, self.found = counters(root, names), {}

    @property
    def first(self):
        """What had risen before this began: it is not known when, so nothing is done about it."""
        return risen({}, self._first)

    def look(self, now):
        read = counters(self._root, self._names)
        if told := risen(self._first, read):
            self._keep("device", "", told, now)  # it stays: a reset repairs no memory
        self._first = lower(self._first, read)
        if codes := self._kernel.look():
            self._keep("log", "", f"the kernel's log has NEURON_HW_ERR={codes}", now)
        for kind, what, level in self._levels():
            if level is not None and level >= FULL:
                self._keep(kind, what, f"{what} is full to {FULL} % and more", now)
            elif level is not None and level < SOME:
                self.found.pop((kind, what), None)

    def _levels(self):
        for path in self._disks:
            yield "disk", path, used(path)
        with contextlib.suppress(OSError):
            yield "memory", "its memory", memory(Path(self._root, "proc/meminfo").read_text())

    def _keep(self, kind, what, text, now):
        since, _ = self.found.get((kind, what), (now, ""))
        self.found[kind, what] = (since, text)

    @property
    def device(self):
        """Since when there is a device error, and the evidence; None without one."""
        return self.found.get(("device", ""))

    @property
    def text(self):
        """As Slurm has it: `trn-devices 1795801234 device neuron3/... 0 to 2 | 1795801250 disk / is full ...`."""
        told = " | ".join(f"{since:.0f} {kind} {text}" for (kind, _), (since, text) in sorted(self.found.items()))
        return f"{MARK} {told}"[:_MOST] if told else ""


def scontrol(*words):
    """What scontrol prints; None if it fails, which is tried again."""
    try:
        done = subprocess.run(("scontrol", *words), capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{MARK}: {error}", file=sys.stderr, flush=True)
        return None
    if done.returncode:
        print(f"{MARK}: scontrol {words[0]}: {done.stderr.strip()}", file=sys.stderr, flush=True)
        return None
    return done.stdout


def find_name():
    host = os.uname().nodename.partition(".")[0]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(("hostname", "-I"), capture_output=True, text=True, timeout=10, check=False).stdout
        return own_name(scontrol("-o", "show", "node") or "", host, said.split())
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("tell", "replace"))
    parser.add_argument("state", choices=("drain", "power_down_asap"))
    parser.add_argument("counters")
    parser.add_argument("--disks", nargs="*", default=[])
    parser.add_argument("--node", default="")
    parser.add_argument("--root", default="/")
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--looks", type=int, default=0)
    given = parser.parse_args()
    watch = Watch(given.root, given.counters.split(","), ["/", *given.disks])
    if watch.first:
        print(f"{MARK}: at first: {watch.first}", file=sys.stderr, flush=True)
    name, written, replaced, looks = given.node, None, False, 0
    while not given.looks or looks < given.looks:
        looks += 1
        watch.look(time.time())
        name = name or find_name()
        if name and watch.text != written:  # at first it empties what an earlier instance of this name has left
            if watch.text:
                print(watch.text, file=sys.stderr, flush=True)
            if scontrol("update", f"nodename={name}", f"comment={watch.text}") is not None:
                written = watch.text
        if name and not replaced and given.action == "replace" and watch.device:
            since, text = watch.device
            reason = f"reason={MARK} {since:.0f} device {text}"[:_MOST]
            replaced = scontrol("update", f"nodename={name}", f"state={given.state}", reason) is not None
        time.sleep(given.every)


if __name__ == "__main__":
    main()
