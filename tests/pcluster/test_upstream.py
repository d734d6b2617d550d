"""The ParallelCluster provider's own template and policies (`conformance/surfaces.yaml`): what the fake and the stack assume."""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest
from ruamel.yaml import YAML

from conformance import surface, surfaces
from conformance.upstream import KEPT, find
from trainium_cdk import settings
from trainium_cdk.cdk.pcluster.cluster import POLICY_PATH
from trainium_cdk.errors import TrnError


class Role(NamedTuple):
    """What a role has: managed policies by name, the actions of its own policies, the service that takes it, and how many policies that are."""

    policies: tuple[str, ...]
    actions: tuple[str, ...]
    service: str
    count: int


OF_PROVIDER = Role(
    policies=(
        "AWSLambdaBasicExecutionRole", "DefaultParallelClusterIamAdminPolicy", "ParallelClusterClusterPolicy1", "ParallelClusterClusterPolicy2",
    ),
    actions=(
        "events:DeleteRule", "events:PutRule", "events:PutTargets", "events:RemoveTargets", "s3:*Object", "s3:ListBucket", "s3:ListBucketVersions",
    ),
    service="lambda.amazonaws.com",
    count=6,
)  # fmt: skip
"""Of the provider's own role (PclusterLambdaRole), as `role` reads it in the template of the recorded commit."""
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


@pytest.fixture(params=["recorded", *(["template"] if "UPSTREAM" in os.environ or KEPT.is_dir() else [])])
def provider(request: pytest.FixtureRequest) -> Role:
    """As recorded; and as the template itself has it, where its source is at hand (`make conformance`)."""
    if request.param == "recorded":
        return OF_PROVIDER
    one = RECORDED["pcluster-provider"]
    text = find(one.repository, one.commit).read(one.path)
    assert text
    return role(text)


def role(template: str) -> Role:
    """The role of the provider's function in the template."""
    found = YAML(typ="rt").load(template)["Resources"]
    own = found["PclusterLambdaRole"]["Properties"]
    pattern, values = own["ManagedPolicyArns"][1]  # !Split [",", !Sub [PATTERN, VALUES]]
    names = [n for n in re.findall(r"\$\{(\w+)\}", pattern) if n != "AdditionalIamPolicies"]
    ends = [
        re.split(r"[/.]", str(v[-1] if isinstance(v := values[n], list) else getattr(v, "value", v)))[-1] for n in names
    ]
    statements = [s for end in ends if end in found for s in found[end]["Properties"]["PolicyDocument"]["Statement"]]
    [trust] = own["AssumeRolePolicyDocument"]["Statement"]
    return Role(
        policies=tuple(sorted(end for end in ends if end not in found)),
        actions=tuple(sorted(action for s in statements for action in s["Action"])),
        service=trust["Principal"]["Service"],
        count=len(ends),
    )


def test_the_recorded_role_is_the_providers(provider: Role) -> None:
    assert provider == OF_PROVIDER


def test_the_reference_lists_what_a_role_for_the_provider_must_allow(provider: Role) -> None:
    """`pcluster.provider.role` replaces that role, and the template then leaves its policies out."""
    described = re.sub(r"(\w+)1 and 2\b", r"\g<1>1 and \g<1>2", _described("role"))
    actions = [part for action in provider.actions for part in action.split(":")]
    for part in (*provider.policies, *actions, provider.service):
        assert re.search(rf"(?<![A-Za-z]){re.escape(part)}(?![A-Za-z0-9])", described), part


def test_as_many_policies_may_be_added_as_the_role_has_room_for(provider: Role) -> None:
    """IAM allows ten managed policies on a role."""
    names = [f"arn:aws:iam::111122223333:policy/p{i}" for i in range(10 - provider.count + 1)]
    settings.validate({"pcluster": {"provider": {"policies": names[:-1]}}})
    with pytest.raises(TrnError, match="policies"):
        settings.validate({"pcluster": {"provider": {"policies": names}}})


def _described(key: str) -> str:
    """The description of a key of `pcluster.provider`, as the reference and the schema have it."""
    schema = json.loads((ROOT / "environment.schema.json").read_text("utf-8"))
    return " ".join(str(schema["$defs"]["Provider"]["properties"][key]["description"]).split())
