"""The function that supplies EKS nodes stays below half of its limits in a large cluster; `make bench` prints the figures."""

from __future__ import annotations

import pytest

from benchmarks import scaler


@pytest.mark.sweep
def test_it_stays_below_half_of_its_limits() -> None:
    found = scaler.run()
    assert found["changes"] > scaler.NODES + scaler.WAITING, "each node is marked, each request is answered"
    assert found["megabytes"] < scaler.MEMORY_MB / 2
    assert found["cpu"] / scaler.SHARE < scaler.SECONDS / 2
