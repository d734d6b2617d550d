"""The recorded interfaces and launch scripts match the vendors' sources (see `upstream`)."""

from __future__ import annotations

from typing import Any

import pytest

from conformance import surfaces

ALL = surfaces.load()


def _named(name: str) -> Any:
    one = ALL[name]
    return pytest.param(name, marks=pytest.mark.original(f"recorded: {name}", f"{one.repository} {one.commit[:12]}"))


@pytest.mark.parametrize("name", [_named(name) for name in ALL])
def test_recorded_as_it_is(name: str) -> None:
    assert ALL[name].read() == ALL[name].recorded
