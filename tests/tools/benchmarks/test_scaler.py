"""The function that supplies EKS nodes stays below half of its memory in a large cluster."""

from __future__ import annotations

import pytest

from tools.benchmarks import scaler


@pytest.mark.sweep
def test_it_stays_below_half_of_its_limit() -> None:
    found = scaler.run()
    assert found["changes"] > scaler.NODES + scaler.WAITING, "each node is marked, each request is answered"
    assert found["megabytes"] < scaler.MEMORY_MB / 2
