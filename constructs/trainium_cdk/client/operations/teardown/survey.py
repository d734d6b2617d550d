"""The resources of a stack, read before anything is deleted: afterwards they could not be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_cdk.client.operations.teardown.owner import TRACES, Owner
from trainium_cdk.description.outputs.contract import CONTRACT_KEY
from trainium_cdk.errors import TrnError

Client = Callable[[str], Any]
"""Service name -> boto3 client."""


@dataclass(frozen=True)
class KeptResource:
    """A resource that is kept as configured."""

    type: str
    id: str


@dataclass(frozen=True)
class Survey:
    """The state of a stack.

    Attributes:
        status: CloudFormation's; DELETE_COMPLETE if already deleted.
        resources: number of its resources.
        kept: what its policies keep when it is deleted.
        buckets, registries: physical ids of those that are deleted with it, and so must be empty.
        file_systems: physical ids of those that are deleted with it, and with all files.
    """

    owner: Owner
    status: str
    resources: int
    kept: tuple[KeptResource, ...]
    buckets: tuple[str, ...]
    registries: tuple[str, ...]
    file_systems: tuple[str, ...] = ()

    @property
    def deleted(self) -> bool:
        return self.status == "DELETE_COMPLETE"


def survey(stack: str, client: Client) -> Survey | None:
    """The stack of this name, or the last deleted one; None if there never was one.

    Raises:
        TrnError: it is not a stack of trainium-cdk (its template says so, as a stack whose creation failed has no outputs), or its
            creation was never started.
        botocore.exceptions.ClientError: AWS rejected a request.
    """
    cloudformation = client("cloudformation")
    found = find_stack(cloudformation, stack)
    if found is None:
        return None
    stack_id, status = found["StackId"], found["StackStatus"]
    if status == "REVIEW_IN_PROGRESS":  # until a change set is executed, CloudFormation has no template of it
        raise TrnError(
            f"nothing was deleted: stack {stack} is {status}: its creation was prepared and not started, and it has no resources. Deploy "
            f"it, or remove it: aws cloudformation delete-stack --stack-name {stack} --region {stack_id.split(':')[3]}"
        )
    template = template_of(cloudformation, stack_id)
    if CONTRACT_KEY not in template.get("Outputs", {}):
        raise TrnError(
            f"nothing was deleted: stack {stack} is not one of trainium-cdk, as its template has no output {CONTRACT_KEY}. Name "
            "another stack, or delete it with the tool that deployed it"
        )
    there = list(_resources(cloudformation, stack_id, status == "DELETE_COMPLETE"))
    own = [r for r in there if r["StackId"] == stack_id]
    keeping = _keeping(template)
    kept = {r["PhysicalResourceId"]: r for r in own if r["ResourceType"] in _DATA | _HELD and _stays(r, keeping)}
    by_type = _by_type(there)
    declared = {r.get("Type", "") for r in template.get("Resources", {}).values()}
    clusters = {traces.cluster_resource: name for name, traces in TRACES.items()}
    kind = next((t for t in clusters if t in declared or by_type.get(t)), "")
    return Survey(
        owner=Owner(
            stack=stack,
            stack_id=stack_id,
            cluster=cluster_name_in(template) or next(iter(by_type.get(kind, ())), ""),
            engine=clusters.get(kind, ""),
            vpcs=frozenset(by_type.get("AWS::EC2::VPC", ())),
            functions=frozenset(by_type.get("AWS::Lambda::Function", ())),
            projects=frozenset(by_type.get("AWS::CodeBuild::Project", ())),
            managed=frozenset(r["PhysicalResourceId"] for r in there),
            kept=frozenset(kept),
        ),
        status=status,
        resources=sum("Past" not in r and r["ResourceStatus"] != "DELETE_COMPLETE" for r in own),
        kept=tuple(KeptResource(r["ResourceType"], key) for key, r in kept.items()),
        buckets=tuple(b for b in by_type.get("AWS::S3::Bucket", ()) if b not in kept),
        registries=tuple(r for r in by_type.get("AWS::ECR::Repository", ()) if r not in kept),
        file_systems=tuple(f for kind in _FILE_SYSTEMS for f in by_type.get(kind, ()) if f not in kept),
    )


_SEEN = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE", "DELETE_SKIPPED")
_FILE_SYSTEMS = ("AWS::EFS::FileSystem", "AWS::FSx::FileSystem")
_DATA = {
    *_FILE_SYSTEMS, "AWS::S3::Bucket", "AWS::ECR::Repository", "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
}  # fmt: skip
_HELD = {"AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::SecurityGroup"}
"""Resources that kept data depends on, and that are kept too."""


def find_stack(cloudformation: Any, stack: str) -> dict[str, Any] | None:
    pages = cloudformation.get_paginator("list_stacks").paginate()
    named = [s for page in pages for s in page["StackSummaries"] if stack in (s["StackName"], s["StackId"])]
    alive = [s for s in named if s["StackStatus"] != "DELETE_COMPLETE"]
    newest = sorted(named, key=lambda s: str(s.get("DeletionTime") or s["CreationTime"]))
    found: list[dict[str, Any]] = alive or newest[-1:]
    return found[0] if found else None


def _resources(cloudformation: Any, stack_id: str, deleted: bool) -> Iterator[dict[str, Any]]:
    """The resources of a stack and of those nested in it, each with the id of its stack. Deleted resources are
    read from the events."""
    there: dict[str, dict[str, Any]] = {}
    if not deleted:
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack_id)
        there = {r.get("PhysicalResourceId", ""): r for page in pages for r in page["StackResourceSummaries"]}
    for event in events(cloudformation, stack_id):
        if event["ResourceStatus"] in _SEEN and event["PhysicalResourceId"] != stack_id:
            there.setdefault(event["PhysicalResourceId"], {**event, "Past": True})
    for resource in list(there.values()):
        if not resource.get("PhysicalResourceId"):
            continue
        yield {**resource, "StackId": stack_id}
        if resource["ResourceType"] == "AWS::CloudFormation::Stack":
            yield from _resources(cloudformation, resource["PhysicalResourceId"], "Past" in resource)


def events(cloudformation: Any, stack_id: str) -> list[dict[str, Any]]:
    """The events of a stack, latest first."""
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack_id)
    return [e for page in pages for e in page["StackEvents"] if e.get("PhysicalResourceId")]


def _stays(resource: Mapping[str, Any], keeping: set[str]) -> bool:
    """Return whether a resource is kept when its stack is deleted."""
    if "Past" in resource:
        return bool(resource["ResourceStatus"] == "DELETE_SKIPPED")
    return resource["LogicalResourceId"] in keeping


def _by_type(resources: list[dict[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for resource in resources:
        found.setdefault(resource["ResourceType"], []).append(resource["PhysicalResourceId"])
    return found


def template_of(cloudformation: Any, stack_id: str) -> dict[str, Any]:
    body = cloudformation.get_template(StackName=stack_id, TemplateStage="Original")["TemplateBody"]
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:  # YAML, which the CDK does not write
            return {}
    template: dict[str, Any] = body if isinstance(body, dict) else {}
    return template


def cluster_name_in(template: Mapping[str, Any]) -> str:
    """Name of the Slurm cluster; empty for none. Not its physical id, which differs after a failed creation."""
    for resource in template.get("Resources", {}).values():
        if resource.get("Type") == "Custom::PclusterCluster":
            name = resource["Properties"]["ClusterName"]
            return name if isinstance(name, str) else ""
    return ""


def _keeping(template: Mapping[str, Any]) -> set[str]:
    """Logical ids of the resources that the template keeps."""
    return {
        key for key, resource in template.get("Resources", {}).items()
        if resource.get("DeletionPolicy") in ("Retain", "RetainExceptOnCreate")
    }  # fmt: skip
