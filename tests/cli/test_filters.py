"""The lines of a log that `trn logs` prints with --tail and --since."""

from __future__ import annotations

import datetime as dt

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from trainium_cdk.client.cli.filters import LineFilter, moment, time_of

NOW = dt.datetime(2026, 11, 24, 7, 0, tzinfo=dt.UTC)
LOG = b"""0: trn: train: Slurm job 7 on n1, 2026-11-24T06:00:00Z
step 1 loss 9
2026-Nov-24 06:30:00.0123 1:1 ERROR NRT failed
Traceback
2026-11-24 06:50:01,123 step 2 loss 8
last, without an end"""


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ({}, LOG),
        ({"tail": 2}, b"\n".join(LOG.split(b"\n")[-2:])),
        ({"tail": 0}, b""),
        ({"since": moment("45m", NOW)}, b"\n".join(LOG.split(b"\n")[2:])),
        ({"since": moment("45m", NOW), "tail": 1}, b"last, without an end"),
        ({"since": moment("2026-11-24T06:50", NOW)}, b"\n".join(LOG.split(b"\n")[4:])),
        ({"since": moment("1s", NOW)}, b""),
        ({"since": moment("999999d", NOW)}, LOG),  # before the year 1
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines(options: dict[str, object], printed: bytes, size: int) -> None:
    lines = LineFilter(**options)  # type: ignore[arg-type]
    found = b"".join(lines.feed(LOG[i : i + size]) for i in range(0, len(LOG), size)) + lines.close()
    assert found == printed


@pytest.mark.parametrize(
    "line",
    [
        b"LOG Tue Nov 24 06:50:01 2026 - (0, 17) step_loss : 9.5 learning_rate : 1e-4 throughput : 3600.00",  # bert-large
        b"[2026-11-24 06:50:01,123] step 17",
        b"0: trn: train: Slurm job 7 on n1, 2026-11-24T06:50:01Z",
        b"2026-Nov-24 06:50:01.0123 1:1 ERROR NRT failed",
    ],
)
def test_the_time_of_a_line(line: bytes) -> None:
    assert time_of(line) == dt.datetime(2026, 11, 24, 6, 50, 1, tzinfo=dt.UTC)
    kept = LineFilter(since=moment("20m", NOW))
    assert kept.feed(line.replace(b"06:50", b"06:30") + b"\n" + line + b"\n") == line + b"\n"


@pytest.mark.parametrize(
    "line", [b"Tue Nov  4 06:50:01 2026", b"Nov 31 06:50:01 2026", b"step 2026 loss 9", b"Abc 01 06:50:01 2026"]
)
def test_other_times(line: bytes) -> None:
    found = time_of(line)
    assert (found and found.day) == (4 if b"  4" in line else None)


@given(st.binary(max_size=300), st.integers(1, 50))
def test_without_a_filter_every_byte_is_printed(log: bytes, size: int) -> None:
    lines = LineFilter()
    assert b"".join(lines.feed(log[i : i + size]) for i in range(0, len(log), size)) + lines.close() == log


@given(st.binary(max_size=200))
def test_any_line_has_a_time_or_none(line: bytes) -> None:
    time_of(line)


def test_a_wrong_time_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"'yesterday' is neither a duration nor a time\. Write 30m, 2h"):
        moment("yesterday")


def test_a_line_without_an_end_is_printed_in_parts() -> None:
    lines = LineFilter()
    printed = b"".join(lines.feed(b"x" * 100_000) for _ in range(25))
    assert len(printed) > 2_000_000
    assert (printed + lines.close()).count(b"x") == 2_500_000
