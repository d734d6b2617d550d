"""How many requests to AWS a command makes: the cheap half of `make bench`."""

from __future__ import annotations

from pathlib import Path

from tools.benchmarks import __main__ as bench


def test_a_command_is_few_requests(tmp_path: Path) -> None:
    """CloudFormation describes the stack, EC2 says whose the head node is; of Session Manager there are two: one sends, one asks for the output."""
    assert {name: figure for name, figure, _ in bench.requests(tmp_path)} == {
        "requests of trn list": 4,
        "requests of trn status": 4,
        "requests of trn submit": 4,
    }
