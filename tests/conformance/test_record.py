"""The last recorded run of `make conformance` is of what is here now."""

from __future__ import annotations

from conformance import record
from tests.support import need


def test_a_passing_run_of_what_is_here_is_recorded() -> None:
    need(record.FILE.exists(), f"no run of `make conformance` is recorded: {record.COMMAND}, of committed files")
    recorded = record.load()
    verdicts = [verdict for _, _, verdict in recorded["rows"]]
    assert len(verdicts) > 50
    assert {v for v in verdicts if v != "accepted" and not v.startswith("cannot be checked: ")} == set()
    assert record.changed(recorded["digests"], record.digests()) == [], record.COMMAND
