"""Arguments of any bytes, and a bad network, on the real Kubernetes API."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.jobs.kubernetes.conftest import Running, script, text
from tests.support import until
from tests.trust.proxy import Scissors
from tests.trust.test_arguments import NASTY, RECORDER, compare
from trainium_cdk.jobs import TransportError
from trainium_cdk.jobs.kubernetes import Api, KubernetesBackend, access

pytestmark = pytest.mark.usefixtures("nothing_left")

CUTS = 100


@contextmanager
def over(running: Running, scissors: Scissors) -> Iterator[KubernetesBackend]:
    """Jobs on that cluster, over a line that is cut."""

    def api() -> Api:
        found = access.find(running.cluster)
        host = urlsplit(found.url).hostname or ""
        cut = replace(found, url=f"https://127.0.0.1:{scissors.port}", server_name=found.server_name or host)
        return Api(cut, access.Identity.of(running.cluster), running.cluster.namespace)

    backend = KubernetesBackend(running.cluster, api)
    yield backend
    backend.api.close()


def api_port(running: Running) -> int:
    return urlsplit(access.find(running.cluster).url).port or 443


def test_arguments_arrive_unchanged(backend: KubernetesBackend, running: Running) -> None:
    env = {f"NASTY_{i}": word for i, word in enumerate(NASTY)}
    job = backend.submit(script(RECORDER, nodes=1, args=tuple(NASTY), env=env), "arguments")
    assert backend.wait(job.id, 600).ok, text(backend.logs(job.id))
    compare(running.shared / "trn" / "jobs" / job.id / "work", NASTY, env)


@pytest.mark.sweep
def test_submissions_over_a_bad_connection_arrive_once(running: Running, backend: KubernetesBackend) -> None:
    ids = []
    with Scissors(api_port(running), seconds=0.3, most=200, seed=3) as scissors, over(running, scissors) as bad:
        for i in range(8):
            job = script(b"echo ran >> ran", nodes=1, name="line", cache=f"line-{i}")
            while True:
                try:
                    ids.append(bad.submit(job, f"t{i}").id)
                    break
                except TransportError as e:
                    assert e.again  # noqa: PT017  any number of them is borne
    assert ids == [f"line-t{i}" for i in range(8)]
    assert all(backend.wait(id, 600).ok for id in ids)
    work = running.shared / "trn" / "jobs"
    ran = [(work / id / "work" / "ran").read_text().count("ran\n") for id in ids]
    there = sorted(j.id for j in backend.list() if j.id.startswith("line-"))
    assert set(ran) == {1}
    assert there == ids


@pytest.mark.sweep
def test_a_stopped_submission_is_complete_or_absent(running: Running, backend: KubernetesBackend) -> None:
    """Ctrl-C at each of its requests, before it and after it was carried out: no file, no lock, or the job with both."""
    api = backend.api
    send, asked = api._send, list[str]()

    def whole(number: int) -> tuple[bool, ...]:
        name = f"stop-t{number}"
        guards = [g["metadata"]["name"] for g in api.list("ConfigMap") if f"stop-{number}" in g["metadata"]["name"]]
        held = [s["metadata"]["name"] for s in api.list("Secret") if s["metadata"]["name"] == name]
        return name in [j.id for j in backend.list()], bool(held), bool(guards)

    outcomes = []
    for number in range(20):
        at, after, count = number // 2, bool(number % 2), [0]

        def stop(*positional: Any, at: int = at, after: bool = after, count: list[int] = count, **named: Any) -> Any:
            mine, count[0] = count[0], count[0] + 1
            if mine == at and not after:
                raise KeyboardInterrupt
            try:
                return send(*positional, **named)
            finally:
                if mine == at:
                    raise KeyboardInterrupt

        api._send = stop  # type: ignore[method-assign]
        job = script(b"true", nodes=1, name="stop", cache=f"stop-{number}")
        try:
            backend.submit(job, f"t{number}")
        except KeyboardInterrupt:
            asked.append("stopped")
        finally:
            api._send = send  # type: ignore[method-assign]
        found = whole(number)
        assert len(set(found)) == 1, (number, found)
        outcomes.append(found[0])
        assert backend.submit(job, f"t{number}").existing is found[0]
        if len(asked) <= number:
            break  # it had fewer requests
    assert True in outcomes
    assert False in outcomes
    assert all(backend.wait(f"stop-t{i}", 600).ok for i in range(len(outcomes)))


@pytest.mark.sweep
def test_a_log_is_followed_over_a_bad_connection(running: Running, backend: KubernetesBackend) -> None:
    body = f"""#!{sys.executable}
import os, sys, time
for i in range(100000):
    sys.stdout.buffer.write(b"line %d " % i + os.urandom(os.urandom(1)[0]).replace(b"\\n", b"") + b"\\n")
    sys.stdout.flush()
    if os.path.exists("stop"):
        break
    time.sleep(0.05)
""".encode()
    job = backend.submit(script(body, nodes=1), "bad-line")
    assert until(lambda: backend.status(job.id).state == "RUNNING")
    received = bytearray()
    stop = running.shared / "trn" / "jobs" / job.id / "work" / "stop"
    with (
        Scissors(api_port(running), seconds=1.2, most=CUTS + 20, seed=5) as scissors,
        over(running, scissors) as bad,
    ):
        followers, done = 0, False
        while not done:
            followers += 1
            try:
                for chunk in bad.logs(job.id, stage="train", node=0, follow=True, offset=len(received)):
                    assert chunk.offset == len(received)
                    received += chunk.data
                    if scissors.cut >= CUTS:
                        stop.touch()
                done = True
            except TransportError as e:  # it gave up; the next request continues at the byte
                assert e.again  # noqa: PT017
        cut = scissors.cut
    assert cut >= CUTS
    log = b"".join(c.data for c in backend.logs(job.id, stage="train", node=0))
    assert bytes(received) == log
    numbers = [int(line.split()[1]) for line in received.split(b"\n") if line.startswith(b"line ")]
    assert numbers == list(range(len(numbers)))
