"""Pods whose memory is full, on the real API server with the real controllers of Jobs and JobSets: they say so, and are not started again.
Those that end with the same exit code for another reason are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.kubernetes.api import Object, path_of
from tests.jobs.kubernetes.conftest import Running, script
from tests.support import swept, until
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, kubernetes_api, reader, status
from trainium_cdk.jobs import BertLarge, TransportError

MERGE = "application/merge-patch+json"
KILLED = {"exitCode": 137, "startedAt": "2026-11-24T07:00:00Z", "finishedAt": "2026-11-24T07:10:00Z"}
RAISE = "of memory. Raise eks.prepare_memory_gib and deploy, then start it again"
EATS = "x = b'x' * (1300 << 20)"


@pytest.fixture
def small(running: Running) -> Iterator[KubernetesBackend]:
    """With `eks: {prepare_memory_gib: 1}`."""
    cluster = running.cluster.model_copy(update={"prepare_memory_gib": 1})
    made = KubernetesBackend(cluster, lambda: kubernetes_api(cluster))
    yield made
    for job in made.list():
        if not job.done:
            made.cancel(job.id)
    made.api.close()


@pytest.fixture
def git(running: Running) -> Iterator[Any]:
    """What `prepare` runs in the image, instead of git."""
    program = running.tools / "git"
    before = program.read_bytes() if program.exists() else None

    def replaced(text: str) -> None:
        program.unlink(missing_ok=True)
        program.write_text(text)
        program.chmod(0o755)

    yield replaced
    program.unlink(missing_ok=True)
    if before is not None:
        replaced(before.decode())


def pods_of(backend: KubernetesBackend, id: str) -> list[Object]:
    return backend.api.list("Pod", labels=f"trainium-cdk/job={id}")


@pytest.mark.sweep
def test_what_prepares(small: KubernetesBackend, git: Any) -> None:
    git(f"#!/usr/bin/env python3\n{EATS}\nimport time; time.sleep(60)\n")
    id = small.submit(BertLarge(nodes=1, steps=2, cache="fetches"), "memory").id
    done = small.wait(id, 300)
    first, then = next(s for s in done.stages if s.name == "prepare"), done.stages[-1]
    assert (first.state, first.reason, first.exit_code) == (
        "OUT_OF_MEMORY",
        f"was killed: it needed more than its 1 GiB {RAISE}",
        137,
    )
    assert then.state == "CANCELLED"
    [pod] = pods_of(small, id)  # one attempt
    assert status.container_state(pod, "prepare")["terminated"]["reason"] == "OOMKilled"


@pytest.mark.sweep
def test_what_prepares_and_is_evicted(small: KubernetesBackend, running: Running, git: Any) -> None:
    git("#!/bin/bash\nsleep 600\n")
    id = small.submit(BertLarge(nodes=1, steps=2, cache="evicted"), "evicted").id
    assert until(lambda: small.status(id).stages[0].state == "RUNNING")
    [pod] = pods_of(small, id)
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "training"}}
    running.kubernetes.api().call("POST", path_of("v1", "Pod", name, "training") + "/eviction", eviction)
    assert until(lambda: [p for p in pods_of(small, id) if p["metadata"]["name"] != name], 120)
    assert small.cancel(id).state == "CANCELLED"


@pytest.mark.parametrize("evicted", swept([False, True], False))
def test_what_trains(backend: KubernetesBackend, running: Running, evicted: bool) -> None:
    """As the kubelet reports it: no machine here has the memory of a node."""
    id = backend.submit(script(b"sleep 3600", nodes=1, cache="memory", restarts=2), f"train-{evicted}".lower()).id
    assert until(lambda: backend.status(id).state == "RUNNING")
    [pod] = backend.seen(id).pods
    ended = {**KILLED, "reason": "Error" if evicted else "OOMKilled"}
    change: Object = {"phase": "Failed", "containerStatuses": [
        {"name": "train", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
    ]}  # fmt: skip
    if evicted:
        change["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
    path = path_of("v1", "Pod", pod["metadata"]["name"], "training")
    running.kubernetes.api().call("PATCH", f"{path}/status", {"status": change}, kind=MERGE)
    if evicted:
        assert until(lambda: backend.seen(id).job.get("status", {}).get("restarts") == 1, 120)
        assert backend.cancel(id).state == "CANCELLED"
        return
    done = backend.wait(id, 120)
    assert done.state == "OUT_OF_MEMORY"
    assert done.current.reason.startswith(
        "was killed: it needed more than its 450 GiB of memory. Use fewer data loader workers"
    )
    assert not backend.seen(id).job["status"].get("restarts")


@pytest.mark.sweep
def test_what_reads(small: KubernetesBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PRINT", f"{EATS}; import time; time.sleep(60)")
    with pytest.raises(TransportError, match=rf"pod trn-read-\w+ was killed: it needed more than its 1 GiB {RAISE}"):
        reader.kept_log(small.api, small.cluster, "job", "train", 0)
