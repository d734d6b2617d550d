"""The local PCS refuses what PCS refuses: names, limits, settings, templates, profiles, scripts."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import LocalAws
from tests.sandbox.test_cloudformation import Run, name, run  # noqa: F401  fixtures

Template = dict[str, Any]


BASE: Template = yaml.safe_load(Path(__file__).with_name("pcs.yaml").read_text("utf-8"))


def setting(parameter: str, value: str = "1") -> dict[str, Any]:
    return {"SlurmCustomSettings": [{"ParameterName": parameter, "ParameterValue": value}]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"Cluster": {"Name": "pcs_x"}}, "does not match"),
    ({"Cluster": {"Name": "ab"}}, "2 characters is not within 3 to 40"),
    ({"Cluster": {"Size": "HUGE"}}, "'HUGE' is none of SMALL, MEDIUM, LARGE"),
    ({"Cluster": {"Scheduler": {"Type": "SLURM", "Version": "23.11"}}}, "Slurm 23.11 is not one of"),
    ({"Cluster": {"Fleet": "x"}}, "unknown fleet"),
    ({"Cluster": {"Networking": {"SubnetIds": ["subnet-0123456789abcdef0"], "SecurityGroupIds": [{"Ref": "Group"}]}}}, "does not exist"),
    ({"Nodes": {"Name": "a-name-of-26-characters-abc"}}, "is not within 3 to 25"),
    ({"Nodes": {"InstanceConfigs": [{"InstanceType": "trn9.large"}]}}, "trn9.large is not offered"),
    ({"Nodes": {"ScalingConfiguration": {"MinInstanceCount": 5, "MaxInstanceCount": 4}}}, "minInstanceCount is more than maxInstanceCount"),
    ({"Nodes": {"ScalingConfiguration": {"MinInstanceCount": 0, "MaxInstanceCount": 33}}}, "A SMALL cluster has at most 32 nodes"),
    ({"Nodes": {"PurchaseOption": "CAPACITY_BLOCK"}}, "needs a launch template with the market type capacity-block"),
    ({"Nodes": {"AmiId": "ami-00000000000000000"}}, "ami-00000000000000000 does not exist"),
    ({"Nodes": {"CustomLaunchTemplate": {"TemplateId": {"Ref": "Template"}, "Version": "7"}}}, "has no version 7"),
    ({"Nodes": {"SlurmConfiguration": setting("State", "DOWN")}}, "The Slurm setting State is not supported for a compute node group"),
    ({"Queue": {"SlurmConfiguration": setting("Nodes", "x")}}, "The Slurm setting Nodes is not supported for a queue"),
    ({"Queue": {"ComputeNodeGroupConfigurations": [{"ComputeNodeGroupId": "pcs_none"}]}}, "have no pcs_none"),
    ({"Profile": {"Path": "/"}}, "must begin with AWSPCS, or have the path /aws-pcs/"),
    ({"Template": {"LaunchTemplateData": {}}}, "needs security groups that exist"),
    (
        {"Nodes": {"NodeLifecycleActions": {"Stages": {"NodeBootstrapped": [{"Name": "x", "ScriptSource": {"ScriptLocation": "s3://none/x.sh"}}]}}}},
        "A node cannot fetch s3://none/x.sh",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_refused(changes: dict[str, Any], message: str, run: Run, local_aws: LocalAws, name: str) -> None:  # noqa: F811
    template = copy.deepcopy(BASE)
    for id, properties in changes.items():
        template["Resources"][id]["Properties"].update(properties)
    assert run(template) == "ROLLBACK_COMPLETE"
    events = local_aws.client("cloudformation").describe_stack_events(StackName=name)["StackEvents"]
    assert any(message in event.get("ResourceStatusReason", "") for event in events), [
        e.get("ResourceStatusReason") for e in events if "FAILED" in e["ResourceStatus"]
    ]


def test_static_nodes_follow_their_group_and_queues_hold_it(run: Run, local_aws: LocalAws) -> None:  # noqa: F811
    template = copy.deepcopy(BASE)
    template["Resources"]["Nodes"]["Properties"]["ScalingConfiguration"]["MinInstanceCount"] = 2
    assert run(template) == "CREATE_COMPLETE"
    [cluster] = local_aws.client("pcs").list_clusters()["clusters"]
    [of] = local_aws.client("pcs").list_compute_node_groups(clusterIdentifier="test")["computeNodeGroups"]

    def running() -> set[str]:
        tags = {"aws:pcs:cluster-id": cluster["id"], "aws:pcs:compute-node-group-id": of["id"]}
        filters = [{"Name": f"tag:{k}", "Values": [v]} for k, v in tags.items()]
        filters.append({"Name": "instance-state-name", "Values": ["running"]})
        found = local_aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
        return {i["InstanceId"] for r in found for i in r["Instances"]}

    assert len(before := running()) == 2
    template["Resources"]["Nodes"]["Properties"]["ScalingConfiguration"]["MinInstanceCount"] = 0
    assert run(template) == "UPDATE_COMPLETE"
    assert running() == set()
    template["Resources"]["Nodes"]["Properties"] |= {"InstanceConfigs": [{"InstanceType": "trn1.32xlarge"}]}
    assert run(template) == "UPDATE_ROLLBACK_COMPLETE"  # a replacement with the same name
    assert before
