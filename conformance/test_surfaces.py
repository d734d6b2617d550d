"""The recorded interfaces match the vendors' sources (see `upstream`)."""

from __future__ import annotations

from typing import Any

import pytest

from conformance import surfaces
from conformance.upstream import why_not

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
        pytest.skip(why_not(one.repository, one.commit))
    assert read == one.recorded
