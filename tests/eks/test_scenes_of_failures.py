"""What goes wrong while nodes are supplied: in the cluster of `test_scenes.py`."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws
from sandbox.kubernetes.api import ApiError, path_of
from sandbox.kubernetes.nodes import OWN_STATUS
from tests.eks.conftest import Open
from tests.eks.scenes import (
    FAILS,
    JOB_SETS,
    LIMITS,
    MERGE,
    NAME,
    NAMESPACE,
    PODS,
    QUEUE,
    SLACK,
    TRN1,
    Scene,
    member_of,
)
from tests.support import swept, until
from tests.told import told
from trainium_cdk.cdk.eks.scaler.aws import NodeGroups
from trainium_cdk.cdk.eks.scaler.function import RunFailed
from trainium_cdk.cdk.eks.scaler.model import Group, GroupChange
from trainium_cdk.client.jobs.kubernetes.reasons import aside, why_no_nodes
from trainium_cdk.client.operations.why_kubernetes import waits


@pytest.mark.sweep
def test_instances_that_come_while_a_size_is_lowered_are_the_ones_that_end(opened: Open) -> None:
    """shrink: the job was cancelled, and AWS launches its nodes between the function's look and its change."""
    scene = opened("race", 8)
    scene.settings = replace(scene.settings, reserve=False)
    scene.submit("a", 4)
    mine = {scene.instance(node) for node in scene.runs("a", 4)}
    scene.capacity(4)
    scene.submit("b", 4)
    scene.asks("b")
    scene.minute()
    assert scene.desired == 8
    scene.cancel("b")
    supplier = scene.supplier()
    change, came = supplier._groups.change, []

    def late(*given: Any) -> str:
        scene.capacity(8)
        came.extend(scene.instances())
        return change(*given)

    supplier._groups.change = late  # type: ignore[method-assign, assignment]
    supplier.run(scene.now)
    assert len(came) == 8
    assert scene.instances() == mine


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"spec": {"taints": [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}, {"key": "example.com/unreachable", "effect": "NoSchedule"}]}}, id="tainted", marks=pytest.mark.sweep),
        pytest.param({"status": {"capacity": {"aws.amazon.com/neuron": "15"}, "allocatable": {"aws.amazon.com/neuron": "15"}}}, id="lacks a device"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime is down"}]}}, id="not Ready", marks=pytest.mark.sweep),
    ],
)  # fmt: skip
def test_a_node_that_cannot_be_used_is_replaced(broken: dict[str, Any], opened: Open) -> None:
    """unusable: neither free nor counted."""
    scene = opened("broken", 4)
    scene.submit("first", 2)
    scene.runs("first", 2)
    scene.end("first")
    scene.minute()
    [bad, good] = sorted(scene.nodes)
    path = path_of("v1", "Node", bad)
    scene.api.call("PATCH", path, {"metadata": {"annotations": {OWN_STATUS: "true"}}}, kind=MERGE)
    scene.api.call("PATCH", path + ("/status" if "status" in broken else ""), broken, kind=MERGE)
    scene.submit("second", 2)
    scene.asks("second")
    scene.minute()
    assert scene.desired == 3
    nodes = scene.runs("second", 2)
    assert good in nodes
    assert bad not in nodes
    scene.minutes(int(LIMITS.unusable / 60) + 3)
    assert bad not in scene.nodes
    assert scene.desired == 2


@pytest.mark.parametrize(("some", "size"), swept([(11, 16), (3, 4)], (3, 4)))
def test_no_node_is_started_while_one_is_unavailable(some: int, size: int, opened: Open) -> None:
    """part: all or none, with a reservation. Kueue tries again later."""
    scene = opened(f"part-{size}", size)
    scene.retry_after_seconds(1)
    scene.capacity(some)
    scene.submit("gang", size)
    scene.asks("gang")
    scene.minute()
    assert (scene.nodes, scene.desired, scene.reserved()) == ([], 0, [])
    assert f"waits for {size} nodes of trn" in scene.why("gang")
    assert "AWS: InsufficientInstanceCapacity: We currently do not have sufficient" in scene.why("gang")
    if size == 4:
        told("no capacity", "EKS", "trn status", scene.why("gang"))
    scene.minutes(int(LIMITS.capacity / 60) + 1)
    assert until(
        lambda: f"Retrying after failure: 0 of {size} nodes of trn came within 10 minutes" in scene.why("gang")
    )
    assert scene.most == 0
    scene.capacity(None)
    assert scene.runs("gang", size) == set(scene.nodes)
    assert (scene.desired, scene.most) == (size, size)


@pytest.mark.sweep
def test_a_node_that_is_deleted_by_hand_is_replaced(opened: Open) -> None:
    """deleted: by `kubectl delete node`. Its instance stays within the time in which a new one joins, and no longer."""
    scene = opened("deleted", 4)
    scene.submit("gang", 2)
    before = scene.runs("gang", 2)
    gone, began = sorted(before)[0], scene.now
    instance = scene.instance(gone)
    scene.delete_node(gone)
    assert until(lambda: "Pending" in scene.phases("gang"))
    while instance in scene.instances():
        scene.minute()
    assert until(lambda: scene.phases("gang") == ["Running"] * 2 or not scene.minute())
    assert gone not in scene.running_on("gang")
    assert (scene.desired, len(scene.nodes)) == (2, 2)
    assert scene.now - began <= LIMITS.start + SLACK


@pytest.mark.sweep
def test_a_pod_that_is_deleted_by_hand_starts_its_job_again(opened: Open) -> None:
    """All its pods are new, on the nodes that it has."""
    scene = opened("pod", 4)
    scene.submit("gang", 2)
    nodes = scene.runs("gang", 2)
    before = {each["metadata"]["uid"] for each in scene.pods("gang")}
    member_of(scene).delete(f"{PODS}/{scene.pods('gang')[0]['metadata']['name']}")
    assert until(lambda: not before & {each["metadata"]["uid"] for each in scene.pods("gang")})
    assert scene.running("gang", 2) == nodes
    assert scene.api.get(f"{JOB_SETS}/gang")["status"]["restarts"] == 1
    scene.settled()


@pytest.mark.sweep
def test_a_small_job_does_not_wait_for_the_nodes_of_a_large_one(opened: Open) -> None:
    """part: of three jobs, AWS has the nodes of the second and the third one alone."""
    scene = opened("small", 8)
    scene.capacity(3)
    for job, size in (("large", 5), ("small", 2), ("least", 1)):
        scene.submit(job, size)
        scene.asks(job)
    small, least = scene.runs("small", 2), scene.runs("least", 1)
    assert small | least == set(scene.nodes)
    assert "waits for 5 nodes of trn" in scene.why("large")
    assert "AWS: InsufficientInstanceCapacity" in scene.why("large")
    assert (scene.desired, scene.most) == (3, 3)
    scene.capacity(None)
    assert scene.runs("large", 5) == set(scene.nodes) - small - least
    assert (scene.desired, scene.most) == (8, 8)


@pytest.mark.sweep
def test_two_node_groups_in_one_second(opened: Open, local_aws: LocalAws) -> None:
    """Each has client tokens of its own, which EC2 binds to their first request."""
    groups, now = NodeGroups(NAME, local_aws.client), time.time()
    group = Group("trn", {}, minimum=0, maximum=4, desired=0)
    for count, scene in enumerate((opened("twin-a", 4), opened("twin-b", 4)), 1):
        found = groups.find(scene.settings.groups[0])
        assert groups.change(group, found, GroupChange(reserve=(count,)), now, now + 60) == ""
        [made] = scene.reserved()
        assert made["TotalInstanceCount"] == count
        groups.change(group, found, GroupChange(cancel=(made["CapacityReservationId"],)), now, now)


@pytest.mark.sweep
def test_without_a_reservation_a_part_is_released(opened: Open) -> None:
    """part: EC2 makes no reservation for the type."""
    scene = opened("refused", 4)
    scene.retry_after_seconds(1)
    scene.file("unreservable.json", [TRN1.name])
    scene.capacity(3)
    scene.submit("gang", 4)
    scene.asks("gang")
    scene.minute()
    assert (len(scene.nodes), scene.desired) == (3, 4)
    scene.minutes(int(LIMITS.capacity / 60))
    assert until(
        lambda: (
            "3 of 4 nodes of trn came within 10 minutes; idle nodes are removed after 10 minutes. AWS: Could not"
            in scene.why("gang")
        )
    )
    scene.cancel("gang")
    scene.minute()
    assert scene.desired == 3
    assert scene.until_gone() <= LIMITS.idle + SLACK


@pytest.mark.sweep
def test_a_reservation_does_not_stay(opened: Open) -> None:
    """Its job is cancelled before the nodes have started; or the function did not run for a while."""
    scene = opened("forgotten", 4)
    supplier = scene.supplier()
    scene.submit("gang", 4)
    scene.asks("gang")
    supplier._groups._scaling = Broken(scene.scaling)
    with pytest.raises(RunFailed, match="broken"):
        supplier.run(scene.now)
    [made] = scene.reserved()
    assert made["AvailableInstanceCount"] == 4
    assert (made["EndDate"].timestamp() - scene.now) == LIMITS.capacity
    scene.cancel("gang")
    scene.minute()
    assert (scene.reserved(), scene.desired) == ([], 0)


def test_bad_input_of_one_group_stops_nothing_else(opened: Open) -> None:
    """bad input: a group is gone, one is being created, a note is refused. The run ends as an error, for the alarm."""
    scene = opened("good", 4)
    [mine] = scene.settings.groups
    gone, coming = replace(mine, name="gone", nodegroup="gone"), replace(mine, name="coming", nodegroup="coming")
    scene.settings = replace(scene.settings, groups=(gone, coming, mine))
    scene.eks.create_nodegroup(
        clusterName=NAME, nodegroupName="coming", subnets=[s["SubnetId"] for s in scene.aws.client("ec2").describe_subnets()["Subnets"][:1]],
        nodeRole="arn:aws:iam::000000000000:role/nodes", scalingConfig={"minSize": 0, "maxSize": 1, "desiredSize": 0}, instanceTypes=[TRN1.name],
    )  # fmt: skip
    scene.file("nodegroups.json", {"coming": {"status": "CREATING", "resources": {}}})
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-notes"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]},
            "validations": [{"expression": "!('trainium-cdk/idle-since' in object.metadata.annotations)", "message": "no notes"}],
        },
    }  # fmt: skip
    binding = {
        **policy,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": "no-notes", "validationActions": ["Deny"]},
    }
    note = {"metadata": {"annotations": {"trainium-cdk/idle-since": "1"}}}
    folder = "/apis/admissionregistration.k8s.io/v1/validatingadmission"
    try:
        scene.submit("gang", 2)
        scene.asks("gang")
        scene.minute(fails="node group gone cannot be read")
        assert scene.desired == 2
        scene.api.call("POST", f"{folder}policies", policy)
        scene.api.call("POST", f"{folder}policybindings", binding)
        assert until(lambda: refused(scene, path_of("v1", "Node", scene.nodes[0]), note))
        scene.minute(fails="no notes")
        scene.running("gang", 2)
        scene.end("gang")
    finally:
        scene.api.delete(f"{folder}policybindings/no-notes")
        scene.api.delete(f"{folder}policies/no-notes")
        scene.file("nodegroups.json", None)
        scene.eks.delete_nodegroup(clusterName=NAME, nodegroupName="coming")
    assert until(lambda: not refused(scene, path_of("v1", "Node", scene.nodes[0]), note))
    lease = scene.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/trn-scaler")
    assert lease["spec"]["renewTime"].startswith(time.strftime("%Y-%m-%dT%H:%M:", time.gmtime(scene.now - 60)))
    scene.settings = replace(scene.settings, groups=(mine,))
    assert scene.until_gone() <= LIMITS.idle + SLACK


@pytest.mark.sweep
def test_a_group_that_is_updated_is_left_alone(opened: Open) -> None:
    """update"""
    scene = opened("update", 4)
    scene.submit("first", 2)
    scene.runs("first", 2)
    scene.end("first")
    scene.file("nodegroups.json", {"update": {"status": "UPDATING"}})
    try:
        scene.submit("second", 4)
        scene.asks("second")
        assert not any(plan.changes for plan in scene.minutes(int((LIMITS.idle + SLACK) / 60)))
        assert until(lambda: "node group trn is UPDATING; nodes start when it is ACTIVE" in scene.why("second"))
        assert scene.desired == 2
    finally:
        scene.file("nodegroups.json", None)
    assert scene.runs("second", 4) == set(scene.nodes)


def test_nodes_are_requested_when_a_capacity_block_opens(opened: Open, local_aws: LocalAws) -> None:
    """block: within a minute, and not in its last 40 minutes."""
    ec2 = local_aws.client("ec2")
    zone = ec2.describe_subnets()["Subnets"][0]["AvailabilityZone"]
    made = ec2.create_capacity_reservation(
        InstanceType=TRN1.name, InstancePlatform="Linux/UNIX", AvailabilityZone=zone, InstanceCount=4, InstanceMatchCriteria="targeted"
    )["CapacityReservation"]["CapacityReservationId"]  # fmt: skip
    target = {"CapacityReservationTarget": {"CapacityReservationId": made}}
    template = ec2.create_launch_template(
        LaunchTemplateName="block", LaunchTemplateData={"InstanceType": TRN1.name, "CapacityReservationSpecification": target}
    )["LaunchTemplate"]["LaunchTemplateId"]  # fmt: skip
    scene = opened("block", 4, launchTemplate={"id": template, "version": "1"}, capacityType="CAPACITY_BLOCK")
    begin = datetime.fromtimestamp(scene.now, UTC) + timedelta(minutes=45)
    dates = {
        "StartDate": stamp(begin),
        "EndDate": stamp(begin + timedelta(hours=24)),
        "ReservationType": "capacity-block",
    }
    scene.file("reservations.json", {made: {**dates, "State": "scheduled"}})
    scene.submit("gang", 4)
    scene.asks("gang")
    assert not any(plan.changes for plan in scene.minutes(45))
    assert f"waits for capacity block {made}, which begins at {begin:%Y-%m-%d %H:%M} UTC" in scene.why("gang")
    scene.file("reservations.json", {made: {**dates, "State": "active"}})
    scene.capacity(0)
    scene.minute()
    assert scene.desired == 4
    scene.minutes(15)
    assert scene.desired == 4, "what is paid for is requested until it comes"
    scene.capacity(4)
    assert scene.runs("gang", 4) == set(scene.nodes)
    scene.end("gang")
    assert scene.until_gone() <= LIMITS.idle + SLACK
    scene.now = begin.timestamp() + 23 * 3600 + 21 * 60
    scene.submit("late", 1)
    scene.asks("late")
    scene.minutes(2)
    assert (scene.desired, scene.nodes) == (0, [])
    assert "and EKS starts no nodes in it after" in scene.why("late")
    evidence = waits(scene.workload("late") or {})
    assert evidence.error is not None
    assert (evidence.where, evidence.error.name) == ("job late", "block-over")
    told("expired block", "EKS", "trn status", scene.why("late"))
    ec2.delete_launch_template(LaunchTemplateId=template)


def test_a_job_leaves_its_capacity_block_before_the_end_and_goes_on_in_the_next(
    opened: Open, local_aws: LocalAws
) -> None:
    """ending: Kueue ends its pods before EKS does, and counts no restart. A new job waits, though nodes are idle."""
    ec2 = local_aws.client("ec2")
    zone = ec2.describe_subnets()["Subnets"][0]["AvailabilityZone"]
    made = ec2.create_capacity_reservation(
        InstanceType=TRN1.name, InstancePlatform="Linux/UNIX", AvailabilityZone=zone, InstanceCount=4, InstanceMatchCriteria="targeted"
    )["CapacityReservation"]["CapacityReservationId"]  # fmt: skip
    target = {"CapacityReservationTarget": {"CapacityReservationId": made}}
    template = ec2.create_launch_template(
        LaunchTemplateName="ending", LaunchTemplateData={"InstanceType": TRN1.name, "CapacityReservationSpecification": target}
    )["LaunchTemplate"]["LaunchTemplateId"]  # fmt: skip
    scene = opened("ending", 4, launchTemplate={"id": template, "version": "1"}, capacityType="CAPACITY_BLOCK")

    def ends(minutes: float) -> datetime:
        end = datetime.fromtimestamp(scene.now, UTC) + timedelta(minutes=minutes)
        fields = {"EndDate": stamp(end), "ReservationType": "capacity-block", "State": "active"}
        scene.file("reservations.json", {made: fields})
        return end

    end = ends(60)
    scene.submit("gang", 2)
    scene.runs("gang", 2)
    scene.minutes(8)
    assert scene.phases("gang") == ["Running", "Running"]
    scene.now = end.timestamp() - 44 * 60
    scene.minute()
    assert until(lambda: not scene.pods("gang"))
    says = f"capacity block {made} ends at {end:%Y-%m-%d %H:%M} UTC, and EKS starts no nodes in it after"
    assert says in aside(scene.workload("gang"))
    [why] = why_no_nodes(scene.workload("gang"))
    assert why.endswith("it waits for the next one, and continues there from its checkpoint")
    scene.submit("late", 1)
    scene.asks("late")
    scene.minutes(2)
    assert not scene.pods("late")
    assert says in scene.why("late")
    scene.cancel("late")
    scene.now = end.timestamp() + 60
    ends(24 * 60)  # the next block
    scene.minutes(2)
    assert scene.running("gang", 2) <= set(scene.nodes)
    assert not scene.api.get(f"{JOB_SETS}/gang").get("status", {}).get("restarts")
    scene.end("gang")
    ec2.delete_launch_template(LaunchTemplateId=template)


@pytest.mark.sweep
def test_nodes_that_never_announce_devices_do_not_stay(opened: Open) -> None:
    scene = opened("broken", 8)
    scene.devices = False
    scene.submit("gang", 2)
    scene.asks("gang")
    scene.minutes(int(LIMITS.start / 60) + 1)
    assert until(lambda: "only 0 of 2 nodes of trn could be used within 20 minutes" in scene.why("gang"))
    scene.cancel("gang")
    assert scene.until_gone() <= SLACK


class Broken:
    """Auto Scaling that can be read only."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def set_desired_capacity(self, **_: object) -> None:
        raise ClientError({"Error": {"Code": "Throttling", "Message": "broken"}}, "SetDesiredCapacity")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def refused(scene: Scene, path: str, body: dict[str, Any]) -> bool:
    """Whether the API server refuses to change an object."""
    try:
        scene.api.call("PATCH", path, body, kind=MERGE, query={"dryRun": "All"})
    except ApiError as error:
        return error.status in (403, 422)
    return False


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def test_a_broken_device_isolates_its_node_and_the_job_goes_on_elsewhere(opened: Open) -> None:
    """As EKS's node monitoring agent reports it. The node is cordoned while pods are on it; the job, which fails there, gets another one."""
    scene = opened("hardware", 4)
    scene.submit("gang", 2)
    bad, good = sorted(scene.runs("gang", 2))
    report(scene, bad)
    assert scene.minute().changes[QUEUE].isolate == (bad,)  # type: ignore[union-attr]
    node = scene.api.get(path_of("v1", "Node", bad))
    assert node["spec"]["unschedulable"] is True
    assert node["metadata"]["annotations"]["trainium-cdk/broken"] == "Discovered HBM Uncorrectable Error"
    assert scene.running_on("gang") == {bad, good}
    assert bad in scene.nodes
    [victim] = [one for one in scene.pods("gang") if one["spec"]["nodeName"] == bad]
    scene.end_pod(victim, FAILS)
    assert until(lambda: scene.api.get(f"{JOB_SETS}/gang").get("status", {}).get("restarts") == 1)
    scene.minutes(2)
    now = scene.running("gang", 2)
    assert bad not in now
    assert good in now
    report(scene, bad, "True")  # a reset repairs no memory
    scene.minutes(int(LIMITS.unusable / 60) + 3)
    assert bad not in scene.nodes
    assert scene.desired == 2
    scene.settled()


def test_what_a_pod_can_write_isolates_no_node(opened: Open) -> None:
    """Its labels, annotations and conditions, and lines of its log. Only identities of the system write the status of a node."""
    scene = opened("attack", 2)
    says = {
        "name": "c",
        "image": "x:1",
        "command": ["echo", "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR action=TERMINATE_INSTANCE"],
    }
    scene.submit("gang", 1, initContainers=[{**says, "name": "says"}])
    [node] = scene.runs("gang", 1)
    [mine] = scene.pods("gang")
    path = f"{PODS}/{mine['metadata']['name']}"
    notes = {"trainium-cdk/broken": "x", "trainium-cdk/leaving": "true"}
    scene.api.call(
        "PATCH", path, {"metadata": {"annotations": notes, "labels": notes | {"trainium-cdk/broken": "x"}}}, kind=MERGE
    )
    scene.api.call(
        "PATCH", f"{path}/status", {"status": {"conditions": [*mine["status"]["conditions"], HARDWARE]}}, kind=MERGE
    )
    scene.settled()
    found = scene.api.get(path_of("v1", "Node", node))
    assert not found["spec"].get("unschedulable")
    assert "trainium-cdk/broken" not in found["metadata"]["annotations"]


HARDWARE = {
    "type": "AcceleratedHardwareReady",
    "status": "False",
    "reason": "NeuronHBMUncorrectableError",
    "message": "Discovered HBM Uncorrectable Error",
}


def report(scene: Scene, node: str, status: str = "False") -> None:
    """What the agent writes."""
    path = path_of("v1", "Node", node)
    scene.api.call("PATCH", path, {"metadata": {"annotations": {OWN_STATUS: "true"}}}, kind=MERGE)
    others = [one for one in scene.api.get(path)["status"]["conditions"] if one["type"] != HARDWARE["type"]]
    conditions = [*others, {**HARDWARE, "status": status}]
    scene.api.call("PATCH", f"{path}/status", {"status": {"conditions": conditions}}, kind=MERGE)
