"""The ParallelCluster provider's own template and policies (`conformance/surfaces.yaml`): what the fake and the stack assume."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from conformance import surface, surfaces
from trainium_cdk.pcluster.cluster import POLICY_PATH

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
