"""All clusters of an account as rows: what is counted, what it costs, and what a page shows of them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.jobs.report import browser
from tests.jobs.report.boards import EKS, NOW, SPEECH, View, clusters, job, node, overview, stage
from tests.jobs.report.runs import BEGAN
from trainium_cdk.drawing.markup import cleaned
from trainium_cdk.jobs.report.board import CLUSTER, JOB, LIVE, SORTS, Choice, jobs, owners, told, totals
from trainium_cdk.jobs.report.board_page import choice_of, page
from trainium_cdk.jobs.status import Whole

TRN1, SYSTEM = 21.5, 0.096


def ids(choice: Choice) -> list[str]:
    return [row.job.id.partition("-")[0] for row in jobs(clusters(), choice, NOW)]


def test_a_cluster_of_slurm() -> None:
    one = clusters()[1]
    assert (one.nodes, one.busy, one.idle, one.failed, one.starting) == (5, 2, 1, 1, 1)
    assert (one.running, one.waiting, one.longest_wait) == (1, 2, 6600)  # since its stage prepare ended
    assert (one.usd_per_hour, one.usd_per_hour_idle) == (5 * TRN1, 2 * TRN1)  # one has failed, and costs as much
    assert [(work.id.partition("-")[0], work.usd) for work in one.jobs] == [
        ("bert", 2 * TRN1),  # two nodes for an hour
        ("finetune", 0.0),
        ("4711", None),
        ("llama", round(TRN1 / 2, 2)),
    ]
    assert told(one, NOW) == (
        "alarm: bert: nodes have failed; `trn nodes` names them with their reasons; 1 node failed (compute1-dy-trn-4): Not responding; "
        "1 job failed within a day (llama-20261120-00ffee): exit code 1"
    )


def test_a_node_of_a_team_is_not_idle_for_others() -> None:
    one = clusters()[0]
    assert (one.nodes, one.busy, one.idle, one.usd_per_hour_idle) == (2, 1, 0, 0)  # the system node is none for jobs
    assert one.usd_per_hour == round(TRN1 + SYSTEM, 2)
    assert [(work.team, work.user, work.nodes) for work in one.jobs] == [("speech", "erin", 1)]


def test_a_team_whose_jobs_cannot_be_seen() -> None:
    """Its nodes would look idle."""
    one = overview("E", "eks", "us-east-1", {"": View(EKS), "speech": View(SPEECH, refused=True)})
    assert (one.nodes, one.idle, one.usd_per_hour_idle) == (2, None, None)
    assert CLUSTER["idle"](one) == CLUSTER["of it idle"](one) == "unknown"
    assert told(one, NOW) == "the jobs of team speech cannot be seen with these permissions"
    assert totals([one]).endswith("21.60 USD an hour, of it idle 0.00 USD an hour; 1 with unknown idle nodes")


def test_a_job_of_which_only_the_queue_tells() -> None:
    """Another user's, on Slurm: its type is that of its nodes."""
    of_eve = job("e-1", stage("RUNNING", began=NOW - 3600), user="eve", nodes=2, submitted=None, instance_type="?")
    seen = Whole((node(1, "allocated", "e-1:train"), node(2, "mixed")), (of_eve,), ())
    [work] = overview("S", "slurm", "us-east-1", {"": View(seen)}).jobs
    assert (work.instance_type, work.usd) == ("trn1.32xlarge", 2 * TRN1)
    [work] = overview("S", "slurm", "us-east-1", {"": View(seen._replace(nodes=()))}).jobs
    assert (work.instance_type, work.usd) == ("", None)


def test_an_array_costs_what_its_members_do() -> None:
    members = (
        stage("COMPLETED", name="0", began=BEGAN, ended=BEGAN + 3600),
        stage("RUNNING", name="1", began=BEGAN + 3600),
        stage("PENDING", name="2"),
    )
    sweep = job("sweep-1", stage("RUNNING", began=BEGAN), user="alice", nodes=2, members=members)
    [work] = overview("S", "slurm", "us-east-1", {"": View(Whole((), (sweep,), ()))}).jobs
    assert work.usd == 2 * 2 * TRN1  # two members for an hour, each on two nodes


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        (Choice(), ["asr", "bert", "finetune", "4711", "llama"]),
        (Choice(owner="bob"), ["finetune", "llama"]),
        (Choice(owner="speech"), ["asr"]),
        (Choice(cluster="us-east-1/TrnEksStack"), ["asr"]),
        (Choice(sort="owner"), ["bert", "finetune", "llama", "4711", "asr"]),
        (Choice(sort="age"), ["4711", "asr", "bert", "finetune", "llama"]),
        (Choice(sort="cost"), ["asr", "bert", "llama", "finetune", "4711"]),
        (Choice(sort="unknown"), ["asr", "bert", "finetune", "4711", "llama"]),
        (Choice(owner="zoe"), []),
    ],
)
def test_orders_and_filters(choice: Choice, shown: list[str]) -> None:
    assert ids(choice) == shown


def test_a_clock_that_is_behind_the_cluster() -> None:
    one = clusters()[1]
    [shown] = jobs([replace(one, jobs=(replace(one.jobs[0], submitted=int(NOW) + 5),))], Choice(), NOW)
    assert JOB["age"](shown) == "0 s"


def test_who_has_jobs() -> None:
    assert owners(clusters()) == ["alice", "bob", "dora", "erin", "speech"]


def test_one_that_does_not_answer() -> None:
    _, answered, silent = clusters()
    assert [CLUSTER[name](silent) for name in ("nodes", "idle", "USD/h", "of it idle", "longest wait")] == [""] * 5
    assert told(silent, NOW).startswith("SSM does not manage the head node")
    lost = replace(answered, problems=(), alarms=None, note="the head node does not answer")
    assert told(lost, NOW + 100) == "no answer for 1 min 40 s, still trying: the head node does not answer"
    assert told(replace(lost, note=""), NOW + 100) == "the figures are 1 min 40 s old"
    assert told(replace(lost, note=""), NOW + 30) == ""
    assert totals(clusters()) == (
        "3 clusters, nodes: 7 on, jobs: 2 run, 2 wait, 129.10 USD an hour, of it idle 43.00 USD an hour; 1 not answering"
    )


def test_a_cluster_with_a_node_of_unknown_price() -> None:
    """What is known of it is in the sum: less could not be more than its idle nodes."""
    one = replace(clusters()[0], usd_per_hour=None, usd_per_hour_idle=43.0)
    assert totals([one]).endswith(
        "unknown (known so far: 43.00 USD an hour; no price of 1 cluster; `trn cost --live` asks AWS), of it idle 43.00 USD an hour"
    )
    none = totals([replace(one, usd_per_hour_idle=None)])
    assert none.count("unknown (no price of 1 cluster; `trn cost --live` asks AWS)") == 2
    assert "0.00" not in none


def test_json_has_each_figure_of_the_page() -> None:
    """What the page shows is of these fields, and of the clock."""
    data = json.loads(json.dumps([asdict(one) for one in clusters()]))
    _, one, _ = data
    assert {
        "region",
        "stack",
        "engine",
        "state",
        "nodes",
        "busy",
        "idle",
        "failed",
        "running",
        "waiting",
        "longest_wait",
        "note",
    } <= one.keys()
    assert {"usd_per_hour", "usd_per_hour_idle", "alarms", "problems", "answered"} <= one.keys()
    assert one["jobs"][0]["usd"] == 2 * TRN1
    assert one["jobs"][1]["waiting"] == 6600


def rows(text: str) -> list[list[str]]:
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text)]
    return [[re.sub("<[^>]+>", "", cell) for cell in row] for row in found if row]


def test_the_page() -> None:
    shown = clusters()
    made = page(shown, ["cannot read the stacks in us-west-1: no permission"], NOW)
    table = rows(made)
    for one in shown:
        assert [CLUSTER[name](one) for name in LIVE] in table
        assert any(told(one, NOW) == cleaned(row[-1]) for row in table) or not told(one, NOW)
    assert [[draw(row) for draw in JOB.values()] for row in jobs(shown, Choice(), NOW)] == table[-5:]
    assert "cannot read the stacks in us-west-1" in made
    assert 'http-equiv="refresh" content="15"' in made
    assert "<script" not in made


def test_links_keep_what_is_chosen() -> None:
    asked = {"owner": "bob", "sort": "cost", "still": "1"}
    made = page(clusters(), [], NOW, asked)
    assert choice_of(asked) == Choice("", "bob", "cost")
    assert 'href="?owner=alice&amp;sort=cost"' in made
    assert 'href="?job=llama-20261120-00ffee&amp;on=us-east-1%2FTrnPclusterStack&amp;team="' in made
    assert 'http-equiv="refresh"' not in made
    assert "asr" not in made
    assert all(f'<a href="?owner=bob{more}">{name}</a>' in made for name in SORTS for more in ("", f"&amp;sort={name}") if (name == "state") == (not more) and name != "cost")  # fmt: skip
    of_others = page(clusters(), [], NOW)
    assert ">4711</td>" in of_others  # not a link: it is no job of trn


@pytest.mark.parametrize(("complete", "text"), [(False, "Looking for clusters ..."), (True, "There is no cluster")])
def test_no_clusters(complete: bool, text: str) -> None:
    assert text in page([], [], NOW, complete=complete)


def test_hostile_text_is_text() -> None:
    hostile = "<script>\x1b]0;x\x07</script>"
    one = replace(
        clusters()[1], note=hostile, stack=hostile, jobs=(replace(clusters()[1].jobs[0], id=hostile, user=hostile),)
    )
    made = page([one], [hostile], NOW)
    assert "<script" not in made
    assert "\x1b" not in made


@pytest.mark.parametrize("width", [390, 1000])
def test_in_a_browser_nothing_is_wider_than_its_window(width: int, tmp_path: Path) -> None:
    browser.available()
    content, window, _ = browser.measured(page(clusters(), [], NOW), width, tmp_path)
    assert content <= window
