"""Logs of a job's pods: read, followed over restarts, and from the shared file system where the pods are gone."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from trainium_cdk.errors import ApiError, JobError, TransportError
from trainium_cdk.jobs.kubernetes import status
from trainium_cdk.jobs.kubernetes.api import Object
from trainium_cdk.jobs.kubernetes.names import PREPARE, TRAIN, owners, task_pod
from trainium_cdk.jobs.kubernetes.reader import kept_log
from trainium_cdk.jobs.kubernetes.source import JobSource
from trainium_cdk.jobs.patience import FOLLOWING, ONE_QUESTION, Patience
from trainium_cdk.jobs.status import ACTIVE, JobStatus, LogChunk

Tell = Callable[[JobStatus], None]
_QUIET_SECONDS = 300.0
_LOOK_SECONDS = 1.0
_END_SECONDS = 3.0
_NO_LOG = (400, 404)
"""What the API says of a container that has not started, and of a pod that is gone."""
_MARKER = re.compile(rb"trn: \w+: node \d+ of \d+, ranks (\d+) to (\d+), on ")


def read(
    backend: JobSource,
    id: str,
    *,
    stage: str | None,
    node: int | None,
    follow: bool,
    offset: int,
    changed: Tell | None,
) -> Iterator[LogChunk]:
    """See `KubernetesBackend.logs`."""
    seen = backend.seen(id)
    now, owner = status.status(seen), str(seen.job["metadata"]["uid"])
    id = now.id
    names = [s.name for s in now.stages]
    if stage is not None and stage not in names:
        raise JobError(f"{id} has no stage {stage!r}; it has {', '.join(names)}. Choose one of them")
    if node is not None and not 0 <= node < now.nodes:
        raise JobError(f"{id} has nodes 0 to {now.nodes - 1}, not {node}. Choose one of them")
    several = node is None and now.nodes > 1 and stage != PREPARE
    if offset and several:
        raise JobError("offset goes with one node: lines of several have no order. Give a node, too")
    if follow:
        for name in [stage] if stage else names:
            yield from _follow(backend, now, owner, name, node, offset if stage else 0, changed)
        return
    begun = [s.name for s in now.stages if s.state != "PENDING" and not (s.state == "CANCELLED" and s.started is None)]
    name = stage or (begun or names)[-1]
    for n in _nodes(now, name, node):
        text = _one(backend, now, owner, name, n)
        yield from _chunks(name, text, n if several else None, offset)


def node_of_rank(backend: JobSource, id: str, rank: int) -> int:
    """See `KubernetesBackend.node_of_rank`."""
    seen = backend.seen(id)
    said = status.described(seen.job)
    nodes: int = said["nodes"] or 1
    each: int = said["ranks_per_node"]
    if not 0 <= rank < nodes * each:
        raise JobError(f"{id} has ranks 0 to {nodes * each - 1}, not {rank}. Choose one of them")
    # the likely node first; but what counts is what a node says of itself
    likely = rank // each
    for node in [likely, *(n for n in range(nodes) if n != likely)]:
        found = _MARKER.search(_begin(backend, seen.job["metadata"], node))
        if found and int(found[1]) <= rank <= int(found[2]):
            return node
    raise JobError(f"no node of {id} has said yet that it has rank {rank}. Wait until its pods run (trn status {id})")


def _begin(backend: JobSource, job: Object, node: int) -> bytes:
    pod = task_pod(job["name"], TRAIN, node)
    for stage in ("precompile", TRAIN):
        try:
            text = b""
            if job["uid"] not in owners(backend.api.get("Pod", pod)):
                return text
            for piece in backend.api.log(pod, stage):
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
        return [0]
    return list(range(now.nodes)) if node is None else [node]


def _pod(id: str, stage: str, node: int) -> str:
    return task_pod(id, PREPARE if stage == PREPARE else TRAIN, node)


def _one(backend: JobSource, now: JobStatus, owner: str, stage: str, node: int) -> bytes:
    """The log of one container of the job with that uid; from the shared file system where its pod is gone."""
    try:
        if owner not in owners(backend.api.get("Pod", _pod(now.id, stage, node))):
            return b""
        return b"".join(backend.api.log(_pod(now.id, stage, node), stage))
    except ApiError as e:
        if e.status == 404:
            return kept_log(backend.api, backend.cluster, now.id, stage, node) if now.done else b""
        if e.status == 400:  # it has not started
            return b""
        raise


def _chunks(stage: str, text: bytes, label: int | None, offset: int = 0) -> Iterator[LogChunk]:
    text = _labelled(text, b"" if label is None else b"%d: " % label) if text else text
    if text[offset:]:
        yield LogChunk(stage, offset, text[offset:])


class _Reader(threading.Thread):
    """Follows one container's log, in every pod that has it. Whole lines go into the queue."""

    def __init__(
        self,
        backend: JobSource,
        id: str,
        owner: str,
        stage: str,
        node: int,
        out: queue.Queue[bytes],
        label: bool,
    ) -> None:
        super().__init__(daemon=True)
        self._owner = owner
        self._backend, self._pod, self._stage = backend, _pod(id, stage, node), stage
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
        """It puts nothing more into the queue, and ends."""
        with self._lock:
            self._stopped = True
        self.last_look.set()

    def finish(self) -> None:
        """Put what is left of the log into the queue, for a stream that has not ended with its container.

        Raises:
            TransportError: it cannot be had; what was handed out is a whole beginning of it.
        """
        self.stop()
        patience = Patience(ONE_QUESTION)
        while True:
            try:
                pod: Object = self._backend.api.get("Pod", self._pod)
                if self._owner not in owners(pod):
                    return
                text = b"".join(self._backend.api.log(self._pod, self._stage))
                self._hand_out(text[self._got if pod["metadata"]["uid"] == self._uid else 0 :])
                return
            except TransportError as e:
                if isinstance(e, ApiError) and e.status in _NO_LOG:
                    return
                patience.failed(e)

    def _follow_once(self) -> bool:
        """Whether there was an answer. Where not, it is looked for again: what was missed would be lost."""
        try:
            pod = self._backend.api.get("Pod", self._pod)
            state = status.container_state(pod, self._stage)
            if self._owner in owners(pod) and ("running" in state or "terminated" in state):
                if pod["metadata"]["uid"] != self._uid:
                    self._uid, self._got = pod["metadata"]["uid"], 0
                self._stream()
        except TransportError as e:
            return isinstance(e, ApiError) and e.status in _NO_LOG
        return True

    def _stream(self) -> None:
        rest, skip = b"", self._got
        for piece in self._backend.api.log(self._pod, self._stage, follow=True, seconds=_QUIET_SECONDS):
            lines, newline, rest = (rest + piece[skip:]).rpartition(b"\n")
            skip = max(0, skip - len(piece))
            if not self._put(lines + newline):
                return
        # a last line without its end; more of it may come where only the connection ended
        if rest and not self._runs():
            self._put(rest)

    def _runs(self) -> bool:
        try:
            pod: Object = self._backend.api.get("Pod", self._pod)
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
    """Every line with its label in front."""
    if not label:
        return text
    whole = text.endswith(b"\n")
    lines = (text[:-1] if whole else text).split(b"\n")
    return b"\n".join(label + line for line in lines) + (b"\n" if whole else b"")


def _follow(
    backend: JobSource,
    now: JobStatus,
    owner: str,
    stage: str,
    node: int | None,
    offset: int,
    changed: Tell | None,
) -> Iterator[LogChunk]:
    nodes, place, told = _nodes(now, stage, node), 0, now
    for text, current in _pieces(backend, now.id, owner, stage, nodes):
        if changed and current is not None and current != told:
            changed(current)
        told = current or told
        if place + len(text) > offset:
            yield LogChunk(stage, max(place, offset), text[max(0, offset - place) :])
        place += len(text)
    if not place and any(s.name == stage and s.state != "CANCELLED" for s in told.stages):
        for n in nodes:  # it ended before it could be followed, and its pods are gone
            yield from _chunks(stage, _one(backend, told, owner, stage, n), n if len(nodes) > 1 else None)


def _pieces(
    backend: JobSource, id: str, owner: str, stage: str, nodes: Sequence[int]
) -> Iterator[tuple[bytes, JobStatus | None]]:
    """What the nodes say, as it comes, and how the job is, until the stage has ended and all is said."""
    out: queue.Queue[bytes] = queue.Queue()
    readers = [_Reader(backend, id, owner, stage, n, out, label=len(nodes) > 1) for n in nodes]
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
                    current = backend.status(id)
                except TransportError as e:
                    patience.failed(e)
                    continue
                patience.answered()
                yield b"", current
                if not any(s.name == stage and s.state in ACTIVE for s in current.stages):
                    ended = time.monotonic()
                    for reader in readers:
                        reader.last_look.set()
        while not out.empty():
            yield out.get(), None
    finally:
        for reader in readers:
            reader.stop()
