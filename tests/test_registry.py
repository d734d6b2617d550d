"""`TrnRegistry`: scanned, immutable, forgetful, and emptied without a function of its own."""

from __future__ import annotations

import json

import pytest
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam

from tests.cdk import findings, only, synth
from trainium_cdk import settings as trn
from trainium_cdk.cdk.registry import TrnRegistry


@pytest.mark.parametrize(
    ("removal", "policy", "emptied"),
    [(RemovalPolicy.DESTROY, "Delete", True), (RemovalPolicy.RETAIN, "Retain", False)],
)
def test_removal_of_the_images(removal: RemovalPolicy, policy: str, emptied: bool) -> None:
    template = synth(lambda s: TrnRegistry(s, "Registry", removal_policy=removal))
    [repository] = template.to_json()["Resources"].values()
    assert (repository["Type"], repository["DeletionPolicy"]) == ("AWS::ECR::Repository", policy)
    assert repository["Properties"].get("EmptyOnDelete", False) is emptied
    assert findings(template) == []


@pytest.mark.parametrize(("immutable", "mutability"), [(True, "IMMUTABLE"), (False, "MUTABLE")])
def test_settings(immutable: bool, mutability: str) -> None:
    settings = trn.Registry(keep_images=7, immutable_tags=immutable)
    found = only(synth(lambda s: TrnRegistry(s, "Registry", registry=settings)), "ECR::Repository")
    assert found["ImageTagMutability"] == mutability
    assert found["ImageScanningConfiguration"] == {"ScanOnPush": True}
    rules = json.loads(found["LifecyclePolicy"]["LifecyclePolicyText"])["rules"]
    assert [(r["selection"]["tagStatus"], r["selection"]["countNumber"]) for r in rules] == [
        ("untagged", 14),
        ("any", 7),
    ]


def test_a_role_may_pull_and_another_may_push() -> None:
    def build(stack: Stack) -> None:
        registry = TrnRegistry(stack, "Registry")
        registry.grant_pull(iam.Role(stack, "Node", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")))
        registry.grant_pull_push(iam.Role(stack, "Build", assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com")))

    policies = synth(build).find_resources("AWS::IAM::Policy").items()
    may_put = {name: "ecr:PutImage" in json.dumps(policy) for name, policy in policies}
    assert sorted((name[:4], allowed) for name, allowed in may_put.items()) == [("Buil", True), ("Node", False)]


def test_a_disabled_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Registry: registry.enabled = false. Fix: make no TrnRegistry"):
        synth(lambda s: TrnRegistry(s, "Registry", registry=trn.Registry(enabled=False)))
