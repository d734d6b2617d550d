"""Apps that do not use our environments: a stack of their own, with the CDK's own VPC and cluster."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from aws_cdk import Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks_v1
from aws_cdk import aws_eks_v2 as eks
from aws_cdk.assertions import Annotations, Match, Template
from aws_cdk.lambda_layer_kubectl_v35 import KubectlV35Layer

from tests.cdk import app

REGIONS = {
    name: Environment(account="111122223333", region=name) if name else None
    for name in ("us-west-2", "us-east-2", "eu-west-1", "eusc-de-east-1", "")
}
"""One with Trainium, one with trn2.48xlarge, one without, one of another partition, and none at all: an agnostic stack."""


def stack(region: str = "us-west-2") -> Stack:
    return Stack(app(), "Foreign", env=REGIONS[region])


def vpc(scope: Stack) -> ec2.Vpc:
    return ec2.Vpc(scope, "Vpc", max_azs=2)


def cluster(scope: Stack, id: str = "Mine", *, within: ec2.IVpc | None = None, kubectl: bool = False) -> eks.Cluster:
    layer = KubectlV35Layer(scope, "Kubectl") if kubectl else None
    return eks.Cluster(
        scope,
        id,
        version=eks.KubernetesVersion.V1_33,
        vpc=within or vpc(scope),
        default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
        default_capacity=0,
        kubectl_provider_options=eks.KubectlProviderOptions(kubectl_layer=layer) if layer else None,
    )


def cluster_v1(
    scope: Stack,
    within: ec2.IVpc,
    authentication_mode: eks_v1.AuthenticationMode | None = eks_v1.AuthenticationMode.API,
) -> eks_v1.Cluster:
    """A cluster of `aws_eks`, which a custom resource of the CDK creates."""
    return eks_v1.Cluster(
        scope,
        "Mine",
        version=eks_v1.KubernetesVersion.V1_33,
        vpc=within,
        kubectl_layer=KubectlV35Layer(scope, "Kubectl"),
        authentication_mode=authentication_mode,
        default_capacity=0,
    )


def template(build: Callable[[Stack], object], region: str = "us-west-2") -> Template:
    found = stack(region)
    build(found)
    return Template.from_stack(found)


def errors(build: Callable[[Stack], object], region: str = "us-west-2") -> list[str]:
    """What fails the synthesis, one line each."""
    found = stack(region)
    build(found)
    with pytest.raises(RuntimeError, match="Validation failed") as raised:
        Template.from_stack(found)
    return re.findall(r"^  \[Foreign/(.*)$", str(raised.value), re.MULTILINE)


def warnings(build: Callable[[Stack], object], region: str = "us-west-2") -> list[str]:
    found = stack(region)
    build(found)
    return [str(w.entry.data) for w in Annotations.from_stack(found).find_warning("*", Match.any_value())]
