"""`Custom::TrnClusterName`: a name that is taken is refused; the logs of a cluster are deleted with it, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from trainium_cdk.cdk.deployment.clusters import claim_name as respond
from trainium_cdk.cdk.deployment.request import Request

LOGS = [
    f"/aws/parallelcluster/{name}"
    for name in ("lab-202601020304", "lab-20260102030", "lab-b-202601020304", "lab-202601020305")
]
MINE, OTHER = "0a0a0a0a-0000-4000-8000-00000000000a", "0b0b0b0b-0000-4000-8000-00000000000b"
LOGS += [f"/aws/lambda/pcluster-CleanupResources-{MINE}", f"/aws/lambda/pcluster-CleanupResources-{OTHER}"]
LOGS += [f"/aws/lambda/pcluster-CleanupRoute53-{MINE}", f"/aws/lambda/pcluster-cfn-{MINE}"]

ACCOUNT = "arn:aws:cloudformation:us-east-1:111122223333"
STACK = f"{ACCOUNT}:stack/mine/{OTHER}"


class Aws:
    """The calls of CloudFormation and CloudWatch Logs that the function makes."""

    exceptions = SimpleNamespace(ClientError=ClientError)

    def __init__(self, stacks: dict[str, str], resources: tuple[tuple[str, str], ...] = ()) -> None:
        self.stacks, self.resources, self.deleted = stacks, resources, list[str]()

    def describe_stacks(self, StackName: str) -> dict[str, Any]:  # noqa: N803  boto3's
        if status := self.stacks.get(StackName):
            return {"Stacks": [{"StackStatus": status}]}
        message = "Rate exceeded" if StackName == "busy" else f"Stack with id {StackName} does not exist"
        raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "DescribeStacks")

    def get_paginator(self, operation: str) -> SimpleNamespace:
        if operation == "describe_log_groups":
            return SimpleNamespace(paginate=self._groups)
        assert operation == "list_stack_resources"
        return SimpleNamespace(paginate=self._resources)

    def _groups(self, logGroupNamePrefix: str) -> list[dict[str, Any]]:  # noqa: N803
        return [{"logGroups": [{"logGroupName": name}]} for name in LOGS if name.startswith(logGroupNamePrefix)]

    def _resources(self, StackName: str) -> list[dict[str, Any]]:  # noqa: N803
        assert StackName == STACK
        found = [{"ResourceType": kind, "PhysicalResourceId": id} for kind, id in self.resources]
        return [{"StackResourceSummaries": [{"ResourceType": "Custom::Early"}]}, {"StackResourceSummaries": found}]

    def delete_log_group(self, logGroupName: str) -> None:  # noqa: N803
        self.deleted.append(logGroupName)

    def __call__(self, service: str) -> Aws:
        assert service in ("cloudformation", "logs")
        return self


def request(kind: str, physical_id: str | None = None, delete_logs: str = "yes", name: str = "lab") -> Request:
    return Request(kind, STACK, {"ClusterName": name, "DeleteLogs": delete_logs}, physical_id)


CLUSTER = (("AWS::Logs::LogGroup", "lab"), ("Custom::PclusterCluster", "lab"))


@pytest.mark.parametrize(
    ("asked", "stacks", "resources"),
    [
        (request("Create"), {}, ()),
        (request("Update", "lab"), {"lab": "CREATE_COMPLETE"}, ()),
        (request("Update", "before"), {}, ()),
        (request("Create"), {"lab": "CREATE_COMPLETE"}, CLUSTER),  # an older release had no such resource
    ],
)
def test_a_free_name_is_claimed(asked: Request, stacks: dict[str, str], resources: Any) -> None:
    assert respond(asked, Aws(stacks, resources)).physical_id == "lab"


@pytest.mark.parametrize("resources", [(), CLUSTER[:1], (("Custom::PclusterCluster", "other"),)])
@pytest.mark.parametrize("asked", [request("Create"), request("Update", "before")])
def test_a_taken_name_is_refused(asked: Request, resources: Any) -> None:
    with pytest.raises(ValueError, match="the cluster name lab is taken: stack lab is DELETE_FAILED"):
        respond(asked, Aws({"lab": "DELETE_FAILED"}, resources))


def test_another_error_is_not_a_free_name() -> None:
    with pytest.raises(ClientError, match="Rate exceeded"):
        respond(request("Create", name="busy"), Aws({}))


@pytest.mark.parametrize(
    ("asked", "status", "deleted"),
    [
        (request("Delete", "lab"), "DELETE_IN_PROGRESS", [LOGS[i] for i in (0, 3, 4, 6)]),
        (request("Delete", "lab"), "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", [LOGS[i] for i in (0, 3, 4, 6)]),
        (request("Delete", "lab"), "ROLLBACK_IN_PROGRESS", [LOGS[4], LOGS[6]]),
        (request("Delete", "lab"), None, [LOGS[4], LOGS[6]]),
        (request("Delete", "lab", "no"), "DELETE_IN_PROGRESS", []),
        (request("Delete", "not-created"), "DELETE_IN_PROGRESS", []),
        (request("Delete"), "DELETE_IN_PROGRESS", []),
    ],
)
def test_logs_are_deleted_with_the_cluster(asked: Request, status: str | None, deleted: list[str]) -> None:
    aws = Aws({f"{ACCOUNT}:stack/lab/{MINE}": "DELETE_COMPLETE"} | ({STACK: status} if status else {}))
    assert respond(asked, aws).physical_id == (asked.physical_id or "lab")
    assert aws.deleted == deleted
