"""The examples: each synthesised as it is, its templates linted; and deployed into the local AWS, and out again."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from sandbox import LocalAws
from tests import cdk as synthesis
from tests.cdk import findings, resources
from tests.support import swept

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
LEFT_OUT = {"existing_cluster", "capacity_block", "peering", "node_group", "slurm_existing_efs", "split"}
"""Not deployed: they name what must exist already (a VPC, a block that was bought, another account), or their agnostic stacks have
the first two zones of the account, which in the local AWS do not offer the type: the deployment then names those that do."""


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


@pytest.mark.parametrize("name", swept([e for e in EXAMPLES if e not in LEFT_OUT]))
def test_it_is_deployed_and_destroyed(name: str, local_aws: LocalAws, tmp_path: Path) -> None:
    region = "us-west-2" if name == "other_region" else None
    if region:
        local_aws.bootstrap(region)
    before = local_aws.leftovers()
    app = ("--all", "--app", f"{sys.executable} {ROOT / 'examples' / name}.py", "-o", str(tmp_path / "cdk.out"))
    local_aws.cdk("deploy", *app, "--require-approval", "never", cwd=tmp_path)
    if name == "node_group":
        eks = local_aws.client("eks")
        [cluster] = [c for c in eks.list_clusters()["clusters"] if c.startswith("Mine")]
        [group] = eks.list_nodegroups(clusterName=cluster)["nodegroups"]
        found = eks.describe_nodegroup(clusterName=cluster, nodegroupName=group)["nodegroup"]
        [subnet] = local_aws.client("ec2").describe_subnets(SubnetIds=found["subnets"])["Subnets"]
        assert subnet["AvailabilityZoneId"] in {"use1-az4", "use1-az5", "use1-az6"}, "where trn1.32xlarge is offered"
    local_aws.cdk("destroy", *app, "--force", cwd=tmp_path)
    assert local_aws.leftovers() == before
