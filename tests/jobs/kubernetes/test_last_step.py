"""When a training on Kubernetes did its last step."""

from __future__ import annotations

import pytest

from trainium_cdk.client.jobs.kubernetes import logs


@pytest.mark.parametrize(
    ("said", "second"),
    [
        (["loading"], None),
        (["loading", "step 1/9 | loss 3.0", "step 2/9 | loss 2.9"], 2),
        (["step 1/9 | loss 3.0", "saves", "waits"], 0),  # what is printed after it is no step
        (["step 1/9 | loss 3.0", " 20%|##  | 2/9 [00:02<00:10,  1.0it/s]", "waits"], 1),
        ([], None),
    ],
)
def test_when_the_last_step_was(said: list[str], second: int | None) -> None:
    """By the time that the node's runtime gives each line."""
    lines = [f"2026-11-28T17:00:{i:02}.123456789Z {text}".encode() for i, text in enumerate(said)]
    assert logs._stepped([*lines, b""]) == (None if second is None else 1795885200 + second)
