"""Which nodes are near each other, with the EC2 of the local AWS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws
from tests.jobs.conftest import make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from trainium_cdk.jobs import JobError, topology
from trainium_cdk.jobs.status import Node
from trainium_cdk.outputs.pcs import PcsCluster

SLURM = make_cluster(region="us-east-1")
PCS = PcsCluster.model_construct(cluster_id="pcs_1", region="us-east-1")


@pytest.fixture
def instances(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Five of a Slurm cluster, four of them below one network node; the user's keys."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    ec2, file = local_aws.client("ec2"), local_aws.directory / "topology.json"
    file.write_text('[["nn-1", "nn-2", "nn-3"], ["nn-1", "nn-2", "nn-3"], ["nn-1", "nn-2", "nn-4"]]')
    tags = [
        {"Key": "parallelcluster:cluster-name", "Value": SLURM.cluster_name},
        {"Key": "aws:pcs:cluster-id", "Value": "pcs_1"},
    ]
    made = ec2.run_instances(
        InstanceType="trn1.32xlarge",
        MinCount=3,
        MaxCount=3,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]
    ec2.describe_instance_topology(InstanceIds=[i["InstanceId"] for i in made])
    yield made
    ec2.terminate_instances(InstanceIds=[i["InstanceId"] for i in made])
    file.unlink()


def node(name: str, **more: Any) -> Node:
    return Node(name, "q", "trn1.32xlarge", "idle", **more)


TREE = """nn-1
  nn-2
    nn-3
      n0  gpt-6-7b-1:train
      n1
    nn-4
      n2  gpt-6-7b-1:train
network node not known
  n3"""


@pytest.mark.parametrize("cluster", [SLURM, PCS, make_eks()], ids=["slurm", "pcs", "eks"])
def test_the_network_of_nodes(instances: list[dict[str, Any]], cluster: Any, local_aws: LocalAws) -> None:
    """Slurm's by their addresses in this cluster, Kubernetes' by their instances; those that EC2 does not tell are told."""
    key = ("instance", "InstanceId") if cluster.containers else ("address", "PrivateIpAddress")
    jobs = ["gpt-6-7b-1:train", "", "gpt-6-7b-1:train"]
    nodes = [node(f"n{at}", job=jobs[at], **{key[0]: i[key[1]]}) for at, i in enumerate(instances)]
    other = node("n3", **{key[0]: "10.255.255.1" if key[0] == "address" else "i-00000000000000000"})
    found = topology.known([*nodes, other, node("off", on=False)], cluster)
    assert [n.network[2:] for n in found] == [("nn-3",), ("nn-3",), ("nn-4",), (), ()]
    assert "\n".join(topology.tree(found[:4])) == TREE
    mine = topology.of_job(found, "gpt-6.7b-1")
    assert topology.described(mine) == (
        "2 nodes below 2 network nodes of layer 3 (nn-3 has 1, nn-4 has 1), and below one of layer 2 (nn-2)"
    )
    assert topology.known(found[:3], replace_region(cluster)) == found[:3]  # labels are enough: EC2 is not asked


def replace_region(cluster: Any) -> Any:
    return cluster.model_copy(update={"region": "nowhere"})


def test_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    class Denied:
        def describe_instance_topology(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "DescribeInstanceTopology")

        exceptions = type("exceptions", (), {"ClientError": ClientError})

    monkeypatch.setattr(topology, "client", lambda *_: Denied())
    with pytest.raises(JobError, match=r"Request the permission ec2:DescribeInstanceTopology$"):
        topology.known([node("a", instance="i-00000000000000001")], make_eks())


def test_sentences() -> None:
    assert topology.described([node("a")]) == "1 node, below network nodes that are not known"
    spread = [node(str(at), network=("r", layer2, layer3)) for at, (layer2, layer3) in enumerate(["ac", "ad", "be"])]
    assert topology.described(spread) == (
        "3 nodes below 3 network nodes of layer 3 (c has 1, d has 1, e has 1), and below 2 of layer 2 (a has 2, b has 1), "
        "and below one of layer 1 (r)"
    )
    import doctest

    assert doctest.testmod(topology).failed == 0
    assert replace(node("a"), network=("x",)).network == ("x",)
