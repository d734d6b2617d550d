"""Pieces of logs, their last lines, and what is no log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runner.world import CLUSTER, World
from trainium_cdk.runner import head, requests
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.head import answers
from trainium_cdk.runner.readers.log import progress
from trainium_cdk.runner.requests import ReadLog, read_answer
from trainium_cdk.runner.spec import Packed, to_json

T = "2026-11-20T10:00:00"
RUNS = f"job j-1\nstage precompile 8\nstage train 8\nstate precompile ended 8 0 1795168801 n1\nqueue 8|RUNNING|None|n1|{T}|N/A\n"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = World(tmp_path, monkeypatch).tell(RUNS).jobs / "j-1/logs"
    place.mkdir()
    return place


def read(id: str = "j-1", **fields: Any) -> tuple[str, int, int, bytes]:
    told = answers.read_piece(CLUSTER, ReadLog(id, **fields))
    assert told.job.state == "RUNNING"
    assert read_answer(ReadLog(id), json.loads(json.dumps(to_json(told)))) == told
    return told.stage, told.piece.offset, told.piece.size, told.piece.data


def test_a_piece_has_the_stage_its_place_and_the_size(logs: Path) -> None:
    (logs / "train.log").write_bytes(bytes(range(256)) * 20)
    (logs / "train.0.log").write_bytes(b"one\ntwo\nthree")
    assert read() == ("train", 0, 5120, bytes(range(256)) * 20)
    assert read(stage="train", offset=250, most=8) == ("train", 250, 5120, b"\xfa\xfb\xfc\xfd\xfe\xff\x00\x01")
    assert read(node=0, tail=2) == ("train", 4, 13, b"two\nthree")
    assert read(node=0, tail=2, offset=6) == ("train", 6, 13, b"o\nthree")
    assert read(node=0, tail=0) == ("train", 13, 13, b"")
    assert read(node=0, offset=99) == ("train", 13, 13, b"")
    assert read(node=1) == ("train", 0, 0, b"")
    assert read(stage="precompile", offset=7) == ("precompile", 7, 0, b"")


def test_the_members_of_an_array_are_read_in_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they have at most `most` bytes, in equal shares, and what a short log leaves is others'."""
    ours = "j-1:train|trn:j-1"
    rows = "".join(f"task 8|{n}|RUNNING|None|n1|{T}|N/A|{ours}\n" for n in (10, 2, 0))
    job = World(tmp_path, monkeypatch).tell(f"job j-1\nstage train 8\narray 0,2,5,10\n{rows}").jobs / "j-1"
    for index, text in (("0", b"a"), ("2", b"b" * 50), ("10", b"c" * 50)):
        (job / index / "logs").mkdir(parents=True)
        (job / index / "logs/train.log").write_bytes(text)
    (job / "5/logs").mkdir(parents=True)
    (job / "5/logs/train.log").symlink_to("/etc/passwd")

    def pieces(**fields: Any) -> list[tuple[str, int, int, bytes]]:
        told = answers.read_piece(CLUSTER, ReadLog("j-1", "train", **fields))
        return [(one.member, one.offset, one.size, one.data) for one in told.members or ()]

    assert pieces(most=40) == [("0", 0, 1, b"a"), ("2", 0, 50, b"b" * 13), ("10", 0, 50, b"c" * 26)]
    assert pieces(members={"0": 1, "10": 48}) == [("10", 48, 50, b"cc")]
    assert pieces(members={"0": 9}) == [("0", 1, 1, b"")]
    (job / "2/logs/train.log").write_bytes(b"1\n2\n3\n")
    assert pieces(tail=2, members={"2": 0}) == [("2", 2, 6, b"2\n3\n")]
    assert answers.read_piece(CLUSTER, ReadLog("j-1/2")).members is None


@given(st.lists(st.sampled_from([b"\n", b"a", b"bc\n", b"x" * 70_000]), max_size=9).map(b"".join), st.integers(0, 9))
def test_the_last_lines(data: bytes, count: int) -> None:
    import io

    lines = data.splitlines(keepends=True)
    whole = b"".join(lines[len(lines) - min(count, len(lines)) :])
    assert data[answers.last_lines(io.BytesIO(data), len(data), count) :] == whole


def test_the_last_lines_are_looked_for_near_the_end(tmp_path: Path) -> None:
    """A job may write a line without an end."""
    size = 1 << 40
    with (tmp_path / "log").open("w+b") as file:
        file.truncate(size)
        assert answers.last_lines(file, size, 10) == size - (1 << 24)


def test_where_the_end_of_a_log_begins_does_not_change_the_step(logs: Path) -> None:
    """A line that is cut has lost its node and worker: the lines after it would be those of another one."""
    (logs / "train.log").write_bytes(b"".join(b'0: {"step": %d, "loss": 2.5}\n' % at for at in range(10, 30)))
    for most in range(60, 200):
        end = answers.read_end(CLUSTER, "j-1", "train", most)
        assert end.startswith(b"0: ")
        assert progress(end) == "step 29: loss 2.5"
    assert answers.read_end(CLUSTER, "j-1", "train", 9999).startswith(b'0: {"step": 10')


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_regular_file_is_not_opened(kind: str, logs: Path) -> None:
    path = logs / "train.log"
    {"pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("/etc/passwd"), "folder": path.mkdir}[kind]()
    with pytest.raises(
        Refused, match=r"the log of j-1's train is not a regular file, and was not opened\. The job has replaced it"
    ):
        read()


@pytest.mark.parametrize("stage", ["../../x", "A", "train.0", "$(id)"])
def test_a_stage_is_no_path(stage: str, logs: Path) -> None:
    told = head.answer(json.dumps(requests.write_request(CLUSTER, ReadLog("j-1", stage=stage))))
    assert told["error"]["kind"] == "refused"
    assert "has no stage" in told["error"]["message"]


def test_a_log_that_repeats_itself_is_sent_small() -> None:
    data = b"".join(b"step %d loss %.4f\n" % (i, 1 / (i + 1)) for i in range(20_000))
    assert len(to_json(Packed(data))) < len(data) / 2
