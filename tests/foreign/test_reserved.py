"""Reservations and placement groups that exist: each engine's construct renders every form that EC2 takes, judged by CloudFormation's schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_resourcegroups as groups
from aws_cdk.assertions import Template

from tests.cdk import findings, properties
from tests.foreign.foreign import cluster, errors, template, vpc, warnings
from trainium_cdk import TrnNodeGroup, TrnPcluster, TrnPcsCluster, settings

ONE = "cr-0123456789abcdef0"
GROUP = "arn:aws:resource-groups:us-west-2:111122223333:group/my.reservations"
Given = dict[str, Any]


def pcluster(scope: Stack, reservation: str | None, placement: str, capacity_type: str = "on-demand") -> None:
    resource = settings.ComputeResource(reservation=reservation, min_nodes=2, max_nodes=2)
    queue = settings.Queue(
        name="trn", capacity_type=capacity_type, placement_group=placement, compute_resources=(resource,)
    )
    TrnPcluster(scope, "Slurm", vpc=vpc(scope), queues=[queue])


def pcs(scope: Stack, reservation: str | None, placement: str, capacity_type: str = "on-demand") -> None:
    resource = settings.PcsResource(reservation=reservation, min_nodes=2, max_nodes=2)
    queue = settings.PcsQueue(
        name="trn", capacity_type=capacity_type, placement_group=placement, compute_resources=(resource,)
    )
    TrnPcsCluster(scope, "Slurm", vpc=vpc(scope), queues=[queue])


def eks(scope: Stack, reservation: str | None, placement: str, capacity_type: str = "on-demand") -> None:
    nodes = settings.NodeGroup(placement_group=placement, capacity_type=capacity_type, reservation=reservation)
    TrnNodeGroup(scope, "Trn", cluster=cluster(scope), nodes=nodes)


BUILDERS: dict[str, Callable[..., None]] = {"slurm": pcluster, "pcs": pcs, "eks": eks}


def launched(engine: str, found: Template) -> tuple[Given, Given]:
    """What the engine gives EC2: the target of the reservation, and the placement."""
    if engine == "slurm":
        [made] = found.find_resources("Custom::PclusterCluster").values()
        queue = made["Properties"]["ClusterConfiguration"]["Scheduling"]["SlurmQueues"][0]
        placement = queue["Networking"]["PlacementGroup"]
        return queue["ComputeResources"][0].get("CapacityReservationTarget", {}), placement
    [data] = [
        t["LaunchTemplateData"]
        for t in properties(found, "EC2::LaunchTemplate")
        if t["LaunchTemplateData"].get("InstanceType") == "trn1.32xlarge"
    ]
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return target, data.get("Placement", {})


@pytest.mark.parametrize("region", ["us-west-2", ""])
@pytest.mark.parametrize("engine", BUILDERS)
@pytest.mark.parametrize(
    ("reservation", "placement", "target", "where"),
    [
        (ONE, "auto", {"CapacityReservationId": ONE}, None),
        (GROUP, "auto", {"CapacityReservationResourceGroupArn": GROUP}, None),
        (ONE, "my odcr group", {"CapacityReservationId": ONE}, "my odcr group"),
        (GROUP, "my-group", {"CapacityReservationResourceGroupArn": GROUP}, "my-group"),
        (None, "my-group", {}, "my-group"),
    ],
)
def test_every_form_is_rendered(
    engine: str, region: str, reservation: str | None, placement: str, target: Given, where: str | None
) -> None:
    found = template(lambda s: BUILDERS[engine](s, reservation, placement), region)
    names = {"Name": where} if engine == "slurm" else {"GroupName": where}
    none: Given = {"Enabled": False} if engine == "slurm" else {}
    assert launched(engine, found) == (target, names if where else none)
    assert findings(found) == []


@pytest.mark.parametrize("engine", BUILDERS)
def test_a_reservation_or_a_group_of_the_same_app(engine: str) -> None:
    """Tokens: an id is a `Ref`, the ARN of a group the attribute `Arn`."""

    def of_group(scope: Stack) -> None:
        pool = groups.CfnGroup.ConfigurationItemProperty(type="AWS::EC2::CapacityReservationPool")
        group = groups.CfnGroup(scope, "Group", name="mine", configuration=[pool])
        BUILDERS[engine](scope, group.attr_arn, "auto")

    def of_one(scope: Stack) -> None:
        placement = ec2.PlacementGroup(scope, "Near", strategy=ec2.PlacementGroupStrategy.CLUSTER)
        one = ec2.CfnCapacityReservation(
            scope, "Odcr", availability_zone="us-west-2a", instance_count=2, instance_platform="Linux/UNIX",
            instance_type="trn1.32xlarge", placement_group_arn=f"arn:aws:ec2:::placement-group/{placement.placement_group_name}",
        )  # fmt: skip
        BUILDERS[engine](scope, one.ref, placement.placement_group_name)

    target, _ = launched(engine, template(of_group))
    assert target == {"CapacityReservationResourceGroupArn": {"Fn::GetAtt": ["Group", "Arn"]}}
    target, placement = launched(engine, template(of_one))
    assert target == {"CapacityReservationId": {"Ref": "Odcr"}}
    assert "Near" in json.dumps(placement)


def test_a_node_group_takes_a_placement_group() -> None:
    def build(scope: Stack) -> None:
        group = ec2.PlacementGroup.from_placement_group_name(scope, "Near", "my-group")
        TrnNodeGroup(
            scope, "Trn", cluster=cluster(scope), nodes=settings.NodeGroup(reservation=ONE), placement_group=group
        )

    assert launched("eks", template(build)) == ({"CapacityReservationId": ONE}, {"GroupName": "my-group"})
    shared = template(lambda s: eks(s, ONE, "pg-0123456789abcdef0"))
    assert launched("eks", shared)[1] == {"GroupId": "pg-0123456789abcdef0"}, "a group that another account shares"


@pytest.mark.parametrize("engine", BUILDERS)
def test_what_cannot_be_is_refused_with_the_way_out(engine: str) -> None:
    def told(*given: str) -> str:
        return " ".join(errors(lambda s: BUILDERS[engine](s, *given)))

    new = " ".join(warnings(lambda s: BUILDERS[engine](s, ONE, "on")))
    assert "may be outside the stack's new placement group" in new
    assert "the name of the placement group in which the reservation was made" in new
    assert "this group is in us-east-1, and the nodes are in us-west-2" in told(
        GROUP.replace("us-west-2", "us-east-1"), "auto"
    )
    if engine == "slurm":
        assert "ParallelCluster finds a placement group by its name" in told(ONE, "pg-0123456789abcdef0")
        assert "ParallelCluster finds a capacity block by its id" in told(GROUP, "auto", "capacity-block")
    else:
        block = warnings(lambda s: BUILDERS[engine](s, GROUP, "auto", "capacity-block"))
        assert "shows the id of one block only" in " ".join(block)
