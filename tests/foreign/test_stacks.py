"""Our stacks in an app of others: no arguments but scope and id, and what to build on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template

from tests.cdk import app, findings, resources
from tests.wheels import run
from trainium_cdk.errors import SettingsError
from trainium_cdk.stacks import TrnEksStack, TrnPclusterStack, TrnPcsStack

STACKS = [TrnEksStack, TrnPclusterStack, TrnPcsStack]
AVAILABLE = {"us-west-2": "usw2-az", "us-east-2": "use2-az"}


@pytest.fixture(autouse=True)
def _no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CDK_DEFAULT_REGION", raising=False)


def zones(template: Template) -> set[str]:
    return {subnet["Properties"]["AvailabilityZoneId"] for subnet in resources(template, "EC2::Subnet").values()}


@pytest.mark.parametrize("kind", STACKS)
def test_a_machine_of_theirs_in_the_vpc_reads_the_bucket(kind: type[TrnEksStack]) -> None:
    stack = kind(app(), "Training")
    assert cdk.Token.is_unresolved(stack.region)
    assert cdk.Token.is_unresolved(stack.account)
    machine = ec2.Instance(
        stack,
        "Theirs",
        vpc=stack.vpc,
        instance_type=ec2.InstanceType("t3.small"),
        machine_image=ec2.MachineImage.latest_amazon_linux2023(),
    )
    stack.bucket.grant_read(machine)
    made = Template.from_stack(stack)
    assert findings(made) == []
    theirs = _theirs(made, "EC2::Instance")
    subnets = resources(made, "EC2::Subnet")
    assert theirs["SubnetId"]["Ref"] in subnets
    [role] = [name for name in resources(made, "IAM::Role") if name.startswith("Theirs")]
    policies = {**resources(made, "IAM::ManagedPolicy"), **resources(made, "IAM::Policy")}
    [granted] = [p for p in policies.values() if {"Ref": role} in p["Properties"].get("Roles", [])]
    bucket = stack.get_logical_id(stack.bucket.node.default_child)
    assert "s3:GetObject*" in json.dumps(granted)
    assert bucket in json.dumps(granted)


def _theirs(template: Template, kind: str) -> dict[str, Any]:
    [found] = [r["Properties"] for name, r in resources(template, kind).items() if name.startswith("Theirs")]
    return dict(found)


@pytest.mark.parametrize("kind", STACKS)
def test_its_parts_are_public(kind: type[TrnEksStack]) -> None:
    stack = kind(app(), "Training")
    for name in "vpc", "cluster", "storage", "bucket":
        assert getattr(stack, name).node.scopes[1] is stack


@pytest.mark.parametrize(("given", "region"), [("env", "us-west-2"), ("stage", "us-east-2"), ("command", "us-west-2")])
def test_the_defaults_are_those_of_its_region(given: str, region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, its stage's, or the one that the CDK's command line deploys to."""
    env, scope = cdk.Environment(account="111122223333", region=region), app()
    if given == "command":
        monkeypatch.setenv("CDK_DEFAULT_REGION", region)
    stage = cdk.Stage(scope, "Stage", env=env) if given == "stage" else scope
    stack = TrnPclusterStack(stage, "Training", env=env) if given == "env" else TrnPclusterStack(stage, "Training")
    assert {zone[:-1] for zone in zones(Template.from_stack(stack))} == {AVAILABLE[region]}


def test_a_region_without_trainium_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"region = eu-west-1: .*Fix: use "):
        TrnPclusterStack(app(), "Training", env=cdk.Environment(region="eu-west-1"))


@pytest.mark.sweep
def test_the_wheel_holds_the_stacks(installed: Path, tmp_path: Path) -> None:
    program = "from trainium_cdk.stacks import TrnEksStack, TrnPclusterStack, TrnPcsStack; import trainium_cdk.stacks as s; print(s.__file__)"
    place = run(installed, "-c", program, cwd=tmp_path)
    assert Path(place).is_relative_to(installed.parents[1])
