"""What may be published: nothing that a name, an id or a message could be written into."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainium_cdk.operations.verify.page import FACTS, Verified, page, record, rows
from trainium_cdk.operations.verify.plan import make
from trainium_cdk.operations.verify.state import Done, Run

PLAN = make("slurm", None, None, None)
HOSTILE = "arn:aws:iam::123456789012:role/Ana-Müller | <script>alert(1)</script>\n# i-0123456789abcdef0 acme-corp"


def run(**done: Done) -> Run:
    began = time.time() - 3600
    return Run("0123456789ab", PLAN, 25.0, began, [(began, "idle")], done, {"train": HOSTILE})


def everything(word: str) -> Run:
    """A run with that word wherever a run can have one."""
    steps = {step.name: Done("failed", 10.0, word, {word: 1.0, "bandwidth": 40.0}) for step in PLAN.all}
    return run(**steps)


@given(st.text(min_size=4))
def test_no_word_of_the_account_is_in_it(word: str) -> None:
    clean = record(everything("words"), time.time(), sandbox=False)
    dirty = record(everything(word), time.time(), sandbox=False)
    assert [(s.name, s.end, s.facts) for s in dirty.steps] == [(s.name, s.end, s.facts) for s in clean.steps]


def test_hostile_names_are_not_in_it() -> None:
    found = record(everything(HOSTILE), time.time(), sandbox=False)
    text = page(found) + found.model_dump_json()
    assert [
        part for part in ("123456789012", "arn:", "Ana", "<script", "i-0123", "acme", HOSTILE) if part in text
    ] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("region", "us-east-1 acme"), ("region", "eu-acme-1"), ("instance_type", "acme"), ("engine", "acme"), ("kind", "acme"), ("release", "acme"),
        ("version", "0.1.0+acme"), ("version", "1\n.0"), ("usd", float("nan")), ("usd", -1), ("nodes", 3), ("account", "123456789012"),
        ("steps", [{"name": "acme", "end": "passed", "seconds": 1, "predicted": 1}]),
        ("steps", [{"name": "deploy", "end": "acme", "seconds": 1, "predicted": 1}]),
        ("steps", [{"name": "deploy", "end": "passed", "seconds": 1, "predicted": 1, "facts": {"acme": 1}}]),
        ("steps", [{"name": "deploy", "end": "passed", "seconds": 1, "predicted": 1, "reason": "acme"}]),
    ],
)  # fmt: skip
def test_a_field_takes_no_other_word(field: str, value: Any) -> None:
    data = json.loads(record(run(), time.time(), sandbox=False).model_dump_json())
    Verified.model_validate(data)
    with pytest.raises(ValidationError):
        Verified.model_validate({**data, field: value})


def test_what_differs_is_named() -> None:
    done = {
        "check": Done("passed", 200.0),  # too short to be compared
        "deploy": Done("passed", 1000.0),
        "nccom": Done("passed", 1300.0, facts={"bandwidth": 50.0}, predictions={"bandwidth": 100.0}),
        "train": Done("failed", 2400.0, HOSTILE),
        "resume": Done("not run"),
        "update": Done("failed", 300.0, "(Code:ReservationCapacityExceeded)Failure when resuming nodes"),
    }
    found = {row[0]: row[1:] for row in rows(record(run(**done), time.time(), sandbox=False))}
    assert found["check"][-1] == found["deploy"][-1] == "as predicted"
    assert found["nccom"] == ("passed, 600 s", "passed, 1,300 s", "2.17", "differs")
    assert found["nccom: bus bandwidth of the all-reduce"] == ("100 GB/s", "50 GB/s", "0.50", "differs")
    assert found["train"][-1] == found["train: why"][-1] == "differs"
    assert found["update: why"] == ("", "known: reservation", "", "")
    assert found["resume"] == ("passed", "not run", "", "")
    sandbox = {row[0]: row for row in rows(record(run(**done), time.time(), sandbox=True))}
    assert sandbox["nccom"][-1] == "as predicted", "times of the sandbox are compared with nothing"


def test_facts_have_words_and_units() -> None:
    assert all(words and words[0].islower() and within < 1 for words, _, within in FACTS.values())
