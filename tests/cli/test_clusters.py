"""All clusters of an account as rows: what is counted, and what it costs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from tests.jobs.report.boards import EKS, NOW, SPEECH, View, clusters, job, node, overview, stage
from tests.jobs.report.runs import BEGAN
from trainium_cdk.cli.clusters import COLUMNS, describe_state, totals
from trainium_cdk.jobs.status import Activity

TRN1, SYSTEM = 21.5, 0.096


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
    assert describe_state(one, NOW) == (
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
    assert COLUMNS["idle"](one) == COLUMNS["of it idle"](one) == "unknown"
    assert describe_state(one, NOW) == "the jobs of team speech cannot be seen with these permissions"
    assert totals([one]).endswith("21.60 USD an hour, of it idle 0.00 USD an hour; 1 with unknown idle nodes")


def test_a_job_of_which_only_the_queue_tells() -> None:
    """Another user's, on Slurm: its type is that of its nodes."""
    of_eve = job("e-1", stage("RUNNING", began=NOW - 3600), user="eve", nodes=2, submitted=None, instance_type="?")
    seen = Activity((node(1, "allocated", "e-1:train"), node(2, "mixed")), (of_eve,), ())
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
    [work] = overview("S", "slurm", "us-east-1", {"": View(Activity((), (sweep,), ()))}).jobs
    assert work.usd == 2 * 2 * TRN1  # two members for an hour, each on two nodes


def test_one_that_does_not_answer() -> None:
    _, answered, silent = clusters()
    assert [COLUMNS[name](silent) for name in ("nodes", "idle", "USD/h", "of it idle", "longest wait")] == [""] * 5
    assert describe_state(silent, NOW).startswith("SSM does not manage the head node")
    lost = replace(answered, problems=(), alarms=None, note="the head node does not answer")
    assert describe_state(lost, NOW + 100) == "no answer for 1 min 40 s, still trying: the head node does not answer"
    assert describe_state(replace(lost, note=""), NOW + 100) == "the figures are 1 min 40 s old"
    assert describe_state(replace(lost, note=""), NOW + 30) == ""
    assert totals(clusters()) == (
        "3 clusters, nodes: 7 on, jobs: 2 run, 2 wait, 129.10 USD an hour, of it idle 43.00 USD an hour; 1 not answering"
    )


def test_a_cluster_with_a_node_of_unknown_price() -> None:
    """What is known of it is in the sum: less could not be more than its idle nodes."""
    one = replace(clusters()[0], usd_per_hour=None, usd_per_hour_idle=43.0)
    assert totals([one]).endswith(
        "unknown (known so far: 43.00 USD an hour; no price of 1 cluster; see https://calculator.aws/), of it idle 43.00 USD an hour"
    )
    none = totals([replace(one, usd_per_hour_idle=None)])
    assert none.count("unknown (no price of 1 cluster; see https://calculator.aws/)") == 2
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
