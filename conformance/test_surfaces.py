"""The recorded surfaces are those of the vendors' sources: UPSTREAM names the folders with the repositories."""

from __future__ import annotations

from typing import Any

import pytest

from conformance import surfaces

ALL = surfaces.load()


def _named(name: str) -> Any:
    one = ALL[name]
    return pytest.param(
        name, marks=pytest.mark.original(f"names recorded of {name}", f"{one.repository} {one.commit[:12]}")
    )


@pytest.mark.parametrize("name", [_named(name) for name in ALL])
def test_recorded_as_it_is(name: str) -> None:
    one = ALL[name]
    read = one.read()
    if read is None:
        pytest.skip(f"no {one.repository} at {one.commit[:12]} below UPSTREAM")
    assert read == one.recorded
