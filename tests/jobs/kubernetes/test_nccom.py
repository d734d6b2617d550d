"""The smoke test in pods: no remote shell, devices as the plug-ins give them, and a failure that is not tried again."""

from __future__ import annotations

import re

import pytest

from tests.jobs.kubernetes.conftest import text
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
from trainium_cdk.jobs import Nccom


@pytest.mark.parametrize(
    ("name", "broken", "last_lines"),
    [
        ("healthy", "", [r"64 NeuronCores: 47\.\d+ GB/s bus bandwidth \(published: 47.09 GB/s", "nothing is broken"]),
        ("broken", "1:device=7 0:efa", [r"BROKEN: node 0 \(\S+\): 0 of 8 EFA interfaces", r"BROKEN: node 1 \(\S+\): 15 of 16 Neuron devices; missing: 7"]),
        pytest.param("slow", "bandwidth=20", [r"BROKEN: the all-reduce is slow: 19\.\d+ GB/s bus bandwidth, at least 35.3 GB/s were expected"], marks=pytest.mark.sweep),
    ],
)  # fmt: skip
def test_on_kubernetes(backend: KubernetesBackend, name: str, broken: str, last_lines: list[str]) -> None:
    sent = backend.submit(Nccom(nodes=2, name=name, env={"TRN_SANDBOX_BROKEN": broken}))
    done = backend.wait(sent.id, 600)
    log = text(backend.logs(sent.id, node=0))
    assert done.ok == (name == "healthy"), (done, log)
    for pattern, line in zip(last_lines, log.splitlines()[-len(last_lines) :], strict=True):
        assert re.search(pattern, line), log
    assert backend.seen(sent.id).job["status"]["restarts"] == 0
