"""The local CloudFormation takes the updates of a node group that AWS takes, one kind at a time."""

from __future__ import annotations

import base64
import json
from typing import Any

from sandbox import LocalAws

NAME, ROLE = "kinds", "arn:aws:iam::000000000000:role/r"
RULE = "Version and ReleaseVersion updates cannot be combined with other updates"


def template(
    subnet: str, data: str, *, version: str = "1.34", most: int = 2, tags: dict[str, str] | None = None
) -> str:
    kinds: dict[str, dict[str, Any]] = {
        "Cluster": {"Name": NAME, "RoleArn": ROLE, "ResourcesVpcConfig": {"SubnetIds": [subnet]}},
        "LaunchTemplate": {
            "LaunchTemplateData": {"InstanceType": "trn1.2xlarge", "UserData": base64.b64encode(data.encode()).decode()}
        },
        "Nodegroup": {
            "ClusterName": {"Ref": "Cluster"},
            "NodeRole": ROLE,
            "Subnets": [subnet],
            "Version": version,
            "ScalingConfig": {"MinSize": 0, "MaxSize": most, "DesiredSize": 0},
            "LaunchTemplate": {
                "Id": {"Ref": "LaunchTemplate"},
                "Version": {"Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]},
            },
            **({"Tags": tags} if tags else {}),
        },
    }
    services = {"LaunchTemplate": "EC2"}
    resources = {k: {"Type": f"AWS::{services.get(k, 'EKS')}::{k}", "Properties": p} for k, p in kinds.items()}
    return json.dumps({"Resources": resources})


def test_a_node_group_takes_one_kind_of_update_at_a_time(local_aws: LocalAws) -> None:
    client, eks = local_aws.client("cloudformation"), local_aws.client("eks")
    subnet = local_aws.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]

    def update(body: str | None, tags: dict[str, str], waits: str = "stack_update_complete") -> None:
        given: dict[str, Any] = {"TemplateBody": body} if body else {"UsePreviousTemplate": True}
        call = client.create_stack if "create" in waits else client.update_stack
        call(StackName=NAME, Tags=[{"Key": key, "Value": value} for key, value in tags.items()], **given)
        client.get_waiter(waits).wait(StackName=NAME, WaiterConfig={"Delay": 1})

    def refused(body: str, tags: dict[str, str]) -> None:
        update(body, tags, "stack_rollback_complete")
        found = client.describe_stack_events(StackName=NAME)["StackEvents"]
        [event] = [e for e in found if e["ResourceStatus"] == "UPDATE_FAILED"][:1]
        assert (event["LogicalResourceId"], event["ResourceStatusReason"]) == ("Nodegroup", RULE)

    update(template(subnet, "a", tags={"Owner": "a"}), {}, "stack_create_complete")
    refused(template(subnet, "b", tags={"Owner": "b"}), {})
    update(template(subnet, "a"), {})
    update(template(subnet, "b"), {})
    # the stack's tags are the group's
    refused(template(subnet, "c"), {"Cost": "1"})
    update(None, {"Cost": "1"})
    update(template(subnet, "c"), {"Cost": "1"})
    refused(template(subnet, "c", version="1.35", most=4), {"Cost": "1"})
    update(template(subnet, "c", most=4), {"Cost": "1"})
    update(template(subnet, "d", version="1.35", most=4), {"Cost": "1"})
    [name] = eks.list_nodegroups(clusterName=NAME)["nodegroups"]
    group = eks.describe_nodegroup(clusterName=NAME, nodegroupName=name)["nodegroup"]
    assert (group["version"], group["scalingConfig"]["maxSize"], group["tags"]["Cost"]) == ("1.35", 4, "1")
    client.delete_stack(StackName=NAME)
    client.get_waiter("stack_delete_complete").wait(StackName=NAME, WaiterConfig={"Delay": 1})
