"""Copies in S3 of a job's complete checkpoints, and of the graphs that it has compiled: `runner keep FOLDER INDEX LOG`, next to the program of its
first node. No fault of it stops the program.

    ADDRESS/JOB/DIGEST/NAME/...             the files of a checkpoint; one that is a file: ADDRESS/JOB/DIGEST/NAME
    ADDRESS/JOB/DIGEST/NAME.trn-complete    `aws.Mark`, written last, and deleted first

A member of an array has ADDRESS/JOB/INDEX. DIGEST is of the content. So no checkpoint replaces another one, and jobs of one id on two clusters harm nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import PEOPLE, aws, files, layout, records
from ..errors import Refused, place_of
from ..layout import owner_of
from ..prepare import checkpoints, compiled
from ..readers.log import KEPT
from ..requests import Checkpoint, Cluster, FoundCheckpoints, ListCheckpoints
from ..spec import ARRAY_PATTERN, JobSpec, SpecError, array_indices, to_json
from ..status import checkpoints_in
from . import health
from .places import StageNode
from .process import Output

END_SECONDS = 600.0
"""For which a program that has ended well waits for the copy of its last checkpoint."""
FILE = "state/keep.json"
_LONGEST_SECONDS, _AGAIN_SECONDS = 600.0, 120.0
"""Between two attempts, and between two prints of the last line: the end of a log has it then."""
_LAST_TRIES, _PAUSE_SECONDS, _QUIET_SECONDS = 3, 5.0, 60.0
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
"""Sent to all processes of a job, as by `sbatch --signal`, for its program."""


@dataclass(frozen=True)
class Record:
    """What was copied, in the job's folder: `DIGEST/NAME` of each checkpoint.

    Attributes:
        begun: those that S3 may have a part of. complete: those that are whole there, in the order of their copies.
    """

    begun: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()


@contextlib.contextmanager
def beside(
    node: StageNode, job: JobSpec, stage: str, log: Path, variables: Mapping[str, str]
) -> Iterator[Callable[[], None]]:
    """Copy while a program runs. Gives a function that waits for the last copy."""
    words = [sys.executable, "-I", str(Path(sys.argv[0]).resolve()), "keep", str(node.root), node.index, str(log)]
    keeper: subprocess.Popen[bytes] | None = None
    if job.environment.compiled or (job.checkpoints and job.checkpoints.keep):
        with contextlib.suppress(OSError):
            keeper = subprocess.Popen(
                words, env=dict(variables), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )

    def finish() -> None:
        if keeper is None or keeper.stdin is None:
            return
        with contextlib.suppress(OSError):  # whatever ends the wait, the program has ended well
            records.mark(node.job, stage, node.run, "done")
        keeper.stdin.close()  # which tells the keeper that it has ended
        over = threading.Event()
        before = {one: signal.signal(one, lambda *_: over.set()) for one in (signal.SIGTERM, *_IGNORED)}
        left = float(os.environ.get("SLURM_JOB_END_TIME") or "inf") - time.time() - 60
        until = time.monotonic() + min(END_SECONDS, left)
        while keeper.poll() is None and time.monotonic() < until and not health.order(node.job, stage, node.run):
            if over.wait(0.2):
                break
        for one, handler in before.items():
            signal.signal(one, handler)

    try:
        yield finish
    finally:
        if keeper is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                keeper.wait(10)


def main(folder: str, index: str, log: str) -> None:
    os.nice(19)
    # nice counts within a session only, where Linux groups processes so (sched(7), "The autogroup feature")
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
    for one in _IGNORED:
        signal.signal(one, signal.SIG_IGN)
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
        self._record = records.read(Record, self._own / FILE) or Record()
        self._made = job.checkpoints if job.checkpoints and job.checkpoints.keep else None
        self._to = "/".join(filter(None, (self._made.keep, index))) if self._made else ""
        self._graphs, self._sent, self._problems = "", set[str](), dict[str, str]()
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
        if (self._record.complete or self._problems) and time.monotonic() - self._said > _AGAIN_SECONDS:
            self._tell()

    def _done(self, what: str, step: Callable[[], None]) -> bool:
        """Return whether a step has not failed. A failure is printed once, and again with the last line."""
        try:
            step()
            self._problems.pop(what, None)
        except Exception as e:
            known = isinstance(e, (Refused, aws.Unreached, OSError))
            told = what in self._problems
            self._problems[what] = f"{what} could not be copied, and is tried again: {e if known else place_of(e)}"
            if not told:
                self._tell()
            return False
        return True

    def _tell(self) -> None:
        newest = (self._record.complete or ("nothing",))[-1].rpartition("/")[2]
        self._say("; ".join((*([f"{KEPT}{newest} in {self._to}"] if self._to else []), *self._problems.values())))
        self._said = time.monotonic()

    def _note(self, begun: Iterable[str], complete: Iterable[str]) -> None:
        self._record = Record(tuple(begun), tuple(complete))
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
            aws.sizes(os.environ, self._to)
            self._reached = True
        place = self._own / self._made.folder / self._made.place
        found = next(checkpoints.complete(self._made, place), None)
        if found is None:
            self._check_forms(place)
            return
        before = aws.stats(found)
        name = aws.name_of(found, before)
        if name in self._record.complete:
            return
        for old in [one for one in self._record.begun if one not in (*self._record.complete, name)]:
            self._remove(old)  # a part of one that has changed since, or is gone
        self._note(dict.fromkeys((*self._record.begun, name)), self._record.complete)
        to = f"{self._to}/{name}"
        if found.is_file():
            aws.copy(os.environ, str(found), to)
        else:
            aws.sync(os.environ, str(found), to, "--delete")
        sizes = {file: size for file, (size, _) in before.items()}
        if aws.stats(found) != before or aws.files(os.environ, to) != sizes:
            raise aws.Unreached(f"{found.name} was changed while it was copied")
        mark = aws.Mark(self._job.kind, self._made.same, sizes)
        aws.copy(os.environ, "-", to + aws.SUFFIX, json.dumps(to_json(mark)))
        self._note(self._record.begun, (*self._record.complete, name))
        self._problems.pop("a checkpoint", None)
        self._tell()
        for old in self._record.complete[: -self._made.keeps]:
            self._remove(old)

    def _check_forms(self, place: Path) -> None:
        """Raises Refused where a user's own script has checkpoints, and nothing says that they are whole."""
        if self._made and not self._made.pattern and place.is_dir():
            there = [
                (one.lstat().st_mtime, one.name) for one in place.iterdir() if one.is_dir() or one.suffix != ".json"
            ]
            newest = max(there, default=(time.time(), ""))
            if time.time() - newest[0] > _QUIET_SECONDS:
                raise Refused(
                    f"nothing says that {newest[1]} is complete. Let your script write an empty file COMPLETE into its folder, last"
                )

    def _remove(self, name: str) -> None:
        """Take a checkpoint from S3: first what says that it is whole."""
        to, known = f"{self._to}/{name}", self._record
        aws.remove(os.environ, to + aws.SUFFIX)
        self._note(known.begun, (one for one in known.complete if one != name))
        aws.remove(os.environ, f"{to}/", "--recursive")
        aws.remove(os.environ, to)
        self._note((one for one in known.begun if one != name), self._record.complete)


# --- what S3 has of all jobs -------------------------------------------------------------------------------------------------------------


def list_checkpoints(cluster: Cluster, _: ListCheckpoints) -> FoundCheckpoints:
    """The newest checkpoint of each job, and whether S3 has it, by what jobs have recorded. See `requests.FoundCheckpoints`."""
    from concurrent.futures import ThreadPoolExecutor  # slow, and for this alone

    ids = layout.newest_jobs(cluster, 1000, "job.json")  # Kubernetes has no `submitted.json`
    with contextlib.redirect_stderr(io.StringIO()), ThreadPoolExecutor(layout.COPIES_AT_ONCE) as pool:
        found = [one for each in pool.map(lambda id: list(_of_job(cluster, id)), ids) for one in each]
    people = sorted((cluster.shared / PEOPLE).glob("*")) if cluster.multi_user and "/" not in cluster.folder else ()
    return FoundCheckpoints(tuple(found), tuple(one.name for one in people if owner_of(one) == one.name))


def _of_job(cluster: Cluster, id: str) -> Iterator[Checkpoint]:
    with contextlib.suppress(SpecError, RecursionError, ValueError, OSError):  # damaged, or deleted meanwhile
        job = layout.read_job(cluster.jobs / id)
        made, is_array = job.checkpoints, re.fullmatch(ARRAY_PATTERN, job.array)
        for index in map(str, array_indices(job.array)) if is_array else [""]:
            own, name = cluster.jobs / id / index, "/".join(filter(None, (id, index)))
            path = made and checkpoints_in(f"{cluster.shared_dir}/{cluster.folder}/jobs/{name}", made.folder)
            if made and path and (found := checkpoints.latest(made, own / made.folder / made.place)):
                record, stats = records.read(Record, own / FILE) or Record(), {}
                with contextlib.suppress(Refused):  # it has a link
                    stats = aws.stats(found)
                has = aws.name_of(found, stats) in record.complete
                to = "" if has else f"{name}/copied" if record.begun else name
                yield Checkpoint(name, found.name, sum(size for size, _ in stats.values()), path, to)
