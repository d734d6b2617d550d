"""`examples/strict_functions.py` on our stacks: every function is in the VPC and has reserved concurrency, and may do what that needs."""

from __future__ import annotations

import runpy
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from tests.audit.principals import evaluate, filled, of
from tests.cdk import app, findings, resources
from tests.support import ROOT
from trainium_cdk import settings
from trainium_cdk.stacks import TrnEksStack, TrnPclusterStack

FUNCTIONS = {TrnPclusterStack: 1, TrnEksStack: 5}
ENVIRONMENT = settings.validate({"pcluster": {"login_nodes": {}}, "eks": {}})
ENV = cdk.Environment(account="111122223333", region="us-east-1")


@pytest.fixture(scope="module")
def aspect() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cdk, "App", app)
        return runpy.run_path(str(ROOT / "examples/strict_functions.py"))["StrictFunctions"]


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_every_function_is_strict(kind: type[TrnEksStack], aspect: Any) -> None:
    stack = kind(app(), "Training", environment=ENVIRONMENT, env=ENV)
    cdk.Aspects.of(stack).add(aspect(stack, stack.vpc))
    template = Template.from_stack(stack)
    assert findings(template) == []
    made, roles = template.to_json(), of(template.to_json()).policies
    found = resources(template, "Lambda::Function")
    assert len(found) == FUNCTIONS[kind]
    parts = ("network-interface/*", "subnet/subnet-1", "security-group/sg-1")
    create = [("ec2:CreateNetworkInterface", f"arn:aws:ec2:us-east-1:111122223333:{part}") for part in parts]
    for name, function in found.items():
        properties = function["Properties"]
        assert properties["ReservedConcurrentExecutions"] == 5, name
        assert properties["VpcConfig"]["SubnetIds"], name
        assert properties["VpcConfig"]["SecurityGroupIds"], name
        role = filled(properties["Role"], made).rpartition("/")[2]
        needed = [*create, ("ec2:DescribeNetworkInterfaces", "*")]
        assert all(evaluate([{"policies": roles[role], "action": a, "resource": on} for a, on in needed])), name
