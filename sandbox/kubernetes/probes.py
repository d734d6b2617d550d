"""Readiness probes that execute a command in a container, as the kubelet's worker does (pkg/kubelet/prober/worker.go, Kubernetes 1.33): a container
is not ready until one succeeds. Those of other kinds never do here."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sandbox.kubernetes.api import Api, ApiError, Object, path_of, retry

_MOST = 10 * 1024
"""Bytes of a command's output that are read."""
_NOT_FOUND = (126, 127)
"""Exit codes of `nsenter` where it cannot execute the command: for the kubelet no result, but an error of the container's runtime."""


@dataclass(frozen=True)
class Probe:
    """A readiness probe, with the defaults of the API server."""

    command: Sequence[str]
    delay: int = 0
    period: int = 10
    timeout: int = 1
    failures: int = 3
    successes: int = 1

    @classmethod
    def of(cls, container: Object) -> Probe | None:
        """That of a container; None if it has none that executes a command."""
        given = container.get("readinessProbe") or {}
        if "exec" not in given:
            return None
        return cls(
            given["exec"].get("command", ()),
            given.get("initialDelaySeconds", 0),
            given.get("periodSeconds", 10),
            given.get("timeoutSeconds", 1),
            given.get("failureThreshold", 3),
            given.get("successThreshold", 1),
        )


def entering(first: int, directory: str, user: int | None, group: int | None) -> list[str]:
    """The words by which a command runs in the container whose first process this is.

    Args:
        user, group: of the container, where it is confined to them; else None.
    """
    where = f"--wd=/proc/{first}/root{directory or '/'}"
    words = [shutil.which("nsenter") or "nsenter", f"--target={first}", "--mount", "--uts", "--root", where]
    if user is None:
        return [*words, "--user", "--preserve-credentials"] if os.geteuid() else words
    return [*words, "--pid", f"--setuid={user}", f"--setgid={group}"]


class Worker:
    """Probes one container until it has ended.

    Args:
        run: executes the command in the container: its exit code and what it printed; None if it timed out.
        changed: called when the result has changed.
        tell: called with what is wrong at each probe that fails.

    Attributes:
        ready: whether the container is.
    """

    def __init__(
        self,
        probe: Probe,
        run: Callable[[Probe], tuple[int, str] | None],
        changed: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        self._probe, self._run, self._changed, self._tell = probe, run, changed, tell
        self._last, self._count = False, 0
        self.ready = False

    def work(self, over: Callable[[float], bool]) -> None:
        """Probe each period, until `over`, which waits for so many seconds, says that the container has ended."""
        began = time.monotonic()
        while not over(0):
            if time.monotonic() - began >= self._probe.delay:
                self.look()
            if over(self._probe.period):
                break
        self.ready = False

    def look(self) -> None:
        done = self._run(self._probe)
        if done and done[0] in _NOT_FOUND:
            self._tell(f"Readiness probe errored: {done[1]}")
            return
        good = done is not None and done[0] == 0
        if not good:
            why = done[1] if done else f"command timed out after {self._probe.timeout}s"
            self._tell(f"Readiness probe failed: {why}")
        self._count = self._count + 1 if good is self._last else 1
        self._last = good
        if self._count >= (self._probe.successes if good else self._probe.failures) and good is not self.ready:
            self.ready = good
            self._changed()


def execute(probe: Probe, words: Sequence[str], env: Mapping[str, str]) -> tuple[int, str] | None:
    """Run a probe's command: its exit code and what it printed; None if it timed out.

    Args:
        words: see `entering`.
    """
    process = subprocess.Popen(
        [*words, *probe.command],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=probe.timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    return process.returncode, said[:_MOST].decode(errors="replace")


def report(api: Api, pod: Object, container: str, text: str, *, reason: str = "Unhealthy") -> None:
    """An event of the kubelet's, of a container or, without its name, of the pod: the same one again counts up."""
    metadata, at = pod["metadata"], f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    part = {"fieldPath": f"spec.containers{{{container}}}"} if container else {}
    name = f"{metadata['name']}.{hashlib.sha256((metadata['uid'] + text).encode()).hexdigest()[:16]}"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            **part,
        },
        "type": "Warning", "reason": reason, "message": text[:1024], "source": {"component": "kubelet"},
        "firstTimestamp": at, "lastTimestamp": at, "count": 1,
    }  # fmt: skip
    with contextlib.suppress(ApiError, OSError):
        try:
            before = retry(lambda: api.get(path_of("v1", "Event", name, metadata["namespace"])))
            event |= {"firstTimestamp": before["firstTimestamp"], "count": before["count"] + 1}
        except ApiError as error:
            if error.status != 404:
                raise
        retry(lambda: api.apply(event))
