"""Node groups get nodes after the cluster is there, and a shortage of capacity costs nothing but time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox import LocalAws
from trainium_cdk import outputs, settings
from trainium_cdk.deployment.node_group_size import respond
from trainium_cdk.deployment.request import Request
from trainium_cdk.errors import ScaleError
from trainium_cdk.operations.scale import Progress, progress, scale, wait

SHORTAGE = (
    "AsgInstanceLaunchFailures: Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have "
    "sufficient trn1.32xlarge capacity in the Availability Zone you requested"
)


@pytest.fixture
def cluster(local_aws: LocalAws) -> Iterator[outputs.EksCluster]:
    """A cluster with one node group, in the local AWS."""
    name, eks = f"scale-{uuid.uuid4().hex[:6]}", local_aws.client("eks")
    eks.create_cluster(name=name, roleArn="arn:aws:iam::000000000000:role/r", resourcesVpcConfig={"subnetIds": []})
    eks.create_nodegroup(
        clusterName=name, nodegroupName=f"{name}-Grouptrn-x", subnets=[], nodeRole="arn:aws:iam::000000000000:role/r",
        scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 0}, labels={outputs.GROUP_LABEL: "trn"},
    )  # fmt: skip
    env = settings.Environment()
    values = {k: v if isinstance(v, str) else "x" for k, (v, _) in outputs.eks_outputs(env, bucket="b").items()}
    found = outputs.parse("TrnEksStack", "us-east-1", {**values, "ClusterName": name})
    assert isinstance(found, outputs.EksCluster)
    yield found
    eks.delete_nodegroup(clusterName=name, nodegroupName=f"{name}-Grouptrn-x")
    eks.delete_cluster(name=name)


def desired(aws: LocalAws, cluster: outputs.EksCluster) -> int:
    name = cluster.cluster_name
    found = aws.client("eks").describe_nodegroup(clusterName=name, nodegroupName=f"{name}-Grouptrn-x")["nodegroup"]
    return int(found["scalingConfig"]["desiredSize"])


def test_a_group_is_scaled_within_its_bounds(local_aws: LocalAws, cluster: outputs.EksCluster) -> None:
    name = scale(cluster, "trn", 3, local_aws.client)
    assert desired(local_aws, cluster) == 3
    assert progress(cluster, name, local_aws.client).wanted == 3
    assert scale(cluster, name, 3, local_aws.client) == name
    with pytest.raises(ScaleError, match="between 0 and 4 nodes, but 5 were requested"):
        scale(cluster, "trn", 5, local_aws.client)
    with pytest.raises(ScaleError, match="has no node group tnr; it has trn"):
        scale(cluster, "tnr", 1, local_aws.client)
    assert desired(local_aws, cluster) == 3


def test_a_deployment_does_not_undo_it(local_aws: LocalAws, cluster: outputs.EksCluster) -> None:
    """What the function in the stack answers when a deployment changes another bound."""
    scale(cluster, "trn", 3, local_aws.client)
    properties = {
        "Cluster": cluster.cluster_name,
        "Label": outputs.GROUP_LABEL,
        "Group": "trn",
        "Nodes": "0",
        "Min": "0",
    }

    def nodes(kind: str, most: str) -> int:
        return int(respond(Request(kind, "stack", {**properties, "Max": most}), local_aws.client).attributes["Nodes"])

    assert (nodes("Update", "8"), nodes("Update", "2"), nodes("Create", "8")) == (3, 2, 0)


def looks(*each: Progress) -> Callable[[], Progress]:
    rest = iter(each)
    return lambda: next(rest)


def test_a_shortage_is_reported_once_and_waited_for() -> None:
    messages: list[str] = []
    short = Progress(4, 2, SHORTAGE)
    ended = wait(looks(Progress(4, 0), short, short, short, Progress(4, 4)), messages.append, sleep=lambda _: None)
    assert ended.done
    assert [line.split(" ")[0] for line in messages] == ["0", "2", "4"]
    assert "keeps trying" in messages[1]
    assert "reservation or capacity block" in messages[1]
    assert SHORTAGE in messages[1]


def test_after_the_timeout_the_next_command_is_printed() -> None:
    seconds: Any = iter([0.0, 10.0, 700.0])
    short = Progress(4, 2, SHORTAGE)
    with pytest.raises(ScaleError, match="keep the running nodes: --nodes 2"):
        wait(looks(short, short, short), lambda _: None, timeout=600, sleep=lambda _: None, clock=lambda: next(seconds))


def test_no_cluster_creation_waits_for_capacity() -> None:
    """By default no capacity is requested at the creation of either cluster."""
    env = settings.Environment()
    assert {r.min_nodes for q in env.pcluster.queues for r in q.compute_resources} == {0}
    assert {(g.min_nodes, g.nodes) for g in env.eks.node_groups} == {(0, 0)}
