"""Records of a job's folder: written whole, and read as if an enemy had written them."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainium_cdk.runner import records
from trainium_cdk.runner.readers import Said
from trainium_cdk.runner.records import Failure, State, SubmittedRecord


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path


def test_a_state_returns(job: Path) -> None:
    assert records.state(job, "train") is None
    written = State("ended", "41", 2, 7, 1_795_000_000.5, "n-[1-2]", "CANCELLED", 1)
    records.write_state(job, "train", written)
    assert records.state(job, "train") == written


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"state": "running"}',
        b'{"state": "dancing", "number": "1"}',
        b'{"state": "running", "number": 41}',
        b'{"state": "running", "number": "1", "at": NaN}',
        b'{"state": "running", "number": "1", "at": 1e999}',
        b'{"state": "running", "number": "1", "attempt": true}',
        b'{"state": "ended", "number": "1", "code": 9999999999999999999999}',
        b'{"state": "ended", "number": "1", "code": ' + b"9" * 5000 + b"}",
        b"[" * 60_000,
        b'{"state": "running", "number": "' + b"1" * 70_000 + b'"}',
    ],
)
def test_a_damaged_record_is_none(content: bytes, job: Path) -> None:
    (job / "state/train.json").write_bytes(content)
    assert records.state(job, "train") is None


def test_what_a_record_says_is_one_printable_line(job: Path) -> None:
    said = {
        "state": "ended",
        "number": "1",
        "why": "a\x1b[31m\n\u202eb" + "x" * 5000,
        "of a newer version": {"deep": [1]},
    }
    (job / "state/train.json").write_text(json.dumps(said))
    found = records.state(job, "train")
    assert found is not None
    assert (found.why.startswith("a [31m  b"), len(found.why)) == (True, 1000)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_no_file_is_not_opened(make: Any, job: Path) -> None:
    make(job / "state/train.json")
    assert records.state(job, "train") is None


def test_a_submission(job: Path) -> None:
    assert records.submitted(job) is None
    (job / "submitted.json").write_text(json.dumps({"numbers": {"train": "41"}, "digest": "a", "cluster": "i-1"}))
    assert records.submitted(job) == SubmittedRecord({"train": "41"}, "a", "i-1")
    (job / "submitted.json").write_text(json.dumps({"numbers": {"train": ["41"]}}))
    assert records.submitted(job) is None


def test_the_first_failure_counts(job: Path) -> None:
    assert records.fail(job, "train", "41-0", Failure(1, 3, "ValueError:\nno tokens", 5.0))
    assert not records.fail(job, "train", "41-0", Failure(0, -9, "killed", 6.0))
    assert records.failure(job, "train", "41-0") == Failure(1, 3, "ValueError: no tokens", 5.0)
    assert records.failure(job, "train", "41-1") is None
    assert not records.fail(job / "gone", "train", "41-0", Failure(0, 1))


def test_what_explains_the_end_counts_before_what_follows_from_it(job: Path) -> None:
    """A node whose exception was first may end last, or be stopped by Slurm as another one has failed."""
    follows = Failure(0, 1, "gone", 6.0, said=Said(follows="ConnectionResetError: gone"))
    assert records.fail(job, "train", "41-0", Failure(2, 143, at=4.0, said=Said(lines=("step 1",)), stopped=True))
    assert records.fail(job, "train", "41-0", follows)
    cause = Failure(
        1, 143, "", 5.0, 37, Said(raised=("ValueError: shard 7",), at=5.0, rank=37, lines=("a",)), stopped=True
    )
    assert records.fail(job, "train", "41-0", cause)
    assert not records.fail(job, "train", "41-0", Failure(3, 1, at=5.5, said=Said(raised=("KeyError: 1",))))
    assert records.failure(job, "train", "41-0") == records.failure(job, "train") == cause
    assert sorted(one.name for one in (job / "state").iterdir()) == ["train.41-0.failed.json"]


def test_a_record_of_an_older_runner_has_one_line(job: Path) -> None:
    (job / "state/train.41-0.failed.json").write_text('{"node": 1, "code": 3, "last": "ValueError: x", "at": 5.0}')
    assert records.failure(job, "train", "41-0") == Failure(1, 3, "ValueError: x", 5.0)


@pytest.mark.parametrize("text", ["a\x1b[31m\n\u202e", "\U0001f600", "x", "\0"])
@pytest.mark.parametrize("most", [24_000, 4_000, 3_000])
def test_a_failure_is_small_and_printable(text: str, most: int, job: Path) -> None:
    said = Said((text * 5000,) * 900, follows=text * 5000, line=text * 5000, lines=(text * 5000,) * 900)
    made = Failure(1, 3, text * 5000, 5.0, said=said).cut(most)
    assert len(json.dumps(dataclasses.asdict(made))) <= most
    (job / "state/train.41-0.failed.json").write_text(json.dumps(dataclasses.asdict(made)))
    found = records.failure(job, "train")
    assert found is not None
    assert all(
        one.isprintable() and len(one) <= 300 for one in (found.said.line, *found.said.raised, *found.said.lines)
    )


@pytest.mark.parametrize(
    "part",
    [
        '"said": []', '"said": {"raised": "x"}', '"said": {"lines": [1]}', '"said": {"rank": 1e999}', '"said": {"at": NaN}', '"said": {"code": 9999999999999999}',
        '"rank": "x"', '"kills": 1.5', '"stopped": 1',
    ],
)  # fmt: skip
def test_a_damaged_failure_is_none(part: str, job: Path) -> None:
    (job / "state/train.41-0.failed.json").write_text(f'{{"node": 1, "code": 3, {part}}}')
    assert records.failure(job, "train") is None


def test_marks_are_of_a_run_and_a_stage(job: Path) -> None:
    for task in (10, 2):
        records.mark(job, "train", "41-0", "done", task)
    records.mark(job, "train", "41-1", "done", 3)
    records.mark(job, "precompile", "41-0", "done", 4)
    (job / "state/train.41-0.x.done").touch()
    assert records.marked(job, "train", "41-0", "done") == [2, 10]
    assert records.marked(job, "train", "41-0", "begun") == []
    records.unmark(job, "train", "41-0", "done", 2)
    records.unmark(job, "train", "41-0", "done", 2)
    assert records.marked(job, "train", "41-0", "done") == [10]
    records.write_state(job, "train", State("running", "41"))
    (job / "state/train.41-1.failed.json").mkdir()  # a job's own
    records.forget(job, "train")
    (job / "state/train.41-1.failed.json").rmdir()
    assert sorted(one.name for one in (job / "state").iterdir()) == ["precompile.41-0.4.done", "train.json"]
    assert records.marked(job / "gone", "train", "41-0", "done") == []


@pytest.mark.parametrize("name", ["../x", "", "a/b", "a.b"])
def test_a_stages_name_is_no_path(name: str, job: Path) -> None:
    with pytest.raises(ValueError, match="is not a stage's name"):
        records.state(job, name)
