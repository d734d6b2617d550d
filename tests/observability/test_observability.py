"""The dashboard and alarms of every stack, and that what they show is sent: names, dimensions, CloudWatch's own structures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import jsonschema
import pytest
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template
from ruamel.yaml import YAML

from conformance import surfaces
from tests.cdk import app, findings, only, resources
from tests.foreign.foreign import cluster, vpc
from tests.observability.node_script import metrics
from tests.stacks import synthesis
from trainium_cdk import TrnNodeGroup, TrnObservability, TrnPcluster, settings
from trainium_cdk.cdk.eks.scaler import lines as scaler
from trainium_cdk.cdk.eks.scaler.model import Group, GroupNode, NodeRequest
from trainium_cdk.description.checks.live.cost import items
from trainium_cdk.description.checks.live.model import CheckTarget
from trainium_cdk.description.settings.observability import (
    ALARMS,
    CLUSTER_METRICS,
    NODE_ALARMS,
    NODE_METRICS,
    QUEUE_METRICS,
)

ROOT = Path(__file__).parents[2]
DASHBOARD = jsonschema.Draft202012Validator(YAML(typ="safe").load(ROOT / "sandbox/emulator/cfn/dashboard.yaml"))
INSIGHTS = set(surfaces.load()["container-insights"].recorded["metrics"])
EMF = jsonschema.Draft202012Validator(YAML(typ="safe").load(ROOT / "tests/observability/emf.yaml"))
REPORT: dict[str, Any] = json.loads((ROOT / "tests/observability/report.json").read_text())


def body(template: Template) -> dict[str, Any]:
    """The dashboard, with a text in place of each reference."""
    joined = only(template, "CloudWatch::Dashboard")["DashboardBody"]["Fn::Join"][1]
    text = "".join(p if isinstance(p, str) else "arn:aws:x" if "Fn::GetAtt" in p else "us-east-1" for p in joined)
    found: dict[str, Any] = json.loads(text)
    return found


def shown(found: dict[str, Any]) -> set[tuple[str, str, tuple[str, ...]]]:
    """Namespace, name and names of dimensions of every metric."""
    rows = [m for w in found["widgets"] for m in w["properties"].get("metrics", []) if isinstance(m[0], str)]
    return {(m[0], m[1], tuple([p for p in m[2:] if isinstance(p, str)][::2])) for m in rows}


def sent_by_nodes() -> dict[str, set[tuple[str, ...]]]:
    """What a Slurm cluster sends: names, each with its sets of dimensions."""
    nodes = "n1 trn* MIXED\nn2 trn* IDLE+POWERED_DOWN\n"
    whole, queues = metrics.queue(nodes, "RUNNING|None|2026-11-24T07:00:00\n", 0)
    node = {**metrics.neuron(REPORT), **metrics.disks(["/"]), "EfaReceived": 1, "EfaSent": 1}
    sets: dict[str, set[tuple[str, ...]]] = {}
    for values, dimensions in (
        (whole, [("Cluster",)]),
        (queues["trn"], [("Cluster", "Queue")]),
        (node, [("Cluster",), ("Cluster", "Node")]),
    ):
        for name in values:
            sets.setdefault(name, set()).update(dimensions)
    return sets


def emf(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    EMF.validate(found)
    [directive] = found["_aws"]["CloudWatchMetrics"]
    for name in [m["Name"] for m in directive["Metrics"]] + [d for s in directive["Dimensions"] for d in s]:
        assert name in found
    return found


def template_of(name: str) -> Template:
    if name == "slurm":
        return synthesis.SLURM.template("default")
    if name == "eks":
        return synthesis.EKS.template("default")
    return synthesis.EKS.template_of(settings.validate({"eks": {"observability": {}}, "storage": {"fsx": {}}}))


@pytest.mark.parametrize("name", ["slurm", "eks", "eks with Container Insights"])
def test_everything_on_the_dashboard_is_sent(name: str) -> None:
    found = body(template_of(name))
    DASHBOARD.validate(found)
    groups = [Group("trn", (16,), 0, 4, 1)]
    lines = [emf(line) for line in scaler.metrics("trn-eks", groups, [], 0)]
    by_scaler: dict[str, set[tuple[str, ...]]] = {}
    for line in lines:
        for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
            by_scaler.setdefault(metric["Name"], set()).update(
                map(tuple, line["_aws"]["CloudWatchMetrics"][0]["Dimensions"])
            )
    sent = sent_by_nodes() if name == "slurm" else by_scaler
    own = {(metric, dimensions) for namespace, metric, dimensions in shown(found) if namespace == "Trainium"}
    assert own <= {(metric, dimensions) for metric, sets in sent.items() for dimensions in sets}
    assert len(own) > 7
    insights = {metric for namespace, metric, _ in shown(found) if namespace == "ContainerInsights"}
    assert insights <= INSIGHTS
    assert bool(insights) == (name == "eks with Container Insights")
    assert ("AWS/FSx" in {n for n, _, _ in shown(found)}) == (name == "eks with Container Insights")


def test_the_structure_of_dashboards_refuses_what_cloudwatch_refuses() -> None:
    for wrong in (
        {},
        {"widgets": [{"type": "metric", "properties": {"metrics": [["A", "b"]]}}]},  # no region
        {"widgets": [{"type": "metric", "properties": {"region": "us-east-1", "metrics": [["A"]]}}]},
        {"widgets": [{"type": "metric", "properties": {"region": "r", "metrics": [[{"expression": "a", "id": "A"}]]}}]},
        {"widgets": [{"type": "text", "width": 25, "properties": {"markdown": ""}}]},
    ):
        assert not DASHBOARD.is_valid(wrong), wrong


@pytest.mark.parametrize(("name", "alarms"), [("slurm", ALARMS + NODE_ALARMS), ("eks", ALARMS)])
def test_the_alarms(name: str, alarms: int) -> None:
    env = settings.validate({"observability": {"alarm_topic": "arn:aws:sns:us-east-1:111122223333:trn"}})
    template = synthesis.SLURM.template_of(env) if name == "slurm" else synthesis.EKS.template_of(env)
    DASHBOARD.validate(body(template))
    found = resources(template, "CloudWatch::Alarm")
    own = {id: r["Properties"] for id, r in found.items() if id.startswith("Observability")}
    assert len(own) == alarms
    for alarm in own.values():
        assert alarm["AlarmDescription"].startswith(f"trn-{name}: ")
        assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm["AlarmActions"] == ["arn:aws:sns:us-east-1:111122223333:trn"]
        assert alarm["EvaluationPeriods"] * alarm["Period"] <= 86400  # CloudWatch's limit for periods below an hour


def test_the_money_of_idle_nodes_has_only_known_prices() -> None:
    env = settings.validate(
        {
            "region": "us-east-1",
            "eks": {
                "node_groups": [
                    {"name": "a", "instance_type": "trn1.32xlarge"},
                    {
                        "name": "b",
                        "instance_type": "trn2.48xlarge",
                        "capacity_type": "capacity-block",
                        "reservation": "cr-0123456789abcdef0",
                        "zone_id": "use1-az6",
                    },
                ]
            },
        }
    )
    found = body(synthesis.EKS.template_of(env))
    [money] = [w["properties"] for w in found["widgets"] if "idle nodes" in w["properties"].get("title", "")]
    assert [m[0]["expression"] for m in money["metrics"] if isinstance(m[0], dict)] == ["q0*21.5"]
    assert "No hourly price is known of: b." in json.dumps(found)


def test_off_means_nothing() -> None:
    env = settings.validate({"observability": None})
    for template in (synthesis.SLURM.template_of(env), synthesis.EKS.template_of(env)):
        document = template.to_json()["Resources"]
        assert not [
            id
            for id, r in document.items()
            if r["Type"].endswith("Dashboard")
            or "/metrics" in json.dumps(r.get("Properties", {}).get("LogGroupName", ""))
        ]
        assert 'metrics\\\\":true' not in json.dumps(document)
    assert not [i for i in items(CheckTarget(env, "slurm")) if "metric" in i.what or "dashboard" in i.what]


def test_its_price_counts_what_is_there() -> None:
    sets = sent_by_nodes()
    counts = {
        dimensions: sum(dimensions in of for of in sets.values())
        for dimensions in {d for of in sets.values() for d in of}
    }
    assert counts[("Cluster", "Queue")] == QUEUE_METRICS
    assert counts[("Cluster", "Node")] == NODE_METRICS
    assert counts[("Cluster",)] == CLUSTER_METRICS + NODE_METRICS
    found = {
        i.what: i
        for i in items(
            CheckTarget(
                settings.validate({"observability": {"alarm_topic": "arn:aws:sns:us-east-1:111122223333:trn"}}), "slurm"
            )
        )
    }
    monthly = {
        what: round(i.idle * 730, 2)
        for what, i in found.items()
        if i.idle and what.endswith(("alarm", "metric", "dashboard"))
    }
    assert monthly == {"dashboard": 3.0, "5 x alarm": 0.5, "11 to 147 x metric": 3.3}


def test_alone_in_any_app() -> None:
    stack = cdk.Stack(app(), "Own", env=cdk.Environment(account="111122223333", region="us-east-1"))
    mine = slurm(stack, queues=[settings.Queue(compute_resources=(settings.ComputeResource(min_nodes=2),))])
    watched = TrnObservability(
        stack, "Watched", cluster=mine, alarm_topic=sns.Topic(stack, "Topic"), longest_wait=cdk.Duration.minutes(90)
    )
    role = cdk.aws_iam.Role(stack, "Role", assumed_by=cdk.aws_iam.ServicePrincipal("ec2.amazonaws.com"))
    watched.grant_write(role).assert_success()
    template = Template.from_stack(stack)
    assert findings(template) == []
    shown = json.dumps(body(template))
    assert "q0*21.5" in shown, "the price of a node, from the catalogue"
    assert "AWS/EFS" in shown, "the cluster's file system"
    [idle] = [
        a["Properties"]
        for a in resources(template, "CloudWatch::Alarm").values()
        if a["Properties"]["MetricName"] == "NodesIdle"
    ]
    assert (idle["Threshold"], len(idle["AlarmActions"])) == (2, 1)
    with pytest.raises(ValueError, match="192 hours is longer than a week"):
        TrnObservability(stack, "TooLong", cluster=mine, longest_wait=cdk.Duration.days(8))


def test_of_a_cluster_of_eks() -> None:
    stack = cdk.Stack(app(), "Own", env=cdk.Environment(account="111122223333", region="us-west-2"))
    theirs = cluster(stack)
    with pytest.raises(ValueError, match=r"Own/None: node_groups is empty: there is nothing to watch. Fix: give the"):
        TrnObservability(stack, "None", cluster=theirs)
    watched = TrnObservability(
        stack, "Watched", cluster=theirs, node_groups=[TrnNodeGroup(stack, "Trn", cluster=theirs)]
    )
    with pytest.raises(ValueError, match="only nodes of a Slurm cluster send metrics themselves"):
        watched.grant_write(cdk.aws_iam.Role(stack, "Role", assumed_by=cdk.aws_iam.AccountRootPrincipal()))
    text = json.dumps(only(Template.from_stack(stack), "CloudWatch::Dashboard")["DashboardBody"])
    assert "q0*21.5" in text


def slurm(stack: cdk.Stack, **given: Any) -> TrnPcluster:
    return TrnPcluster(stack, "Slurm", vpc=vpc(stack), cluster_name="mine", **given)


def test_clusters_of_one_name_in_two_regions_have_two_dashboards() -> None:
    """Of one account, which has one dashboard of each name."""
    for region in ("us-east-1", "us-west-2"):
        stack = cdk.Stack(app(), "Own", env=cdk.Environment(account="111122223333", region=region))
        TrnObservability(stack, "Watched", cluster=slurm(stack))
        found = only(Template.from_stack(stack), "CloudWatch::Dashboard")["DashboardName"]
        assert found == f"Trainium-mine-{region}"


def test_what_the_scaler_counts() -> None:
    nodes = (
        GroupNode("i-1", state="usable", busy=True), GroupNode("i-2", state="usable"), GroupNode("i-3"), GroupNode("i-4", state="unusable"),
        GroupNode("i-5", state="unusable"),
    )  # fmt: skip
    groups = [Group("a", (16,), 0, 8, 5, nodes), Group("b", (16,), 0, 8, 1, nodes[:1])]
    requests = [
        NodeRequest("ns/1", ("a",), (), created=100, provisioned=True),
        NodeRequest("ns/2", ("a",), (), created=400),
        NodeRequest("ns/3", ("a",), (), created=900),
    ]
    whole, a, b = map(emf, scaler.metrics("c", groups, requests, 1000.5))
    assert {k: v for k, v in whole.items() if k != "_aws"} == {
        "Cluster": "c", "JobsRunning": 1, "JobsWaiting": 2, "LongestWait": 600, "NodesBusy": 2, "NodesIdle": 1, "NodesStarting": 1, "NodesFailed": 2,
    }  # fmt: skip
    assert (a["Queue"], a["NodesFailed"], b["NodesBusy"], b["NodesFailed"]) == ("a", 2, 1, 0)
    assert whole["_aws"]["Timestamp"] == 1000500
