"""The report: what it says of jobs that trained, wait, failed, or whose record is incomplete."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from unittest.mock import Mock

import pytest

from tests.jobs.report.runs import BEGAN, CATALOG, CLUSTER, fine_tuned, run, status, trained
from trainium_cdk.client.jobs.report import Run, report
from trainium_cdk.client.jobs.report.page import figures
from trainium_cdk.client.jobs.report.run import described, price
from trainium_cdk.client.jobs.status import Stage
from trainium_cdk.runner.records import TimedFinding

WAITS = (Stage("prepare", "1", "RUNNING", "", "n-1", None, BEGAN), Stage("train", "2", "PENDING", "waits for nodes"))


def page(*runs: Run) -> str:
    return report(runs, CLUSTER, CATALOG, BEGAN + 20_000)


def text(*runs: Run) -> str:
    """What a reader sees: each element on its own line."""
    lines: list[str] = []
    reader = HTMLParser()
    reader.handle_data = lambda data: lines.append(data.strip())  # type: ignore[method-assign]
    reader.feed(page(*runs))
    return "\n".join(filter(None, lines))


def test_a_job_that_trained() -> None:
    found = text(trained(starts=(1500, 3000)))
    for wanted in (
        "state\n✓ COMPLETED",
        "step\n400",
        "loss\n4.043\nfrom 10.87",
        "took\n2 h 46 min",
        "throughput\n3,603.0 sequences/s on average",
        "compile time\n21 min",
        "graphs\n36 on all nodes, 0 failed",
        "training time\n2 h 21 min",
        "restarts\n1",
        "node hours\n2.71",
        "cost of its nodes\n58.29 USD",
        "optimizer\nadamw",
    ):
        assert wanted in found, wanted
    for wanted in ("prepare: 1.5 minutes", "precompile: 21 minutes", "train: 141.7 minutes"):
        assert wanted in found, wanted  # what a pointer on a bar shows
    assert "Failures" not in found
    assert "Price of a node: trn1.32xlarge in us-east-1: 21.50 USD an hour, list price of 2026-07-15." in found


def test_several_jobs_are_compared() -> None:
    found = page(trained(1, id="one-1"), trained(4, id="four-2"))
    assert found.count("<svg") == 5  # loss, throughput, learning rate, scaling, times
    assert "<td>kind</td><td>bert-large</td>" in found  # what they share, and then what differs
    assert ">one-1</th>" in found
    assert "<tr><td>nodes</td><td>1</td><td>4</td></tr>" in found
    assert ">bert-large, 4 x trn1.32xlarge</td><td>65,536</td><td>14,403.0</td><td>100%</td>" in found


UNPRICED = status(*trained().status.stages, instance_type="trn2.48xlarge")


@pytest.mark.parametrize(
    ("made", "messages"),
    [
        (
            run(status(*WAITS)),
            [
                "No loss and no sequences/s: the training has not begun (waits for nodes).",
                "training time\nwaits: waits for nodes",
                "cost of its nodes\n0.00 USD",
                "Settings\nNot known",
            ],
        ),
        (
            run(status(Stage("train", "2", "COMPLETED", "", "n-1", 0, None, None))),
            [
                "no line of its log is a training step that trn can read. In the script, print one line for each step, for example {\"step\": 10, \"loss\": 3.4} or: step 10 loss 3.4",
                "No times of bert-large-20261120-4f3a9c: no stage has begun, or the scheduler has forgotten when.",
                "not known: the scheduler has forgotten when its stages began or ended",
            ],
        ),
        (
            run(status(Stage("train", "2", "FAILED", "exit code 1, on node 3 first", "n-[1-4]", 1)), problem="the log is gone"),
            ["bert-large-20261120-4f3a9c: train FAILED\nExit code 1, on node 3 first. Nodes: n-[1-4].", "the log is gone"],
        ),
        (
            Run(UNPRICED, price(UNPRICED, CLUSTER, CATALOG)),
            ["the catalogue has no price of trn2.48xlarge in us-east-1; see https://calculator.aws/; or add catalog.prices.us-east-1.trn2.48xlarge"],
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(made: Run, messages: list[str]) -> None:
    found = text(made)
    for message in messages:
        assert message in found, message
    assert found.splitlines().count("step") == 1  # the figure, and no axis of a chart


def sweep(losses: dict[str, str]) -> list[Run]:
    """Members of one array: the losses of each. Without one it was cancelled."""
    runs = []
    for index, values in losses.items():
        state = "COMPLETED" if values else "CANCELLED"
        stage = Stage("train", index, state, "", "n-1", 0, BEGAN, BEGAN + 55, values={"lr": f"{index}e-4"})
        made = run(status(stage, id=f"s-1/{index}"))
        for step, loss in enumerate(filter(None, values.split(", ")), 1):
            made.feed("train", f"step {step} loss {loss} lr 0.1\n".encode())
        runs.append(made)
    return runs


def test_a_sweep_begins_with_its_members_by_their_last_loss() -> None:
    """The best is the first; one whose loss is no number any more, or that has none, comes last. A cancelled one is no failure."""
    found = text(*sweep({"0": "3.0", "1": "2.5", "2": "0.1, nan", "3": "", "4": "2.0"}))
    assert "Training report: s-1, 5 members\n" in found
    table = found[found.index("Members\n") : found.index("Curves and times\n")]
    assert re.findall(r"\n(\d)\n(\d)e-4", table) == [(n, n) for n in "41023"]
    assert (
        "member\nlr\nloss\nstate\nsteps\ntraining time\ncost\n4\n4e-4\n★\n2\nbest\n✓ COMPLETED\n1\n55 s\n0.33 USD\n1\n"
        in table
    )
    assert table.count("best") == 1
    assert "Failures" not in found


def test_curves_of_a_sweep_have_its_values() -> None:
    runs = sweep({"0": "3.0, 2.9", "1": "2.5, 2.4"})
    legend = re.findall(r"<text[^>]*>(lr=.e-4)</text>", page(*runs))
    assert legend == ["lr=1e-4", "lr=0e-4"] * 3  # of two charts and the stages: the best has the first colour
    assert "s-1/" not in page(*runs)


def test_a_sentence_names_all_that_is_missing() -> None:
    """However many members there are."""
    found = text(*sweep({str(i): "3.0, 2.9" if i else "" for i in range(9)}))
    assert "Not in the log of lr=0e-4." in found
    assert found.count("Not in the log") == 2  # of the loss and the learning rate
    found = text(*sweep({str(i): "" for i in range(9)}))
    assert found.count("No loss and no sequences/s: ") == 1


def test_many_failures_are_cut() -> None:
    failed = Stage("train", "3", "FAILED", "exit code 1", "n-1", 1, None, BEGAN + 10_000)
    found = text(*(run(status(failed, id=f"s-1/{i}")) for i in range(40)))
    assert found.count("train FAILED") == 8
    assert "32 more are not shown." in found


@pytest.mark.parametrize(
    ("state", "finding", "badge", "look"),
    [
        ("PENDING", "", "○ PENDING", "badge PENDING"),
        ("RUNNING", "", "▸ RUNNING", "badge RUNNING"),
        ("RUNNING", "hang", "! RUNNING, hangs", "badge warning"),
        ("RUNNING", "restarted", "▸ RUNNING", "badge RUNNING"),
        ("COMPLETED", "", "✓ COMPLETED", "badge COMPLETED"),
        ("COMPLETED", "nan", "! COMPLETED, has lost its loss", "badge warning"),
        ("CANCELLED", "", "■ CANCELLED", "badge CANCELLED"),
        ("TIMEOUT", "hang", "✕ TIMEOUT", "badge FAILED"),
    ],
)
def test_a_state_has_a_sign_a_colour_and_words(state: str, finding: str, badge: str, look: str) -> None:
    found = (TimedFinding(finding, float(BEGAN), evidence="node 1 is behind"),) if finding else ()
    made = run(status(Stage("train", "1", state, "", "n-1", None, BEGAN, BEGAN + 55, findings=found)))
    assert f'<b class="{look}">{badge}</b>' in page(made)
    assert ("hangs since 2026-11-20 08:00 UTC: node 1 is behind" in page(made)) == (finding == "hang")
    assert ({"took", "time left"} & {name for name, _, _ in figures(made)}) == {
        "took" if made.status.done else "time left"
    }


def test_failures_of_the_compiler_have_their_mend() -> None:
    made = trained()
    error = (
        b"ERROR ||PARALLEL_COMPILE||: parallel compilation with neuronx-cc exited with error.Received error code: %d\n"
    )
    made.feed("precompile", error % -9 + error % 70)
    found = text(made)
    assert "1 graphs were not compiled\nthe compiler ran out of the host's memory (code -9)" in found
    assert "the compiler ended with code 70" in found


def test_a_failed_stage_has_the_end_of_its_log_and_why_it_ended() -> None:
    failed = Stage("train", "3", "FAILED", "exit code 1, on node 0 first", "n-1", 1, None, BEGAN + 10_000)
    made = trained(train=replace(failed, why="node 0, rank 5: KeyError: 'tokens'. Send your modules with --workdir"))
    made.feed("train", b"first\n" + b"".join(b"line %d\n" % i for i in range(20)))
    found = text(made)
    assert "node 0, rank 5: KeyError: 'tokens'. Send your modules with --workdir.\n" in found
    assert "line 12\nline 13" in found
    assert "line 11\n" not in found


def test_it_needs_no_network_and_runs_no_script() -> None:
    found = page(*(trained(id=f"job-{i}", steps=5000) for i in range(8)))
    linked = re.findall(r"""(?:src|href|url|@import)\s*[=(]\s*["']?([^"')\s>]+)""", found)
    assert linked == []
    assert "<script" not in found
    assert "default-src 'none'" in found


def test_a_page_is_small() -> None:
    made = trained(steps=5000)
    assert len(page(made)) < 50_000
    for count in (8, 50):
        many = [replace(made, status=replace(made.status, id=f"sweep-1/{i}")) for i in range(count)]
        assert len(page(*many)) < 100_000
    assert "averaged where there are more than 24." in page(*many)
    assert "49 others" in page(*many)  # the first stands out


def test_figures_come_first_then_curves_then_settings() -> None:
    found = text(trained())
    assert found.index("took") < found.index("Curves") < found.index("Details") < found.index("Settings")
    assert "state\n✓ COMPLETED\nstep\n400\nloss\n4.043\nfrom 10.87\ntook\n2 h 46 min\ncost\n49.33 USD" in found


def test_values_of_variables_are_not_on_the_page() -> None:
    made = trained()
    made.settings = {"env": {"HF_TOKEN": "hunter2"}}
    assert "hunter2" not in page(made)
    assert ">HF_TOKEN<" in page(made)


def test_what_differs_between_many_jobs_has_a_row_for_each() -> None:
    found = page(*(trained(nodes, id=f"job-{nodes}", steps=10) for nodes in range(1, 7)))
    assert '<th scope="col">job</th><th scope="col">nodes</th></tr>' in found
    assert "<tr><td>job-1</td><td>1</td></tr><tr><td>job-2</td><td>2</td></tr>" in found


def test_what_a_job_wrote_is_only_text() -> None:
    hostile = "</td></script><img src=x onerror=alert(1)>\x1b[2J\u202e"
    failed = replace(Stage("train", "2", "FAILED", hostile, hostile), why=f"it raised {hostile}")
    made = run(status(failed, id=hostile, queue=hostile), settings={hostile: [hostile]}, problem=hostile)
    made.feed("train", f"{hostile}\n{{'loss': '{hostile}'}}\n".encode())
    found = report([made, trained()], CLUSTER, CATALOG, BEGAN)
    assert not re.search("<img|<script|</script", found)
    assert "&lt;img src=x" in found
    assert not set("\x1b\u202e") & set(found)


def test_times_of_a_restarted_pod_are_a_lower_bound() -> None:
    made = trained(starts=())
    made.feed("train", b"0: trn: train: node 0 of 2, ranks 0 to 31, on ip-1, attempt 2, 2026-11-20T09:00:05Z\n")
    found = text(made)
    assert "restarts\n2" in found
    assert re.search(r"node hours\nat least \d", found)
    assert re.search(r"cost of its nodes\nat least \d+\.\d\d USD", found)


@pytest.mark.parametrize(
    ("kind", "settings", "steps"),
    [
        ("bert-large", {"optimizer": "adamw"}, 28_125),
        ("bert-large", {"run_steps": 50}, 50),
        ("bert-large", {"run_steps": "many"}, None),
        ("bert-large", {"phase": "third"}, None),
        ("gpt-6.7b", {"data": "/efs/x"}, 20_000),
        ("script", {"filename": "a.sh"}, None),
        ("of-another-package", {"steps": 5}, None),
    ],
)
def test_the_last_step_follows_from_kind_and_settings(
    kind: str, settings: dict[str, object], steps: int | None
) -> None:
    found = status(Stage("train", "2", "RUNNING"))
    jobs = Mock(cluster=CLUSTER, settings=lambda _: settings)
    assert described(jobs, replace(found, kind=kind), CATALOG).last_step == steps


def test_a_fine_tuning() -> None:
    """TRL prints no step, no speed of one, and what it took at the end."""
    made = fine_tuned()
    found = text(made)
    assert "finetune of Qwen/Qwen3-8B on 1 x trn2.48xlarge; " in found
    assert "✓ COMPLETED\nstep\n200\nof 200\nloss\n1.415\nfrom 3.466\ntook\n38 s\ncost\n0.25 USD" in found
    assert "throughput\n4,895.0 sequences/s on average" in found
    assert list(made.curves) == ["loss", "learning_rate", "grad_norm"]
    assert "No " not in found[found.index("Curves and times\n") : found.index("Details\n")]


@pytest.mark.parametrize(
    ("apart", "ago", "said", "is_left"),
    [
        (1, 20, "", True),
        (1, 59, "", True),
        (1, 61, "61 s ago", False),  # a step of 2 s
        (10, 50, "", True),
        (30, 100, "100 s ago", True),  # one line for thirty steps, each minute
        (30, 170, "2 min ago", True),
        (30, 190, "3 min ago", False),
        (30, 700, "11 min ago", False),
    ],
)
def test_nothing_is_extrapolated_from_a_training_that_stands_still(
    apart: int, ago: float, said: str, is_left: bool
) -> None:
    """Neither by the cluster's time of the last step, nor by that at which this machine saw it."""
    lines = "".join(
        f'{{"step": {apart * i}, "total_steps": 40000, "seconds": 2.0, "loss": 3.0}}\n' for i in range(1, 8)
    )
    for told in (True, False):
        stage = Stage("train", "1", "RUNNING", "", "n-1", None, BEGAN, stepped=BEGAN + 900 if told else None)
        one = run(status(stage))
        one.feed("train", lines.encode())
        one.looked(BEGAN + 900)
        one.looked(BEGAN + 900 + ago)
        shown = {name: (value, more) for name, value, more in figures(one)}
        assert shown.get("last step", ("",))[0] == said
        assert (one.left is not None, one.expected_cost is not None) == (is_left, is_left)
        assert (shown["time left"][0] == "not known", shown["cost"][1] == "") == (not is_left, not is_left)
        assert one.step_seconds == pytest.approx(2.0)


def test_the_time_of_a_step_does_not_grow_while_a_training_stands_still() -> None:
    """Of a log that tells no times: by what was seen, or of the training so far."""
    stage = Stage("train", "1", "RUNNING", "", "n-1", None, BEGAN)
    one = run(status(stage, global_batch_size=None))
    one.feed("train", b"step 1 | loss 3.0\n")
    one.looked(BEGAN + 100)
    assert one.step_seconds == pytest.approx(100)
    one.looked(BEGAN + 5000)
    assert one.step_seconds == pytest.approx(100)
    one.feed("train", b"step 11 | loss 3.0\n")
    one.looked(BEGAN + 5200)
    one.looked(BEGAN + 9000)
    assert one.step_seconds == pytest.approx(510)
