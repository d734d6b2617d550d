"""The ParallelCluster provider's own template and policies (`conformance/surfaces.yaml`): what the fake and the stack assume."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from conformance import surface, surfaces
from trainium_cdk import settings
from trainium_cdk.errors import TrnError
from trainium_cdk.pcluster.cluster import POLICY_PATH

ROLE_OF_PROVIDER = {
    "ManagedPolicyArns": (
        "AWSLambdaBasicExecutionRole",
        "ParallelClusterClusterPolicy1",
        "2",
        "DefaultParallelClusterIamAdminPolicy",
    ),
    "EventsPolicy": ("events:PutRule", "DeleteRule", "PutTargets", "RemoveTargets", "rule/*"),
    "S3Policy": ("s3:*Object", "ListBucket", "ListBucketVersions"),
    "AssumeRolePolicyDocument": ("lambda.amazonaws.com",),
}
"""What the provider's own role (PclusterLambdaRole) has, as read in the template of the recorded commit: four policies, and two of its own."""
ROOT = Path(__file__).parents[2]
RECORDED = surfaces.load()


def test_the_fake_has_the_providers_parameters_and_outputs() -> None:
    text = (ROOT / "sandbox/emulator/pcluster_provider/template.yaml").read_text()
    assert surface.cfn_interface(text) == RECORDED["pcluster-provider"].recorded["interface"]


@pytest.mark.parametrize(
    "policy",
    [
        "arn:${AWS::Partition}:iam::aws:policy/AmazonSSMManagedInstanceCore",
        f"arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:policy{POLICY_PATH}trn-NodePolicy",
    ],
)
def test_the_provider_may_attach_the_policies_of_the_nodes(policy: str) -> None:
    patterns = RECORDED["pcluster-policies"].recorded["attachable"]
    assert any(fnmatchcase(policy, pattern) for pattern in patterns)
    assert not any(fnmatchcase(policy.replace("policy/", "policy/other-"), pattern) for pattern in patterns)


def test_the_reference_lists_what_a_role_for_the_provider_must_allow() -> None:
    """`pcluster.provider.role` replaces that role, and the template then leaves its policies out."""
    described = _described("role")
    for part in (part for parts in ROLE_OF_PROVIDER.values() for part in parts):
        assert re.search(rf"(?<![A-Za-z]){re.escape(part)}(?![A-Za-z0-9])", described), part


def test_as_many_policies_may_be_added_as_the_role_has_room_for() -> None:
    """IAM allows ten managed policies on a role."""
    own = len(ROLE_OF_PROVIDER["ManagedPolicyArns"]) + len({"EventsPolicy", "S3Policy"})
    names = [f"arn:aws:iam::111122223333:policy/p{i}" for i in range(10 - own + 1)]
    settings.validate({"pcluster": {"provider": {"policies": names[:-1]}}})
    with pytest.raises(TrnError, match="policies"):
        settings.validate({"pcluster": {"provider": {"policies": names}}})


def _described(key: str) -> str:
    """The description of a key of `pcluster.provider`, as the reference and the schema have it."""
    schema = json.loads((ROOT / "environment.schema.json").read_text("utf-8"))
    return " ".join(str(schema["$defs"]["Provider"]["properties"][key]["description"]).split())
