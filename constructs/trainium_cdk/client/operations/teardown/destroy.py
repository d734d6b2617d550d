"""The order of deletion: jobs, then the stack with what blocks its deletion, then leftovers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trainium_cdk._aws import code_and_message, describe_error
from trainium_cdk.client.operations.teardown import sweep
from trainium_cdk.client.operations.teardown.survey import Client, KeptResource, Survey, events
from trainium_cdk.errors import TrnError
from trainium_cdk.text import counted, join_words

ATTEMPTS = 3
"""Attempts to delete the stack. Blocking resources are deleted in between."""
_RELEASING = frozenset({"instance", "load balancer", "classic load balancer"})
"""Kinds whose network interfaces hold security groups and target groups for some minutes after their deletion."""
_HELD = frozenset({"DependencyViolation", "ResourceInUse"})
"""Error codes of what something else holds."""
_GONE = re.compile(r"(?!InvalidPermission).*NotFound")
"""Error codes of what AWS or someone else has deleted meanwhile. A rule that is gone says nothing of its group."""
_RELEASE_SECONDS, _RELEASE_PAUSE = 300, 15
_UNSURE = ", but anybody may have tagged it so, and it is in no VPC of the stack. If it is a part of the cluster, delete it yourself"


@dataclass
class RemovalReport:
    """The result of a deletion.

    Attributes:
        deleted: whether CloudFormation has deleted it.
        swept: deleted leftovers.
        kept: what is kept as configured.
        left: what could not be deleted, and why.
    """

    deleted: bool = False
    swept: list[sweep.Leftover] = field(default_factory=list)
    kept: list[KeptResource] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)


def destroy(
    survey: Survey,
    client: Client,
    say: Callable[[str], None],
    *,
    progress: Callable[[int, int], None] = lambda *_: None,
    sleep: Callable[[float], None] = time.sleep,
    interval: float = 5,
) -> RemovalReport:
    """Delete a stack and its leftovers. What its policies keep is not deleted.

    Args:
        survey: the stack, as just read by `survey`.
        say: called with a message for each step.
        progress: called with the number of resources that are deleted (or kept) by now, and the number of all.
        interval: seconds between two requests while the deletion runs.

    Raises:
        TrnError: another operation on the stack is in progress.
        botocore.exceptions.ClientError: AWS rejected a request.
    """
    if survey.status.endswith("_IN_PROGRESS") and survey.status != "DELETE_IN_PROGRESS":
        raise TrnError(f"stack {survey.owner.stack} is {survey.status}. Wait until that has ended, then try again")
    report = RemovalReport(deleted=survey.deleted, kept=list(survey.kept))
    failed: list[tuple[str, str]] = []
    for attempt in range(ATTEMPTS):
        if report.deleted:
            break
        if attempt:
            _clear_the_way(survey, client, failed, report, say, sleep)
        say(
            f"deleting stack {survey.owner.stack}"
            + (" again" if attempt else f" with {counted(survey.resources, 'resource')}")
        )
        report.deleted, failed = _delete_stack(survey.owner.stack_id, client, progress, sleep, interval)
        for name, why in failed:
            say(f"could not delete {name}: {why}")
    if report.deleted:
        _sweep(client, list(sweep.find(client, survey.owner)), report, say, sleep)
    else:
        report.left.extend(failed)
    return report


def _delete_stack(
    stack_id: str,
    client: Client,
    progress: Callable[[int, int], None],
    sleep: Callable[[float], None],
    interval: float,
) -> tuple[bool, list[tuple[str, str]]]:
    """(whether the stack is deleted, what could not be deleted and why)."""
    cloudformation = client("cloudformation")
    cloudformation.delete_stack(StackName=stack_id)
    pause = min(0.2, interval)
    while True:
        status = cloudformation.describe_stacks(StackName=stack_id)["Stacks"][0]["StackStatus"]
        if status == "DELETE_COMPLETE":
            return True, []
        if not status.endswith("_IN_PROGRESS"):
            break
        there = _resources(cloudformation, stack_id)
        progress(sum(r["ResourceStatus"] in ("DELETE_COMPLETE", "DELETE_SKIPPED") for r in there), len(there))
        sleep(pause)
        pause = min(pause * 2, interval)
    failed = [r for r in _resources(cloudformation, stack_id) if r["ResourceStatus"] == "DELETE_FAILED"]
    reasons: dict[str, str] = {}
    for event in events(cloudformation, stack_id):
        if event["ResourceStatus"] == "DELETE_FAILED":
            reasons.setdefault(event["LogicalResourceId"], event.get("ResourceStatusReason", ""))
    return False, [
        (
            f"{r['LogicalResourceId']} ({r['ResourceType']}, {r.get('PhysicalResourceId', '')})",
            reasons.get(r["LogicalResourceId"]) or "AWS gives no reason",
        )
        for r in failed
    ] or [("the stack", status)]


def _resources(cloudformation: Any, stack_id: str) -> list[dict[str, Any]]:
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack_id)
    return [r for page in pages for r in page["StackResourceSummaries"]]


def _clear_the_way(
    survey: Survey,
    client: Client,
    failed: list[tuple[str, str]],
    report: RemovalReport,
    say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> None:
    """Delete what commonly blocks a deletion: content of buckets and registries, and other resources in the VPC."""
    from botocore.exceptions import ClientError

    names = " ".join(name for name, _ in failed)
    stores = [("bucket", bucket, partial(_empty_bucket, client("s3"))) for bucket in survey.buckets]
    stores += [("registry", registry, partial(_empty_registry, client("ecr"))) for registry in survey.registries]
    for kind, name, empty in stores:
        if name in names:
            say(f"emptying {kind} {name}")
            with suppress(ClientError):
                empty(name)
    # a cluster would create them again
    if not any(kind in names for kind in ("Custom::PclusterCluster", "AWS::EKS::Cluster")):
        _sweep(client, list(sweep.find(client, survey.owner, blocking=True)), report, say, sleep)
    report.left.clear()  # only the final result is reported


def _sweep(
    client: Client,
    leftovers: list[sweep.Leftover],
    report: RemovalReport,
    say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> None:
    """Delete leftovers. Those that are held by what was deleted just now are tried again until AWS has released them."""
    report.left += [(f"{left.kind} {left.id}", f"{left.why}{_UNSURE}") for left in leftovers if not left.sure]
    failed, waited = _delete_leftovers(client, [left for left in leftovers if left.sure], report, say), 0
    while waited < _RELEASE_SECONDS and any(left.kind in _RELEASING for left in report.swept):
        held = [left for left, error in failed if code_and_message(error)[0] in _HELD]
        if not held:
            break
        if not waited:
            say(f"waiting until AWS has released {join_words([f'{left.kind} {left.id}' for left in held])}")
        sleep(_RELEASE_PAUSE)
        waited += _RELEASE_PAUSE
        failed = [one for one in failed if one[0] not in held] + _delete_leftovers(client, held, report)
    report.left += [(f"{left.kind} {left.id}", describe_error(error)) for left, error in failed]


def _delete_leftovers(
    client: Client, leftovers: list[sweep.Leftover], report: RemovalReport, say: Callable[[str], None] = lambda _: None
) -> list[tuple[sweep.Leftover, Exception]]:
    """Delete leftovers, and return the failed ones with their errors. Lambda and EKS delete their own interfaces at the same time."""
    from botocore.exceptions import ClientError

    failed: list[tuple[sweep.Leftover, Exception]] = []
    for left in leftovers:
        say(f"deleting {left.kind} {left.id}: {left.why}")
        try:
            sweep.delete(client, left)
            report.swept.append(left)
        except ClientError as e:
            if not _GONE.match(code_and_message(e)[0]):
                failed.append((left, e))
    return failed


def _empty_bucket(s3: Any, bucket: str) -> None:
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        objects = [
            {"Key": o["Key"], "VersionId": o["VersionId"]}
            for o in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        ]
        if objects:
            s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})


def _empty_registry(ecr: Any, registry: str) -> None:
    for page in ecr.get_paginator("list_images").paginate(repositoryName=registry):
        if page["imageIds"]:
            ecr.batch_delete_image(repositoryName=registry, imageIds=page["imageIds"])
