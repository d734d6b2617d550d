"""Every function of a stack keeps its failed calls in a queue; with `functions: strict` it is also in the VPC and has reserved
concurrency. Its permissions are managed policies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit.principals import evaluate, filled, of
from tests.stacks import synthesis
from trainium_cdk import settings


@pytest.fixture(scope="module", params=["slurm", "eks"])
def made(request: pytest.FixtureRequest) -> dict[str, Any]:
    make = synthesis.SLURM.template_of if request.param == "slurm" else synthesis.EKS.template_of
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
    kubernetes = any(r["Type"] == "AWS::EKS::Cluster" for r in made["Resources"].values())
    assert len(functions(made)) == (5 if kubernetes else 1)
    for name, resource in functions(made).items():
        properties = resource["Properties"]
        assert properties["DeadLetterConfig"] == {"TargetArn": {"Fn::GetAtt": [queue, "Arn"]}}, name
        assert properties["ReservedConcurrentExecutions"] >= 1, name
        assert properties["VpcConfig"]["SubnetIds"], name


def test_every_functions_role_may_do_what_that_needs(made: dict[str, Any]) -> None:
    """Lambda rejects a function whose role may not write to the queue, or create network interfaces."""
    roles = of(made).policies
    [queue] = [name for name, r in made["Resources"].items() if r["Type"] == "AWS::SQS::Queue"]
    arn = filled({"Fn::GetAtt": [queue, "Arn"]}, made)
    named = [filled(r["Properties"]["Role"], made).rpartition("/")[2] for r in functions(made).values()]
    parts = ("network-interface/*", "subnet/subnet-1", "security-group/sg-1")
    interface = [("ec2:CreateNetworkInterface", f"arn:aws:ec2:us-east-1:111122223333:{part}") for part in parts]
    needed = [("sqs:SendMessage", arn), *interface, ("ec2:DescribeNetworkInterfaces", "*")]
    assert all(evaluate([{"policies": roles[r], "action": a, "resource": on} for r in named for a, on in needed]))
    assert not any(evaluate([{"policies": roles[r], "action": "sqs:ReceiveMessage", "resource": arn} for r in named]))


DEFAULTS = {"slurm": lambda: synthesis.SLURM.document("default"), "eks": lambda: synthesis.EKS.document("default")}


@pytest.mark.parametrize("engine", DEFAULTS)
def test_without_the_setting_no_concurrency_is_subtracted_from_the_accounts(engine: str) -> None:
    """A new account has next to none to reserve."""
    found = functions(DEFAULTS[engine]())
    assert not any("ReservedConcurrentExecutions" in r["Properties"] for r in found.values())


@pytest.mark.parametrize("engine", DEFAULTS)
def test_without_the_setting_failed_calls_are_kept_and_functions_of_kubernetes_are_in_the_vpc(engine: str) -> None:
    template = DEFAULTS[engine]()
    [(name, queue)] = [(n, r["Properties"]) for n, r in template["Resources"].items() if r["Type"] == "AWS::SQS::Queue"]
    [key] = [n for n, r in template["Resources"].items() if r["Type"] == "AWS::KMS::Key"] or [None]
    assert queue["KmsMasterKeyId"] == ({"Fn::GetAtt": [key, "Arn"]} if key else "alias/aws/sqs")
    found = [r["Properties"] for r in functions(template).values()]
    assert all(f["DeadLetterConfig"] == {"TargetArn": {"Fn::GetAtt": [name, "Arn"]}} for f in found)
    assert {"VpcConfig" in f for f in found} == {engine == "eks"}


@pytest.mark.parametrize("engine", DEFAULTS)
def test_no_policy_is_inline(engine: str) -> None:
    found = DEFAULTS[engine]()["Resources"].values()
    assert not [r for r in found if r["Type"] == "AWS::IAM::Policy" or "Policies" in r.get("Properties", {})]


@pytest.mark.parametrize("engine", DEFAULTS)
def test_functions_of_the_deployment_share_a_log_group(engine: str) -> None:
    """Of the deployment and, on Kubernetes, of the scaler, which users read."""
    groups = {r["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] for r in functions(DEFAULTS[engine]()).values()}
    assert sorted(name[:-8] for name in groups) == (["PluginsObjectsLogs", "ScalerLogs"] if engine == "eks" else []) + [
        "TrnDeploymentLogs"
    ]
