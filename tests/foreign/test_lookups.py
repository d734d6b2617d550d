"""Values that the CDK's command line looks up: the first synthesis, without them, must succeed, or nothing is looked up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App, CfnParameter, Stack
from aws_cdk import aws_ec2 as ec2

from tests.foreign.foreign import cluster, stack, template
from trainium_cdk import TrnBastionHost, TrnEksCluster, TrnNodeGroup, TrnPcluster, TrnStorage, TrnSystemNodes

Selection = Callable[[ec2.IVpc], ec2.SubnetSelection]
SELECTIONS: dict[str, Selection] = {
    "of a group": lambda _: ec2.SubnetSelection(subnet_group_name="Trainium"),
    "of a zone": lambda _: ec2.SubnetSelection(availability_zones=["us-west-2a"]),
    "chosen before": lambda vpc: ec2.SubnetSelection(subnets=vpc.select_subnets(subnet_group_name="Trainium").subnets),
}


@pytest.mark.parametrize("which", SELECTIONS)
def test_subnets_of_a_vpc_that_is_looked_up(which: str) -> None:
    scope = stack()
    vpc = ec2.Vpc.from_lookup(scope, "Vpc", vpc_id="vpc-0123456789abcdef0")
    subnets, mine = SELECTIONS[which](vpc), cluster(scope, within=vpc)
    TrnStorage(scope, "S", vpc=vpc, vpc_subnets=subnets)
    TrnEksCluster(scope, "C", vpc=vpc, vpc_subnets=subnets)
    TrnPcluster(scope, "P", vpc=vpc, vpc_subnets=subnets)
    TrnBastionHost(scope, "B", vpc=vpc, vpc_subnets=subnets)
    TrnNodeGroup(scope, "G", cluster=mine, vpc_subnets=subnets)
    TrnSystemNodes(scope, "N", cluster=mine, vpc_subnets=subnets)
    app = scope.node.root
    assert isinstance(app, App)
    [missing] = json.loads((Path(app.synth().directory) / "manifest.json").read_text())["missing"]
    assert missing["provider"] == "vpc-provider"


def test_subnets_whose_number_is_not_known() -> None:
    def build(scope: Stack) -> None:
        ids = CfnParameter(scope, "Ids", type="List<AWS::EC2::Subnet::Id>").value_as_list
        vpc = ec2.Vpc.from_vpc_attributes(
            scope, "Vpc", vpc_id="vpc-1", availability_zones=["a"], private_subnet_ids=ids
        )
        TrnEksCluster(scope, "C", vpc=vpc)

    with pytest.raises(ValueError, match=r"Foreign/Vpc: its subnets are a list whose length is not known .* plain ids"):
        template(build)
