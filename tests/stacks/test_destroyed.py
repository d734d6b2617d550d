"""Plain `cdk destroy` of each stack, after its cluster was used: nothing is left, as the fixture `cdk` compares (log groups, too)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sandbox import LocalAws
from tests.stacks.conftest import Cdk


@pytest.mark.parametrize("cdk", ["TrnPclusterStack", "TrnPcsStack", "TrnEksStack"], indirect=True)
def test_plain_cdk_destroy_leaves_nothing(
    cdk: Cdk, local_aws: LocalAws, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    stack, file = f"{request.node.callspec.params['cdk']}-{name}", tmp_path / "outputs.json"
    code, output = cdk("deploy", {}, "--outputs-file", str(file))
    assert code == 0, output
    outputs: dict[str, str] = json.loads(file.read_text())[stack]
    command, _, leaves = outputs["WhenDestroyed"].partition(". Plain cdk destroy leaves ")
    assert command == f"trn destroy {stack} --region us-east-1"
    assert re.findall(r"^\w+\.(\w+) = ", output, re.MULTILINE)[-1] == "WhenDestroyed"
    assert (leaves == "nothing") == stack.startswith("TrnPcsStack")  # in AWS: the sandbox has none of what others leave
    # what jobs and image builds leave
    local_aws.client("s3").put_object(Bucket=outputs["Bucket"], Key="jobs/one/output", Body=b"weights")
    registry = outputs["RegistryUri"].partition("/")[2]
    local_aws.client("ecr").put_image(repositoryName=registry, imageManifest="{}", imageTag="mine")
    groups = {g["logGroupName"] for g in local_aws.client("logs").describe_log_groups()["logGroups"]}
    functions = {group for group in groups if group.startswith("/aws/lambda/pcluster-CleanupResources-")}
    assert bool(functions) == stack.startswith("TrnPclusterStack")
