"""`examples/managed_policies.py` on our stacks: no policy is inline, and each role has the permissions that it had."""

from __future__ import annotations

import runpy
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from tests.audit.principals import of
from tests.cdk import app, findings, resources
from tests.support import ROOT
from trainium_cdk import settings
from trainium_cdk.stacks import TrnEksStack, TrnPclusterStack

ENVIRONMENT = settings.validate({"pcluster": {"login_nodes": {}}, "eks": {}})
ENV = cdk.Environment(account="111122223333", region="us-east-1")
ATTACHED = 10
"""IAM's quota of managed policies on a role."""


@pytest.fixture(scope="module")
def aspect() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cdk, "App", app)
        return runpy.run_path(str(ROOT / "examples/managed_policies.py"))["ManagedPolicies"]


@pytest.mark.parametrize("kind", [TrnPclusterStack, TrnEksStack])
def test_no_policy_is_inline(kind: type[TrnEksStack], aspect: Any) -> None:
    before, stack = (kind(app(), "Training", environment=ENVIRONMENT, env=ENV) for _ in range(2))
    cdk.Aspects.of(stack).add(aspect())
    template, inline = Template.from_stack(stack), Template.from_stack(before)
    assert findings(template) == []
    assert resources(inline, "IAM::Policy")
    assert resources(template, "IAM::Policy") == {}
    attached: dict[str, int] = {}
    for role, policy in resources(template, "IAM::Role").items():
        assert "Policies" not in policy["Properties"], role
        attached[role] = len(policy["Properties"].get("ManagedPolicyArns", []))
    for policy in resources(template, "IAM::ManagedPolicy").values():
        for role in policy["Properties"].get("Roles", []):
            attached[role["Ref"]] += 1
    assert max(attached.values()) <= ATTACHED
    assert _permissions(template) == _permissions(inline)


def _permissions(template: Template) -> dict[str, list[str]]:
    return {role: sorted(map(str, policies)) for role, policies in of(template.to_json()).policies.items()}
