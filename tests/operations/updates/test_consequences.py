"""What single changes mean, in words: small tables, without a template of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.hooks import HierarchicalEmitter

from trainium_cdk.client.operations.updates import Spec, compare
from trainium_cdk.client.operations.updates.change import marked, references
from trainium_cdk.client.operations.updates.live import Assembled, _pick, _reason, assemble, deployed
from trainium_cdk.client.operations.updates.slurm import changes
from trainium_cdk.errors import TrnError

Data = dict[str, Any]


def lab(
    strategy: str = "DRAIN",
    sudo: str = "true",
    os: str = "ubuntu2404",
    name: str = "lab",
    logins: int = 0,
    login: str = "a",
    slurm: Sequence[Data] = (),
    **queue: Any,
) -> Data:
    settings = {"QueueUpdateStrategy": strategy, **({"CustomSlurmSettings": slurm} if slurm else {})}
    config = {
        "Image": {"Os": os},
        "Scheduling": {"SlurmSettings": settings, "SlurmQueues": [{"Name": "q", **queue}]},
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
                    {"cloudFormationType": "AWS::EKS::Nodegroup", "properties": {"ClusterName": {"causesReplacement": "yes", "type": {"type": "string"}}}},
                    {"cloudFormationType": "AWS::PCS::Cluster", "properties": {"SlurmConfiguration": {"type": {"type": "json"}}, "Scheduler": {"type": {"type": "json"}}}},
                    {"cloudFormationType": "AWS::EC2::Volume", "properties": {"Size": {"type": {"type": "integer"}}}},
                    {"cloudFormationType": "AWS::CloudFormation::Stack", "isStateful": True, "properties": {"TemplateURL": {"type": {"type": "string"}}}},
                ]
            },
            "typeDefinition": {"entities": [{"$id": "rule", "properties": {"Id": {"causesReplacement": "yes", "type": {"type": "string"}}}}]},
        }
    }
)  # fmt: skip


CHANGES = yaml.safe_load(Path(__file__).with_name("consequences.yaml").read_text("utf-8"))


def made(what: Data) -> Data:
    made_by: dict[str, Callable[..., Data]] = {"lab": lab, "nested": nested, "one": one}
    found = {name: how(**what[name]) for name, how in made_by.items() if name in what}
    return {"Resources": {k: r for each in (*found.values(), what.get("more", {})) for k, r in each.items()}}


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: (case["told"] or ["no change"])[0][:60])
def test_a_change(case: Data) -> None:
    found = compare(made(case["old"]), made(case["new"]), TINY, fleet_running="stopped" not in case)
    assert [str(change) for change in found] == case["told"]


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
    with pytest.raises(TrnError, match=r"^the app has no stack T; it has S$"):
        _pick("T", tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(TrnError, match=r"^the app has no stack S; it has none$"):
        _pick("S", tmp_path)


def test_a_synthesis_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cdk = tmp_path / "cdk"
    cdk.write_text('#!/bin/sh\necho "$@"\necho broken >&2\nexit 3\n')
    cdk.chmod(0o755)
    monkeypatch.setenv("TRN_CDK", str(cdk))
    with pytest.raises(TrnError, match=r"^the app does not synthesise:\nbroken$"):
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
        self.status, self.body, self.meta = (
            status,
            body,
            SimpleNamespace(region_name="us-east-1", events=HierarchicalEmitter()),
        )

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
        with pytest.raises(TrnError) as refused:
            deployed("S", "us-east-1")
        assert str(refused.value) == found
    else:
        assert deployed("S", "us-east-1") == found


VERSIONS, OTHERS = (
    ("Version", "ReleaseVersion", "LaunchTemplate"),
    ("Tags", "Labels", "Taints", "ScalingConfig", "UpdateConfig", "NodeRepairConfig", "StackTags"),
)


@pytest.mark.parametrize("first", [*VERSIONS, *OTHERS])
@pytest.mark.parametrize("second", [*VERSIONS, *OTHERS])
def test_what_eks_updates_at_once(first: str, second: str) -> None:
    """One kind of update at a time; in another cluster it is a new group."""
    old, new = ({"Resources": one("AWS::EKS::Nodegroup", **{n: {"x": i} for n in (first, second)})} for i in (1, 2))
    refused = [c for c in compare(old, new, TINY) if c.level == "refused"]
    assert bool(refused) is ((first in VERSIONS) != (second in VERSIONS))
    assert all(c.advice and c.property == "" for c in refused)
    for i, template in enumerate((old, new)):
        template["Resources"]["R"]["Properties"]["ClusterName"] = str(i)
    assert not [c for c in compare(old, new, TINY) if c.level == "refused"]


def test_tags_of_a_stack_are_its_node_groups(tmp_path: Path) -> None:
    """CloudFormation gives them, unless the group has one of the name."""
    folder = assembled(tmp_path, properties={"tags": {"Owner": "ml", "Cost": "1"}})
    (folder / "t.json").write_text(json.dumps({"Resources": one("AWS::EKS::Nodegroup", Tags={"Cost": "2"})}))
    [group] = _pick("S", folder).template["Resources"].values()
    assert group["Properties"] == {"Tags": {"Cost": "2"}, "StackTags": {"Owner": "ml"}}


@pytest.mark.parametrize(("principal", "cluster", "refused"), [("a", "x", True), ("b", "x", False), ("a", "y", False)])
def test_a_principal_has_one_access_entry(principal: str, cluster: str, refused: bool) -> None:
    """CloudFormation creates the new one first, where the first of several grants is taken away."""
    old, new = (
        {id: {"Type": "AWS::EKS::AccessEntry", "Properties": {"ClusterName": where, "PrincipalArn": of}}}
        for id, where, of in (("First", "x", "a"), ("Second", cluster, principal))
    )
    found = [c for c in compare({"Resources": old}, {"Resources": new}, TINY) if c.level == "refused"]
    assert [(c.resource, c.property) for c in found] == ([("Second", "PrincipalArn")] if refused else [])
