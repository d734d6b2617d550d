"""What `trn watch` shows of a job, of an array and of all jobs, at any size of the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tests.jobs.log_lines import BERT, MEGATRON
from tests.jobs.report.runs import BEGAN, CATALOG, CLUSTER, run, status, trained
from trainium_cdk.cli.view import array_view, job_view, jobs_view
from trainium_cdk.jobs.report import Run, report
from trainium_cdk.jobs.status import Stage

RUNS = Stage("train", "3", "RUNNING", "", "n-[1-2]", None, BEGAN + 3000)


def text(found: Any, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(found)
    return out.getvalue()


def view(made: Run, width: int = 120, problem: str = "", answered: float | None = None) -> str:
    made.now = BEGAN + 5000
    at = made.now if answered is None else answered
    return text(job_view(made, answered=at, problem=problem, width=width, metrics=("loss", "throughput")), width)


def test_a_job_that_trains() -> None:
    made = trained(train=RUNS)
    made.planned_steps = 1000
    shown = view(made)
    left = 600 * 16384 / 3603  # seconds
    spent = (1380 - 120 + 2000) / 3600 * 21.5
    for wanted in (
        "RUNNING  1 x trn1.32xlarge in queue compute1, global batch size 16,384",
        "████████░░░░░░░░░░░░ 400 of 1,000, 45 min 28 s left",
        "3,603.0 sequences/s on average",
        f"{spent:.2f} USD so far, {spent + left / 3600 * 21.5:.2f} USD expected",
        "compiled        36 graphs, 0 failed",
        "loss: 4.043 to 10.87, now 4.043",
        "q leave",
    ):
        assert re.sub(r" +", " ", wanted) in re.sub(r" +", " ", shown), (wanted, shown)
    assert re.search("[\u2801-\u28ff]{20}", shown)


def test_the_last_step_of_a_script_is_that_of_its_log() -> None:
    made = run(status(RUNS))
    made.feed("train", f"{MEGATRON}\n{BERT}\n".encode())  # the second has no total
    assert made.last_step == 143_051


def test_a_loss_that_is_no_number_any_more() -> None:
    made = trained(train=RUNS, steps=300)
    for step in range(301, 321):
        made.feed(
            "train",
            b"LOG Fri Nov 20 09:00:05 2026 - (0, %d) step_loss : nan learning_rate : 1e-4 throughput : 3600.00 \n"
            % step,
        )
    said = "no number since step 300"
    for width in (40, 80, 200):
        assert f"loss: {said}" in view(made, width)
    assert f"<td>{said}, from 10.87</td>" in report([made], CLUSTER, CATALOG, BEGAN)
    array = replace(made.status, members=(replace(RUNS, name="0"),))
    member = replace(made, status=replace(made.status, id=f"{array.id}/0"))
    assert said in text(array_view(array, [member], now=BEGAN, answered=BEGAN, problem="", width=200), 200)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_too_long_and_no_id_is_cut(width: int) -> None:
    made = trained(train=RUNS, id="bert-large-with-a-long-name-20261120-4f3a9c")
    shown = view(made, width)
    assert all(len(one) <= width for one in shown.splitlines())
    assert made.status.id in shown.replace("\n", "")
    assert "loss: 4.043 to 10.87, now 4.043 " in shown
    assert ("sequences/s: 3,600 to 3,606, now 3,601 " if width > 80 else "sequences/s: 3,601 ") in shown


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("height", [16, 24, 50])
def test_the_whole_view_is_on_the_screen(width: int, height: int) -> None:
    """A lost connection, how much is not shown, and the keys; curves that are cut are none."""
    members = tuple(replace(RUNS, name=str(i)) for i in range(200))
    jobs = [status(RUNS, id=f"bert-large-{i:02}-20261120-4f3a9c") for i in range(30)]
    made = trained(train=RUNS)
    shown: list[tuple[Any, str]] = [
        (jobs_view(jobs, "it is gone", width, height), " more q" if height < 34 or width < 80 else "bert-large-29"),
        (array_view(replace(made.status, members=members), [], now=BEGAN, answered=0, problem="it is gone", width=width, height=height), " more q"),
        (job_view(made, answered=made.now, problem="it is gone", width=width, metrics=("loss", "throughput"), height=height), "restarts"),
    ]  # fmt: skip
    for one, wanted in shown:
        seen = text(one, width)
        assert len(seen.splitlines()) <= height or (width, height) == (40, 16)
        words = " ".join(seen.split())
        assert "it is gone" in words
        assert wanted in words
        assert "q leave" in words


@pytest.mark.parametrize(
    ("train", "cost"),
    [
        (replace(RUNS, state="PENDING", started=None), "not known: a stage waits to begin again; the hours of its attempts"),
        (replace(RUNS, state="COMPLETED", ended=None), "not known: the scheduler has forgotten when its stages began"),
        (RUNS, "19.47 USD so far"),
    ],
)  # fmt: skip
def test_no_cost_is_shown_that_leaves_out_hours(train: Stage, cost: str) -> None:
    made = trained(train=train)
    assert re.search(rf"cost +{cost}", view(made))
    assert cost.removesuffix(" so far") in report([made], CLUSTER, CATALOG, BEGAN)


def test_the_progress_of_the_compilation() -> None:
    made = run(
        status(
            Stage("precompile", "2", "RUNNING", "", "n-1", None, BEGAN),
            Stage("train", "3", "PENDING", "waits for precompile"),
        )
    )
    made.feed(
        "precompile",
        b"INFO ||NEURON_CACHE||: Current remaining items are 10, locked are 2, failed are 1, done are 21, total is 34\n",
    )
    shown = view(made)
    assert "████████████░░░░░░░░ 21 of 34 graphs, 1 failed" in shown
    assert "no curves: the training has not begun (waits for precompile)" in shown


def test_a_lost_connection_is_said() -> None:
    assert "no answer" not in view(trained(train=RUNS))
    assert "no answer for 1 min 40 s, still trying\n" in view(trained(train=RUNS), answered=BEGAN + 4900)
    assert "still trying: cannot reach the head node" in view(trained(train=RUNS), problem="cannot reach the head node")


def test_what_a_job_wrote_cannot_control_the_terminal() -> None:
    hostile = "\x1b]52;c;Zm9v\x07[red]\u202e"
    made = run(status(Stage("train", "3", "RUNNING", hostile, hostile), id=f"x{hostile}"))
    assert not set("\x1b\x07\u202e") & set(view(made) + text(jobs_view([made.status], hostile, 120)))
    assert "[red]" in view(made)
