"""Everything that the package exports: documented, and usable alone in a foreign app."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import aws_cdk as cdk
import pytest
from aws_cdk import Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template
from constructs import Construct

import trainium_cdk as trn
from tests.cdk import app, resources
from tests.foreign.foreign import cluster, vpc
from trainium_cdk import settings

ALONE: dict[str, Callable[[Stack], object]] = {
    "TrnAddons": lambda s: trn.TrnAddons(s, "It", cluster=cluster(s)),
    "TrnBootstrap": lambda s: trn.TrnBootstrap(s, "It", bucket=s3.Bucket(s, "Bucket")),
    "TrnBucket": lambda s: trn.TrnBucket(s, "It"),
    "TrnEfaSecurityGroup": lambda s: trn.TrnEfaSecurityGroup(s, "It", vpc=vpc(s)),
    "TrnEksCluster": lambda s: trn.TrnEksCluster(s, "It", vpc=vpc(s)),
    "TrnImageBuilder": lambda s: trn.TrnImageBuilder(s, "It", bucket=s3.Bucket(s, "B"), repository=ecr.Repository(s, "R")),
    "TrnBastionHost": lambda s: trn.TrnBastionHost(s, "It", vpc=vpc(s)),
    "TrnJobNotices": lambda s: trn.TrnJobNotices(s, "It", log_group=logs.LogGroup(s, "Lines"), topic=sns.Topic(s, "Topic", enforce_ssl=True)),
    "TrnKey": lambda s: trn.TrnKey(s, "It", description="Data"),
    "TrnNetwork": lambda s: trn.TrnNetwork(s, "It"),
    "TrnNodeGroup": lambda s: trn.TrnNodeGroup(s, "It", cluster=cluster(s)),
    "TrnNodeRole": lambda s: trn.TrnNodeRole(s, "It"),
    "TrnObservability": lambda s: trn.TrnObservability(s, "It", cluster=trn.TrnPcluster(s, "Slurm", vpc=vpc(s))),
    "TrnPcluster": lambda s: trn.TrnPcluster(s, "It", vpc=vpc(s)),
    "TrnPclusterProvider": lambda s: trn.TrnPclusterProvider(s, "It"),
    "TrnPcsCluster": lambda s: trn.TrnPcsCluster(s, "It", vpc=vpc(s)),
    "TrnPeering": lambda s: trn.TrnPeering(s, "It", vpc=vpc(s), peer=settings.Peering(vpc_id="vpc-0123456789abcdef0", cidr=("10.1.0.0/16",))),
    "TrnRegistry": lambda s: trn.TrnRegistry(s, "It"),
    "TrnStorage": lambda s: trn.TrnStorage(s, "It", vpc=vpc(s)),
    "TrnSystemNodes": lambda s: trn.TrnSystemNodes(s, "It", cluster=cluster(s)),
}  # fmt: skip
TOGETHER = {"TrnEks", "TrnOutputs", "TrnPlugins", "TrnScaler"}
"""What needs another of ours: tests/foreign/test_eks.py."""
VALUES = {"FileSystemMount"}
"""Frozen values, which construct nothing."""
FUNCTIONS = ["encrypt", "encrypt_operations"]
"""What changes a stack: tests/foreign/test_hardening.py."""
CONSTRUCTS = sorted({*ALONE, *TOGETHER})


def test_the_tables_name_every_export() -> None:
    assert {*ALONE, *TOGETHER, *VALUES, *FUNCTIONS} == set(trn.__all__)


@pytest.fixture(scope="module")
def templates() -> dict[str, Template]:
    """A stack for each construct, in one app: one synthesis serves all."""
    env = cdk.Environment(account="111122223333", region="us-west-2")
    found = app()
    stacks = {name: Stack(found, name, env=env) for name in ALONE}
    for name, stack in stacks.items():
        ALONE[name](stack)
    return {name: Template.from_stack(stack) for name, stack in stacks.items()}


@pytest.mark.parametrize("name", sorted(ALONE))
def test_it_works_alone(name: str, templates: dict[str, Template]) -> None:
    assert [r for r in templates[name].to_json()["Resources"] if r.startswith("It")]


@pytest.mark.parametrize("name", ["TrnImageBuilder", "TrnBastionHost"])
def test_permissions_can_be_granted_to_it(name: str) -> None:
    stack = Stack(app(), "Stack")
    grantee: iam.IGrantable = ALONE[name](stack)  # type: ignore[assignment]
    s3.Bucket(stack, "Data").grant_read(grantee)
    policies = resources(Template.from_stack(stack), "IAM::Policy")
    assert any("s3:GetObject*" in str(p) and "Data" in str(p) for p in policies.values())


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_its_arguments_are_flat_and_each_default_is_documented(name: str) -> None:
    construct = getattr(trn, name)
    assert issubclass(construct, Construct)
    text = inspect.getdoc(construct) or ""
    assert "\nExample:\n" in text
    assert name in text.partition("\nExample:\n")[2], "the example shows it"
    parameters = list(inspect.signature(construct.__init__).parameters.values())[3:]
    arguments = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.partition("\nArgs:\n")[2].partition("\n\n")[0], re.MULTILINE)  # fmt: skip
    documented = {key: " ".join(description.split()) for key, description in arguments}
    assert [p.name for p in parameters if p.name not in documented] == []
    for parameter in parameters:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert "Environment" not in str(parameter.annotation), "an environment is for the stacks alone"
        assert "Cfn" not in str(parameter.annotation)
        if parameter.default is not inspect.Parameter.empty:
            assert "Default: " in documented[parameter.name], parameter.name
    source = inspect.getsource(construct.__init__)
    if "raise " in source:
        assert "\nRaises:\n" in text
