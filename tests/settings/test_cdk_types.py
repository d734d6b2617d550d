"""Settings take the CDK's own types and its tokens, and refuse what is wrong in words that name the fix."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks_v1
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import settings
from trainium_cdk.description.settings.base import Settings


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("instance_type", ec2.InstanceType("trn2.48xlarge"), "trn2.48xlarge"),
        ("capacity_type", eks.CapacityType.SPOT, "spot"),
        ("capacity_type", eks_v1.CapacityType.ON_DEMAND, "on-demand"),
        ("capacity_type", eks.CapacityType.CAPACITY_BLOCK, "capacity-block"),
        ("root_volume_gib", cdk.Size.tebibytes(1), 1024),
    ],
)
def test_the_cdk_s_types(key: str, given: Any, value: object) -> None:
    assert getattr(settings.NodeGroup(**{key: given}), key) == value


def test_nodes_begin_as_the_fewest() -> None:
    assert (settings.NodeGroup(min_nodes=2).nodes, settings.NodeGroup(min_nodes=1, nodes=2).nodes) == (2, 2)


def test_tokens_where_the_template_can_have_one() -> None:
    number = cdk.Token.as_number({"Ref": "Volume"})
    assert settings.NodeGroup(root_volume_gib=number).root_volume_gib == number
    assert settings.NodeGroup(root_volume_gib=cdk.Size.gibibytes(number)).root_volume_gib == number


@pytest.mark.parametrize(
    ("model", "values", "said", "fixed"),
    [
        (settings.NodeGroup, {"root_volume_gib": cdk.Size.mebibytes(100)}, "root_volume_gib = (Size): '100 mebibytes' cannot be converted into a whole number of gibibytes. Fix: give whole GiB.", {"root_volume_gib": 40}),
        (settings.NodeGroup, {"min_nodes": cdk.Token.as_number({"Ref": "X"})}, "min_nodes is a token of the CDK, which has no value before the deployment. Fix: give a number.", {"min_nodes": 1}),
        (settings.NodeGroup, {"instance_type": cdk.Token.as_string({"Ref": "X"})}, "this must be known. Fix: give the text.", {"instance_type": "trn1.2xlarge"}),
        (settings.NodeGroup, {"root_volume_gib": 1}, "root_volume_gib = 1: should be greater than or equal to 40. Fix: write 40 or more.", {"root_volume_gib": 40}),
        (settings.NodeGroup, {"min_nodes": 3, "nodes": 1}, "min_nodes 3, nodes 1 and max_nodes 2 are not in that order. Fix: write min_nodes <= nodes <= max_nodes.", {"min_nodes": 1, "nodes": 1}),
        (settings.NodeGroup, {"min_node": 3}, "min_node = 3: this key does not exist. Fix: write min_nodes.", {"min_nodes": 1}),
        (settings.Queue, {"capacity_type": "spott"}, "capacity_type = spott: not one of the allowed values. Fix: write 'on-demand', 'spot' or 'capacity-block'.", {"capacity_type": "spot"}),
        (settings.Queue, {"compute_resources": [{"max_node": 2}]}, "compute_resources[0].max_node = 2: this key does not exist. Fix: write max_nodes.", {"compute_resources": [{"max_nodes": 2}]}),
    ],
)  # fmt: skip
def test_wrong_values(model: type[Settings], values: dict[str, Any], said: str, fixed: dict[str, Any]) -> None:
    with pytest.raises(settings.SettingsError) as caught:
        model(**values)
    assert str(caught.value).startswith(f"{model.__name__}: error: ")
    assert said in str(caught.value)
    model(**fixed)
