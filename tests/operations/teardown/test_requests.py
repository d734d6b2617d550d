"""The requests of a deletion, one by one, and what is found before it: against recorded responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from trainium_cdk.client.cli.destroy import plan
from trainium_cdk.client.operations.teardown import Owner, Survey, destroy, survey
from trainium_cdk.client.operations.teardown.survey import KeptResource
from trainium_cdk.client.operations.teardown.sweep import Leftover, delete, find
from trainium_cdk.description.outputs.contract import CONTRACT_KEY
from trainium_cdk.errors import TrnError

Data = dict[str, Any]
ID = "arn:aws:cloudformation:us-east-1:111122223333:stack/S/1"
SCALER = [{"Key": "trainium-cdk:cluster", "Value": "c"}]
OURS, THEIRS = ([{"Key": "kubernetes.io/cluster/c", "Value": value}] for value in ("owned", "shared"))
OWNER = Owner("S", ID, cluster="c", engine="eks", vpcs=frozenset({"vpc-1"}), functions=frozenset({"f"}),
              managed=frozenset({"sg-managed", "pg-1"}), kept=frozenset({"vol-kept"}))  # fmt: skip
PAIR = {
    "IpProtocol": "-1",
    "UserIdGroupPairs": [{"GroupId": "sg-1"}, {"GroupId": "sg-2"}],
    "IpRanges": [{"CidrIp": "10.0.0.0/8"}],
}
ALONE = PAIR | {"UserIdGroupPairs": [{"GroupId": "sg-1"}], "IpRanges": [], "Ipv6Ranges": [], "PrefixListIds": []}
OTHER = {"IpProtocol": "tcp", "UserIdGroupPairs": [{"GroupId": "sg-2"}]}


RESPONSES: dict[str, Any] = {
    "ec2.describe_instances": [{"Reservations": [{"Instances": [
        {"InstanceId": id, "State": {"Name": state}, "Tags": tags, "VpcId": "vpc-1"}]} for id, state, tags in (
            ("i-1", "running", OURS), ("i-2", "running", THEIRS), ("i-3", "stopped", OURS), ("i-4", "terminated", OURS),
            ("i-pcs", "running", SCALER))]}],
    "elbv2.describe_load_balancers": [{"LoadBalancers": [{"LoadBalancerArn": id, "VpcId": "vpc-1"} for id in ("lb-1", "lb-2", "lb-none")]}, {}],
    "elbv2.describe_target_groups": [{"TargetGroups": [{"TargetGroupArn": id, "VpcId": "vpc-1"} for id in ("tg-1", "tg-2", "tg-none")]}, {}],
    "elb.describe_load_balancers": [{"LoadBalancerDescriptions": [{"LoadBalancerName": id, "VPCId": "vpc-1"} for id in ("old-1", "old-2", "old-none")]}],
    "ec2.describe_network_interfaces": [{"NetworkInterfaces": [
        {"NetworkInterfaceId": "eni-1", "Status": "available", "TagSet": OURS, "VpcId": "vpc-1"},
        {"NetworkInterfaceId": "eni-used", "Status": "in-use", "TagSet": OURS},
        {"NetworkInterfaceId": "eni-vpc", "Status": "available", "VpcId": "vpc-1", "Description": "ELB app/x"},
        {"NetworkInterfaceId": "eni-2", "Status": "available", "VpcId": "vpc-2", "Description": "ELB app/x"},
        {"NetworkInterfaceId": "eni-none", "Status": "available"}]}],
    "ec2.describe_security_groups": [{"SecurityGroups": [
        {"GroupId": "sg-1", "GroupName": "k8s", "Tags": OURS, "VpcId": "vpc-1", "IpPermissions": [OTHER], "IpPermissionsEgress": []},
        {"GroupId": "sg-default", "GroupName": "default", "Tags": OURS, "IpPermissions": [PAIR, OTHER], "IpPermissionsEgress": [PAIR]},
        {"GroupId": "sg-managed", "GroupName": "x", "Tags": OURS, "VpcId": "vpc-1"}, {"GroupId": "sg-2", "GroupName": "x", "Tags": THEIRS}]}],
    "ec2.describe_volumes": [{"Volumes": [{"VolumeId": id, "State": state, "Tags": OURS} for id, state in
                                          (("vol-1", "available"), ("vol-kept", "available"), ("vol-used", "in-use"))]}],
    "ec2.describe_capacity_reservations": [{"CapacityReservations": [
        {"CapacityReservationId": id, "State": state, "Tags": tags, "PlacementGroupArn": "arn:aws:ec2:x:1:placement-group/pg-1"} for id, state, tags in
        (("cr-1", "active", OURS), ("cr-2", "active", THEIRS), ("cr-3", "cancelled", OURS), ("cr-4", "active", SCALER))]}],
    "logs.describe_log_groups": [{"logGroups": [{"logGroupName": f"/aws/lambda/{id}"} for id in ("f", "g")]}],
}  # fmt: skip


class Aws:
    """Recorded responses by `service.operation` (a list: its pages), and the requests made."""

    def __init__(self, responses: dict[str, Any] | None = None, **more: Any) -> None:
        self.responses = (RESPONSES if responses is None else responses) | {
            k.replace("__", "."): v for k, v in more.items()
        }
        self.requests: list[tuple[str, Data]] = []
        self.read: list[tuple[str, Data]] = []

    def __call__(self, service: str) -> Any:
        aws = self

        class Client:
            def __getattr__(self, operation: str) -> Callable[..., Any]:
                return lambda **request: aws.respond(f"{service}.{operation}", request)

            def get_paginator(self, operation: str) -> Any:
                paginate = lambda **request: aws.respond(f"{service}.{operation}", request)  # noqa: E731
                return type("Paginator", (), {"paginate": staticmethod(paginate)})

        return Client()

    def respond(self, operation: str, request: Data) -> Any:
        if operation.endswith("describe_tags"):
            [id] = request.get("ResourceArns") or request["LoadBalancerNames"]
            return {"TagDescriptions": [] if id.endswith("none") else [{"Tags": OURS if id.endswith("1") else THEIRS}]}
        found = self.responses.get(operation)
        reads = operation.partition(".")[2].startswith(("describe", "list", "get"))
        (self.read if reads else self.requests).append((operation, request))
        if callable(found):
            found = found()
        if isinstance(found, Exception):
            raise found
        if operation == "ec2.describe_security_groups" and self.requests:  # not paginated where rules are revoked
            return found
        return found if found is not None or not reads else pytest.fail(f"{operation} was requested")


TAGGED = "it is tagged kubernetes.io/cluster/c = owned"
IN_VPC = "it is in the stack's VPC vpc-1, and was created by AWS (ELB app/x)"
BLOCKING = [
    Leftover("load balancer", "lb-1", TAGGED),
    Leftover("classic load balancer", "old-1", TAGGED),
    Leftover("target group", "tg-1", TAGGED),
    Leftover("network interface", "eni-1", TAGGED),
    Leftover("network interface", "eni-vpc", IN_VPC),
    Leftover("security group", "sg-1", TAGGED),
    Leftover("capacity reservation", "cr-1", TAGGED),
    Leftover("capacity reservation", "cr-4", "it is tagged trainium-cdk:cluster = c"),
]
EVERY = [
    Leftover("instance", "i-1", TAGGED),
    Leftover("instance", "i-3", TAGGED),
    *BLOCKING[:-2],
    Leftover("security group", "sg-managed", TAGGED),
    *BLOCKING[-2:],
    Leftover("volume", "vol-1", TAGGED, sure=False),
    Leftover("log group", "/aws/lambda/f", "it is the log of a function of the stack"),
]


def test_what_anybody_may_have_tagged_is_listed_and_not_deleted() -> None:
    """Whoever may tag, and may delete nothing, would let an administrator delete it."""
    tags = [*OURS, {"Key": "eks:cluster-name", "Value": "c"}]
    group = {"GroupId": "sg-db", "GroupName": "db", "Tags": tags, "VpcId": "vpc-2"}
    instance = {"InstanceId": "i-prod-db", "State": {"Name": "running"}, "Tags": tags, "VpcId": "vpc-2"}
    foreign = {
        "ec2__describe_instances": [{"Reservations": [{"Instances": [instance]}]}],
        "elbv2__describe_load_balancers": [{"LoadBalancers": [{"LoadBalancerArn": "lb-1", "VpcId": "vpc-2"}]}],
        "ec2__describe_network_interfaces": [{"NetworkInterfaces": [
            {"NetworkInterfaceId": "eni-9", "Status": "available", "TagSet": tags, "VpcId": "vpc-2"}]}],
        "ec2__describe_security_groups": [{"SecurityGroups": [group]}],
        "ec2__describe_capacity_reservations": [{"CapacityReservations": [
            {"CapacityReservationId": "cr-9", "State": "active", "Tags": SCALER}]}],
        "elbv2__describe_target_groups": [{}], "elb__describe_load_balancers": [{}], "logs__describe_log_groups": [{}],
    }  # fmt: skip
    aws = Aws(**foreign)
    report = destroy(replace(FOUND, status="DELETE_COMPLETE"), aws, lambda _: None, sleep=lambda _: None)
    assert aws.requests == []
    there = (
        "instance i-prod-db",
        "load balancer lb-1",
        "network interface eni-9",
        "security group sg-db",
        "capacity reservation cr-9",
        "volume vol-1",
    )
    assert [what for what, _ in report.left] == list(there)
    assert all("anybody may have tagged it so" in why for _, why in report.left)
    of_aws = replace(OWNER, engine="eks").vouched({"aws:eks:cluster-name": "c"})
    assert of_aws
    assert not OWNER.vouched({"eks:cluster-name": "c"}, "vpc-2", "arn:aws:ec2:x:1:placement-group/pg-2")


def test_leftovers_are_what_is_ours_and_free() -> None:
    aws = Aws()
    assert list(find(aws, OWNER)) == EVERY
    assert list(find(aws, OWNER, blocking=True)) == BLOCKING


GROUPS = {"SecurityGroups": RESPONSES["ec2.describe_security_groups"][0]["SecurityGroups"]}


def test_each_leftover_is_deleted_with_its_own_request() -> None:
    aws = Aws(ec2__describe_security_groups=GROUPS)
    for left in EVERY:
        delete(aws, left)
    assert aws.requests == [
        ("ec2.terminate_instances", {"InstanceIds": ["i-1"]}),
        ("ec2.terminate_instances", {"InstanceIds": ["i-3"]}),
        ("elbv2.delete_load_balancer", {"LoadBalancerArn": "lb-1"}),
        ("elb.delete_load_balancer", {"LoadBalancerName": "old-1"}),
        ("elbv2.delete_target_group", {"TargetGroupArn": "tg-1"}),
        ("ec2.delete_network_interface", {"NetworkInterfaceId": "eni-1"}),
        ("ec2.delete_network_interface", {"NetworkInterfaceId": "eni-vpc"}),
        ("ec2.revoke_security_group_ingress", {"GroupId": "sg-default", "IpPermissions": [ALONE]}),
        ("ec2.revoke_security_group_egress", {"GroupId": "sg-default", "IpPermissions": [ALONE]}),
        ("ec2.delete_security_group", {"GroupId": "sg-1"}),
        ("ec2.delete_security_group", {"GroupId": "sg-managed"}),
        ("ec2.cancel_capacity_reservation", {"CapacityReservationId": "cr-1"}),
        ("ec2.cancel_capacity_reservation", {"CapacityReservationId": "cr-4"}),
        ("ec2.delete_volume", {"VolumeId": "vol-1"}),
        ("logs.delete_log_group", {"logGroupName": "/aws/lambda/f"}),
    ]


def error(message: str) -> ClientError:
    return ClientError({"Error": {"Code": "DependencyViolation", "Message": message}}, "Delete")


def stack(status: str) -> Data:
    return {"Stacks": [{"StackStatus": status}]}


FOUND = Survey(
    OWNER, "CREATE_COMPLETE", 9, (KeptResource("AWS::EFS::FileSystem", "fs-1"),), ("b-1", "b-2"), ("r-1", "r-2")
)
NOTHING: dict[str, Any] = {operation: [] if isinstance(pages, list) else {} for operation, pages in RESPONSES.items()}
LOG = RESPONSES["logs.describe_log_groups"]
FAILED = [{"StackResourceSummaries": [
    {"LogicalResourceId": "Bucket", "ResourceType": "AWS::S3::Bucket", "PhysicalResourceId": "b-1", "ResourceStatus": "DELETE_FAILED"},
    {"LogicalResourceId": "Registry", "ResourceType": "AWS::ECR::Repository", "PhysicalResourceId": "r-1", "ResourceStatus": "DELETE_FAILED"},
    {"LogicalResourceId": "Other", "ResourceType": "AWS::S3::Bucket", "PhysicalResourceId": "b-2", "ResourceStatus": "DELETE_COMPLETE"},
    {"LogicalResourceId": "New", "ResourceType": "AWS::X::Y", "ResourceStatus": "DELETE_FAILED"}]}]  # fmt: skip
EVENTS = [{"StackEvents": [
    {"LogicalResourceId": "Bucket", "ResourceStatus": "DELETE_FAILED", "ResourceStatusReason": "not empty", "PhysicalResourceId": "b-1"},
    {"LogicalResourceId": "Bucket", "ResourceStatus": "DELETE_FAILED", "ResourceStatusReason": "an older reason", "PhysicalResourceId": "b-1"},
    {"LogicalResourceId": "Registry", "ResourceStatus": "DELETE_IN_PROGRESS", "ResourceStatusReason": "User", "PhysicalResourceId": "r-1"}]}]  # fmt: skip
WHY = [("Bucket (AWS::S3::Bucket, b-1)", "not empty"), ("Registry (AWS::ECR::Repository, r-1)", "AWS gives no reason"),
       ("New (AWS::X::Y, )", "AWS gives no reason")]  # fmt: skip
COULD_NOT = [f"could not delete {name}: {why}" for name, why in WHY]
DELETE = ("cloudformation.delete_stack", {"StackName": ID})


def deleting(*states: str, **more: Any) -> tuple[Aws, Callable[..., Any], list[str], list[float]]:
    """An account whose stack is in these states, one after the other, and how to delete it."""
    rest, said, slept = iter(states), list[str](), list[float]()
    aws = Aws(NOTHING | {"cloudformation.describe_stacks": lambda: stack(next(rest)), "cloudformation.list_stack_resources": FAILED,
                         "cloudformation.describe_stack_events": EVENTS}, **more)  # fmt: skip
    return aws, lambda found=FOUND: destroy(found, aws, said.append, sleep=slept.append, interval=1), said, slept


def test_a_stack_is_deleted_and_then_its_leftovers() -> None:
    aws, run, said, slept = deleting(*["DELETE_IN_PROGRESS"] * 4, "DELETE_COMPLETE", logs__describe_log_groups=LOG)
    report = run()
    assert aws.requests == [DELETE, ("logs.delete_log_group", {"logGroupName": "/aws/lambda/f"})]
    assert (report.deleted, report.swept, report.kept, report.left) == (True, EVERY[-1:], list(FOUND.kept), [])
    assert said == [
        "deleting stack S with 9 resources",
        "deleting log group /aws/lambda/f: it is the log of a function of the stack",
    ]
    assert slept == [0.2, 0.4, 0.8, 1]


def test_what_blocks_a_deletion_is_deleted_before_the_next() -> None:
    objects = [
        {"Versions": [{"Key": "a", "VersionId": "1", "Size": 1}], "DeleteMarkers": [{"Key": "b", "VersionId": "2"}]},
        {},
    ]
    images = [{"imageIds": [{"imageTag": "x"}]}, {"imageIds": []}]
    interface = [
        {
            "NetworkInterfaces": [
                {"NetworkInterfaceId": "eni-1", "Status": "available", "TagSet": OURS, "VpcId": "vpc-1"}
            ]
        }
    ]
    aws, run, said, _ = deleting("DELETE_FAILED", "DELETE_COMPLETE", s3__list_object_versions=objects, ecr__list_images=images,
                                 ec2__describe_network_interfaces=interface, ec2__delete_network_interface=error("in use"))  # fmt: skip
    report = run()
    delete_interface = ("ec2.delete_network_interface", {"NetworkInterfaceId": "eni-1"})
    assert aws.requests == [
        DELETE,
        ("s3.delete_objects", {"Bucket": "b-1", "Delete": {"Objects": [{"Key": "a", "VersionId": "1"}, {"Key": "b", "VersionId": "2"}], "Quiet": True}}),
        ("ecr.batch_delete_image", {"repositoryName": "r-1", "imageIds": [{"imageTag": "x"}]}),
        delete_interface, DELETE, delete_interface,
    ]  # fmt: skip
    assert said == ["deleting stack S with 9 resources", *COULD_NOT, "emptying bucket b-1", "emptying registry r-1",
                    f"deleting network interface eni-1: {TAGGED}", "deleting stack S again", f"deleting network interface eni-1: {TAGGED}"]  # fmt: skip
    assert (report.deleted, report.swept) == (True, [])
    assert report.left == [
        ("network interface eni-1", "An error occurred (DependencyViolation) when calling the Delete operation: in use")
    ]


@pytest.mark.parametrize(
    ("code", "left"),
    [("InvalidNetworkInterfaceID.NotFound", 0), ("ResourceNotFoundException", 0), ("AccessDenied", 1)],
)
def test_what_is_deleted_meanwhile_is_not_left(code: str, left: int) -> None:
    """AWS deletes the interfaces of Lambda's functions at the same time."""
    aws, run, *_ = deleting("DELETE_COMPLETE", logs__describe_log_groups=LOG)
    aws.responses |= {"ec2.describe_network_interfaces": RESPONSES["ec2.describe_network_interfaces"]}
    gone = ClientError({"Error": {"Code": code, "Message": "gone"}}, "Delete")
    aws.responses |= {"ec2.delete_network_interface": gone, "logs.delete_log_group": gone}
    report = run()
    assert (report.swept, len(report.left)) == ([], 3 * left)


def test_a_load_balancer_that_others_delete_meanwhile_ends_no_search() -> None:
    class Others(Aws):
        def respond(self, operation: str, request: Data) -> Any:
            if operation.endswith("describe_tags") and "-2" in str(request):
                raise ClientError({"Error": {"Code": "LoadBalancerNotFound", "Message": "gone"}}, "DescribeTags")
            return super().respond(operation, request)

    assert list(find(Others(), OWNER, blocking=True)) == BLOCKING


@pytest.mark.parametrize(("held", "left"), [(3, 0), (99, 1)], ids=["released", "held by others"])
def test_what_a_deleted_load_balancer_still_holds_is_waited_for(held: int, left: int) -> None:
    """Its interfaces use its group for some minutes."""
    refused = iter([error("a dependent object")] * held)
    aws, run, said, slept = deleting("DELETE_COMPLETE", ec2__delete_security_group=lambda: next(refused, {}))
    pages = iter([RESPONSES["ec2.describe_security_groups"]])
    aws.responses |= {key: RESPONSES[key] for key in ("elbv2.describe_load_balancers",)}
    aws.responses["ec2.describe_security_groups"] = lambda: next(pages, {"SecurityGroups": []})
    report = run(replace(FOUND, owner=replace(OWNER, kept=frozenset({"sg-managed"}))))
    assert said[1:] == [
        f"deleting load balancer lb-1: {TAGGED}",
        f"deleting security group sg-1: {TAGGED}",
        "waiting until AWS has released security group sg-1",
    ]
    assert slept == [15] * min(held, 20)
    assert len(report.left) == left
    assert [each.id for each in report.swept] == ["lb-1"] + ["sg-1"] * (1 - left)


@pytest.mark.parametrize("cluster", ["Custom::PclusterCluster", "AWS::EKS::Cluster"])
def test_while_the_cluster_stands_its_leftovers_stay(cluster: str) -> None:
    """It would create them again."""
    failed = [
        {
            "StackResourceSummaries": [
                {
                    "LogicalResourceId": "C",
                    "ResourceType": cluster,
                    "PhysicalResourceId": "c",
                    "ResourceStatus": "DELETE_FAILED",
                }
            ]
        }
    ]
    aws, run, said, _ = deleting(*["DELETE_FAILED"] * 3, cloudformation__list_stack_resources=failed)
    report = run()
    assert aws.requests == [DELETE] * 3
    assert (report.deleted, report.left) == (False, [(f"C ({cluster}, c)", "AWS gives no reason")])
    assert len(said) == 6
    assert {operation for operation, _ in aws.read} == {
        f"cloudformation.{o}" for o in ("describe_stacks", "list_stack_resources", "describe_stack_events")
    }


def test_a_stack_that_fails_without_a_resource() -> None:
    _, run, _, _ = deleting(*["DELETE_FAILED"] * 3, cloudformation__list_stack_resources=[])
    assert run().left == [("the stack", "DELETE_FAILED")]


@pytest.mark.parametrize("status", ["UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"])
def test_other_operations_are_not_disturbed(status: str) -> None:
    aws, run, _, _ = deleting("DELETE_COMPLETE")
    if status == "UPDATE_IN_PROGRESS":
        with pytest.raises(TrnError, match=r"stack S is UPDATE_IN_PROGRESS. Wait until that has ended"):
            run(replace(FOUND, status=status))
    else:
        assert run(replace(FOUND, status=status)).deleted
    assert aws.requests == [DELETE] * (status == "DELETE_IN_PROGRESS")


def there(*resources: tuple[str, str, str]) -> list[Data]:
    return [{"LogicalResourceId": id, "ResourceType": kind, "PhysicalResourceId": physical, "ResourceStatus": "CREATE_COMPLETE"}
            for id, kind, physical in resources]  # fmt: skip


PARTS = there(("Vpc", "AWS::EC2::VPC", "vpc-1"), ("Cluster", "AWS::EKS::Cluster", "c"), ("Files", "AWS::EFS::FileSystem", "fs-1"),
              ("Bucket", "AWS::S3::Bucket", "b-1"), ("Kept", "AWS::S3::Bucket", "b-2"), ("Registry", "AWS::ECR::Repository", "r-1"),
              ("F", "AWS::Lambda::Function", "f"), ("Build", "AWS::CodeBuild::Project", "p"), ("Param", "AWS::SSM::Parameter", "q"))  # fmt: skip
TEMPLATE = {
    "Outputs": {CONTRACT_KEY: {}},
    "Resources": {r["LogicalResourceId"]: {"Type": r["ResourceType"]} for r in PARTS}
    | {"Files": {"Type": "AWS::EFS::FileSystem", "DeletionPolicy": "Retain"}, "Param": {"Type": "AWS::SSM::Parameter", "DeletionPolicy": "Retain"},
       "Kept": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "RetainExceptOnCreate"}},
}  # fmt: skip


def account(
    template: object = TEMPLATE, parts: list[Data] = PARTS, events: list[Data] | None = None, *stacks: Data
) -> Aws:
    mine = {"StackName": "S", "StackId": ID, "StackStatus": "CREATE_COMPLETE", "CreationTime": "2026-01-01"}
    return Aws({
        "cloudformation.list_stacks": [{"StackSummaries": []}, {"StackSummaries": list(stacks) or [mine]}],
        "cloudformation.get_template": {"TemplateBody": template},
        "cloudformation.list_stack_resources": [{"StackResourceSummaries": parts}],
        "cloudformation.describe_stack_events": [{"StackEvents": events or []}],
    })  # fmt: skip


@pytest.mark.parametrize("template", [TEMPLATE, json.dumps(TEMPLATE)])
def test_a_stack_is_read_before_it_is_deleted(template: object) -> None:
    found = survey("S", account(template))
    assert found == Survey(
        Owner("S", ID, cluster="c", engine="eks", vpcs=frozenset({"vpc-1"}), functions=frozenset({"f"}), projects=frozenset({"p"}),
              managed=frozenset(r["PhysicalResourceId"] for r in PARTS), kept=frozenset({"fs-1", "b-2"})),
        "CREATE_COMPLETE", 9, (KeptResource("AWS::EFS::FileSystem", "fs-1"), KeptResource("AWS::S3::Bucket", "b-2")), ("b-1",), ("r-1",),
    )  # fmt: skip
    assert not found.deleted


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_the_plan_names_file_systems_that_are_deleted(policy: str) -> None:
    files = {"Type": "AWS::EFS::FileSystem", "DeletionPolicy": policy}
    found = survey("S", account(TEMPLATE | {"Resources": TEMPLATE["Resources"] | {"Files": files}}))
    assert found is not None
    said = "\n".join(plan(found, "cancel"))
    assert ("all files on fs-1 are deleted. To keep some, copy them first" in said) == (policy == "Delete")
    assert ("kept, as configured: AWS::EFS::FileSystem fs-1" in said) == (policy == "Retain")


def test_a_deleted_stack_is_read_from_its_events() -> None:
    gone = {
        "StackName": "S",
        "StackId": ID,
        "StackStatus": "DELETE_COMPLETE",
        "CreationTime": "2026-01-01",
        "DeletionTime": "2026-03-01",
    }
    older = gone | {"StackId": "older", "DeletionTime": "2026-02-01"}
    events = [
        r | {"ResourceStatus": status}
        for r, status in zip(PARTS, ["DELETE_COMPLETE"] * 2 + ["DELETE_SKIPPED"] + ["DELETE_COMPLETE"] * 6, strict=True)
    ]
    events += [{"ResourceStatus": "DELETE_COMPLETE", "PhysicalResourceId": ID, "ResourceType": "AWS::CloudFormation::Stack", "LogicalResourceId": "S"},
               {"ResourceStatus": "CREATE_IN_PROGRESS", "PhysicalResourceId": "never", "ResourceType": "AWS::S3::Bucket", "LogicalResourceId": "B"}]  # fmt: skip
    found = survey("S", account(TEMPLATE, [], events, gone, older))
    assert found is not None
    assert found.deleted
    assert (found.owner.stack_id, found.resources, found.kept, found.buckets) == (
        ID,
        0,
        (KeptResource("AWS::EFS::FileSystem", "fs-1"),),
        ("b-1", "b-2"),
    )
    assert (found.owner.cluster, found.owner.engine, "never" in found.owner.managed) == ("c", "eks", False)
    alive = gone | {"StackId": "alive", "StackStatus": "ROLLBACK_COMPLETE"}
    living = survey("S", account(TEMPLATE, [], [], gone, alive, older))
    assert living is not None
    assert (living.owner.stack_id, living.owner.cluster) == ("alive", ""), "its creation failed before the cluster's"


def test_a_stack_whose_creation_was_never_started_is_not_waited_for() -> None:
    prepared = {"StackName": "S", "StackId": ID, "StackStatus": "REVIEW_IN_PROGRESS", "CreationTime": "2026-01-01"}
    with pytest.raises(TrnError, match=r"not started, and it has no resources\. Deploy it, or remove it: aws cloud"):
        survey("S", account({}, [], [], prepared))


@pytest.mark.parametrize("name", ["lab", {"Ref": "Name"}])
def test_a_slurm_cluster_has_the_name_that_the_template_gives_it(name: object) -> None:
    cluster = {"Type": "Custom::PclusterCluster", "Properties": {"ClusterName": name}}
    template = TEMPLATE | {"Resources": {"Other": {"Type": "AWS::X::Y"}, "C": cluster}}
    found = survey("S", account(template, there(("C", "Custom::PclusterCluster", "physical"))))
    assert found is not None
    assert (found.owner.cluster, found.owner.engine) == ("lab" if name == "lab" else "physical", "slurm")


@pytest.mark.parametrize("template", ["Resources: {}", "[]", {"Outputs": {"Contract": {}}}, {}])
def test_a_stack_of_others(template: object) -> None:
    with pytest.raises(
        TrnError,
        match="nothing was deleted: stack S is not one of trainium-cdk, as its template has no output TrnContract",
    ):
        survey("S", account(template))
    assert survey("T", account()) is None
