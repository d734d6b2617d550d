"""Logs of a job's pods: read, followed over restarts, and read from the shared file system if the pods are deleted."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from trainium_cdk.client.jobs import joined
from trainium_cdk.client.jobs.backend import FOLLOWING, ONE_QUESTION, Changes, Patience, check_log
from trainium_cdk.client.jobs.kubernetes import look, status
from trainium_cdk.client.jobs.kubernetes.api import Object
from trainium_cdk.client.jobs.kubernetes.look import JobSource
from trainium_cdk.client.jobs.kubernetes.parts import PREPARE, TRAIN, object_name, seconds, submission
from trainium_cdk.client.jobs.kubernetes.reader import kept_log
from trainium_cdk.client.jobs.status import JobStatus, LogChunk
from trainium_cdk.errors import ApiError, JobError, TransportError, UnknownJob
from trainium_cdk.runner.readers.log import JobLog, Lines, kept
from trainium_cdk.runner.readers.log import look as look_at
from trainium_cdk.runner.records import one_line

Changed = Callable[[JobStatus], None]
_AT_ONCE = 8
"""Logs of members that are read at the same time."""
_LAST_LINES = 200
"""In which the training's last steps are."""
_QUIET_SECONDS = 300.0
_LOOK_SECONDS = 1.0
_END_SECONDS = 3.0
_NO_LOG = (400, 404)
"""HTTP status for a container that has not started, and for a pod that does not exist."""
_MARKER = re.compile(rb"trn: \w+: node \d+ of \d+, ranks (\d+) to (\d+), on ")


def read(
    backend: JobSource,
    id: str,
    *,
    stage: str | None,
    node: int | None,
    follow: bool,
    offset: int,
    changed: Changed | None,
) -> Iterator[LogChunk]:
    """See `KubernetesBackend.logs`."""
    seen = backend.seen(id, any_member=True)
    job = {key: str(seen.job["metadata"][key]) for key in ("name", "uid")} | {"submission": submission(seen.job)}
    now = status.status(seen) if object_name(id) == job["name"] else backend.status(id)
    check_log(now, stage, node, offset)
    if now.members and stage != PREPARE:
        notify = Changes(changed)
        rounds = _rounds(backend, now.id)
        first = None if follow else rounds({}, None)
        yield from joined.read(backend, rounds, follow=follow, tail=None, notify=notify, first=first)
        return
    names = [s.name for s in now.stages]
    several = node is None and now.nodes > 1 and stage != PREPARE
    if offset and several:
        raise JobError("offset needs a node: lines of several nodes have no fixed order. Give a node, too")
    report = Changes(changed)
    report(now)
    if follow:
        for name in [stage] if stage else names:
            yield from _follow(backend, now, job, name, node, offset if stage else 0, report)
        return
    begun = [s.name for s in now.stages if s.state != "PENDING" and not (s.state == "CANCELLED" and s.started is None)]
    name = stage or (begun or names)[-1]
    for n in _nodes(now, name, node):
        text = _one(backend, now, job, name, n)
        yield from _chunks(name, text, n if several else None, offset)


def with_progress(backend: JobSource, job: JobStatus) -> JobStatus:
    """Add the training's position and problems, by the end of its first node's log. The job is unchanged if its pod is deleted, or has not begun."""
    if not any(stage.name == TRAIN and stage.started for stage in job.stages):
        return job
    with contextlib.suppress(ApiError):
        if pod := look.pod(backend.api, backend.api.get("JobSet", object_name(job.id))["metadata"], TRAIN, 0):
            lines = b"".join(backend.api.log(pod["metadata"]["name"], TRAIN, lines=_LAST_LINES, stamps=True)).split(
                b"\n"
            )
            end = b"\n".join(line.partition(b" ")[2] for line in lines)
            told, findings = look_at(end)
            *before, last = job.stages
            last = replace(last, stepped=_stepped(lines) if last.state == "RUNNING" else None)
            if findings:  # they say what its pods do not
                said = [one for one in last.reason.split("; ") if not one.startswith(status.ATTENTION)]
                last = replace(last, reason="; ".join(said)).with_findings(findings)
            return replace(job, progress=one_line(told), kept=one_line(kept(end)), stages=(*before, last))
    return job


def _stepped(lines: Sequence[bytes]) -> float | None:
    """Return the time of the last step in a log; None if it has none. Its lines begin with the times that the node's runtime gives them."""
    log, seen = JobLog(Lines()), (0, None)
    stepped: int | None = None
    for line in lines:
        stamp, _, text = line.partition(b" ")
        log.feed(TRAIN, text + b"\n")
        now: Any = (log.steps, log.course.position and log.course.position.step)
        if now != seen:
            seen, stepped = now, seconds(stamp.decode(errors="replace")[:19] + "Z")
    return stepped


def _rounds(backend: JobSource, id: str) -> joined.Ask:
    """Read the logs of the first nodes of an array's members: lines of several nodes have no order."""

    def ask(begin: Mapping[str, int], _: int | None) -> joined.Round:
        now = backend.status(id)
        wanted = [m.name for m in now.members if (not begin or m.name in begin) and m.started]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(lambda index: _of_member(backend, f"{id}/{index}", begin.get(index, 0)), wanted)
            chunks = [one._replace(member=index) for index, one in zip(wanted, found, strict=True) if one]
        return joined.Round(now, chunks, {one.member: one.next_offset for one in chunks})

    return ask


def _of_member(backend: JobSource, id: str, offset: int) -> LogChunk | None:
    try:
        pieces = list(read(backend, id, stage=TRAIN, node=0, follow=False, offset=offset, changed=None))
    except UnknownJob:  # its JobSet was deleted
        return None
    return pieces[0]._replace(data=b"".join(one.data for one in pieces)) if pieces else None


def node_of_rank(backend: JobSource, id: str, rank: int) -> int:
    """The job's node (0, 1, ...) on which a training process runs, as the node itself reports it in its log.

    Raises:
        JobError: the job has no such rank, or its nodes have not reported it yet.
    """
    seen = backend.seen(id)
    description = status.described(seen.job)
    nodes: int = description["nodes"] or 1
    each: int = description["ranks_per_node"]
    if not 0 <= rank < nodes * each:
        raise JobError(f"{id} has ranks 0 to {nodes * each - 1}, not {rank}. Choose one of them")
    # the likely node first; the nodes' own logs decide
    likely = rank // each
    for node in [likely, *(n for n in range(nodes) if n != likely)]:
        found = _MARKER.search(_begin(backend, seen.job["metadata"], node))
        if found and int(found[1]) <= rank <= int(found[2]):
            return node
    raise JobError(f"no node of {id} has reported rank {rank} yet. Wait until its pods run (trn status {id})")


def _begin(backend: JobSource, job: Object, node: int) -> bytes:
    pod = look.pod(backend.api, job, TRAIN, node)
    if pod is None:
        return b""
    for stage in ("precompile", TRAIN):
        try:
            text = b""
            for piece in backend.api.log(pod["metadata"]["name"], stage):
                text += piece
                if len(text) > 4096 or text.count(b"\n") > 3:
                    break
        except ApiError:
            continue
        if text:
            return text
    return b""


def _nodes(now: JobStatus, stage: str, node: int | None) -> list[int]:
    if stage == PREPARE:
        return [] if node else [0]
    return list(range(now.nodes)) if node is None else [node]


def _pod(backend: JobSource, job: Mapping[str, str], stage: str, node: int) -> Object | None:
    return look.pod(backend.api, job, PREPARE if stage == PREPARE else TRAIN, node)


def _one(backend: JobSource, now: JobStatus, job: Mapping[str, str], stage: str, node: int) -> bytes:
    """The log of one container of the job; from the shared file system if its pod is deleted."""
    try:
        if pod := _pod(backend, job, stage, node):
            return b"".join(backend.api.log(pod["metadata"]["name"], stage))
    except ApiError as e:
        if e.status == 400:  # it has not started
            return b""
        if e.status != 404:
            raise
    of = job["submission"] if stage == PREPARE else now.id
    return kept_log(backend.api, backend.cluster, of, stage, node) if now.done else b""


def _chunks(stage: str, text: bytes, label: int | None, offset: int = 0) -> Iterator[LogChunk]:
    text = _labelled(text, b"" if label is None else b"%d: " % label) if text else text
    if text[offset:]:
        yield LogChunk(stage, offset, text[offset:])
    elif text and len(text) < offset:
        yield LogChunk(stage, len(text), b"")


class _Reader(threading.Thread):
    """Follows one container's log, in every pod that has it. Whole lines go into the queue."""

    def __init__(
        self,
        backend: JobSource,
        job: Mapping[str, str],
        stage: str,
        node: int,
        out: queue.Queue[bytes],
        label: bool,
    ) -> None:
        super().__init__(daemon=True)
        self._backend, self._job, self._stage, self._node = backend, job, stage, node
        self._out, self._label = out, b"%d: " % node if label else b""
        self._lock = threading.Lock()
        self._uid, self._got = "", 0
        self._stopped = False
        self.last_look = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        while not self._stopped:
            last = self.last_look.is_set()
            if self._follow_once() and last:
                self.done.set()
                return
            if last:
                time.sleep(_LOOK_SECONDS)
            else:
                self.last_look.wait(_LOOK_SECONDS)

    def stop(self) -> None:
        """Stop reading: nothing more is put into the queue."""
        with self._lock:
            self._stopped = True
        self.last_look.set()

    def finish(self) -> None:
        """Put the rest of the log into the queue, for a stream that did not end with its container.

        Raises:
            TransportError: it cannot be read. Everything before it was delivered.
        """
        self.stop()
        try:
            self._hand_out(Patience(ONE_QUESTION).ask(self._rest))
        except ApiError as e:
            if e.status not in _NO_LOG:
                raise

    def _rest(self) -> bytes:
        pod = self._find()
        if pod is None:
            return b""
        text = b"".join(self._backend.api.log(pod["metadata"]["name"], self._stage))
        return text[self._got if pod["metadata"]["uid"] == self._uid else 0 :]

    def _find(self) -> Object | None:
        return _pod(self._backend, self._job, self._stage, self._node)

    def _follow_once(self) -> bool:
        """Stream the log once. Return whether the API responded. If not, the log is requested again, so that no output is lost."""
        try:
            pod = self._find()
            state = status.container_state(pod, self._stage) if pod else {}
            if pod and ("running" in state or "terminated" in state):
                if pod["metadata"]["uid"] != self._uid:
                    self._uid, self._got = pod["metadata"]["uid"], 0
                self._stream(pod["metadata"]["name"])
        except TransportError as e:
            return isinstance(e, ApiError) and e.status in _NO_LOG
        return True

    def _stream(self, pod: str) -> None:
        rest, skip = b"", self._got
        for piece in self._backend.api.log(pod, self._stage, follow=True, seconds=_QUIET_SECONDS):
            lines, newline, rest = (rest + piece[skip:]).rpartition(b"\n")
            if len(rest) > 1_000_000:  # it may have no end
                lines, newline, rest = lines + newline, rest, b""
            skip = max(0, skip - len(piece))
            if not self._put(lines + newline):
                return
        # an incomplete last line; the rest may follow if only the connection ended
        if rest and not self._runs(pod):
            self._put(rest)

    def _runs(self, name: str) -> bool:
        try:
            pod: Object = self._backend.api.get("Pod", name)
        except TransportError:
            return False
        return pod["metadata"]["uid"] == self._uid and "running" in status.container_state(pod, self._stage)

    def _put(self, text: bytes) -> bool:
        with self._lock:
            if not self._stopped:
                self._got += len(text)
                self._hand_out(text)
            return not self._stopped

    def _hand_out(self, text: bytes) -> None:
        if text:
            self._out.put(_labelled(text, self._label))


def _labelled(text: bytes, label: bytes) -> bytes:
    """Prefix every line with its label, and end the last one: the next may be of another node."""
    if not label:
        return text
    return b"".join(label + line + b"\n" for line in text.removesuffix(b"\n").split(b"\n"))


def _follow(
    backend: JobSource,
    now: JobStatus,
    job: Mapping[str, str],
    stage: str,
    node: int | None,
    offset: int,
    report: Changes,
) -> Iterator[LogChunk]:
    nodes, place, last = _nodes(now, stage, node), 0, now
    for text, current in _pieces(backend, job, stage, nodes):
        if current is not None:
            last = current
            if current.active(stage):
                report(current)  # that it has ended comes after its last lines
        if place + len(text) > offset:
            yield LogChunk(stage, max(place, offset), text[max(0, offset - place) :])
        place += len(text)
    if not place and any(s.name == stage and s.state != "CANCELLED" for s in last.stages):
        for n in nodes:  # it ended before it could be followed, and its pods are deleted
            yield from _chunks(stage, _one(backend, last, job, stage, n), n if len(nodes) > 1 else None)
    report(last)


def _pieces(
    backend: JobSource, job: Mapping[str, str], stage: str, nodes: Sequence[int]
) -> Iterator[tuple[bytes, JobStatus | None]]:
    """The nodes' output as it arrives, and the job's status, until the stage has ended and all output is read."""
    out: queue.Queue[bytes] = queue.Queue()
    readers = [_Reader(backend, job, stage, n, out, label=len(nodes) > 1) for n in nodes]
    for reader in readers:
        reader.start()
    patience, looked, ended = Patience(FOLLOWING), 0.0, 0.0
    try:
        while True:
            try:
                yield out.get(timeout=_LOOK_SECONDS), None
            except queue.Empty:
                if ended and all(r.done.is_set() for r in readers):
                    break
            if ended:
                if time.monotonic() > ended + _END_SECONDS:
                    for reader in readers:
                        if not reader.done.is_set():
                            reader.finish()
                    break
            elif time.monotonic() > looked + _LOOK_SECONDS:
                looked = time.monotonic()
                try:
                    current = backend.status(job["name"])
                except TransportError as e:
                    patience.failed(e)
                    continue
                patience.answered()
                yield b"", current
                if not current.active(stage):
                    ended = time.monotonic()
                    for reader in readers:
                        reader.last_look.set()
        while not out.empty():
            yield out.get(), None
    finally:
        for reader in readers:
            reader.stop()
