"""`trn destroy` on stacks of the local AWS: what blocks it is removed, leftovers are deleted, foreign resources stay."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from sandbox import LocalAws
from sandbox.leftovers import beyond, inventory
from tests import command
from trainium_cdk.client.cli.destroy import Busy, confirm
from trainium_cdk.client.jobs.status import JobStatus, Stage
from trainium_cdk.client.operations.teardown import destroy, survey
from trainium_cdk.client.operations.teardown.occupants import Occupant, end
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs.contract import CONTRACT, CONTRACT_KEY
from trainium_cdk.errors import JobError, TransportError, TrnError

STACK = "TeardownTest"
OURS = {CONTRACT_KEY: {"Value": CONTRACT}}


def template(name: str, *, keep: bool = False) -> dict[str, Any]:
    text = Path(__file__).with_name("cluster.yaml").read_text("utf-8")
    found: dict[str, Any] = {"Outputs": OURS, **yaml.safe_load(text.replace("NAME", name))}
    if keep:
        found["Resources"]["Files"]["DeletionPolicy"] = "Retain"
    return found


class Account:
    """Two stacks with similar names, and leftovers of each."""

    def __init__(self, aws: LocalAws):
        self.aws = aws

    def client(self, service: str) -> Any:
        return self.aws.client(service)

    def make(self, name: str, *, keep: bool = False) -> dict[str, str]:
        cloudformation = self.client("cloudformation")
        cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template(name, keep=keep)))
        cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        found = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
        return {r["LogicalResourceId"]: r["PhysicalResourceId"] for r in found}

    def leak(self, name: str, made: dict[str, str]) -> None:
        """What Kubernetes, Lambda and EKS leave, and what holds a deletion up."""
        ec2, cluster = self.client("ec2"), f"{name}-eks"
        owned = [{"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"}]
        ec2.create_network_interface(
            SubnetId=made["Subnet"], Description=f"AWS Lambda VPC ENI-{made['Function']}", Groups=[made["Group"]]
        )
        group = ec2.create_security_group(GroupName=f"k8s-{name}", Description="of a service", VpcId=made["Vpc"])[
            "GroupId"
        ]
        ec2.create_tags(Resources=[group], Tags=owned)
        pair = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "UserIdGroupPairs": [{"GroupId": group}]}
        ec2.authorize_security_group_ingress(GroupId=made["Group"], IpPermissions=[pair])
        self.client("elbv2").create_load_balancer(
            Name=f"lb-{name.lower()}"[:32], Subnets=[made["Subnet"]], Type="network", SecurityGroups=[group],
            Tags=[{"Key": "elbv2.k8s.aws/cluster", "Value": cluster}],
        )  # fmt: skip
        for log in (f"/aws/lambda/{made['Function']}", f"/aws/eks/{cluster}/cluster"):
            self.client("logs").create_log_group(logGroupName=log)
        for version in ("1", "2"):
            self.client("s3").put_object(Bucket=made["Bucket"], Key="dir/file", Body=version.encode())

    def balancers(self) -> set[str]:
        return {b["LoadBalancerName"] for b in self.client("elbv2").describe_load_balancers()["LoadBalancers"]}

    def there(self) -> dict[str, list[str]]:
        return inventory(self.client)


@pytest.fixture
def account(local_aws: LocalAws) -> Iterator[Account]:
    found = Account(local_aws)
    before = found.there()
    yield found
    left = beyond(found.there(), before)
    assert left == {}
    assert found.balancers() == set()


def trn(aws: LocalAws, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command.trn(["destroy", *arguments], aws.env)


def test_a_stack_with_a_similar_name_is_not_touched(account: Account) -> None:
    aws, before = account.aws, account.there()
    other = f"{STACK}-2"
    theirs = account.make(other)
    account.leak(other, theirs)
    with_theirs = account.there()
    ours = account.make(STACK)
    account.leak(STACK, ours)

    unconfirmed = trn(aws, STACK)
    assert unconfirmed.returncode == 2
    assert "give --yes" in unconfirmed.stderr
    dry = trn(aws, STACK, "--dry-run")
    assert dry.returncode == 0
    assert f"delete stack {STACK} with 9 resources" in dry.stderr
    assert f"log group /aws/eks/{STACK}-eks/cluster: it is the log of the control plane" in dry.stderr
    assert "the jobs and their checkpoints could not be listed, and end with the cluster: " in dry.stderr
    assert f"all files on {ours['Files']} are deleted. To keep some, copy them first" in dry.stderr
    assert other not in dry.stderr
    assert account.there().keys() == with_theirs.keys()

    done = trn(aws, STACK, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"emptying bucket {ours['Bucket']}" in done.stderr
    assert done.stderr.strip().endswith("nothing is left")
    assert beyond(account.there(), with_theirs) == {}
    assert beyond(with_theirs, account.there()) == {}
    assert account.balancers() == {f"lb-{other.lower()}"}

    again = trn(aws, STACK, "--yes")
    assert again.returncode == 0
    assert "is already deleted" in again.stderr
    assert trn(aws, other, "--yes").returncode == 0
    assert beyond(account.there(), before) == {}


def test_a_log_created_after_the_stacks_deletion_is_found(account: Account) -> None:
    """The last lines of a function create its log group again, after the stack has been deleted."""
    made = account.make(STACK)
    assert trn(account.aws, STACK, "--yes").returncode == 0
    account.client("logs").create_log_group(logGroupName=f"/aws/lambda/{made['Function']}")
    done = trn(account.aws, STACK, "--yes")
    assert done.returncode == 0
    assert f"deleting log group /aws/lambda/{made['Function']}" in done.stderr


def test_the_log_of_the_parallelcluster_provider_belongs_to_the_stack(account: Account) -> None:
    """Its own template keeps it for 90 days; its function is in a nested stack, which has been deleted by then."""
    cloudformation, before = account.client("cloudformation"), account.there()
    url = Catalog.load().parallelcluster.provider_template.format(
        region="us-east-1", suffix="amazonaws.com", version=Catalog.load().parallelcluster.default
    )
    body = {
        "Outputs": OURS,
        "Resources": {"Provider": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": url}}},
    }
    cloudformation.create_stack(StackName=STACK, TemplateBody=json.dumps(body), Capabilities=["CAPABILITY_AUTO_EXPAND"])
    cloudformation.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1})
    [log] = beyond(account.there(), before)["log groups"]
    assert log.startswith("/aws/lambda/pcluster-cfn-")
    assert trn(account.aws, STACK, "--yes").returncode == 0
    for name in (log, f"{log}0"):
        account.client("logs").create_log_group(logGroupName=name)
    done = trn(account.aws, STACK, "--yes")
    assert f"deleting log group {log}: it is the log of a function of the stack" in done.stderr
    assert beyond(account.there(), before) == {"log groups": [f"{log}0"]}
    account.client("logs").delete_log_group(logGroupName=f"{log}0")


def test_kept_resources_are_reported(account: Account) -> None:
    files = account.make(STACK, keep=True)["Files"]
    done = trn(account.aws, STACK, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"kept, as configured: AWS::EFS::FileSystem {files}; it costs money" in done.stderr
    assert done.stderr.strip().endswith("1 resource is kept")
    there = account.client("efs").describe_file_systems()["FileSystems"]
    assert files in {f["FileSystemId"] for f in there}
    account.client("efs").delete_file_system(FileSystemId=files)


def test_resources_that_cannot_be_deleted_are_reported_with_the_reason(account: Account) -> None:
    """A foreign instance in the stack's subnet is not touched."""
    ec2, made = account.client("ec2"), account.make(STACK)
    theirs = ec2.run_instances(InstanceType="c5.large", MinCount=1, MaxCount=1, SubnetId=made["Subnet"])["Instances"][0]
    done = trn(account.aws, STACK, "--yes")
    assert done.returncode == 1
    assert f"left: Subnet (AWS::EC2::Subnet, {made['Subnet']})" in done.stderr
    assert theirs["InstanceId"] in done.stderr
    assert "run the same command again" in done.stderr
    state = ec2.describe_instances(InstanceIds=[theirs["InstanceId"]])["Reservations"][0]["Instances"][0]["State"][
        "Name"
    ]
    assert state == "running"
    ec2.terminate_instances(InstanceIds=[theirs["InstanceId"]])
    log = f"/aws/lambda/{made['Function']}"  # of a function that the first try has deleted
    account.client("logs").create_log_group(logGroupName=log)
    assert trn(account.aws, STACK, "--yes").returncode == 0


def test_what_others_have_tagged_like_the_cluster_stays(account: Account) -> None:
    """Somebody who may tag anything, and delete nothing, waits for an administrator's `trn destroy`."""
    ec2 = account.client("ec2")
    account.make(STACK)
    vpc = ec2.create_vpc(CidrBlock="10.99.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.99.0.0/24")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="prod-db", Description="of others", VpcId=vpc)["GroupId"]
    volume = ec2.create_volume(Size=8, AvailabilityZone="us-east-1a")["VolumeId"]
    [instance] = ec2.run_instances(InstanceType="c5.large", MinCount=1, MaxCount=1, SubnetId=subnet)["Instances"]
    theirs = [instance["InstanceId"], volume, group]
    spoofed = {
        f"kubernetes.io/cluster/{STACK}-eks": "owned",
        "eks:cluster-name": f"{STACK}-eks",
        "KubernetesCluster": f"{STACK}-eks",
    }
    ec2.create_tags(Resources=theirs, Tags=[{"Key": key, "Value": value} for key, value in spoofed.items()])
    try:
        dry = trn(account.aws, STACK, "--dry-run")
        done = trn(account.aws, STACK, "--yes")
        for kind, id in zip(("instance", "volume", "security group"), theirs, strict=True):
            assert f"stays, unless you delete it: {kind} {id}" in dry.stderr
            assert (
                f"left: {kind} {id}: it is tagged kubernetes.io/cluster/{STACK}-eks = owned, but anybody" in done.stderr
            )
        assert done.returncode == 1
        [there] = ec2.describe_instances(InstanceIds=theirs[:1])["Reservations"]
        assert there["Instances"][0]["State"]["Name"] == "running"
        assert ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
        assert ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    finally:
        ec2.terminate_instances(InstanceIds=theirs[:1])
        ec2.delete_volume(VolumeId=volume)
        ec2.delete_security_group(GroupId=group)
        ec2.delete_subnet(SubnetId=subnet)
        ec2.delete_vpc(VpcId=vpc)


def test_an_unknown_stack(local_aws: LocalAws) -> None:
    """A wrong name or region must not look like a deletion: which stack, which region, and which ones there are."""
    name = "TrnEksStack-never"
    for unknown in "NeverWas", name:
        done = trn(local_aws, unknown, "--yes")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"trn: nothing was deleted: there is no stack {unknown} in us-east-1. " in done.stderr
        assert "cdk deploy" not in done.stderr
    note = {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "x"}}
    template = {"Resources": {"Note": note}, "Outputs": {"TrnContract": {"Value": "1"}}}
    here = local_aws.client("cloudformation")
    here.create_stack(StackName="TrnEksStack-mine", TemplateBody=json.dumps(template))
    done = trn(local_aws, name, "--yes")
    here.delete_stack(StackName="TrnEksStack-mine")
    assert done.returncode == 1
    assert "TrnEksStack-mine: use that name." in done.stderr or "use one of these names" in done.stderr
    there = local_aws.client("cloudformation", "us-west-2")
    there.create_stack(StackName=name, TemplateBody=json.dumps({"Resources": {"Note": note}}))
    done = trn(local_aws, name, "--yes")
    there.delete_stack(StackName=name)
    assert done.returncode == 1
    assert "It is in us-west-2: give --region, or --environment with the environment's file" in done.stderr


THEIRS = {
    "json": '{"Resources": {"B": {"Type": "AWS::S3::Bucket"}}, "Outputs": {"Contract": {"Value": "1"}}}',
    "yaml": "Resources:\n  B:\n    Type: AWS::S3::Bucket\n",
}


@pytest.mark.parametrize("form", THEIRS)
def test_a_stack_of_others_is_not_deleted(local_aws: LocalAws, form: str) -> None:
    cloudformation, s3 = local_aws.client("cloudformation"), local_aws.client("s3")
    cloudformation.create_stack(StackName="billing", TemplateBody=THEIRS[form])
    cloudformation.get_waiter("stack_create_complete").wait(StackName="billing", WaiterConfig={"Delay": 1})
    [bucket] = cloudformation.describe_stack_resources(StackName="billing")["StackResources"]
    s3.put_object(Bucket=bucket["PhysicalResourceId"], Key="invoice", Body=b"1")
    for arguments in (["--yes"], ["--dry-run"], ["--yes", "--jobs", "ignore"]):
        done = trn(local_aws, "billing", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("trn: nothing was deleted: stack billing is not one of trainium-cdk")
    assert [s["StackStatus"] for s in cloudformation.describe_stacks(StackName="billing")["Stacks"]] == [
        "CREATE_COMPLETE"
    ]
    s3.delete_object(Bucket=bucket["PhysicalResourceId"], Key="invoice")
    cloudformation.delete_stack(StackName="billing")


def test_a_busy_stack_is_not_deleted(account: Account) -> None:
    account.make(STACK)
    found = survey(STACK, account.client)
    assert found is not None
    busy = type(found)(**{**vars(found), "status": "UPDATE_IN_PROGRESS"})
    with pytest.raises(TrnError, match="is UPDATE_IN_PROGRESS"):
        destroy(busy, account.client, print)
    assert destroy(found, account.client, print).deleted


class Slow:
    """CloudFormation that takes a while: the emulator deletes a stack within the request."""

    def __init__(self, real: Any):
        self._real, self._asked = real, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def delete_stack(self, **_: str) -> None:
        pass

    def describe_stacks(self, **stack: str) -> Any:
        self._asked += 1
        if self._asked < 3:
            return {"Stacks": [{"StackStatus": "DELETE_IN_PROGRESS"}]}
        self._real.delete_stack(**stack)
        return self._real.describe_stacks(**stack)


def test_progress_is_in_cloudformations_resources(account: Account) -> None:
    account.make(STACK)
    found, slow = survey(STACK, account.client), Slow(account.client("cloudformation"))
    assert found is not None
    seen: list[tuple[int, int]] = []
    report = destroy(
        found,
        lambda service: slow if service == "cloudformation" else account.client(service),
        print,
        progress=lambda done, total: seen.append((done, total)),
        sleep=lambda _: None,
    )
    assert report.deleted
    assert seen == [(0, found.resources)] * 2


MINE, HERS = (Occupant("a", f"user {name}", "RUNNING", 60.0, own=name == "me") for name in ("me", "alice"))


@pytest.mark.parametrize(
    ("busy", "answer", "deleted", "question"),
    [
        (Busy(), "y", True, "Delete S?"),
        (Busy(jobs=[MINE]), "y", True, "Delete S?"),
        (Busy(jobs=[MINE]), "n", False, "Delete S?"),
        (Busy(jobs=[MINE, HERS]), "y", False, "Jobs of others end with S. Type its name to delete it"),
        (Busy(jobs=[MINE, HERS]), "S", True, "Jobs of others end with S."),
        (Busy(jobs=[MINE], unknown=True), "", False, "Jobs of others end with S."),
    ],
)
def test_jobs_of_others_need_more_than_a_yes(busy: Busy, answer: str, deleted: bool, question: str) -> None:
    app = typer.Typer()
    app.command()(lambda: confirm("S", busy))
    done = CliRunner().invoke(app, input=f"{answer}\n")
    assert (done.exit_code == 0) is deleted
    assert question in done.output


class SomeJobs:
    """Two jobs that run or wait, and one that has ended; each wait ends one more."""

    def __init__(self, refused: Mapping[str, TrnError] | None = None, silent_after: int = 100) -> None:
        self.states = {"a": "RUNNING", "b": "PENDING", "c": "COMPLETED"}
        self._refused, self._answers = refused or {}, silent_after

    def active(self) -> tuple[JobStatus, ...]:
        self._answers -= 1
        if self._answers < 0:
            raise TransportError("the head node is gone")
        return tuple(job for id in self.states if not (job := self._status(id)).done)

    def cancel(self, id: str) -> JobStatus:
        if id in self._refused:
            raise self._refused[id]
        self.states[id] = "CANCELLED"
        return self._status(id)

    def _status(self, id: str) -> JobStatus:
        stages = (Stage("train", "1", self.states[id]),)
        return JobStatus(id, "script", "trn", "trn1.32xlarge", 1, None, stages)


def test_jobs_are_cancelled() -> None:
    jobs, messages = SomeJobs(), list[str]()
    end(jobs, "cancel", messages.append)
    assert jobs.states == {"a": "CANCELLED", "b": "CANCELLED", "c": "COMPLETED"}
    assert messages == ["cancelling job a (RUNNING)", "cancelling job b (PENDING)"]


def test_a_job_that_may_not_be_cancelled_keeps_no_other_one() -> None:
    """It is told. Only a cluster that does not respond ends the attempt."""
    jobs, messages = SomeJobs(refused={"a": TransportError("scancel: access denied", again=False)}), list[str]()
    end(jobs, "cancel", messages.append)
    assert jobs.states == {"a": "RUNNING", "b": "CANCELLED", "c": "COMPLETED"}
    assert messages[1] == "job a was not cancelled, and ends with the cluster: scancel: access denied"
    jobs = SomeJobs(refused={"a": JobError("no")}, silent_after=1)
    end(jobs, "cancel", messages.append)
    assert jobs.states["b"] == "CANCELLED"
    jobs = SomeJobs(refused={"a": TransportError("no response")}, silent_after=1)
    with pytest.raises(TransportError, match="the head node is gone"):
        end(jobs, "cancel", messages.append)
    assert jobs.states["b"] == "PENDING"


def test_jobs_are_waited_for() -> None:
    jobs, messages = SomeJobs(), list[str]()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        jobs.states["ab"[len(waits) - 1]] = "COMPLETED"

    end(jobs, "wait", messages.append, interval=7, sleep=sleep)
    assert waits == [7, 7]
    assert messages[-1] == "waiting for 1 job: b"
