"""The recorded surfaces are those of the vendors' sources: UPSTREAM names the folders with the repositories."""

from __future__ import annotations

import pytest

from conformance import surfaces

ALL = surfaces.load()


@pytest.mark.parametrize("name", ALL)
def test_recorded_as_it_is(name: str) -> None:
    one = ALL[name]
    read = one.read()
    if read is None:
        pytest.skip(f"not checked: no {one.repository} at {one.commit[:12]} below UPSTREAM")
    assert read == one.recorded
