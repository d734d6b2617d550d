"""What single changes mean, in words: small tables, without a template of ours."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from trainium_cdk.errors import UpdateError
from trainium_cdk.operations.updates import Spec, compare
from trainium_cdk.operations.updates.leaves import marked, references
from trainium_cdk.operations.updates.live import Assembled, _pick, _reason, assemble, deployed
from trainium_cdk.operations.updates.pcluster import changes

Data = dict[str, Any]
STOP = "Stop the fleet first (trn fleet stop), compare again with --fleet-stopped, deploy, and start it again (trn fleet start)"
LOGIN = (
    "Set pcluster.overrides: {LoginNodes: {Pools: [{Name: login, Count: 0}]}} and deploy, then deploy this without it"
)
ANOTHER = (
    "Leave it as it was; or give the cluster another name (pcluster.cluster_name): a new cluster is created on the same file "
    "systems, and this one is deleted after it"
)
DRAIN = "nodes that run a job keep it and are replaced after it; idle ones are replaced at once"
SPOT = "Scheduling.SlurmQueues[q].CapacityType"


def lab(
    strategy: str = "DRAIN",
    sudo: str = "true",
    os: str = "ubuntu2404",
    name: str = "lab",
    logins: int = 0,
    login: str = "a",
    **queue: Any,
) -> Data:
    config = {
        "Image": {"Os": os},
        "Scheduling": {"SlurmSettings": {"QueueUpdateStrategy": strategy}, "SlurmQueues": [{"Name": "q", **queue}]},
        "DeploymentSettings": {"DisableSudoAccessForDefaultUser": sudo},
        "LoginNodes": {"Pools": [{"Name": "p", "Count": logins, "InstanceType": login}]},
    }
    return {
        "C": {"Type": "Custom::PclusterCluster", "Properties": {"ClusterName": name, "ClusterConfiguration": config}}
    }


def nested(version: str) -> Data:
    url = {"Fn::Sub": f"https://${{AWS::Region}}.amazonaws.com/parallelcluster/{version}/templates/x.yaml"}
    return {"P": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": url}}}


def one(type: str, **properties: Any) -> Data:
    return {"R": {"Type": type, "Properties": properties, "Metadata": {"aws:cdk:path": "S/Part/Resource"}}}


TINY = Spec(
    {
        "schema": {
            "resource": {
                "entities": [
                    {"cloudFormationType": "AWS::S3::Bucket", "isStateful": True, "properties": {
                        "BucketName": {"causesReplacement": "yes", "type": {"type": "string"}},
                        "Rules": {"type": {"type": "array", "element": {"type": "union", "types": [{"type": "string"}, {"type": "ref", "reference": {"$ref": "rule"}}]}}}}},
                    {"cloudFormationType": "AWS::X::Y", "properties": {"Size": {"type": {"type": "integer"}}, "Way": {"causesReplacement": "maybe", "type": {"type": "json"}}}},
                    {"cloudFormationType": "AWS::EC2::Volume", "properties": {"Size": {"type": {"type": "integer"}}}},
                    {"cloudFormationType": "AWS::CloudFormation::Stack", "isStateful": True, "properties": {"TemplateURL": {"type": {"type": "string"}}}},
                ]
            },
            "typeDefinition": {"entities": [{"$id": "rule", "properties": {"Id": {"causesReplacement": "yes", "type": {"type": "string"}}}}]},
        }
    }
)  # fmt: skip
BUCKET, XY = "AWS::S3::Bucket", "AWS::X::Y"
COPY = "Leave it as it was, or copy its data first and then give --allow Part"


@pytest.mark.parametrize(
    ("old", "new", "fleet_running", "expected"),
    [
        (lab(), lab(), True, []),
        (lab(CapacityType="SPOT"), lab(CapacityType="ONDEMAND"), True, [f"interrupts: C {SPOT} (Custom::PclusterCluster): SPOT -> ONDEMAND: {DRAIN}"]),
        (lab("TERMINATE", CapacityType="SPOT"), lab("TERMINATE", CapacityType="ONDEMAND"), True, [
            f"interrupts: C {SPOT} (Custom::PclusterCluster): SPOT -> ONDEMAND: the nodes are replaced at once, and the jobs on them stop. "
            "Let running jobs end first; those that were stopped start again from their last checkpoint"]),
        (lab("", CapacityType="SPOT"), lab("", CapacityType="ONDEMAND"), True,
         [f"refused: C {SPOT} (Custom::PclusterCluster): SPOT -> ONDEMAND: ParallelCluster rejects it while compute nodes may run. {STOP}"]),
        (lab("", CapacityType="SPOT"), lab("", CapacityType="ONDEMAND"), False,
         [f"interrupts: C {SPOT} (Custom::PclusterCluster): SPOT -> ONDEMAND: the fleet must be stopped for it, so no job runs. Start the fleet again afterwards"]),
        (lab(logins=1), lab(logins=1, sudo="false"), True,
         ["refused: C DeploymentSettings.DisableSudoAccessForDefaultUser (Custom::PclusterCluster): true -> false: "
          f"ParallelCluster rejects it while compute nodes or login nodes run. {LOGIN}. Before that, s{STOP[1:]}"]),
        (lab(logins=1), lab(logins=1, login="b"), False,
         [f"refused: C LoginNodes.Pools[p].InstanceType (Custom::PclusterCluster): a -> b: ParallelCluster rejects it while login nodes run. {LOGIN}"]),
        (lab(), lab(login="b"), True,
         ["safe: C LoginNodes.Pools[p].InstanceType (Custom::PclusterCluster): a -> b: the running cluster is updated without interruption"]),
        (lab("DRAIN"), lab("TERMINATE"), True,
         ["safe: C Scheduling.SlurmSettings.QueueUpdateStrategy (Custom::PclusterCluster): DRAIN -> TERMINATE: ParallelCluster does not see this "
          "change, and leaves the cluster as it is until something else of its configuration changes. Change something else with it, for example a tag"]),
        (lab(Networking={"PlacementGroup": {"Enabled": True}}), lab(Networking={"PlacementGroup": {"Enabled": False}}), True,
         [f"interrupts: C Scheduling.SlurmQueues[q].Networking.PlacementGroup.Enabled (Custom::PclusterCluster): true -> false: {DRAIN}"]),
        (lab(), lab(os="alinux2023"), False,
         [f"refused: C Image.Os (Custom::PclusterCluster): ubuntu2404 -> alinux2023: ParallelCluster cannot change it in an existing cluster. {ANOTHER}"]),
        (lab(), lab(name="den"), True, [f"refused: C ClusterName (Custom::PclusterCluster): lab -> den: ParallelCluster does not rename a cluster. {ANOTHER}"]),
        (lab(Networking={"SubnetIds": [{"Ref": "A"}]}), lab(Networking={"SubnetIds": [{"Ref": "B"}]}), True,
         [f"interrupts: C Scheduling.SlurmQueues[q].Networking.SubnetIds (Custom::PclusterCluster): A -> B: {DRAIN}"]),
        (lab(Networking={"SubnetIds": ["a"]}), lab(Networking={"SubnetIds": ["a", "b"]}), True,
         ['safe: C Scheduling.SlurmQueues[q].Networking.SubnetIds (Custom::PclusterCluster): a -> ["a","b"]: the running cluster is updated without interruption']),
        (lab(), lab(ComputeResources=[{"Name": "r", "MaxCount": 1}]), True,
         ["safe: C Scheduling.SlurmQueues[q].ComputeResources (Custom::PclusterCluster): none -> r: the running cluster is updated without interruption"]),
        (nested("3.15.0"), nested("3.16.1"), True,
         ['refused: P TemplateURL (AWS::CloudFormation::Stack): "https://${AWS::Region}.amazonaws.com/parallelcluster/3.1... -> '
          '"https://${AWS::Region}.amazonaws.com/parallelcluster/3.1...: ParallelCluster 3.16.1 does not update a cluster that 3.15.0 created. ' + ANOTHER]),
        (nested("3.15.0"), nested("3.15.0"), True, []),
        (nested("3.15.0"), {}, True, ["safe: P (AWS::CloudFormation::Stack): it is deleted; nothing is stored in it"]),
        (one(BUCKET, BucketName="a"), one(BUCKET, BucketName="b"), True, [f"loses: Part BucketName (AWS::S3::Bucket): a -> b: it is replaced; lost with it: its objects. {COPY}"]),
        (one(BUCKET, Rules=[{"Id": 1}, {"Id": 2}]), one(BUCKET, Rules=[{"Id": 1}, {"Id": 3}]), True,
         [f"loses: Part Rules.1.Id (AWS::S3::Bucket): 2 -> 3: it is replaced; lost with it: its objects. {COPY}"]),
        (one(BUCKET, Tags="a"), one(BUCKET, Tags="b"), True, ["safe: Part Tags (AWS::S3::Bucket): a -> b: it is changed in place"]),
        (one(XY, Size=1), one(XY, Size="1"), True, []),
        (one(XY, On=True), one(XY, On="true"), True, []),
        (one(XY, Size=2), one(XY, Size=1), True, ["safe: Part Size (AWS::X::Y): 2 -> 1: it is changed in place"]),
        (one(XY, Way=2), one(XY, Way=1), True, ["replaces: Part Way (AWS::X::Y): 2 -> 1: it may be replaced; nothing is stored in it"]),
        (one("AWS::New::Type", Way=2), one("AWS::New::Type", Way=1), True, ["replaces: Part Way (AWS::New::Type): 2 -> 1: it may be replaced; nothing is stored in it"]),
        ({}, one(XY), True, ["safe: Part (AWS::X::Y): it is created"]),
        (one(XY), one(BUCKET), True, ["safe: Part (AWS::X::Y): it is deleted; nothing is stored in it", "safe: Part (AWS::S3::Bucket): it is created"]),
        (one("AWS::CDK::Metadata"), one("AWS::CDK::Metadata", Analytics="v2"), True, []),
        (one(BUCKET, BucketName="a") | {"L": {"Type": XY, "Properties": {"Of": {"Fn::Sub": "x-${R.Arn}"}}}},
         one(BUCKET, BucketName="b") | {"L": {"Type": XY, "Properties": {"Of": {"Fn::Sub": "x-${R.Arn}"}}}}, True,
         [f"loses: Part BucketName (AWS::S3::Bucket): a -> b: it is replaced; lost with it: its objects. {COPY}",
          "safe: L Of (AWS::X::Y): R.Arn -> another R.Arn: it is changed in place"]),
    ],
)  # fmt: skip
def test_a_change(old: Data, new: Data, fleet_running: bool, expected: list[str]) -> None:
    found = compare({"Resources": old}, {"Resources": new}, TINY, fleet_running=fleet_running)
    assert [str(change) for change in found] == expected


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [((0, 2), (4, 6), "live"), ((0, 2), (4, 5), "stop"), ((1, None), (4, 3), "live"), ((1, 2), (4, 4), "stop")],
)
def test_more_nodes_are_live(least: tuple[int, int | None], most: tuple[int, int], verdict: str) -> None:
    """As many more at least as at most."""

    def config(i: int) -> Data:
        counts = {"MinCount": least[i], "MaxCount": most[i]}
        return {"Scheduling": {"SlurmQueues": [{"Name": "q", "ComputeResources": [{"Name": "r", **counts}]}]}}

    found = {change.path.rpartition(".")[2]: change.verdict for change in changes(config(0), config(1))}
    assert found["MinCount"] == verdict


def test_a_section_that_is_new_is_one_change() -> None:
    [found] = changes({}, {"DirectoryService": {"DomainName": "a", "DomainAddr": "b"}})
    assert (found.path, found.policy, found.verdict) == ("DirectoryService", "COMPUTE_AND_LOGIN_NODES_STOP", "stop")
    assert found.new == {"DomainName": "a", "DomainAddr": "b"}


def test_what_a_value_refers_to() -> None:
    value = [
        {"Ref": "A"}, {"Fn::GetAtt": "B.Arn"}, {"Fn::GetAtt": ["C", "Id"]}, {"Fn::Sub": "${D}-${E.Arn}-${!F}"},
        {"Fn::Sub": ["${G}-${H}", {"G": {"Ref": "I"}}]}, {"Fn::Join": ["", ["x", {"Ref": "J"}]]}, "Ref",
    ]  # fmt: skip
    found = [
        ("A", "Ref"),
        ("B", "Arn"),
        ("C", "Id"),
        ("D", "Ref"),
        ("E", "Arn"),
        ("H", "Ref"),
        ("I", "Ref"),
        ("J", "Ref"),
    ]
    assert list(references(value)) == found
    renewed = {("B", "Arn"), ("J", "")}
    assert [i for i, (a, b) in enumerate(zip(value, marked(value, renewed), strict=True)) if a != b] == [1, 5]


def assembled(folder: Path, **artifact: Any) -> Path:
    properties = {"templateFile": "t.json"} | artifact.pop("properties", {})
    stack = {"type": "aws:cloudformation:stack", "properties": properties} | artifact
    (folder / "manifest.json").write_text(
        json.dumps({"artifacts": {"S.assets": {"type": "cdk:asset-manifest"}, "S": stack}})
    )
    (folder / "t.json").write_text('{"Resources": {}}')
    return folder


@pytest.mark.parametrize(("where", "region"), [
    ({"environment": "aws://111122223333/us-east-2"}, "us-east-2"),
    ({"environment": "aws://unknown-account/unknown-region"}, None),
    ({}, None),
])  # fmt: skip
@pytest.mark.parametrize("asked", ["S", "Stack-x", "Stage/S"])
def test_a_stack_of_the_app_is_found_by_each_of_its_names(
    asked: str, where: Data, region: str | None, tmp_path: Path
) -> None:
    folder = assembled(tmp_path, properties={"stackName": "Stack-x"}, displayName="Stage/S", **where)
    assert _pick(asked, folder) == Assembled("Stack-x", region, {"Resources": {}})


def test_a_stack_without_a_name_has_its_id(tmp_path: Path) -> None:
    assert _pick("S", assembled(tmp_path)).name == "S"
    with pytest.raises(UpdateError, match=r"^the app has no stack T; it has S$"):
        _pick("T", tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UpdateError, match=r"^the app has no stack S; it has none$"):
        _pick("S", tmp_path)


def test_a_synthesis_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cdk = tmp_path / "cdk"
    cdk.write_text('#!/bin/sh\necho "$@"\necho broken >&2\nexit 3\n')
    cdk.chmod(0o755)
    monkeypatch.setenv("TRN_CDK", str(cdk))
    with pytest.raises(UpdateError, match=r"^the app does not synthesise:\nbroken$"):
        assemble("S", app=tmp_path)


def test_what_the_cdk_reports_has_its_fix() -> None:
    assert _reason("--app is required", "S", None).startswith(
        "there is no CDK app in this folder (no cdk.json with `app`): run it"
    )
    assert _reason("--app is required", "S", Path("a/b")).startswith("there is no CDK app in a/b (no")
    assert _reason("No stacks match", "S", None) == "the app has no stack S: `cdk ls` in its folder lists them"
    assert _reason("x" * 2500, "S", None) == "the app does not synthesise:\n" + "x" * 2000


class CloudFormation:
    """One stack, or an error."""

    def __init__(self, status: str, body: object) -> None:
        self.status, self.body, self.meta = status, body, SimpleNamespace(region_name="us-east-1")

    def describe_stacks(self, StackName: str) -> Data:  # noqa: N803  boto3's
        if self.status == "unreachable":
            raise EndpointConnectionError(endpoint_url="https://x")
        if "_" not in self.status:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": self.status}}, "DescribeStacks")
        return {"Stacks": [{"StackStatus": self.status}]}

    def get_template(self, StackName: str, TemplateStage: str) -> Data:  # noqa: N803
        assert TemplateStage == "Original"
        return {"TemplateBody": self.body}


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        ("CREATE_COMPLETE", '{"Resources": {}}', {"Resources": {}}),
        ("UPDATE_ROLLBACK_COMPLETE", {"Resources": {}}, {"Resources": {}}),
        ("REVIEW_IN_PROGRESS", "{}", None),
        ("DELETE_COMPLETE", "{}", None),
        ("Stack with id S does not exist", "{}", None),
        ("not allowed", "{}", "cannot read stack S: An error occurred (ValidationError) when calling the DescribeStacks operation: not allowed"),
        ("unreachable", "{}", 'cannot read stack S: Could not connect to the endpoint URL: "https://x". Check your AWS credentials, region and network'),
    ],
)  # fmt: skip
def test_the_deployed_template(status: str, body: object, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boto3, "client", lambda service, **_: {"cloudformation": CloudFormation(status, body)}[service])
    if isinstance(found, str):
        with pytest.raises(UpdateError) as refused:
            deployed("S", "us-east-1")
        assert str(refused.value) == found
    else:
        assert deployed("S", "us-east-1") == found
