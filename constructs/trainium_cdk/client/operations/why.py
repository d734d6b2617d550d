"""Causes of a failed creation or update of a stack, or of missing nodes: AWS's records and known errors in them.

Read only, and each source alone: CloudFormation's events (of nested stacks and of ParallelCluster's own stack too), the logs of the
functions that they name and of the cluster's nodes, capacity reservations and blocks, EKS's health issues, PCS's errors, and Auto Scaling's
activities. A deleted stack is read as well.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_cdk._aws import code_and_message, failures
from trainium_cdk.client.operations.functions import Custom, is_custom, log_groups
from trainium_cdk.client.operations.teardown.survey import cluster_name_in, find_stack, template_of
from trainium_cdk.description.catalog.known_errors import KnownError, explain
from trainium_cdk.errors import OutputsError

Client = Callable[[str], Any]
"""Service name -> boto3 client."""
_STACK = "AWS::CloudFormation::Stack"
_BEGINS = {"CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS"}
_LISTED = r"The following resource\(s\) failed to \w+: \[[^\]]*\]\s*\.?( Rollback requested by user\.?)?"
_CONSEQUENCE = re.compile(
    rf"(Resource (creation|update|deletion|import) cancelled\.?|{_LISTED})?\s*", re.IGNORECASE | re.DOTALL
)
"""CloudFormation's whole sentences about resources that failed only because others did. A cause may have the same words."""
_EMBEDDED = re.compile(rf"Embedded stack \S+ was not successfully \w+: {_LISTED}\s*", re.IGNORECASE | re.DOTALL)
"""Its sentence about a nested stack, whose own events have the cause."""
_LOG_GROUP = re.compile(r"LogGroup: ?(/[\w./-]+)")
_TELLS = re.compile(r"trn-bootstrap|\(Code:|\b(ERROR|FATAL|CRITICAL)\b|[Ff]ailed|Traceback|exception", re.ASCII)
_OWN = re.compile(r"trn-bootstrap( entry)?: ")
_RESERVATION = re.compile(r"\bcr-[0-9a-f]{8,17}\b")
_GROUP = re.compile(r"arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[A-Za-z0-9_./-]+")
_LATER = ("scheduled", "pending", "payment-pending", "assessing", "delayed")
PAGES, LINES, EVENTS = 20, 12, 8
"""Most pages of a log that are read, lines of a log and events of a stack that are shown."""
EMPTY_PAGES = 200
"""Most pages without an event: CloudWatch returns them while it searches the streams of other, older nodes (API reference, 2026-11)."""
RECENT = dt.timedelta(days=1)
"""Age of the logs to read if the last creation or update has not failed."""


@dataclass(frozen=True)
class Evidence:
    """One record of AWS.

    Attributes:
        where: what it is about, or the log that has it.
        text: as it is recorded.
        time: ISO 8601 in UTC; empty if it is of now.
        error: the known error in it.
    """

    where: str
    text: str
    time: str = ""
    error: KnownError | None = None


@dataclass(frozen=True)
class StackReport:
    """Status and failures of a stack. `first` is the first failure of its last creation or update."""

    stack: str
    status: str
    first: Evidence | None
    evidence: tuple[Evidence, ...]


def why(stack: str, client: Client) -> StackReport:
    """Read what AWS has recorded about a stack.

    Raises:
        OutputsError: there is no such stack, and CloudFormation has no record of one.
        botocore.exceptions.ClientError: AWS rejected the requests about the stack itself.
    """
    cloudformation = client("cloudformation")
    found = find_stack(cloudformation, stack)
    if found is None:
        raise OutputsError(
            f"there is no stack {stack} in this region, and CloudFormation has no record of one. For a job, `trn status JOB` shows the reason"
        )
    stack_id = found["StackId"]
    custom: set[Custom] = set()
    since, failures = failed_events(cloudformation, stack_id, custom)
    template = template_of(cloudformation, stack_id)
    # after a rollback the template has the cluster that was there before, and not one of another name that failed
    had = _physical(cloudformation, stack_id)
    named = dict.fromkeys([cluster_name_in(template), *had.get("Custom::TrnClusterName", [])])
    clusters = [name for name in named if name]
    for cluster in clusters:
        failures += _allowed(lambda: _of_cluster_stack(cloudformation, cluster, since))  # noqa: B023  called at once
    failures.sort(key=lambda e: e.time)
    if not failures:  # it was deployed long ago, perhaps, and its nodes fail now
        since = max(since, dt.datetime.now(dt.UTC) - RECENT)
    groups = dict.fromkeys(g for e in failures for g in _LOG_GROUP.findall(e.text))
    more = _allowed(lambda: [_told(*each) for each in closed(client, template)])
    for group in groups:
        more += _allowed(lambda: log_lines(client("logs"), group, since))  # noqa: B023  called at once
    more += _allowed(lambda: _of_functions(client, custom, groups, since))
    for cluster in clusters:
        more += _allowed(lambda: _of_nodes(client("logs"), cluster, since))  # noqa: B023  called at once
    for name in had.get("AWS::EKS::Cluster", []):
        more += _allowed(lambda: eks_issues(client, name))  # noqa: B023  called at once
    for id in had.get("AWS::PCS::Cluster", []):
        more += _allowed(lambda: [_told(*each) for each in pcs_errors(client("pcs"), id)])  # noqa: B023  called at once
    return StackReport(stack, found["StackStatus"], failures[0] if failures else None, (*failures[1:EVENTS], *more))


def failed_events(
    cloudformation: Any, stack_id: str, custom: set[Custom] | None = None
) -> tuple[dt.datetime, list[Evidence]]:
    """Return the start and failures of a stack's last creation or update, or of a failed deletion after it. The first failure comes
    first. Failures that only follow from others are left out.

    Args:
        custom: receives the failed resources that a function makes, if the reason does not name its log.
    """
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack_id)
    failed: list[Evidence] = []
    since = dt.datetime.now(dt.UTC)
    for event in (e for page in pages for e in page["StackEvents"]):
        since, reason = event["Timestamp"], event.get("ResourceStatusReason") or ""
        own = event.get("PhysicalResourceId") == event["StackId"]
        if own and event["ResourceStatus"] in _BEGINS | ({"DELETE_IN_PROGRESS"} if failed else set()):
            break
        if not event["ResourceStatus"].endswith("FAILED") or _CONSEQUENCE.fullmatch(reason):
            continue
        name, kind, nested = event["LogicalResourceId"], event["ResourceType"], event.get("PhysicalResourceId") or ""
        inside: list[Evidence] = []
        if kind == _STACK and nested.startswith("arn:") and not own:
            inside = _allowed(lambda: failed_events(cloudformation, nested, custom)[1])  # noqa: B023  called at once
        if not (inside and _EMBEDDED.fullmatch(reason)):
            failed.append(Evidence(f"{name} ({kind}) {event['ResourceStatus']}", reason, _iso(since), explain(reason)))
        if custom is not None and is_custom(kind) and not _LOG_GROUP.search(reason):
            custom.add(Custom.of(event))
        failed += reversed(inside)
    return since, failed[::-1]


def _of_cluster_stack(cloudformation: Any, cluster: str, since: dt.datetime) -> list[Evidence]:
    """Failures in the stack that ParallelCluster creates for a cluster, which is deleted after a failed creation."""
    found = find_stack(cloudformation, cluster)
    failures = failed_events(cloudformation, found["StackId"])[1] if found else []
    return [Evidence(f"stack {cluster}: {e.where}", e.text, e.time, e.error) for e in failures if e.time >= _iso(since)]


def log_lines(logs: Any, group: str, since: dt.datetime) -> list[Evidence]:
    """The lines of a log group that tell of a failure: known errors and the node scripts' own messages first, else the last of the others."""
    best: dict[str, Evidence] = {}
    others: list[Evidence] = []
    for event in _events(logs, group, since):
        for line in event["message"].splitlines():
            error = explain(line)
            if error is None and not _TELLS.search(line):
                continue
            at = _iso(dt.datetime.fromtimestamp(event["timestamp"] / 1000, dt.UTC))
            found = Evidence(f"{group} {event.get('logStreamName', '')}".strip(), line.strip()[:1000], at, error)
            if error or _OWN.search(line):
                best.setdefault(error.name if error else line, found)
            else:
                others.append(found)
    return sorted(best.values(), key=lambda e: e.time)[:LINES] or others[-LINES:]


def _events(logs: Any, group: str, since: dt.datetime) -> Iterator[Mapping[str, Any]]:
    request = {"logGroupName": group, "startTime": int(since.timestamp() * 1000)}
    full = empty = 0
    for page in logs.get_paginator("filter_log_events").paginate(**request):
        yield from page["events"]
        full, empty = (full + 1, empty) if page["events"] else (full, empty + 1)
        if full == PAGES or empty == EMPTY_PAGES:
            return


def _of_functions(client: Client, custom: Iterable[Custom], skip: Iterable[str], since: dt.datetime) -> list[Evidence]:
    """Read the logs of the functions that create these resources. CloudFormation cuts off their answers.

    Args:
        skip: log groups that have been read already.
    """
    named = dict.fromkeys(g for one in sorted(custom) for g in log_groups(client("cloudformation"), one))
    groups, found = [group for group in named if group not in skip], list[Evidence]()
    for group in groups:
        found += _allowed(lambda: log_lines(client("logs"), group, since))  # noqa: B023  called at once
    return found


def _of_nodes(logs: Any, cluster: str, since: dt.datetime) -> list[Evidence]:
    """The newest log group of a Slurm cluster: system log, bootstrap and ParallelCluster's daemons of its nodes."""
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=f"/aws/parallelcluster/{cluster}-")
    own = re.compile(rf"/aws/parallelcluster/{re.escape(cluster)}-\d{{12}}")
    groups = [g for page in pages for g in page["logGroups"] if own.fullmatch(g["logGroupName"])]
    newest = max(groups, key=lambda g: (g.get("creationTime", 0), g["logGroupName"]), default=None)
    return log_lines(logs, newest["logGroupName"], since) if newest else []


def _physical(cloudformation: Any, stack_id: str) -> dict[str, list[str]]:
    """Physical ids of the resources that a stack has, or had, by type."""
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack_id)
    found = defaultdict[str, set[str]](set)
    for event in (event for page in pages for event in page["StackEvents"]):
        if event.get("PhysicalResourceId"):
            found[event["ResourceType"]].add(event["PhysicalResourceId"])
    return {kind: sorted(ids) for kind, ids in found.items()}


def _told(where: str, text: str) -> Evidence:
    return Evidence(where, text, "", explain(text))


def eks_issues(client: Client, cluster: str) -> list[Evidence]:
    """Health issues that EKS reports, and the failed activities of the Auto Scaling groups of node groups."""
    eks, scaling = client("eks"), client("autoscaling")
    found = [_issue(f"EKS cluster {cluster}", i) for i in _health(eks.describe_cluster(name=cluster)["cluster"])]
    for page in eks.get_paginator("list_addons").paginate(clusterName=cluster):
        for name in page["addons"]:
            addon = eks.describe_addon(clusterName=cluster, addonName=name)["addon"]
            found += [_issue(f"add-on {name}", i) for i in _health(addon)]
    for page in eks.get_paginator("list_nodegroups").paginate(clusterName=cluster):
        for name in page["nodegroups"]:
            group = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
            found += [_issue(f"node group {name}", i) for i in _health(group)]
            for asg in group.get("resources", {}).get("autoScalingGroups", []):
                found += _activities(scaling, name, asg["name"])
    return found


def _activities(scaling: Any, group: str, asg: str) -> list[Evidence]:
    """Failed activities newest first, each message once. If a group launches again, its older failures are past."""
    found: dict[str, Evidence] = {}
    for activity in scaling.describe_scaling_activities(AutoScalingGroupName=asg, MaxRecords=20)["Activities"]:
        if activity["StatusCode"] == "Successful":
            break
        text = activity.get("StatusMessage") or ""
        if activity["StatusCode"] in {"Failed", "Cancelled"} and text:
            found.setdefault(
                text, Evidence(f"node group {group} (Auto Scaling)", text, _iso(activity["StartTime"]), explain(text))
            )
    return list(found.values())


def _health(described: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    issues: Iterable[Mapping[str, Any]] = (described.get("health") or {}).get("issues", [])
    return issues


def _issue(where: str, issue: Mapping[str, Any]) -> Evidence:
    return _told(where, f"{issue.get('code', '')}: {issue.get('message', '')}")


def closed(client: Client, template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """List the template's capacity reservations and blocks that launch nothing, each with the reason. Include those in resource groups."""
    text = json.dumps(template, default=str)
    for group in sorted(set(_GROUP.findall(text))):
        for id in _members(client("resource-groups"), group):
            for what, why in _why_closed(client("ec2"), id):
                yield what, f"{why}. It is in the group {group}: EC2 uses others of it, then starts nodes on demand"
    for id in sorted(set(_RESERVATION.findall(text))):
        yield from _why_closed(client("ec2"), id)


def _members(groups: Any, arn: str) -> list[str]:
    pages = groups.get_paginator("list_group_resources").paginate(Group=arn)
    arns = [one["Identifier"]["ResourceArn"] for page in pages for one in page["Resources"]]
    return sorted(one.rpartition("/")[2] for one in arns if _RESERVATION.search(one))


def _why_closed(ec2: Any, id: str) -> Iterator[tuple[str, str]]:
    one = _reservation(ec2, id)
    state, end = one["State"], one.get("EndDate")
    what = f"capacity {'block' if one.get('ReservationType') == 'capacity-block' else 'reservation'} {id}"
    if state in _LATER:
        begins = f" at {one['StartDate']:%Y-%m-%d %H:%M} UTC" if one.get("StartDate") else ""
        yield what, f"{what} is {state}: nodes start when it begins{begins}"
    elif state != "active":
        ended = f" (it ended at {end:%Y-%m-%d %H:%M} UTC)" if end and state == "expired" else ""
        yield (
            what,
            f"{what} is {state}{ended}: no node starts in it. Set `reservation` to another one, or another capacity_type",
        )


def _reservation(ec2: Any, id: str) -> Mapping[str, Any]:
    try:  # one by one: an id that is gone fails the whole request
        found: Mapping[str, Any] = ec2.describe_capacity_reservations(CapacityReservationIds=[id])[
            "CapacityReservations"
        ][0]
    except failures() as e:
        if not code_and_message(e)[0].startswith("InvalidCapacityReservationId"):
            raise
        return {"State": "not in this account and region"}
    return found


def pcs_errors(pcs: Any, cluster: str) -> Iterator[tuple[str, str]]:
    """List the errors that PCS reports for a cluster, its node groups and its queues, each with its subject.

    Args:
        pcs: boto3 client.
        cluster: id or ARN of the cluster.
    """
    cluster = cluster.rpartition("/")[2]
    yield from _errors("PCS cluster", pcs.get_cluster(clusterIdentifier=cluster)["cluster"])
    for kind, listed, key in (
        ("compute_node_group", "computeNodeGroups", "computeNodeGroup"),
        ("queue", "queues", "queue"),
    ):
        for page in pcs.get_paginator(f"list_{kind}s").paginate(clusterIdentifier=cluster):
            for one in page[listed]:
                request = {"clusterIdentifier": cluster, f"{key}Identifier": one["id"]}
                yield from _errors(f"PCS {kind.replace('_', ' ')}", getattr(pcs, f"get_{kind}")(**request)[key])


def _errors(what: str, described: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    name, status = described["name"], described["status"]
    told = [
        (f"{what} {name}", f"{e.get('code', '')}: {e.get('message', '')}") for e in described.get("errorInfo") or []
    ]
    return told or ([(f"{what} {name}", f"it is {status}")] if status.endswith("FAILED") else [])


def _allowed(read: Callable[[], list[Evidence]]) -> list[Evidence]:
    """Return a source's evidence. A missing source has none. A source that the caller may not read is reported as refused."""
    refused: Any = failures()[0]
    try:
        return read()
    except refused as e:
        if code_and_message(e)[0] in {"ResourceNotFoundException", "ValidationError", "NotFoundException"}:
            return []
        return [Evidence(f"{e.operation_name} was refused", str(e))]


def _iso(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
