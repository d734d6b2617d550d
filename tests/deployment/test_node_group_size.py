"""`Custom::TrnNodeGroupSize`: a deployment does not undo a scaling."""

from __future__ import annotations

from typing import Any

import pytest

from trainium_cdk import settings
from trainium_cdk.cdk.deployment.nodes import size_of_group as respond
from trainium_cdk.cdk.deployment.request import Request


class Eks:
    """The two calls of the EKS API that the function makes."""

    def __init__(self, groups: dict[str, tuple[str, int]]):
        self.groups = groups

    def get_paginator(self, operation: str) -> Eks:
        assert operation == "list_nodegroups"
        return self

    def paginate(self, clusterName: str) -> list[dict[str, list[str]]]:  # noqa: N803  boto3's
        assert clusterName == "trn-eks"
        return [{"nodegroups": [name]} for name in self.groups]

    def describe_nodegroup(self, clusterName: str, nodegroupName: str) -> dict[str, Any]:  # noqa: N803
        assert clusterName == "trn-eks"
        label, size = self.groups[nodegroupName]
        return {"nodegroup": {"labels": {"label": label}, "scalingConfig": {"desiredSize": size}}}


@pytest.mark.parametrize(
    ("kind", "groups", "expected"),
    [
        ("Create", {}, 2),
        ("Create", {"x": ("trn", 5)}, 2),
        ("Update", {"x": ("trn", 5), "y": ("system", 9)}, 5),
        ("Update", {"x": ("trn", 0)}, 1),  # never fewer than the fewest
        ("Update", {"x": ("trn", 40)}, 8),  # never more than the most
        ("Update", {"x": ("trn", 3), "z": ("trn", 4)}, 4),  # while one replaces the other
        ("Update", {}, 2),  # removed manually
        ("Delete", {}, 2),
    ],
)
def test_sizes_are_kept(kind: str, groups: dict[str, tuple[str, int]], expected: int) -> None:
    wanted = {"Cluster": "trn-eks", "Group": "trn", "Label": "label", "Nodes": "2", "Min": "1", "Max": "8"}
    response = respond(Request(kind, "stack", wanted), lambda _: Eks(groups))
    assert response.attributes == {"Nodes": expected}


def test_no_cluster_creation_waits_for_capacity() -> None:
    """By default no capacity is requested at the creation of either cluster."""
    env = settings.Environment()
    assert {r.min_nodes for q in env.pcluster.queues for r in q.compute_resources} == {0}
    assert {(g.min_nodes, g.nodes) for g in env.eks.node_groups} == {(0, 0)}
