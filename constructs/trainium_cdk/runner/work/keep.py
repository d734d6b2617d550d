"""Copies in S3 of a job's complete checkpoints, and of the graphs that it has compiled: `runner keep FOLDER INDEX LOG`, next to the program of its
first node. No fault of it stops the program.

    ADDRESS/JOB/RUN/NAME/...             the files of a checkpoint; one that is a file: ADDRESS/JOB/RUN/NAME
    ADDRESS/JOB/RUN/NAME.trn-complete    `kept.Mark`, written last, and deleted first

RUN tells apart jobs of one id, of several clusters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .. import bucket, files, kept, layout, records
from ..errors import Refused, place_of
from ..prepare import checkpoints, compiled
from ..spec import JobSpec, to_json
from . import health
from .output import Output
from .places import StageNode

END_SECONDS = 600.0
"""For which a program that has ended well waits for the copy of its last checkpoint."""
KEPT = "kept: "
"""Begins the line that says what is in S3: `trn status` shows the last one."""
FILE = "state/keep.json"
_LONGEST_SECONDS = 600.0
"""Between two attempts, and between two prints of the last line: the end of a log has it then."""
_LAST_TRIES, _PAUSE_SECONDS, _QUIET_SECONDS = 3, 5.0, 60.0


@dataclass(frozen=True)
class Record:
    """What was copied, in the job's folder.

    Attributes:
        run: see above.
        begun: a digest of each checkpoint that S3 may have a part of, by its name.
        complete: the names of those that are whole there, in the order of their copies.
    """

    run: str = ""
    begun: Mapping[str, str] = field(default_factory=dict)
    complete: tuple[str, ...] = ()


@contextlib.contextmanager
def beside(
    node: StageNode, job: JobSpec, stage: str, log: Path, variables: Mapping[str, str]
) -> Iterator[Callable[[], None]]:
    """Copy while a program runs. Gives a function that waits for the last copy."""
    if not (job.environment.compiled or (job.checkpoints and job.checkpoints.keep)):
        yield lambda: None
        return
    words = [sys.executable, "-I", str(Path(sys.argv[0]).resolve()), "keep", str(node.root), node.index, str(log)]
    with subprocess.Popen(
        words, env=dict(variables), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as keeper:

        def finish() -> None:
            assert keeper.stdin  # noqa: S101
            keeper.stdin.close()  # which tells it that the program has ended
            left = float(os.environ.get("SLURM_JOB_END_TIME") or "inf") - time.time() - 60
            until = time.monotonic() + min(END_SECONDS, left)
            while keeper.poll() is None and time.monotonic() < until and not health.order(node.job, stage, node.run):
                time.sleep(0.2)

        try:
            yield finish
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGKILL)


def main(folder: str, index: str, log: str) -> None:
    os.nice(19)
    with contextlib.suppress(
        OSError
    ):  # nice counts within a session only, where Linux groups processes so (sched(7), "The autogroup feature")
        Path("/proc/self/autogroup").write_text("19")
    root, ended = Path(folder), False
    job = layout.read_job(root)
    keeper = Keeper(job, root, index, Output(Path(log)).say)
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], job.health.every)[0])
        keeper.look(last=ended)


class Keeper:
    """Copies what is new, by the AWS CLI of the job's programs.

    Args:
        root: the job's folder; of a member of an array, the array's, with its index.
        say: writes a line to the log.
    """

    def __init__(self, job: JobSpec, root: Path, index: str, say: Callable[[str], None]) -> None:
        self._job, self._own, self._say = job, root / index, say
        self._caches = root.parent.parent / "neuron_cache" / job.environment.cache
        self._record = records.read(Record, self._own / FILE) or Record(secrets.token_hex(3))
        self._made = job.checkpoints if job.checkpoints and job.checkpoints.keep else None
        self._to = "/".join(filter(None, (self._made.keep, index, self._record.run))) if self._made else ""
        self._graphs, self._sent, self._failed = "", set[str](), set[str]()
        self._said, self._next, self._wait, self._reached = 0.0, 0.0, 0.0, False

    def look(self, *, last: bool = False) -> None:
        """Copy what is new. It does not raise.

        Args:
            last: the program has ended: a failure is tried again soon.
        """
        for left in reversed(range(_LAST_TRIES if last else 1)):
            if not last and time.monotonic() < self._next:
                break
            done = [self._done("compiled graphs", self._compiled), self._done("a checkpoint", self._checkpoint)]
            self._wait = 0.0 if all(done) else min(max(2 * self._wait, self._job.health.every), _LONGEST_SECONDS)
            self._next = time.monotonic() + self._wait
            if all(done) or not left:
                break
            time.sleep(_PAUSE_SECONDS)
        if self._record.complete and time.monotonic() - self._said > _LONGEST_SECONDS:
            self._tell("")

    def _done(self, what: str, step: Callable[[], None]) -> bool:
        """Return whether a step has not failed. A failure is printed once."""
        try:
            step()
            self._failed.discard(what)
        except Exception as e:
            known = isinstance(e, (Refused, bucket.Unreached, OSError))
            if what not in self._failed:
                self._failed.add(what)
                self._tell(f"{what} could not be copied, and is tried again: {e if known else place_of(e)}")
            return False
        return True

    def _tell(self, more: str) -> None:
        newest = (self._record.complete or ("nothing",))[-1]
        self._say("; ".join(filter(None, (f"{KEPT}{newest} in {self._to}" if self._to else "", more))))
        self._said = time.monotonic()

    def _note(self, begun: Mapping[str, str], complete: Iterable[str]) -> None:
        self._record = dataclasses.replace(self._record, begun=begun, complete=tuple(complete))
        files.write_json(self._own / FILE, dataclasses.asdict(self._record))

    def _compiled(self) -> None:
        if to := self._job.environment.compiled:
            self._graphs = self._graphs or f"{to}/{compiled.compiler('python3', os.environ)}"
            compiled.send(self._caches, self._graphs, os.environ, self._sent)

    def _checkpoint(self) -> None:
        """Copy the newest complete checkpoint, unless S3 has it."""
        if self._made is None:
            return
        if not self._reached:  # else it would show at the first checkpoint only
            bucket.sizes(os.environ, self._to)
            self._reached = True
        place = self._own / self._made.folder / self._made.place
        found = next(checkpoints.complete(self._made, place), None)
        if found is None:
            self._check_forms(place)
            return
        before = kept.stats(found)
        content = kept.content(before)
        name, to, known = found.name, f"{self._to}/{found.name}", self._record
        if name in known.complete and known.begun.get(name) == content:
            return
        if name in known.begun:  # under this name S3 may have another one, or a part of it
            self._remove(name, parts=known.begun[name] != content)
        self._note({**self._record.begun, name: content}, self._record.complete)
        if found.is_file():
            bucket.copy(os.environ, str(found), to)
        else:
            bucket.sync(os.environ, str(found), to, "--delete")
        sizes = {file: size for file, (size, _) in before.items()}
        there = bucket.sizes(os.environ, to)
        if kept.stats(found) != before or any(there.get(file) != size for file, size in sizes.items()):
            return  # its program has changed it meanwhile: the next look sees how it is then
        mark = kept.Mark(self._job.kind, self._made.same, sizes)
        bucket.copy(os.environ, "-", to + kept.SUFFIX, json.dumps(to_json(mark)))
        self._note(self._record.begun, (*self._record.complete, name))
        self._tell("")
        for old in [one for one in self._record.begun if one not in self._record.complete[-self._made.keeps :]]:
            self._remove(old, parts=True)

    def _check_forms(self, place: Path) -> None:
        """Raises Refused where a user's own script has checkpoints, and nothing says that they are whole."""
        if self._made and not self._made.pattern and place.is_dir():
            newest = max(((one.stat().st_mtime, one.name) for one in place.iterdir()), default=(time.time(), ""))
            if time.time() - newest[0] > _QUIET_SECONDS:
                raise Refused(
                    f"nothing says that {newest[1]} is complete. Let your script write an empty file COMPLETE into its folder, last"
                )

    def _remove(self, name: str, *, parts: bool) -> None:
        """Take a checkpoint from S3: first what says that it is whole; then, if they differ or it is an old one, its files."""
        to, known = f"{self._to}/{name}", self._record
        bucket.remove(os.environ, to + kept.SUFFIX)
        self._note(known.begun, (one for one in known.complete if one != name))
        if parts:
            bucket.remove(os.environ, f"{to}/", "--recursive")
            bucket.remove(os.environ, to)
            begun = {one: content for one, content in known.begun.items() if one != name}
            self._note(begun, self._record.complete)
