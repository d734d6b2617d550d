"""Decisions of the function that supplies nodes. With real parts: `test_scenes.py`."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainium_cdk.cdk.eks.scaler import observe
from trainium_cdk.cdk.eks.scaler.conditions import answer
from trainium_cdk.cdk.eks.scaler.labels import LEAVING
from trainium_cdk.cdk.eks.scaler.model import (
    Answer,
    Group,
    GroupChange,
    GroupNode,
    Limits,
    NodeRequest,
    Reservation,
    ScalingPlan,
)
from trainium_cdk.cdk.eks.scaler.supply import decide

NOW, LIMITS, WHOLE = 1_800_000_000.0, Limits(), (16, 8)


def nodes(count: int, first: int = 0, **more: Any) -> tuple[GroupNode, ...]:
    """Usable ones that have been idle for a minute."""
    start: dict[str, Any] = {"state": "usable", "free": WHOLE, "since": NOW - 60, "protected": False, **more}
    return tuple(GroupNode(f"i-{i}", name=f"n{i}", **start) for i in range(first, first + count))


def group(*there: GroupNode, desired: int | None = None, **more: Any) -> Group:
    return Group("trn", WHOLE, 0, 16, len(there) if desired is None else desired, there, **more)


def request(key: str, count: int, *, per_pod: tuple[int, int] = WHOLE, **more: Any) -> NodeRequest:
    return NodeRequest(key, ("trn",), ((per_pod, count),), **{"created": NOW - 60, **more})


def change(plan: ScalingPlan) -> GroupChange:
    return plan.changes.get("trn", GroupChange())


BUSY = {"busy": True, "free": (0, 0), "since": NOW, "protected": True}
OLD = NOW - LIMITS.idle


@pytest.mark.parametrize(
    ("what", "there", "asked", "expected"),
    [
        ("nothing to do", group(), [], GroupChange()),
        ("from none", group(), [request("a", 3)], GroupChange(desired=3, requested=3)),
        ("reserved first", group(atomic=True), [request("a", 3)], GroupChange(desired=3, reserve=(3,), requested=3)),
        ("each for its own", group(atomic=True), [request("a", 3), request("b", 2)], GroupChange(desired=5, reserve=(3, 2), requested=5)),
        ("some were requested before", group(atomic=True, desired=2, requested=2), [request("a", 3), request("b", 2)], GroupChange(desired=5, reserve=(3,), requested=5)),
        ("the nodes of the smaller one came", group(*nodes(2, state="starting"), atomic=True, requested=2), [request("a", 3), request("b", 2)],
         GroupChange(protect=("i-0", "i-1"), desired=5, reserve=(3,), requested=5)),
        ("a job that has its nodes is first", group(*nodes(2), atomic=True), [request("a", 2), request("b", 2, provisioned=True, created=NOW)],
         GroupChange(protect=("i-0", "i-1"), desired=4, reserve=(2,), requested=4)),
        ("a reservation is there", group(atomic=True, reservations=(Reservation("cr", NOW - 60, 3),)), [request("a", 3)], GroupChange(desired=3, requested=3)),
        ("it is used up", group(*nodes(3, state="starting"), reservations=(Reservation("cr", NOW - 60, 0),)), [request("a", 3)], GroupChange(protect=("i-0", "i-1", "i-2"), cancel=("cr",))),
        ("it was forgotten", group(desired=3, requested=3, reservations=(Reservation("cr", NOW - 600, 3),)), [request("a", 3)], GroupChange(cancel=("cr",), requested=3)),
        ("larger than the group", group(), [request("a", 17)], GroupChange()),
        ("nodes that are there", group(*nodes(2)), [request("a", 3)], GroupChange(desired=3, protect=("i-0", "i-1"), requested=3)),
        ("nodes that start", group(*nodes(2, state="starting"), desired=3, requested=3), [request("a", 3)], GroupChange(requested=3, protect=("i-0", "i-1"))),
        ("unusable ones are not counted", group(*nodes(2), *nodes(1, 2, state="unusable")), [request("a", 3)], GroupChange(desired=4, protect=("i-0", "i-1"), requested=4)),
        ("pods that share nodes", group(), [request("a", 3, per_pod=(8, 4))], GroupChange(desired=2, requested=2)),
        ("EFA does not fit twice", group(), [request("a", 2, per_pod=(1, 8))], GroupChange(desired=2, requested=2)),
        ("its job is gone", group(*nodes(2, **BUSY), desired=4, requested=4), [], GroupChange(desired=2, requested=2)),
        ("a size that a person has set", group(*nodes(2, **BUSY), desired=4), [], GroupChange()),
        ("idle", group(*nodes(2, since=OLD)), [], GroupChange(cordon=("n0", "n1"))),
        ("its node was deleted by hand", group(*nodes(1, **BUSY), GroupNode("i-1", free=WHOLE, since=NOW - LIMITS.start)), [request("a", 1, provisioned=True)],
         GroupChange(desired=3, terminate=(("i-1", True),), requested=2)),
        ("its node was deleted and may still join", group(*nodes(1, **BUSY), GroupNode("i-1", free=WHOLE, since=NOW - LIMITS.start + 1)), [request("a", 1, provisioned=True)], GroupChange()),
        ("idle, but a job starts again on them", group(*nodes(2, since=OLD, protected=True)), [request("a", 2, provisioned=True)], GroupChange()),
        ("cordoned before", group(*nodes(2, since=OLD, leaving=True, protected=True), requested=2), [], GroupChange(terminate=(("i-0", True), ("i-1", True)), unprotect=("i-0", "i-1"), requested=0)),
        ("cordoned before, and now a job needs one", group(*nodes(2, since=OLD, leaving=True), requested=2), [request("a", 1)],
         GroupChange(protect=("i-0",), uncordon=("n0",), terminate=(("i-1", True),), requested=1)),
        ("cordoned before, and the minimum was raised", replace(group(*nodes(2, since=OLD, leaving=True)), minimum=2), [], GroupChange(uncordon=("n0", "n1"))),
        ("it got a pod just before it was cordoned", group(*nodes(1, leaving=True, **BUSY)), [], GroupChange(uncordon=("n0",))),
        ("the same in an update", group(*nodes(1, leaving=True, **BUSY), *nodes(1, 1, leaving=True), status="UPDATING"), [request("a", 1)], GroupChange(uncordon=("n0",))),
        ("the minimum stays", replace(group(*nodes(3, since=OLD)), minimum=2), [], GroupChange(cordon=("n0",))),
        ("an unusable one is replaced", replace(group(*nodes(1, state="unusable", since=NOW - 300, leaving=True)), minimum=1), [], GroupChange(terminate=(("i-0", False),))),
        ("it never joined", group(GroupNode("i-0", since=NOW - 1200)), [], GroupChange(terminate=(("i-0", True),))),
        ("it lost its job", group(*nodes(1, protected=True)), [], GroupChange(unprotect=("i-0",))),
        ("an update", group(*nodes(2, since=OLD), status="UPDATING"), [request("a", 3)], GroupChange()),
        ("a block that is closed", group(*nodes(1), closed="waits"), [request("a", 3)], GroupChange()),
        ("a job that lost a node in a full group", replace(group(*nodes(2, busy=True, holders=frozenset({"a"}), protected=True)), maximum=2), [request("a", 1, provisioned=True)], GroupChange()),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)  # fmt: skip
def test_changes(what: str, there: Group, asked: list[NodeRequest], expected: GroupChange) -> None:
    assert change(decide([there], asked, NOW, LIMITS)) == replace(expected, requested=expected.requested)


def told(there: Group, asked: NodeRequest) -> Answer:
    return answer(asked, decide([there], [asked], NOW, LIMITS), {"trn": there}, {}, NOW, LIMITS)


SHORT = "InsufficientInstanceCapacity: none"


@pytest.mark.parametrize(
    ("there", "asked", "state", "message"),
    [
        (group(*nodes(3)), request("a", 3), "Provisioned", "3 nodes of trn can be used"),
        (group(), request("a", 3), "Waiting", "waits for 3 nodes of trn, since 2027-01-15 08:00 UTC"),
        (group(trouble=SHORT), request("a", 3, waiting_since=NOW - 60), "Waiting", f"waits for 3 nodes of trn, since 2027-01-15 07:59 UTC. AWS: {SHORT}"),
        (group(trouble=SHORT), request("a", 3, waiting_since=NOW - 600), "Failed", f"0 of 3 nodes of trn came within 10 minutes. AWS: {SHORT}"),
        (group(*nodes(2)), request("a", 3, waiting_since=NOW - 600), "Failed", "2 of 3 nodes of trn came within 10 minutes; idle nodes are removed after 10 minutes"),
        (group(reserved=True), request("a", 3, waiting_since=NOW - 6000), "Waiting", "waits for 3 nodes of trn"),
        (group(*nodes(3, state="starting")), request("a", 3, waiting_since=NOW - 1199), "Waiting", "waits for 3 nodes of trn"),
        (group(*nodes(3, state="starting")), request("a", 3, waiting_since=NOW - 1200), "Failed", "only 0 of 3 nodes of trn could be used within 20 minutes"),
        (group(*nodes(16, **BUSY)), request("a", 1), "Waiting", "waits for room: trn has at most 16 nodes; 16 are in use"),
        (group(), request("a", 17), "Failed", "its pods (17) have no room even among idle nodes: trn has at most 16 nodes with 16 devices each"),
        (group(), request("a", 1, per_pod=(32, 0)), "Failed", "its pods (1) have no room"),
        (group(*nodes(16, **BUSY)), request("a", 17, per_pod=(9, 0)), "Failed", "its pods (17) have no room"),
        (group(*nodes(15, **BUSY), *nodes(1, 15, state="unusable")), request("a", 1), "Waiting", "15 are in use and 1 unusable"),
        (group(status="UPDATING"), request("a", 1), "Waiting", "node group trn is UPDATING; nodes start when it is ACTIVE"),
        (group(*nodes(1), status="UPDATING"), request("a", 1), "Provisioned", "1 node of trn can be used"),
        (group(closed="waits for capacity block cr-1"), request("a", 1), "Waiting", "waits for capacity block cr-1"),
        (group(), replace(request("a", 1), groups=()), "Failed", "no node group has nodes with the labels and resources of these pods"),
    ],
)  # fmt: skip
def test_answers(there: Group, asked: NodeRequest, state: str, message: str) -> None:
    found = told(there, asked)
    assert (found.state, message in found.message) == (state, True), found


STATES = st.sampled_from(["usable", "starting", "unusable"])


@st.composite
def situations(draw: st.DrawFn) -> tuple[Group, list[NodeRequest]]:
    there = []
    for i in range(draw(st.integers(0, 6))):
        busy = draw(st.booleans())
        there.append(
            GroupNode(f"i-{i}", f"n{i}", draw(STATES), (0, 0) if busy else WHOLE, NOW - draw(st.integers(0, 3000)), busy, frozenset(), draw(st.booleans()), draw(st.booleans()))
        )  # fmt: skip
    least = draw(st.integers(0, 2))
    found = Group(
        "trn",
        WHOLE,
        least,
        8,
        max(least, len(there) + draw(st.integers(0, 2))),
        tuple(there),
        requested=draw(st.none() | st.integers(0, 8)),
        atomic=draw(st.booleans()),
    )
    asked = [
        request(f"r{i}", draw(st.integers(1, 5)), created=NOW - i, provisioned=draw(st.booleans()))
        for i in range(draw(st.integers(0, 3)))
    ]
    return found, asked


@given(situations())
@settings(deadline=None)
def test_what_always_holds(situation: tuple[Group, list[NodeRequest]]) -> None:
    there, asked = situation
    plan = decide([there], asked, NOW, LIMITS)
    done = change(plan)
    busy, names = {n.instance for n in there.nodes if n.busy}, {n.name: n.instance for n in there.nodes}
    ending = {i for i, _ in done.terminate} | {names[n] for n in done.cordon}
    assert not ending & busy
    assert not ending & {names[n] for n in done.uncordon}
    size = there.desired if done.desired is None else done.desired
    assert there.minimum <= size <= max(there.maximum, there.desired)
    assert sum(done.reserve) == (max(0, size - there.desired) if there.atomic else 0)
    if size < there.desired:  # what AWS may end: no node in use
        protected = {n.instance for n in there.nodes if n.protected} | set(done.protect)
        assert busy <= protected - set(done.unprotect) | {n.instance for n in there.nodes if n.protected is None}
    given_ = {
        key: place for key, place in plan.places.items() if not next(r for r in asked if r.key == key).provisioned
    }
    assert all(place.nodes for place in given_.values())
    assert sum(place.nodes for place in plan.places.values()) <= there.maximum


def test_a_pod_matches_the_labels_of_a_group() -> None:
    labels = {"zone": "a", "type": "trn1", "disks": "4"}

    def fits(selector: dict[str, str], *rules: tuple[str, str, list[str]]) -> bool:
        terms = [{"matchExpressions": [{"key": k, "operator": o, "values": v}]} for k, o, v in rules]
        return observe._matches(observe.Template(WHOLE, selector, terms), labels)

    assert [
        fits({}), fits({"zone": "a"}), fits({"zone": "b"}), fits({}, ("type", "In", ["trn2"])), fits({}, ("type", "In", ["trn2"]), ("zone", "In", ["a"])),
        fits({}, ("type", "NotIn", ["trn2"])), fits({}, ("x", "Exists", [])), fits({}, ("x", "DoesNotExist", [])), fits({}, ("disks", "Gt", ["3"])),
        fits({}, ("disks", "Lt", ["3"])), fits({}, ("x", "Gt", ["3"])),
    ] == [True, True, False, False, True, True, False, True, True, False, False]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
    ],
)
def test_the_region_of_a_groups_nodes(zone: str, region: str) -> None:
    """Also in local zones and Wavelength zones, whose names go on behind the region's."""
    kind = observe.GroupSettings("trn", "trn", "trn1.32xlarge", (16,))
    found = observe.labels(observe.DescribedGroup(kind, {}, {"AvailabilityZones": [zone]}, {}, None))
    assert found["topology.kubernetes.io/region"] == region


@pytest.mark.parametrize("ready", [True, False])
def test_a_node_that_was_cordoned_is_as_usable_as_before(ready: bool) -> None:
    """Only then is a broken one replaced where the group is at its minimum."""
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    notes = {LEAVING: "true", observe.IDLE_SINCE: str(int(NOW - 400))}
    node = {
        "metadata": {"name": "n0", "annotations": notes, "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"providerID": "aws:///a/i-0", "taints": taints, "unschedulable": True},
        "status": {"allocatable": {"neuron": "16"}, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    instances = [{"InstanceId": "i-0", "LifecycleState": "InService"}]
    scaling = {"MinSize": 1, "MaxSize": 1, "DesiredCapacity": 1, "AvailabilityZones": ["a"], "Instances": instances}
    kind = observe.GroupSettings("trn", "trn", "trn1.32xlarge", (16,))
    found = observe.DescribedGroup(kind, {"status": "ACTIVE"}, scaling, {}, None)
    there = observe.ObservedCluster(["neuron"], {}, [node], [], [], [], NOW).group(found, {}, [], atomic=False)
    expected = GroupChange(uncordon=("n0",)) if ready else GroupChange(terminate=(("i-0", False),))
    assert change(decide([there], [], NOW, LIMITS)) == expected


@pytest.mark.parametrize(("mark", "cordon"), [("", ()), (str(int(NOW - 400)), ("n0",))])
def test_a_node_that_fails_with_its_job_has_five_minutes_to_recover(mark: str, cordon: tuple[str, ...]) -> None:
    """The last run saw it busy, or idle: its plug-in is restarted, or someone has drained it."""
    node = {
        "metadata": {
            "name": "n0",
            "annotations": {observe.IDLE_SINCE: mark, observe.NOT_OURS: "true"},
            "creationTimestamp": "2026-11-01T00:00:00Z",
        },
        "spec": {"providerID": "aws:///a/i-0"},
        "status": {"allocatable": {"neuron": "0"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    instances = [{"InstanceId": "i-0", "LifecycleState": "InService"}]
    scaling = {"MinSize": 0, "MaxSize": 1, "DesiredCapacity": 1, "AvailabilityZones": ["a"], "Instances": instances}
    found = observe.DescribedGroup(
        observe.GroupSettings("trn", "trn", "trn1.32xlarge", (16,)), {"status": "ACTIVE"}, scaling, {}, None
    )
    cluster = observe.ObservedCluster(["neuron"], {}, [node], [], [], [], NOW)
    there = cluster.group(found, {}, [], atomic=False)
    assert change(decide([there], [], NOW, LIMITS)).cordon == cordon
    assert cluster.marks([there]) == ({} if mark else {"n0": {observe.IDLE_SINCE: str(int(NOW))}})


@pytest.mark.parametrize(
    ("quantity", "devices"), [("16", 16), ("16e0", 16), ("1E3", 1000), ("1k", 1000), ("1Ki", 1024), ("1E", 10**18)]
)
def test_devices_in_every_form_that_the_api_server_returns(quantity: str, devices: int) -> None:
    container = {"name": "c", "resources": {"limits": {"neuron": quantity}}}
    found = {"metadata": {"namespace": "a"}, "spec": {"nodeName": "n", "containers": [container]}, "status": {}}
    kept = observe.pod(found, ["neuron", "efa"])
    assert kept is not None
    assert kept.needs == (devices, 0)


def test_50_groups_500_nodes_and_all_their_jobs() -> None:
    """The decision alone."""
    groups = [replace(group(*nodes(10, 10 * i, **BUSY)), name=f"g{i}", maximum=20) for i in range(50)]
    asked = [replace(request(f"r{i}", 4), groups=(f"g{i % 50}",)) for i in range(100)]
    began = time.process_time()
    assert len(decide(groups, asked, NOW, LIMITS).changes) == 50
    assert time.process_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**21


def on_node(name: str, devices: str = "16", owner: str = "", **more: Any) -> dict[str, Any]:
    """A running pod on node n0."""
    owners = [{"kind": owner}] if owner else []
    containers = [{"resources": {"limits": {"aws.amazon.com/neuron": devices}}}]
    metadata = {"name": name, "namespace": "speech", "ownerReferences": owners}
    spec = {"nodeName": "n0", "containers": containers, **more}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


@pytest.mark.parametrize("owner", ["", "DaemonSet", "Node", "ReplicaSet"])
def test_whoever_owns_a_pod_its_devices_are_taken(owner: str) -> None:
    """A DaemonSet's pod counted as nothing: the node seemed free, and jobs of others were told that they had their nodes."""
    names = ("aws.amazon.com/neuron", "vpc.amazonaws.com/efa")
    found = observe.pod(on_node("p", owner=owner), names)
    assert found
    assert found.needs == (16, 0)
    assert (observe.pod(on_node("p", "0", owner), names) is None) == (owner in ("DaemonSet", "Node"))


def test_an_object_that_cannot_be_read_stops_no_other() -> None:
    """Each is written by whoever runs jobs, in a form that the API may accept."""
    template = {"template": {"spec": {"containers": []}}}
    odd = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["abc"]}]}]}}}  # fmt: skip
    good = {"metadata": {"name": "good", "namespace": "vision"}, **template}
    bad = {
        "metadata": {"name": "bad", "namespace": "speech"},
        "template": {"spec": {"containers": [], "affinity": odd}},
    }
    asked = [
        {
            "kind": "ProvisioningRequest",
            "metadata": {**each["metadata"], "creationTimestamp": "2027-01-15T08:00:00Z"},
            "spec": {
                "provisioningClassName": observe.CLASS,
                "podSets": [{"podTemplateRef": {"name": each["metadata"]["name"]}, "count": 1}],
            },
        }
        for each in (bad, good)
    ]
    pods = [on_node("odd", "many"), on_node("sound")]
    wrong = {"metadata": {"name": "wrong", "namespace": "speech"}, "template": {"spec": {}}}
    labels = {"trn": {"size": "3"}}
    cluster = observe.ObservedCluster(("aws.amazon.com/neuron",), labels, [], pods, [wrong, bad, good], asked, NOW)
    assert [each.key for each in cluster.requests] == ["vision/good"]
    assert [each.partition(" cannot")[0] for each in cluster.unreadable] == [
        "Pod speech/odd", "template speech/wrong", "ProvisioningRequest speech/bad",
    ]  # fmt: skip
