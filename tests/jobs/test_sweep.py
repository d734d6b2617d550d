"""Sweeps: their texts and files, and what a member's program gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs.conftest import make_cluster
from trainium_cdk.client.jobs.job_spec import render
from trainium_cdk.jobs import JobError, Script
from trainium_cdk.runner.spec import Place, Sweep

CASES = yaml.safe_load(Path(__file__).with_name("sweeps.yaml").read_text("utf-8"))


def script(given: Any, **fields: Any) -> Script:
    return Script(**{"filename": "train.py", "content": b"pass", "sweep": given, **fields})


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["given"])[:40])
def test_a_sweep_as_it_is_given(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "file" in case:
        Path(next(name for name in case["given"] if "." in name and "=" not in name)).write_text(case["file"])
    if "refused" in case:
        with pytest.raises(JobError) as refused:
            script(case["given"])
        assert case["refused"] in str(refused.value)
        return
    made = script(case["given"])
    assert made.sweep == Sweep(tuple(case["names"]), tuple(map(tuple, case["rows"])))
    assert made.array == f"0-{len(case['rows']) - 1}"


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ({"lr": [1e-4, 0.5], "big": [True]}, (("0.0001", "true"), ("0.5", "true"))),
        ([{"lr": 1, "seed": "a"}, {"seed": "b", "lr": 2}], (("1", "a"), ("2", "b"))),
        ("lr=1,2", (("1",), ("2",))),
        (Sweep(("lr",), (("1",),)), (("1",),)),
    ],
)
def test_a_sweep_from_python(given: Any, rows: Any) -> None:
    assert script(given).sweep.rows == rows


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        ({}, {}, "sweep has no names"),
        ([], {}, "no names with values"),
        (7, {}, "no names with values"),
        ({"lr": "12"}, {}, "lr has no values"),
        ({"lr": []}, {}, "lr has no values"),
        ({"lr": [float("nan")]}, {}, "lr is nan, which is not a number"),
        ({"lr": ["x" * 1001]}, {}, "lr has 1,001 characters"),
        ({"a": range(40), "b": range(26)}, {}, "sweep has 1,040 members; 1,000 are the maximum"),
        ({"a": range(2)}, {"array": "0-3"}, "sweep and array are both given.*Remove --array"),
        ({"lr": [1]}, {"args": ("--lr", "2")}, "--lr is among the arguments of the script, and swept"),
        ({"lr": [1]}, {"args": ("--lr=2",)}, "--lr is among the arguments"),
        ({"lr": [1]}, {"env": {"TRN_SWEEP_LR": "2"}}, "env TRN_SWEEP_LR: it has the member's value of lr"),
    ],
)
def test_what_is_refused(given: Any, fields: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        script(given, **fields)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), [("--lr=", Place("sweep.lr")), ("--opt.seed=", Place("sweep.opt.seed"))]),
        (("a", "{x}", "lr"), ["a", "{x}", "lr", ("--lr=", Place("sweep.lr")), ("--opt.seed=", Place("sweep.opt.seed"))]),
        (("lr={lr}",), [("lr=", Place("sweep.lr")), ("--opt.seed=", Place("sweep.opt.seed"))]),
        (("{lr}-{opt.seed}-{lr}.x",), [(Place("sweep.lr"), "-", Place("sweep.opt.seed"), "-", Place("sweep.lr"), ".x")]),
        (("--lr={lr}", '{"lr": 1}'), [("--lr=", Place("sweep.lr")), '{"lr": 1}', ("--opt.seed=", Place("sweep.opt.seed"))]),
    ],
)  # fmt: skip
def test_the_arguments_of_a_member(args: tuple[str, ...], words: list[Any]) -> None:
    submission = render(script({"lr": [1, 2], "opt.seed": [3]}, args=args), make_cluster(), "t")
    program = submission.spec.stages[-1].program
    assert program
    assert list(program.words[2:]) == words
    assert program.variables["TRN_SWEEP_LR"] == (Place("sweep.lr"),)
    assert program.variables["TRN_SWEEP_OPT_SEED"] == (Place("sweep.opt.seed"),)
    assert submission.spec.sweep == Sweep(("lr", "opt.seed"), (("1", "3"), ("2", "3")))


def test_a_submission_says_what_it_sweeps() -> None:
    said = render(script({"lr": [1, 2], "seed": [3, 4]}), make_cluster(), "t").describe()
    assert said[0].startswith("4 times 1 node")
    assert said[1] == "sweep of 4 members: lr=1 seed=3 to lr=2 seed=4"
    assert "sweep" not in render(script({"lr": [1, 2]}), make_cluster(), "t").spec.settings
