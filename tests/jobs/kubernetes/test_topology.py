"""`--topology` with the real kube-scheduler, whose first pod chooses the network node (the function that starts nodes does it before:
`tests/eks/test_network.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import Running, script, until
from trainium_cdk.jobs import topology
from trainium_cdk.jobs.kubernetes import KubernetesBackend
from trainium_cdk.outputs import GROUP_LABEL, NETWORK_LABEL


@pytest.fixture
def label(running: Running) -> Iterator[Any]:
    """Puts the two nodes below these network nodes of layer 3."""
    api = running.kubernetes.api()
    names = [n["metadata"]["name"] for n in api.get("/api/v1/nodes", labelSelector=f"{GROUP_LABEL}=trn")["items"]]

    def put(*networks: str | None) -> None:
        for name, lowest in zip(names, networks, strict=True):
            found = {
                f"{NETWORK_LABEL}{layer}": lowest and value for layer, value in enumerate(("nn-1", "nn-2", lowest), 1)
            }
            body = {"metadata": {"labels": found}}
            api.call("PATCH", path_of("v1", "Node", name), body, kind="application/merge-patch+json")

    yield put
    put(None, None)


def test_a_job_waits_for_nodes_below_one_network_node(backend: KubernetesBackend, label: Any) -> None:
    label("nn-3", "nn-4")
    preferred = backend.submit(script(topology="preferred"), "p").id
    assert backend.wait(preferred, 300).ok  # there is no choice
    job = backend.submit(script(b"sleep 3600", topology="required", name="near"), "r").id
    begins = "1 of its pods: waits for nodes: 0/3 nodes are available: "
    assert until(lambda: backend.status(job).current.reason.startswith(begins), 60), backend.status(job).current
    assert "1 node(s) didn't match pod affinity rules" in backend.status(job).current.reason
    label("nn-3", "nn-3")
    assert until(lambda: backend.status(job).state == "RUNNING")
    assert until(lambda: len(topology.of_job(backend.nodes(), job)) == 2)
    mine = topology.known(topology.of_job(backend.nodes(), job), backend.cluster)
    assert topology.described(mine) == "2 nodes below one network node of layer 3 (nn-3)"
