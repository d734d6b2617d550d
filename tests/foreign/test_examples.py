"""The examples: each synthesised as it is, its templates linted; and deployed into the local AWS, and out again."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from sandbox import LocalAws
from tests import cdk as synthesis
from tests.cdk import findings, resources
from tests.foreign.existing import GIVEN, Context
from tests.support import ROOT, swept
from trainium_cdk.description.catalog import Catalog

EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("*.py") if "import aws_cdk" in p.read_text("utf-8"))
REGIONS = {
    "other_region": "us-west-2",
    "node_group": "us-west-2",
    "eks_jobs": "us-west-2",
    "capacity_block": "us-east-2",
    "parts_of_nodes": "us-east-2",
}
"""Of the examples that are not for us-east-1."""
KUBECTL = {
    "ExampleEksJobs": "MineKubectlProvider",
    "ExampleImportedCluster": "ExampleImportedCluster",
    "ExamplePartsOfNodes": "MineKubectlProvider",
}
"""How the names of the CDK's functions for kubectl begin, by stack."""


def stacks(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Template]:
    apps: list[cdk.App] = []

    def app() -> cdk.App:
        apps.append(synthesis.app())
        return apps[-1]

    monkeypatch.setattr(cdk, "App", app)
    runpy.run_path(str(ROOT / f"examples/{name}.py"))
    return {s.node.id: Template.from_stack(s) for s in apps[0].node.children if isinstance(s, cdk.Stack)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_synthesised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (ROOT / f"examples/{name}.py").read_text("utf-8")
    assert len(source.splitlines()) <= 60
    assert f"python examples/{name}.py" in source, "the command that deploys it"
    found = stacks(name, monkeypatch)
    assert found
    for template in found.values():
        assert findings(template) == []


def test_a_split_needs_its_network_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = stacks("split", monkeypatch)
    assert list(found) == ["ExampleNetwork", "ExampleData", "ExampleCompute"]
    assert resources(found["ExampleData"], "EC2::VPC") == {}


@pytest.mark.parametrize("name", swept(EXAMPLES))
def test_it_is_deployed_and_destroyed(name: str, local_aws: LocalAws, tmp_path: Path) -> None:
    region = REGIONS.get(name, local_aws.region)
    if region != local_aws.region:
        local_aws.bootstrap(region)
    with GIVEN[name](local_aws) if name in GIVEN else nullcontext(Context()) as given:
        before = left(local_aws)
        context = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
        assembly = str(tmp_path / "cdk.out")
        app = ("--all", "--app", f"{sys.executable} {ROOT / 'examples' / name}.py", "-o", assembly, *context)
        local_aws.cdk("deploy", *app, "--require-approval", "never", cwd=tmp_path)
        if name == "peering":
            [peering] = local_aws.client("ec2").describe_vpc_peering_connections()["VpcPeeringConnections"]
            assert peering["Status"]["Code"] == "active"
        for kind, subnet in node_groups(local_aws, region):
            assert subnet["AvailabilityZoneId"] in Catalog.load().instance(kind).zone_ids, kind
        local_aws.cdk("destroy", "--all", "--app", assembly, "--force", cwd=tmp_path)
        assert left(local_aws) == before


def left(aws: LocalAws) -> dict[str, list[str]]:
    """Without logs of the functions with which the CDK uses kubectl on a cluster that is not ours: they stay on AWS too."""
    kubectl = tuple(f"/aws/lambda/{stack}-{name}" for stack, name in KUBECTL.items())
    found = {kind: [n for n in names if not n.startswith(kubectl)] for kind, names in aws.leftovers().items()}
    return {kind: names for kind, names in found.items() if names}


def node_groups(aws: LocalAws, region: str) -> Iterator[tuple[str, Any]]:
    """The instance type and the subnet of each Trainium node group."""
    eks, ec2 = aws.client("eks", region), aws.client("ec2", region)
    for cluster in eks.list_clusters()["clusters"]:
        for name in eks.list_nodegroups(clusterName=cluster)["nodegroups"]:
            group = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
            template = group["launchTemplate"]["id"]
            [version] = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=["$Latest"])["LaunchTemplateVersions"]  # fmt: skip
            kind = version["LaunchTemplateData"].get("InstanceType") or group["instanceTypes"][0]
            if kind in Catalog.load().instances:
                [subnet] = ec2.describe_subnets(SubnetIds=group["subnets"])["Subnets"]
                yield kind, subnet
