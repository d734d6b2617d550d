"""A Slurm cluster that fails inside ParallelCluster's function, at each step; a cluster of another stack is never touched."""

from __future__ import annotations

import copy
import json
import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.leftovers import beyond, inventory
from tests.faults.driver import Driver, Template, assemble, publish
from tests.support import TRN, completed
from tests.told import told
from trainium_cdk import settings
from trainium_cdk.client.operations.updates.live import deployed
from trainium_cdk.errors import TrnError
from trainium_cdk.stacks.pcluster import TrnPclusterStack

CLUSTER = "named-slurm"
NAMES = {"AWS::CloudWatch::Dashboard": ("DashboardName",), "AWS::Logs::LogGroup": ("LogGroupName",)}


@pytest.fixture(scope="module")
def template(local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder = tmp_path_factory.mktemp("named")
    environment = settings.validate({"name": "named", "registry": {"enabled": False}})
    made = assemble(environment, TrnPclusterStack, "Named", folder)
    publish(local_aws, folder)
    return made


@pytest.fixture
def drivers(local_aws: LocalAws) -> Iterator[list[Driver]]:
    """Two stacks; neither outlives the test."""
    made = [Driver(local_aws, f"named-{uuid.uuid4().hex[:8]}") for _ in range(2)]
    yield made
    local_aws.set_answers("cluster-faults", None)
    for driver in made:
        driver.clear()


def log_groups(aws: LocalAws) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = aws.client("logs").describe_log_groups(
        logGroupNamePrefix=f"/aws/parallelcluster/{CLUSTER}-"
    )["logGroups"]
    return found


def node_log(aws: LocalAws, group: str, stream: str, *lines: str) -> None:
    """As the CloudWatch agent of a node does."""
    logs = aws.client("logs")
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    now = int(time.time() * 1000)
    logs.put_log_events(
        logGroupName=group, logStreamName=stream, logEvents=[{"timestamp": now, "message": m} for m in lines]
    )


def trn(aws: LocalAws, *arguments: str) -> str:
    done = completed([TRN, *arguments], env=aws.env, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def head_node(aws: LocalAws) -> tuple[str, str]:
    """Id and state of the cluster's head node; the id is empty where there is no cluster."""
    record = aws.directory / f"clusters/{CLUSTER}/cluster.json"
    if not record.is_file():
        return "", "gone"
    instance = json.loads(record.read_text())["headNode"]
    described = aws.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]
    return instance, described["State"]["Name"]


def same_cluster(template: Template, *, claim: bool) -> Template:
    """Another stack's template for a cluster of the same name. Without the claim, as the provider's documentation shows it."""
    found = copy.deepcopy(template)
    claims = {k for k, r in found["Resources"].items() if r["Type"] == "Custom::TrnClusterName"}
    for resource in found["Resources"].values():
        for key in NAMES.get(resource["Type"], ()):  # what CloudFormation itself refuses before the claim is reached
            resource["Properties"].pop(key, None)
        if resource["Type"] == "AWS::SSM::Parameter":
            resource["Properties"]["Name"] = "/trainium/another/node-scripts"
        if not claim:
            resource["DependsOn"] = [d for d in resource.get("DependsOn", []) if d not in claims]
    if not claim:
        found["Resources"] = {k: r for k, r in found["Resources"].items() if k not in claims}
    return found


@pytest.mark.sweep
def test_a_duplicate_name_does_not_delete_the_existing_cluster(
    local_aws: LocalAws, drivers: list[Driver], template: Template
) -> None:
    ours, other = drivers
    assert ours.create(template) == "CREATE_COMPLETE", ours.failures()
    before = head_node(local_aws)
    assert before[1] == "running"

    assert other.create(same_cluster(template, claim=True)) == "ROLLBACK_COMPLETE"
    assert f"the cluster name {CLUSTER} is taken: stack {CLUSTER} is CREATE_COMPLETE" in other.failures()
    assert other.delete() == "DELETE_COMPLETE"
    assert head_node(local_aws) == before
    assert len(log_groups(local_aws)) == 1

    # the fake is as strict as AWS's provider: without the claim the rollback deletes the other stack's cluster
    assert other.create(same_cluster(template, claim=False)) == "ROLLBACK_COMPLETE"
    assert f"Cluster {CLUSTER} already exists." in other.failures()
    assert head_node(local_aws)[1] == "gone"
    assert ours.delete() == "DELETE_COMPLETE"
    assert log_groups(local_aws) == []


@pytest.mark.sweep
def test_a_cluster_of_this_name_in_another_region_is_not_touched(
    local_aws: LocalAws, drivers: list[Driver], template: Template
) -> None:
    """Only the local AWS cannot have both: it runs one Slurm for each name."""
    record = local_aws.directory / "clusters" / CLUSTER / "cluster.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"region": "us-west-2", "headNode": "i-0123456789abcdef0"}))
    assert drivers[0].create(template) == "ROLLBACK_COMPLETE"
    assert f"can have one cluster {CLUSTER}, and us-west-2 has it" in drivers[0].failures()
    assert drivers[0].delete() == "DELETE_COMPLETE"
    record.unlink()
    record.parent.rmdir()


@pytest.mark.sweep
def test_a_failed_creation_keeps_its_logs(local_aws: LocalAws, drivers: list[Driver], template: Template) -> None:
    driver, _ = drivers
    before = inventory(local_aws.client)
    local_aws.set_answers("cluster-faults", {CLUSTER: {"create": "HeadNodeBootstrapFailure"}})
    assert driver.create(template) == "ROLLBACK_COMPLETE"
    assert f"{CLUSTER}: HeadNodeBootstrapFailure (LogGroup: /aws/lambda/pcluster-cfn-" in driver.failures()
    [first] = log_groups(local_aws)
    assert first["retentionInDays"] == 365
    step = "trn-bootstrap: step 'check-mounts' failed on head node ip-10-0-0-5: /fsx is not mounted. Check its security groups"
    node_log(local_aws, first["logGroupName"], "ip-10-0-0-5.i-0123456789abcdef0.syslog", "Started sshd", step)
    explained = trn(local_aws, "why", driver.name)
    cause, *_ = explained.splitlines()
    assert cause.startswith("first cause: Cluster")
    assert f"{CLUSTER}: HeadNodeBootstrapFailure (LogGroup: /aws/lambda/pcluster-cfn-" in cause
    assert "  -> the head node did not finish its set-up. The lines of the head node below" in explained
    assert f"{first['logGroupName']} ip-10-0-0-5.i-0123456789abcdef0.syslog, " in explained
    assert f": {step}\n  -> the node scripts failed" in explained
    assert "sshd" not in explained

    assert driver.delete() == "DELETE_COMPLETE"
    assert step in trn(local_aws, "why", driver.name)  # CloudFormation keeps its record
    assert driver.create(template) == "ROLLBACK_COMPLETE"
    assert step not in trn(local_aws, "why", driver.name)  # of the creation before
    groups = log_groups(local_aws)
    assert (len(groups), groups[0]["creationTime"]) == (2, first["creationTime"])

    destroyed = completed(
        [TRN, "destroy", driver.name, "--yes"], env=local_aws.env, stdin=subprocess.DEVNULL, timeout=600
    )
    assert destroyed.returncode == 0, destroyed.stderr
    assert f"log group {first['logGroupName']}: it is the log of the cluster's nodes" in destroyed.stderr
    assert beyond(inventory(local_aws.client), before) == {}


def with_configuration(template: Template, **sections: Any) -> Template:
    """The template with other sections of the cluster configuration."""
    found = copy.deepcopy(template)
    [cluster] = [r for r in found["Resources"].values() if r["Type"] == "Custom::PclusterCluster"]
    cluster["Properties"]["ClusterConfiguration"] |= sections
    return found


def tagged(template: Template, value: str) -> Template:
    return with_configuration(template, Tags=[{"Key": "team", "Value": value}])


def configured_tags(aws: LocalAws) -> list[dict[str, str]]:
    record = json.loads((aws.directory / f"clusters/{CLUSTER}/cluster.json").read_text())
    return [tag for tag in record["config"]["Tags"] if tag["Key"] == "team"]


def resumed(driver: Driver, *skipped: str) -> str:
    more = {"ResourcesToSkip": list(skipped)} if skipped else {}
    driver.client.continue_update_rollback(StackName=driver.name, **more)
    return driver.settle()


def advice(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command that `trn diff` prints, and `trn check` for a stack of the environment."""
    for key, value in driver.aws.env.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(TrnError) as refused:
        deployed(driver.name)
    found = re.search(r"\((aws cloudformation continue-update-rollback [^)]*)\)", str(refused.value))
    assert found, str(refused.value)
    return shlex.split(found[1])


def test_a_failed_update_is_left_by_the_command_that_trn_diff_prints(
    local_aws: LocalAws, drivers: list[Driver], template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback sends the earlier configuration, in which nothing has changed, and the cluster is still UPDATE_FAILED."""
    driver, _ = drivers
    assert driver.create(template) == "CREATE_COMPLETE", driver.failures()
    made = driver.physical()
    local_aws.set_answers("cluster-faults", {CLUSTER: {"update": "OnNodeUpdated"}})
    assert driver.update(tagged(template, "speech")) == "UPDATE_ROLLBACK_FAILED"
    assert f"{CLUSTER}:  (LogGroup: /aws/lambda/pcluster-cfn-" in driver.failures()
    explained = trn(local_aws, "why", driver.name)
    assert "first cause: Cluster" in explained
    assert "  -> the cluster's own update failed and was rolled back; ParallelCluster gives no reason" in explained
    assert "`trn diff` prints the command that ends the rollback (--resources-to-skip)" in explained
    cause = next(line for line in explained.splitlines() if line.startswith("  -> "))
    told("failed update", "ParallelCluster", "trn why", cause.removeprefix("  -> "))
    local_aws.set_answers("cluster-faults", None)
    assert [resumed(driver) for _ in range(2)] == ["UPDATE_ROLLBACK_FAILED"] * 2

    command = advice(driver, monkeypatch)
    [cluster] = [k for k, r in template["Resources"].items() if r["Type"] == "Custom::PclusterCluster"]
    assert command[3:5] == ["--stack-name", driver.name]
    assert command[command.index("--resources-to-skip") + 1 :] == [cluster]
    assert resumed(driver, cluster) == "UPDATE_ROLLBACK_COMPLETE"
    assert (driver.physical(), configured_tags(local_aws)) == (made, [])
    assert driver.update(tagged(template, "vision")) == "UPDATE_COMPLETE", driver.failures()
    assert configured_tags(local_aws) == [{"Key": "team", "Value": "vision"}]
    assert driver.delete() == "DELETE_COMPLETE"


@pytest.mark.sweep
def test_other_failures_inside_the_function(local_aws: LocalAws, drivers: list[Driver], template: Template) -> None:
    driver, _ = drivers
    before = inventory(local_aws.client)
    # the request for the cluster's state is throttled: its creation succeeds, and the rollback deletes the cluster
    local_aws.set_answers("cluster-faults", {CLUSTER: {"poll": "Rate exceeded"}})
    assert driver.create(template) == "ROLLBACK_COMPLETE"
    local_aws.set_answers("cluster-faults", None)
    assert driver.delete() == "DELETE_COMPLETE"
    assert driver.create(template) == "CREATE_COMPLETE", driver.failures()
    # what ParallelCluster refuses has changed nothing
    system = with_configuration(template, Image={"Os": "ubuntu2204"})
    assert driver.update(system) == "UPDATE_ROLLBACK_COMPLETE"
    assert "Restore 'Os' value to 'ubuntu2404'" in driver.failures()
    # throttled again: the update is made nevertheless, and undone as soon as the function is answered
    local_aws.set_answers("cluster-faults", {CLUSTER: {"poll": "Rate exceeded"}})
    assert driver.update(tagged(template, "speech")) == "UPDATE_ROLLBACK_FAILED"
    local_aws.set_answers("cluster-faults", None)
    assert resumed(driver) == "UPDATE_ROLLBACK_COMPLETE"
    assert configured_tags(local_aws) == []
    # a change that its update policy does not see is not made
    template_only = with_configuration(template, **strategy(template, "TERMINATE"))
    assert driver.update(template_only) == "UPDATE_COMPLETE", driver.failures()
    record = json.loads((local_aws.directory / f"clusters/{CLUSTER}/cluster.json").read_text())
    assert record["config"]["Scheduling"]["SlurmSettings"]["QueueUpdateStrategy"] == "DRAIN"

    local_aws.set_answers("cluster-faults", {CLUSTER: {"delete": ""}})
    assert driver.delete() == "DELETE_FAILED"
    local_aws.set_answers("cluster-faults", None)
    assert driver.delete() == "DELETE_COMPLETE"
    for group in log_groups(local_aws):
        local_aws.client("logs").delete_log_group(logGroupName=group["logGroupName"])
    assert beyond(inventory(local_aws.client), before) == {}


def strategy(template: Template, value: str) -> dict[str, Any]:
    [cluster] = [r for r in template["Resources"].values() if r["Type"] == "Custom::PclusterCluster"]
    scheduling = copy.deepcopy(cluster["Properties"]["ClusterConfiguration"]["Scheduling"])
    scheduling["SlurmSettings"]["QueueUpdateStrategy"] = value
    return {"Scheduling": scheduling}


@pytest.mark.sweep
def test_a_cluster_of_another_name_that_cannot_be_created(
    local_aws: LocalAws, drivers: list[Driver], tmp_path: Path
) -> None:
    """The way on from what ParallelCluster cannot change: the old cluster is as it was, and the new one's log has the cause."""
    driver, _ = drivers
    before = inventory(local_aws.client)
    made: list[Template] = []
    for number, name in enumerate((CLUSTER, "renamed-slurm")):
        data = {"name": "named", "registry": {"enabled": False}, "pcluster": {"cluster_name": name}}
        folder = tmp_path / str(number)
        made.append(assemble(settings.validate(data), TrnPclusterStack, "Named", folder))
        publish(local_aws, folder)
    assert driver.create(made[0]) == "CREATE_COMPLETE", driver.failures()
    head = head_node(local_aws)
    local_aws.set_answers("cluster-faults", {"renamed-slurm": {"create": "HeadNodeBootstrapFailure"}})
    assert driver.update(made[1]) == "UPDATE_ROLLBACK_COMPLETE"
    assert head_node(local_aws) == head
    [group] = local_aws.client("logs").describe_log_groups(logGroupNamePrefix="/aws/parallelcluster/renamed-slurm-")[
        "logGroups"
    ]
    step = "trn-bootstrap: step 'check-mounts' failed on head node ip-10-0-0-5: /fsx is not mounted"
    node_log(local_aws, group["logGroupName"], "ip-10-0-0-5.i-0123456789abcdef0.syslog", step)
    assert step in trn(local_aws, "why", driver.name)
    local_aws.set_answers("cluster-faults", None)
    assert driver.update(made[1]) == "UPDATE_COMPLETE", driver.failures()
    assert head_node(local_aws) == ("", "gone")
    destroyed = completed(
        [TRN, "destroy", driver.name, "--yes"], env=local_aws.env, stdin=subprocess.DEVNULL, timeout=600
    )
    assert destroyed.returncode == 0, destroyed.stderr
    assert beyond(inventory(local_aws.client), before) == {}
