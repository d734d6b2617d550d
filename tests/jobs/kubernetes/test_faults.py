"""Arguments of any bytes, and a bad network, on the real Kubernetes API."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from tests.jobs.kubernetes.conftest import Running, script, text
from tests.support import until
from tests.trust.proxy import Scissors
from tests.trust.test_arguments import NASTY, RECORDER, compare
from trainium_cdk.client.jobs.kubernetes import Api, KubernetesBackend, access
from trainium_cdk.jobs import TransportError

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
