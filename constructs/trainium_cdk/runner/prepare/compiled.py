"""The compile cache in S3 (`--cache s3://...`): `prepare` reads it, and `work.keep` writes it.

ADDRESS/neuronx-cc-VERSION has what the cache of a node has. PyTorch/XLA: folders neuronxcc-VERSION/MODULE_HASH, with `model.done` written last
(optimum-neuron's public cache). TorchNeuron: files ab/cd/HASH.neff, each renamed when it is whole (its PersistentCacheBackend).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from .. import aws, files
from ..errors import Refused
from . import Failed, Here, NotFetched, check_room, remove, say

LINK = "compiled"
"""In a job's folder: leads to what was read."""
_DONE, _STAMP = "model.done", ".trn-read"
_FRESH_SECONDS = 1800.0
"""For which jobs take what one has read."""
_VERSION = "import importlib.metadata as m; print('neuronx-cc-' + m.version('neuronx-cc'))"


def compiled(here: Here, uri: str) -> None:
    """Read what other jobs have compiled, unless a job has just done so. Without it, the job compiles.

    Raises:
        NotFetched: this is only a check.
    """
    version = compiler(here.python, here.variables)
    place = here.trn / "neuron_cache" / ".s3" / f"{hashlib.sha256(uri.encode()).hexdigest()[:12]}-{version}"
    stamp = place / _STAMP
    if not stamp.exists() or time.time() - stamp.stat().st_mtime > _FRESH_SECONDS:
        if here.check:
            raise NotFetched("compiled graphs")
        try:
            place.mkdir(parents=True, exist_ok=True)
            check_room(uri, sum(aws.sizes(here.variables, f"{uri}/{version}").values()), place)
            for options in (("--exclude", f"*{_DONE}"), ("--exclude", "*", "--include", f"*{_DONE}")):
                aws.sync(here.variables, f"{uri}/{version}", str(place), "--size-only", *options)
            files.write(stamp, secrets.token_hex(8).encode())
        except (aws.Unreached, Refused, Failed, OSError) as e:
            say(f"compiled graphs of {uri} could not be read, so the job compiles: {e}")
            return
    if not here.check:
        say(f"{sum(1 for _ in units(place))} compiled graphs in {uri}/{version}")
    remove(here.job / LINK)
    (here.job / LINK).symlink_to(place)


def compiler(python: str, variables: Mapping[str, str]) -> str:
    """The compiler of a Python, for example `neuronx-cc-2.21.18209.0`; `neuronx-cc-unknown` without one."""
    with contextlib.suppress(OSError):
        done = subprocess.run(
            [python, "-c", _VERSION], env=dict(variables), capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and "/" not in done.stdout:
            return done.stdout.strip()
    return "neuronx-cc-unknown"


def units(cache: Path) -> Iterator[Path]:
    """What is compiled to its end in the cache of a node, or in such a place: folders of PyTorch/XLA, files of TorchNeuron."""
    yield from (
        one.parent for one in cache.glob(f"neuronxcc-*/MODULE_*/{_DONE}") if (one.parent / "model.neff").is_file()
    )
    yield from cache.glob("??/??/*.neff")


def seed(job: Path, cache: Path) -> None:
    """Link what was read into a node's cache, once, where that has none of it. What cannot be linked is compiled. Several processes may do so at once,
    and others may compile there."""
    place, done = job / LINK, cache / _STAMP
    with contextlib.suppress(OSError):
        now = files.read(place / _STAMP, 100)
        if done.exists() and files.read(done, 100) == now:
            return
        for one in units(place):
            to = cache / one.relative_to(place)
            with contextlib.suppress(OSError):
                to.parent.mkdir(parents=True, exist_ok=True)
                if not to.exists():
                    with tempfile.TemporaryDirectory(prefix=".trn-", dir=to.parent) as part:
                        _copy(one, Path(part, "new"))
                        Path(part, "new").rename(to)
        cache.mkdir(parents=True, exist_ok=True)
        files.write(done, now)


def send(caches: Path, uri: str, variables: Mapping[str, str], sent: set[str]) -> None:
    """Write what the nodes of a cache set have compiled, and is not among `sent`, to which it is added.

    Raises:
        Refused, aws.Unreached: as of `aws.run`.
    """
    nodes = [one for one in caches.iterdir() if one.is_dir()] if caches.is_dir() else []
    new = {str(one.relative_to(node)): one for node in nodes for one in units(node)}
    new = {name: one for name, one in new.items() if name not in sent}
    if not new:
        return
    with tempfile.TemporaryDirectory(prefix="trn-compiled-") as folder:
        for name, one in new.items():
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).symlink_to(one)
        for options in (("--exclude", f"*{_DONE}"), ()):  # what says that a graph is whole comes last
            aws.sync(variables, folder, uri, "--size-only", *options)
    sent.update(new)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder or a file, by links to its files."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link)
    else:
        _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    """Link a file, or copy it: a file system allows so many links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
