"""The last recorded run of `make conformance` is of what is here now."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import cases, record
from tests.support import need


@pytest.mark.parametrize("what", ["a passing run", "the same artefacts", "the document"])
def test_a_run_is_recorded(what: str) -> None:
    need(record.FILE.exists(), f"no run of `make conformance` is recorded: {record.COMMAND}, of committed files")
    recorded = record.load()
    if what == "a passing run":
        verdicts = [verdict for _, _, verdict in recorded["rows"]]
        assert len(verdicts) > 50
        assert {v for v in verdicts if v != "accepted" and not v.startswith("cannot be checked: ")} == set()
    elif what == "the same artefacts":
        assert record.changed(recorded["digests"], record.digests()) == [], record.COMMAND
    else:
        text = record.DOCUMENT.read_text("utf-8")
        assert record.document(text, recorded) == text


def test_what_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job of the cases on each engine, every kind's module, and what compares them; a changed file is found."""
    before = record.digests()
    jobs = {f"{name} on {engine}" for name in {**cases.JOBS, **cases.MORE} for engine in cases.ENGINES}
    files = {name for name in before if (record.ROOT / name).is_file()}
    assert jobs | files == before.keys()
    assert {
        "conformance/cases.py",
        "conformance/surfaces.yaml",
        "constructs/trainium_cdk/jobs/kinds/bert_large.py",
    } <= files
    for name in files:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((record.ROOT / name).read_bytes())
    monkeypatch.setattr(record, "ROOT", tmp_path)
    (tmp_path / "conformance/differences.yaml").write_text("other\n")
    (tmp_path / "conformance/new.py").write_text("1\n")
    monkeypatch.setitem(cases.JOBS, "bert-large", cases.JOBS["bert-large"].model_copy(update={"learning_rate": 0.5}))  # type: ignore[index]
    assert record.changed(before, record.digests()) == [
        "bert-large on kubernetes",
        "bert-large on slurm",
        "conformance/differences.yaml",
        "conformance/new.py",
    ]


def test_a_table_of_a_run() -> None:
    rows = [
        ("a on slurm", "an original", "accepted"),
        ("recorded: b", "c", "accepted"),
        ("d", "e", "cannot be checked: f"),
    ]
    made = {"rows": rows, "date": "2026-11-24", "commit": "0" * 40}
    text = record.document(f"before\n{record.BEGIN}\nold\n{record.END}\nafter\n", made)
    lines = text.splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert f"Run on 2026-11-24 at {'0' * 40}: 2 accepted, 1 cannot be checked." in lines
    assert "| a on slurm | an original | accepted |" in lines
    assert (
        "| 1 interfaces and launch scripts recorded in `conformance/surfaces.yaml` | their sources | accepted |"
        in lines
    )
    assert "old" not in lines
    assert record.document(text, made) == text
