"""Node groups get nodes after the cluster is there, and a shortage of capacity costs nothing but time."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from trainium_cdk import outputs, settings
from trainium_cdk.cli.scale import _busy
from trainium_cdk.deployment.node_group_size import respond
from trainium_cdk.deployment.request import Request
from trainium_cdk.errors import ApiError, TrnError
from trainium_cdk.operations.scale import Progress, advice, busy, progress, scale, wait

SHORTAGE = (
    "AsgInstanceLaunchFailures: Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have "
    "sufficient trn1.32xlarge capacity in the Availability Zone you requested"
)


ENV = settings.Environment()
CLUSTER = outputs.parse(
    "TrnEksStack", "us-east-1", {k: v for k, (v, _) in outputs.eks_outputs(ENV, bucket="trn-bucket").items()}
)
assert isinstance(CLUSTER, outputs.EksCluster)
NAME = CLUSTER.cluster_name


class Aws:
    """The calls of EKS and EC2 that are made; a cluster with two node groups, one of them without a label."""

    def __init__(self, status: str = "ACTIVE", **more: Any) -> None:
        bounds = {"minSize": 1, "maxSize": 4, "desiredSize": 2}
        self.groups = {
            "other": {"status": "ACTIVE", "scalingConfig": bounds},
            "S-Grouptrn-x": {"status": status, "scalingConfig": bounds, "labels": {outputs.GROUP_LABEL: "trn"}, **more},
        }
        for name, group in self.groups.items():
            group["resources"] = {"autoScalingGroups": [{"name": f"eks-{name}"}]}
        self.instances: dict[str, bool] = {}
        """Whether each is protected from scale-in."""

    def __call__(self, service: str) -> Aws:
        assert service in ("eks", "ec2", "autoscaling")
        return self

    def get_paginator(self, operation: str) -> Any:
        pages = {"list_nodegroups": self._names, "describe_instances": self._instances}
        return SimpleNamespace(paginate=pages[operation])

    def _names(self, clusterName: str) -> list[dict[str, Any]]:  # noqa: N803  boto3's
        assert clusterName == NAME
        return [{"nodegroups": [name]} for name in self.groups]

    def _instances(self, Filters: list[dict[str, Any]]) -> list[dict[str, Any]]:  # noqa: N803
        assert {f["Name"]: f["Values"] for f in Filters} == {
            "tag:eks:nodegroup-name": ["S-Grouptrn-x"], "tag:eks:cluster-name": [NAME], "instance-state-name": ["running"],
        }  # fmt: skip
        return [{"Reservations": [{"Instances": [1]}, {"Instances": [2, 3]}]}, {"Reservations": []}]

    def describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str]) -> dict[str, Any]:  # noqa: N803
        assert AutoScalingGroupNames == ["eks-S-Grouptrn-x"]
        found = [
            {"InstanceId": i, "ProtectedFromScaleIn": p, "LifecycleState": "InService"}
            for i, p in self.instances.items()
        ]
        return {"AutoScalingGroups": [{"Instances": found}]}

    def set_instance_protection(self, **given: Any) -> None:
        assert given["AutoScalingGroupName"] == "eks-S-Grouptrn-x"
        self.instances |= dict.fromkeys(given["InstanceIds"], given["ProtectedFromScaleIn"])

    def describe_nodegroup(self, clusterName: str, nodegroupName: str) -> dict[str, Any]:  # noqa: N803
        assert clusterName == NAME
        return {"nodegroup": self.groups[nodegroupName]}

    def update_nodegroup_config(self, clusterName: str, nodegroupName: str, scalingConfig: dict[str, int]) -> None:  # noqa: N803
        assert clusterName == NAME
        assert self.groups[nodegroupName]["scalingConfig"] != scalingConfig, "EKS would start an update"
        self.groups[nodegroupName]["scalingConfig"] = scalingConfig


def idle(nodegroup: str) -> set[str]:
    assert nodegroup == "S-Grouptrn-x"
    return set()


@pytest.mark.parametrize(
    ("protected", "pods", "nodes", "force", "kept"),
    [
        ("a", "", 1, False, "a"),
        ("", "b", 1, False, "b"),  # the scaler has not seen its pods yet, or there is no scaler
        ("ab", "bc", 3, False, "abc"),
        ("ab", "bc", 2, False, "3 of the 4 nodes of trn are in use, and 2 were requested. Request at least 3 (idle nodes end first)"),
        ("ab", "bc", 2, True, "ab"),
        ("abcd", "", 1, True, "a"),
    ],
)  # fmt: skip
def test_a_smaller_size_ends_idle_nodes_only(protected: str, pods: str, nodes: int, force: bool, kept: str) -> None:
    aws = Aws()
    aws.groups["S-Grouptrn-x"]["scalingConfig"] = {"minSize": 1, "maxSize": 4, "desiredSize": 4}
    aws.instances = {each: each in protected for each in "abcd"}
    if " " in kept:
        with pytest.raises(TrnError, match=re.escape(kept)):
            scale(CLUSTER, "trn", nodes, aws, busy=lambda _: set(pods), force=force)
        assert aws.groups["S-Grouptrn-x"]["scalingConfig"]["desiredSize"] == 4
    else:
        scale(CLUSTER, "trn", nodes, aws, busy=lambda _: set(pods), force=force)
        assert "".join(each for each, on in aws.instances.items() if on) == kept


def test_nodes_are_in_use_by_the_jobs_pods() -> None:
    def node(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"providerID": f"aws:///z/i-{name}"}}

    def pod(name: str, phase: str) -> dict[str, Any]:
        return {"spec": {"nodeName": name}, "status": {"phase": phase}}

    found = {
        "Node": [node(n) for n in "abc"],
        "Pod": [
            pod("a", "Running"),
            pod("b", "Succeeded"),
            pod("x", "Running"),
            {"spec": {}, "status": {"phase": "Pending"}},
        ],
    }
    assert busy(SimpleNamespace(list=lambda kind, **_: found[kind]), "n") == {"i-a"}


def test_nodes_are_in_use_by_the_pods_of_each_team(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where those of a team cannot be seen, any node may be."""
    denied = ["vision"]

    def api(cluster: outputs.EksCluster) -> Any:
        def listed(kind: str, **_: str) -> list[dict[str, Any]]:
            if cluster.namespace in denied:
                raise ApiError(403, "Forbidden", "pods is forbidden")
            pod = {"spec": {"nodeName": cluster.namespace}, "status": {"phase": "Running"}}
            node = {"metadata": {"name": cluster.namespace}, "spec": {"providerID": f"aws:///z/i-{cluster.namespace}"}}
            return [pod if kind == "Pod" else node]

        return SimpleNamespace(list=listed, close=lambda: None)

    connecting = importlib.import_module("trainium_cdk.jobs.kubernetes.backend")
    monkeypatch.setattr(connecting, "kubernetes_api", api)
    teams = tuple(outputs.eks.Team(namespace=name) for name in ("speech", "vision"))
    shared = CLUSTER.model_copy(update={"teams": teams})
    assert _busy(CLUSTER, "n", False) == {"i-training"}
    assert _busy(shared, "n", True) == {"i-training", "i-speech"}
    with pytest.raises(TrnError, match=r"in use by team vision: pods is forbidden\. .* with --force$"):
        _busy(shared, "n", False)
    denied.clear()
    assert _busy(shared, "n", False) == {"i-training", "i-speech", "i-vision"}


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("group", ["trn", "S-Grouptrn-x"])
def test_a_group_is_scaled_within_its_bounds(group: str, nodes: int) -> None:
    aws = Aws()
    assert scale(CLUSTER, group, nodes, aws, busy=idle) == "S-Grouptrn-x"
    assert aws.groups["S-Grouptrn-x"]["scalingConfig"] == {"minSize": 1, "maxSize": 4, "desiredSize": nodes}
    assert aws.groups["other"]["scalingConfig"]["desiredSize"] == 2
    assert progress(CLUSTER, "S-Grouptrn-x", aws) == Progress(nodes, 3)


@pytest.mark.parametrize(
    ("status", "group", "nodes", "message"),
    [
        ("ACTIVE", "trn", 5, "node group trn has between 1 and 4 nodes, but 5 were requested. Change max_nodes of the group"),
        ("ACTIVE", "trn", 0, "between 1 and 4 nodes, but 0 were requested. Change min_nodes"),
        ("ACTIVE", "tnr", 1, "has no node group tnr; it has other, trn"),
        *((status, "trn", 3, f"node group trn is {status}. Wait until it is ACTIVE")
          for status in ("CREATING", "DELETING", "CREATE_FAILED", "DELETE_FAILED")),
        ("UPDATING", "trn", 1, "EKS is changing node group trn, as a deployment or another `trn nodes scale` requested"),
        ("UPDATING", "trn", 4, "the group has 2 nodes, or gets them"),
    ],
)  # fmt: skip
def test_it_is_refused(status: str, group: str, nodes: int, message: str) -> None:
    aws = Aws(status)
    with pytest.raises(TrnError) as refused:
        scale(CLUSTER, group, nodes, aws, busy=idle)
    assert message in str(refused.value)
    assert aws.groups["S-Grouptrn-x"]["scalingConfig"]["desiredSize"] == 2


def test_the_size_of_a_group_that_is_being_changed_can_be_waited_for() -> None:
    assert scale(CLUSTER, "trn", 2, Aws("UPDATING"), busy=idle) == "S-Grouptrn-x"


def test_problems_are_those_that_aws_reports() -> None:
    issues = [{"code": "A", "message": "b"}, {"code": "InsufficientInstanceCapacity", "message": "none"}]
    found = progress(CLUSTER, "S-Grouptrn-x", Aws(health={"issues": issues}))
    assert found == Progress(2, 3, "A: b; InsufficientInstanceCapacity: none")
    assert (found.done, Progress(2, 2).done, advice("A: b")) == (False, True, "A: b")


def test_a_deployment_does_not_undo_it() -> None:
    """What the function in the stack answers when a deployment changes another bound."""
    aws = Aws()
    scale(CLUSTER, "trn", 3, aws, busy=idle)
    properties = {"Cluster": NAME, "Label": outputs.GROUP_LABEL, "Group": "trn", "Nodes": "0", "Min": "0"}

    def nodes(kind: str, most: str) -> int:
        return int(respond(Request(kind, "stack", {**properties, "Max": most}), aws).attributes["Nodes"])

    assert (nodes("Update", "8"), nodes("Update", "2"), nodes("Create", "8")) == (3, 2, 0)


def looks(*each: Progress) -> Callable[[], Progress]:
    rest = iter(each)
    return lambda: next(rest)


def test_a_shortage_is_reported_once_and_waited_for() -> None:
    messages: list[str] = []
    short = Progress(4, 2, SHORTAGE)
    slept: list[float] = []
    ended = wait(looks(Progress(4, 0), short, short, short, Progress(4, 4)), messages.append, sleep=slept.append)
    assert slept == [15] * 4
    assert ended.done
    assert [line.split(" ")[0] for line in messages] == ["0", "2", "4"]
    assert "keeps trying" in messages[1]
    assert "reservation or capacity block" in messages[1]
    assert SHORTAGE in messages[1]


def test_after_the_timeout_the_next_command_is_printed() -> None:
    seconds: Any = iter([100.0, 110.0, 700.0])
    short = Progress(4, 2, SHORTAGE)
    with pytest.raises(TrnError, match="keep the running nodes: --nodes 2"):
        wait(looks(short, short, short), lambda _: None, timeout=600, sleep=lambda _: None, clock=lambda: next(seconds))


def test_no_cluster_creation_waits_for_capacity() -> None:
    """By default no capacity is requested at the creation of either cluster."""
    assert {r.min_nodes for q in ENV.pcluster.queues for r in q.compute_resources} == {0}
    assert {(g.min_nodes, g.nodes) for g in ENV.eks.node_groups} == {(0, 0)}
