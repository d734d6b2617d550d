"""`functions: strict`: every function of a stack is in the VPC, has reserved concurrency, and hands over the calls that failed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit.principals import ask, filled, of
from tests.stacks import eks_synthesis, synthesis
from trainium_cdk import settings


@pytest.fixture(scope="module", params=["slurm", "eks"])
def made(request: pytest.FixtureRequest) -> dict[str, Any]:
    make = synthesis.template_of if request.param == "slurm" else eks_synthesis.template_of
    data: dict[str, Any] = {
        "functions": "strict",
        "encryption": "customer-key",
        "pcluster": {"login_nodes": {}},
        "eks": {},
    }
    found: dict[str, Any] = make(settings.validate(data)).to_json()
    return found


def functions(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {n: r for n, r in template["Resources"].items() if r["Type"] == "AWS::Lambda::Function"}


def test_every_function_is_strict(made: dict[str, Any]) -> None:
    [queue] = [name for name, r in made["Resources"].items() if r["Type"] == "AWS::SQS::Queue"]
    assert len(functions(made)) >= 3
    for name, resource in functions(made).items():
        properties = resource["Properties"]
        assert properties["DeadLetterConfig"] == {"TargetArn": {"Fn::GetAtt": [queue, "Arn"]}}, name
        assert properties["ReservedConcurrentExecutions"] >= 1, name
        assert properties["VpcConfig"]["SubnetIds"], name


def test_every_functions_role_may_do_what_that_needs(made: dict[str, Any]) -> None:
    """Lambda refuses a function whose role may not write to the queue, or make network interfaces."""
    roles = of(made).policies
    [queue] = [name for name, r in made["Resources"].items() if r["Type"] == "AWS::SQS::Queue"]
    arn = filled({"Fn::GetAtt": [queue, "Arn"]}, made)
    named = [filled(r["Properties"]["Role"], made).rpartition("/")[2] for r in functions(made).values()]
    needed = [("sqs:SendMessage", arn), ("ec2:CreateNetworkInterface", "*")]
    assert all(ask([{"policies": roles[r], "action": a, "resource": on} for r in named for a, on in needed]))
    assert not any(ask([{"policies": roles[r], "action": "sqs:ReceiveMessage", "resource": arn} for r in named]))


def test_without_the_setting_no_concurrency_is_taken_off_the_accounts() -> None:
    """A new account has next to none to reserve."""
    for template in (synthesis.template("default").to_json(), eks_synthesis.document("default")):
        assert not any("ReservedConcurrentExecutions" in r["Properties"] for r in functions(template).values())
