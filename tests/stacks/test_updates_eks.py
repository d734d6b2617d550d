"""A deployed `TrnEksStack` is changed: the real CDK command line, and EKS's rule of one kind of update at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests import command
from tests.stacks.conftest import Cdk
from tests.support import ROOT

STACK = "TrnEksStack"
SMALL: dict[str, Any] = {"registry": {"enabled": False}, "storage": {"efs": {}}, "tags": {"Owner": "ml"}}
EKS: dict[str, Any] = {"version": "1.34"}
RULE = "Version and ReleaseVersion updates cannot be combined with other updates"


def group(**changes: Any) -> list[dict[str, Any]]:
    return [{"max_nodes": 2, **changes}]


@pytest.mark.sweep  # a whole stack
def test_tags_and_versions_of_a_deployed_stack(cdk: Cdk, local_aws: LocalAws, name: str, tmp_path: Path) -> None:
    def deploy(environment: dict[str, Any]) -> str:
        code, printed = cdk("deploy", environment)
        assert code == 0, printed
        return printed

    def diff(environment: dict[str, Any]) -> tuple[int, str]:
        cdk("ls", environment)  # writes the environment's file
        done = command.trn(["diff", STACK, "--env", tmp_path / "environment.yaml", "--app", ROOT], local_aws.env)
        return done.returncode, done.stdout + done.stderr

    def groups() -> dict[str, dict[str, Any]]:
        client, cluster = local_aws.client("eks"), f"{name}-eks"
        names = client.list_nodegroups(clusterName=cluster)["nodegroups"]
        found = (client.describe_nodegroup(clusterName=cluster, nodegroupName=each)["nodegroup"] for each in names)
        return {each["labels"]["trainium-cdk/node-group"]: each for each in found}

    first = {**SMALL, "eks": {**EKS, "node_groups": group()}}
    deploy(first)
    tagged = {**first, "tags": {"Owner": "ml", "CostCenter": "42"}}
    code, said = diff(tagged)
    assert (code, "refused" in said, "every running node of the group is replaced" in said) == (0, False, True), said
    deploy(tagged)
    for found in groups().values():
        assert found["launchTemplate"]["version"] == "2"
        assert not {key: value for key, value in found["tags"].items() if not key.startswith("aws:")}

    # an upgrade together with a label and a size
    labelled = {**tagged, "eks": {**EKS, "node_groups": group(max_nodes=4, labels={"team": "speech"})}}
    upgraded = {**labelled, "eks": {**labelled["eks"], "version": "1.35"}}
    code, said = diff(upgraded)
    assert (code, "refused    Grouptrn (AWS::EKS::Nodegroup)" in said) == (1, True), said
    assert "deploy Labels and ScalingConfig first, with Version as it was" in said
    code, printed = cdk("deploy", upgraded)
    assert code != 0
    assert RULE in printed
    for step in (labelled, upgraded):
        code, said = diff(step)
        assert (code, "refused" in said) == (0, False), said
        deploy(step)
    found = groups()["trn"]
    assert (found["version"], found["labels"]["team"], found["scalingConfig"]["maxSize"]) == ("1.35", "speech", 4)
