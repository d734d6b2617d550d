"""The logs of an array's members, read together: what is asked in each round, and what is handed on."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from trainium_cdk.client.cli.filters import LineFilter, Stream
from trainium_cdk.client.cli.follow import summarize_members
from trainium_cdk.client.jobs import joined
from trainium_cdk.client.jobs.backend import Changes
from trainium_cdk.client.jobs.status import JobStatus, LogChunk, Stage


class Array:
    """An array of which each round has the next of these: states of its members, and their logs."""

    def __init__(self, *rounds: tuple[str, Mapping[str, bytes]], most: int = 100):
        self.rounds, self.most = list(rounds), most
        self.asked: list[tuple[dict[str, int], int | None]] = []
        self.slept = 0

    def ask(self, begin: Mapping[str, int], tail: int | None) -> joined.Round:
        self.asked.append((dict(begin), tail))
        states, logs = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        members = tuple(Stage(str(n), "", state) for n, state in enumerate(states.split()))
        chunks = []
        for name, text in logs.items():
            at = begin.get(name, 0)
            if (not begin or name in begin) and (text[at:] or at > len(text)):
                chunks.append(LogChunk("train", min(at, len(text)), text[at : at + self.most], name))
        job = JobStatus("a-1", "script", "q", "t", 1, None, (Stage("train", "1", "RUNNING"),), members=members)
        return joined.Round(job, chunks, {name: len(text) for name, text in logs.items()})

    def read(self, **fields: Any) -> list[tuple[str, bytes]]:
        def sleep(_: float) -> None:
            self.slept += 1

        source = SimpleNamespace(sleep=sleep, interval=1.0)
        given = {"follow": False, "tail": None, "notify": Changes(None), **fields}
        return [(chunk.member, chunk.data) for chunk in joined.read(source, self.ask, **given)]


def test_what_there_is_now_is_read_to_where_it_ended_at_first() -> None:
    """A job that writes faster than it is read would never end it."""
    first = {"0": b"abcdef", "2": b"x"}
    array = Array(
        ("RUNNING PENDING COMPLETED", first),
        ("RUNNING RUNNING COMPLETED", {**first, "0": b"a" * 99, "1": b"n"}),
        most=4,
    )
    assert array.read() == [("0", b"abcd"), ("2", b"x"), ("0", b"aaaa")]
    assert array.asked == [({}, None), ({"0": 4}, None)]
    assert array.slept == 0


def test_it_is_followed_until_all_members_have_ended() -> None:
    array = Array(
        ("RUNNING PENDING CANCELLED", {"0": b"a"}),
        ("COMPLETED RUNNING CANCELLED", {"0": b"ab", "1": b"x"}),
        ("COMPLETED FAILED CANCELLED", {"0": b"ab", "1": b"xy"}),
        ("COMPLETED FAILED CANCELLED", {"0": b"ab", "1": b"xy"}),
    )
    assert array.read(follow=True, tail=3) == [("0", b"a"), ("0", b"b"), ("1", b"x"), ("1", b"y")]
    assert array.asked == [({}, 3), ({"0": 1, "1": 0}, None), ({"0": 2, "1": 1}, None), ({"1": 2}, None)]


def test_a_member_that_was_started_again_is_read_from_its_beginning() -> None:
    array = Array(("RUNNING", {"0": b"abc"}), ("RUNNING", {"0": b"z"}), ("COMPLETED", {"0": b"z"}))
    assert array.read(follow=True) == [("0", b"abc"), ("0", b"z")]


def test_each_line_has_its_member_before_it() -> None:
    one = Stream(None, metrics=False, last=None, member="7")
    assert one.feed("train", b"a\nb") == b"[7] a\n"
    assert one.feed("train", b"c\n\nd") == b"[7] bc\n[7] \n"
    assert one.end_stage() == b"[7] d\n"
    assert one.end_stage() == b""
    last = Stream(LineFilter(tail=2), metrics=False, last=None, member="7")
    assert last.feed("train", b"a\nb\nc") == b""
    assert last.end_stage() == b"[7] b\n[7] c\n"


def test_a_members_line_without_an_end_is_printed_in_parts() -> None:
    one = Stream(None, metrics=False, last=None, member="7")
    assert one.feed("train", b"x" * 1_000_000) == b"[7] " + b"x" * 1_000_000 + b"\n"
    assert one.end_stage() == b""


def test_the_members_with_the_lowest_loss_are_summed_up() -> None:
    streams = {str(n): Stream(None, metrics=False, last=None, member=str(n), values={"lr": f"{n}"}) for n in range(13)}
    for name, one in streams.items():
        one.feed(
            "train",
            b"step 1 loss nan\n" if name == "3" else b"" if name == "4" else f"step 1 loss {20 - int(name)}\n".encode(),
        )
    lines = summarize_members(streams)
    assert lines[0] == "[12] lr=12: step 1: loss 8, from 8"
    assert [line.split()[0] for line in lines[:10]] == [f"[{n}]" for n in (12, 11, 10, 9, 8, 7, 6, 5, 2, 1)]
    assert lines[10:] == ["and 2 more members"]
