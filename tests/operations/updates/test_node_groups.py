"""Node groups of a deployed stack are changed: `trn diff`, the real CDK command line, and a local AWS with EKS's rule."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests import command
from tests.support import ROOT

RULE = "Version and ReleaseVersion updates cannot be combined with other updates"
Change = dict[str, Any]


class Groups:
    """The app `tests/apps/node_groups.py`, by its changes."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self.aws, self.folder, self.name = aws, folder, f"groups-{uuid.uuid4().hex[:6]}"
        subnet = aws.client("ec2").describe_subnets()["Subnets"][0]
        self.place = {
            "name": self.name,
            "vpc": subnet["VpcId"],
            "subnet": subnet["SubnetId"],
            "zone": subnet["AvailabilityZone"],
        }
        context = {"@aws-cdk/core:explicitStackTags": True}
        program = f"{sys.executable} {ROOT / 'tests/apps/node_groups.py'}"
        (folder / "cdk.json").write_text(json.dumps({"app": program, "context": context}))

    def write(self, change: Change) -> None:
        (self.folder / "change.json").write_text(json.dumps({**self.place, **change}))

    def deploy(self, change: Change) -> tuple[bool, str]:
        self.write(change)
        done = self.aws.cdk("deploy", "--require-approval", "never", cwd=self.folder, check=False)
        return done.returncode == 0, done.stdout

    def diff(self, change: Change) -> tuple[int, str]:
        self.write(change)
        done = command.trn(["diff", "Groups", "--app", self.folder], self.aws.env)
        return done.returncode, done.stdout + done.stderr

    def found(self, name: str) -> dict[str, Any]:
        client = self.aws.client("eks")
        names = client.list_nodegroups(clusterName=self.name)["nodegroups"]
        groups = [client.describe_nodegroup(clusterName=self.name, nodegroupName=n)["nodegroup"] for n in names]
        [group] = [g for g in groups if g["labels"]["trainium-cdk/node-group"] == name]
        return group

    def status(self) -> str:
        [stack] = self.aws.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return str(stack["StackStatus"])

    def tags_of_instances(self, name: str) -> dict[str, str]:
        """Those that its instances get."""
        template = self.found(name)["launchTemplate"]
        [version] = self.aws.client("ec2").describe_launch_template_versions(
            LaunchTemplateId=template["id"], Versions=[template["version"]]
        )["LaunchTemplateVersions"]
        [tags] = [s for s in version["LaunchTemplateData"]["TagSpecifications"] if s["ResourceType"] == "instance"]
        return {tag["Key"]: tag["Value"] for tag in tags["Tags"]}


@pytest.fixture
def groups(local_aws: LocalAws, tmp_path: Path) -> Iterator[Callable[[Change], Groups]]:
    """Deploys the app the first time."""
    made = Groups(local_aws, tmp_path)

    def first(change: Change) -> Groups:
        done, printed = made.deploy(change)
        assert done, printed
        return made

    yield first
    client = local_aws.client("cloudformation")
    client.delete_stack(StackName=made.name)
    client.get_waiter("stack_delete_complete").wait(StackName=made.name, WaiterConfig={"Delay": 1})


def test_a_tag_is_added(groups: Callable[[Change], Groups]) -> None:
    app = groups({"tags": {"Owner": "ml"}})
    tags = {"Owner": "ml", "CostCenter": "42"}
    code, told = app.diff({"tags": tags})
    assert (code, "refused" in told) == (0, False), told
    assert told.count("Every running node of the group is replaced") == 2
    done, printed = app.deploy({"tags": tags})
    assert done, printed
    assert app.status() == "UPDATE_COMPLETE"
    for name in ("trn", "system"):
        assert app.tags_of_instances(name).items() >= tags.items()
        assert not {key for key in app.found(name)["tags"] if not key.startswith("aws:")}


def test_an_upgrade_with_a_label_takes_two_steps(groups: Callable[[Change], Groups]) -> None:
    app = groups({})
    labelled: Change = {"labels": {"team": "speech"}, "max_nodes": 4}
    upgraded = {**labelled, "version": "1.35"}
    code, told = app.diff(upgraded)
    assert (code, "refused    Trn (AWS::EKS::Nodegroup)" in told) == (1, True), told
    assert "What to do: deploy Labels and ScalingConfig first, with Version as it was; then deploy all" in told
    done, printed = app.deploy(upgraded)
    assert (done, RULE in printed, app.status()) == (False, True, "UPDATE_ROLLBACK_COMPLETE"), printed
    for step in (labelled, upgraded):
        done, printed = app.deploy(step)
        assert done, printed
    group = app.found("trn")
    assert (group["version"], group["labels"]["team"], group["scalingConfig"]["maxSize"]) == ("1.35", "speech", 4)


def test_tags_of_the_stack_go_first(groups: Callable[[Change], Groups]) -> None:
    """CloudFormation gives them to each node group, whatever its template says."""
    app = groups({"stack_tags": {"Owner": "ml"}})
    change = {"stack_tags": {"Owner": "ml", "CostCenter": "42"}}
    code, told = app.diff(change)
    assert (code, told.count("refused ")) == (1, 2), told
    assert "What to do: give the stack its tags first" in told
    done, printed = app.deploy(change)
    assert (done, RULE in printed) == (False, True), printed
    client = app.aws.client("cloudformation")
    client.update_stack(
        StackName=app.name,
        UsePreviousTemplate=True,
        Capabilities=["CAPABILITY_NAMED_IAM"],
        Tags=[{"Key": key, "Value": value} for key, value in change["stack_tags"].items()],
    )
    client.get_waiter("stack_update_complete").wait(StackName=app.name, WaiterConfig={"Delay": 1})
    code, told = app.diff(change)
    assert (code, "refused" in told) == (0, False), told
    done, printed = app.deploy(change)
    assert done, printed
    assert app.found("trn")["tags"].items() >= change["stack_tags"].items()
    assert app.tags_of_instances("trn").items() >= change["stack_tags"].items()
