"""Security groups of the Kubernetes API, and what is known of node groups, in a stack without a cluster of ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aws_cdk import Stack, aws_eks_v2

from tests.cdk import app, properties, synth
from trainium_cdk.cdk.eks.cluster import ApiGroups
from trainium_cdk.cdk.eks.groups import ExistingNodeGroup, refuse_duplicates
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs.eks import fleet_of
from trainium_cdk.description.settings import NodeGroup

FLEET = fleet_of(Catalog.load().instance("trn1.32xlarge"), NodeGroup(max_nodes=4))


def test_only_clients_reach_the_api_and_they_reach_https_alone() -> None:
    found = synth(lambda stack: ApiGroups(stack, "vpc-0123456789abcdef0"))
    groups = properties(found, "EC2::SecurityGroup")
    rules = [r for group in groups for r in group.get("SecurityGroupEgress", []) if r["IpProtocol"] != "icmp"]
    out = [(r["IpProtocol"], r["FromPort"], r["ToPort"], r["CidrIp"]) for r in rules if r["CidrIp"] == "0.0.0.0/0"]
    assert out == [("tcp", 443, 443, "0.0.0.0/0")]


def test_the_arn_of_an_existing_group() -> None:
    stack = Stack(app(), "S", env={"account": "111122223333", "region": "us-east-2"})
    cluster = aws_eks_v2.Cluster.from_cluster_attributes(stack, "C", cluster_name="lab")
    found = ExistingNodeGroup(cluster, "nodes", FLEET, None).nodegroup_arn
    assert stack.resolve(found) == {
        "Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":eks:us-east-2:111122223333:nodegroup/lab/nodes/*"]]
    }


def test_two_groups_of_one_name_are_refused() -> None:
    construct = cast("Any", SimpleNamespace(node=SimpleNamespace(path="S/Plugins")))
    group, other = (
        cast("Any", SimpleNamespace(fleet=fleet)) for fleet in (FLEET, FLEET.model_copy(update={"resource": "b"}))
    )
    refuse_duplicates(construct, [group, other])
    with pytest.raises(
        ValueError, match="S/Plugins: node_groups: 2 are named trn, and queues and jobs select nodes by the name"
    ):
        refuse_duplicates(construct, [group, other, group])
