"""Where no autoscaler starts nodes, AWS's own command does: that of the message, on the local AWS."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from tests.support import completed
from trainium_cdk import settings
from trainium_cdk.description import checks

CLUSTER, GROUP = "by-hand", "TrnEksStack-Grouptrn"


@pytest.fixture
def eks(local_aws: LocalAws) -> Iterator[None]:
    """A cluster with a node group of one node, of at most four."""
    client, ec2 = local_aws.client("eks"), local_aws.client("ec2")
    role, subnets = "arn:aws:iam::000000000000:role/r", [s["SubnetId"] for s in ec2.describe_subnets()["Subnets"][:2]]
    client.create_cluster(name=CLUSTER, roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    client.create_nodegroup(
        clusterName=CLUSTER, nodegroupName=GROUP, subnets=subnets[:1], nodeRole=role, instanceTypes=["trn1.32xlarge"],
        scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 1},
    )  # fmt: skip
    yield
    client.delete_nodegroup(clusterName=CLUSTER, nodegroupName=GROUP)
    client.delete_cluster(name=CLUSTER)


def size(aws: LocalAws) -> dict[str, int]:
    group = aws.client("eks").describe_nodegroup(clusterName=CLUSTER, nodegroupName=GROUP)["nodegroup"]
    return dict(group["scalingConfig"])


@pytest.mark.usefixtures("eks")
def test_the_command_of_the_message(local_aws: LocalAws) -> None:
    """It changes the size alone, and neither bound."""
    env = settings.parse("eks: {plugins: {autoscaler: false}}")
    [fix] = [problem.fix for problem in checks.check(env, "eks") if problem.dotted == "eks.plugins.autoscaler"]
    [command] = re.findall(r"`(aws .*?)`", fix)
    for nodes in (3, 2):
        filled = command.replace("CLUSTER", CLUSTER).replace("GROUP", GROUP).replace("=N", f"={nodes}")
        program, *words = shlex.split(filled)
        done = completed([str(Path(sys.executable).with_name(program)), *words], env=dict(local_aws.variables))
        assert done.returncode == 0, done.stderr
        assert size(local_aws) == {"minSize": 0, "maxSize": 4, "desiredSize": nodes}
