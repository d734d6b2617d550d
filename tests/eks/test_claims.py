"""Devices that pods claim, as the function that starts nodes reads them. `claims.json`: what the API server of Kubernetes 1.36 returns of a node
of trn2.48xlarge whose device 3 is broken, and of two pods on it, of 8 devices and of 1. With real parts: `test_scenes_of_claims.py`."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.eks.test_supply import LIMITS, NOW, OLD, change
from trainium_cdk.cdk.eks import scaling
from trainium_cdk.cdk.eks.scaler import devices, observe
from trainium_cdk.cdk.eks.scaler.conditions import answer
from trainium_cdk.cdk.eks.scaler.devices import take
from trainium_cdk.cdk.eks.scaler.function import ScalerSettings
from trainium_cdk.cdk.eks.scaler.model import Devices, Group, GroupChange, GroupNode, NodeRequest
from trainium_cdk.cdk.eks.scaler.supply import decide
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import Fleet

Object = dict[str, Any]
CAPTURED: dict[str, list[Object]] = json.loads((Path(__file__).parent / "claims.json").read_text())
NODE = CAPTURED["resourceslices"][0]["spec"]["nodeName"]
NAMES = ("aws.amazon.com/neuron", "vpc.amazonaws.com/efa")
LABELS = {"trn": {"trainium-cdk/node-group": "trn"}, "plain": {"trainium-cdk/node-group": "plain"}}


def objects(**changed: Any) -> dict[str, list[Object]]:
    """Those that were captured, but with no bad device, or others in their place."""
    found = copy.deepcopy(CAPTURED)
    for each in found["resourceslices"][0]["spec"]["devices"]:
        each.pop("taints", None)
    return {**found, **changed}


def bad(*numbers: int, effect: str = "NoSchedule") -> list[Object]:
    """The node's slice, with bad devices."""
    [found] = objects()["resourceslices"]
    for number in numbers:
        found["spec"]["devices"][number]["taints"] = [{"key": "x", "effect": effect}]
    return [found]


def node(**more: Any) -> Object:
    notes = {observe.IDLE_SINCE: str(int(NOW - 60)), observe.NOT_OURS: "true"}
    return {
        "metadata": {"name": NODE, "annotations": notes, "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"providerID": "aws:///a/i-0"},
        "status": {"allocatable": {NAMES[1]: "16"}, "conditions": [{"type": "Ready", "status": "True"}]},
    } | more


def pod_template(name: str, *claimed: str, count: str = "0", namespace: str = "training", **labels: str) -> Object:
    """As Kueue makes it of a job's pods."""
    limits = {NAMES[0]: count} if count != "0" else {}
    container = {"name": "c", "resources": {"limits": limits, "claims": [{"name": "neuron"}] if claimed else []}}
    claims = [{"name": f"neuron{i}", "resourceClaimTemplateName": each} for i, each in enumerate(claimed)]
    spec = {"containers": [container], "resourceClaims": claims, "nodeSelector": labels}
    return {"metadata": {"name": name, "namespace": namespace}, "template": {"spec": spec}}


def request(name: str, count: int = 1, *, namespace: str = "training", provisioned: bool = False) -> Object:
    true = [{"type": "Provisioned", "status": "True"}] if provisioned else []
    return {
        "kind": "ProvisioningRequest",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": "2027-01-15T07:59:00Z"},
        "spec": {
            "provisioningClassName": observe.CLASS,
            "podSets": [{"podTemplateRef": {"name": name}, "count": count}],
        },
        "status": {"conditions": true},
    }


def claim_template(name: str, *requests: Object, namespace: str = "training") -> Object:
    spec = {"spec": {"devices": {"requests": list(requests)}}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def exactly(count: int, of: str = devices.DRIVER, mode: str = "ExactCount") -> Object:
    found = {"deviceClassName": of, "allocationMode": mode}
    return {"name": "neuron", "exactly": found | ({"count": count} if mode == "ExactCount" else {})}


def cluster(
    kinds: dict[str, list[Object]], templates: Any = (), asked: Any = (), nodes: Any = None, claims: Any = None
) -> observe.ObservedCluster:
    pods = kinds.get("pods", [])
    groups = frozenset({"trn"}) if claims is None else claims
    there = [node()] if nodes is None else nodes
    return observe.ObservedCluster(
        NAMES, LABELS, there, pods, templates, asked, NOW, claims=groups, listed=kinds.__getitem__
    )


def group(found: observe.ObservedCluster, *, share: bool = False, minimum: int = 0) -> Group:
    instances = [{"InstanceId": "i-0", "LifecycleState": "InService"}]
    auto = {
        "MinSize": minimum, "MaxSize": 4, "DesiredCapacity": 1, "AvailabilityZones": ["a"], "Instances": instances,
    }  # fmt: skip
    kind = observe.GroupSettings("trn", "trn", "trn2.48xlarge", (16, 16), claims=True, share=share)
    described = observe.DescribedGroup(kind, {"status": "ACTIVE"}, auto, {}, None)
    return found.group(described, {}, [], atomic=False)


def state(kinds: dict[str, list[Object]], *, share: bool = False, nodes: Any = None) -> tuple[str, int]:
    """Of the node, and the number of its free devices."""
    [found] = group(cluster(kinds, nodes=nodes), share=share).nodes
    return found.state, found.free[0]


# --- parts of a node ---


def given(counts: list[int], free: Devices) -> list[int]:
    """How many of the devices are left after each pod; -1 for a pod without room."""
    left = []
    for count in counts:
        fits, free = take(free, count, 1)
        left.append(len(free) if fits else -1)
    return left


def fresh(count: int) -> Devices:
    return tuple(frozenset((size, str(i // size)) for size in (4, 8)) for i in range(count))


def without(*numbers: int) -> Devices:
    return tuple(device for i, device in enumerate(fresh(16)) if i not in numbers)


@pytest.mark.parametrize(
    ("counts", "free", "left"),
    [
        ([16, 1], fresh(16), [0, -1]),
        ([8, 8, 1], fresh(16), [8, 0, -1]),
        ([4, 4, 8], fresh(16), [12, 8, 0]),
        ([1, 8, 4, 4], fresh(16), [15, 7, 3, -1]),
        ([1] * 16, fresh(16), [*reversed(range(16))]),
        ([8], without(0, 8), [-1]),
        ([4, 4, 4], without(0, 8), [10, 6, -1]),
        ([16], without(3), [-1]),
        ([8, 8], without(3), [7, -1]),
        ([5, 5, 5, 5], fresh(16), [11, 6, 1, -1]),
        ([4, 4], (frozenset(),) * 8, [4, 0]),
        ([1], (), [-1]),
    ],
)
def test_who_takes_several_devices_takes_a_whole_group(counts: list[int], free: Devices, left: list[int]) -> None:
    """As the scheduler of Kubernetes gave them: 4, 4 and 8; 1, 8 and 4."""
    assert given(counts, free) == left


def shared(*there: GroupNode, **more: Any) -> Group:
    return Group("trn", (16, 16), 0, 4, len(there), there, **more)


def usable(free: Devices, number: int = 0, **more: Any) -> GroupNode:
    amounts = (len(free), 16)
    named = {"name": f"n{number}", "state": "usable", "free": amounts, "devices": free, "since": NOW - 60}
    return GroupNode(f"i-{number}", **{**named, "protected": True, **more})


def part(key: str, count: int, pods: int = 1, **more: Any) -> NodeRequest:
    return NodeRequest(key, ("trn",), (((count, 0), pods),), **{"created": NOW - 60, **more})


@pytest.mark.parametrize(
    ("there", "asked", "desired"),
    [
        (shared(), [part("a", 4), part("b", 4), part("c", 8)], 1),
        (shared(), [part("a", 8), part("b", 4), part("c", 4), part("d", 1)], 2),
        (shared(), [part("a", 8, 3)], 2),
        (shared(), [part("a", 16, 2)], 2),
        (shared(usable(without(0, 8), busy=True)), [part("a", 8)], 2),
        (shared(usable(without(0, 8), busy=True)), [part("a", 4), part("b", 4), part("c", 1)], None),
        (shared(usable(without(*range(8)), busy=True)), [part("a", 8)], None),
        (shared(usable(without(3))), [part("a", 16)], 2),
        (shared(usable(without(*range(8)), busy=True)), [part("a", 8, provisioned=True), part("b", 4)], 2),
        (shared(usable((), busy=True)), [replace(part("a", 8, provisioned=True), needs=()), part("b", 4)], 2),
        (shared(GroupNode("i-0", free=(16, 16), since=NOW)), [part("a", 8), part("b", 8)], None),
    ],
)
def test_nodes_for_parts(there: Group, asked: list[NodeRequest], desired: int | None) -> None:
    assert change(decide([there], asked, NOW, LIMITS)).desired == desired


def test_a_part_that_fits_in_no_group_is_refused() -> None:
    told = [answer(r, decide([shared()], [r], NOW, LIMITS), {"trn": shared()}, {}, NOW, LIMITS) for r in (part("a", 17), part("b", 8, 9))]  # fmt: skip
    assert [each.reason for each in told] == ["TooLarge", "TooLarge"]
    assert "trn has at most 4 nodes with 16 devices each" in told[0].message


# --- slices ---


def slices(*parts: tuple[int, int, range], count: int = 0) -> list[Object]:
    """Slices of the node's pool: generation, number of slices, and devices."""
    [whole] = objects()["resourceslices"]
    made = []
    for i, (generation, slices, numbers) in enumerate(parts):
        pool = {"name": NODE, "generation": generation, "resourceSliceCount": slices}
        own = [whole["spec"]["devices"][n] for n in numbers]
        made.append({"metadata": {"name": f"s{i}"}, "spec": {**whole["spec"], "pool": pool, "devices": own}})
    return made


ALL, LOW, HIGH = range(16), range(8), range(8, 16)
NEW = node(metadata={"name": NODE, "creationTimestamp": "2026-11-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ([], "starting"),
        (slices((1, 1, ALL)), "usable"),
        (slices((1, 2, LOW)), "starting"),
        (slices((1, 2, LOW), (1, 2, HIGH)), "usable"),
        (slices((1, 1, ALL), (2, 2, LOW)), "starting"),
        (slices((1, 2, LOW), (1, 2, HIGH), (2, 1, ALL)), "usable"),
        (slices((1, 1, LOW)), "unusable"),
        ([{**slices((1, 1, ALL))[0], "spec": {**slices((1, 1, ALL))[0]["spec"], "driver": "dra.net"}}], "starting"),
    ],
)
def test_a_node_is_usable_once_its_pool_is_complete(published: list[Object], expected: str) -> None:
    kinds = objects(resourceslices=published, resourceclaims=[], pods=[])
    assert state(kinds, nodes=[copy.deepcopy(NEW)])[0] == expected


def test_other_devices_of_the_driver_are_not_counted() -> None:
    """An UltraServer's node is one."""
    [whole] = slices((1, 1, ALL))
    whole["spec"]["devices"][0]["attributes"]["resourceType"]["string"] = "neuron_node"
    assert state(objects(resourceslices=[whole], resourceclaims=[], pods=[]))[0] == "unusable"


def test_a_node_without_slices_ends_after_the_time_to_start() -> None:
    for created, ends in (("2027-01-15T07:41:00Z", False), ("2027-01-15T07:40:00Z", True)):
        young = node(metadata={"name": NODE, "creationTimestamp": created})
        found = group(cluster(objects(resourceslices=[], resourceclaims=[], pods=[]), nodes=[young]))
        assert found.nodes[0].state == "starting"
        assert change(decide([found], [], NOW, LIMITS)).cordon == ((NODE,) if ends else ())


# --- broken devices ---

HARDWARE = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NeuronHBMUncorrectableError"}
REPORTED = node()
REPORTED["status"]["conditions"].append(HARDWARE)


@pytest.mark.parametrize(
    ("published", "there", "share", "expected"),
    [
        (bad(3), node(), True, ("usable", 15, False)),
        (bad(3), node(), False, ("unusable", 15, False)),
        (bad(3, effect="NoExecute"), node(), False, ("unusable", 15, False)),
        (bad(3, effect="None"), node(), False, ("usable", 16, False)),
        (bad(*range(16)), node(), True, ("unusable", 16, False)),
        (slices((1, 1, LOW)), node(), True, ("unusable", 8, False)),
        (bad(3), REPORTED, True, ("usable", 15, False)),
        (bad(), REPORTED, True, ("unusable", 16, True)),
        (bad(3), REPORTED, False, ("unusable", 15, True)),
    ],
)
def test_a_bad_device(published: list[Object], there: Object, share: bool, expected: tuple[str, int, bool]) -> None:
    """Where jobs take parts, others use the rest. Elsewhere, its node is replaced."""
    kinds = objects(resourceslices=published, resourceclaims=[], pods=[])
    [found] = group(cluster(kinds, nodes=[copy.deepcopy(there)]), share=share).nodes
    assert (found.state, found.free[0], found.broken) == expected


def test_a_node_with_a_bad_device_is_replaced_for_a_whole_node() -> None:
    late = node(metadata={**node()["metadata"], "annotations": {observe.IDLE_SINCE: str(int(NOW - LIMITS.unusable))}})
    found = cluster(objects(resourceslices=bad(3), resourceclaims=[], pods=[]), nodes=[late])
    assert change(decide([group(found)], [part("a", 16)], NOW, LIMITS)) == GroupChange(
        desired=2, cordon=(NODE,), requested=2
    )


def test_the_rest_of_a_node_is_used_by_parts() -> None:
    found = group(cluster(objects(resourceslices=bad(3), resourceclaims=[], pods=[])), share=True)
    wanted = [part("a", 8), part("b", 4), part("c", 1), part("d", 1), part("e", 1)]
    assert change(decide([found], wanted, NOW, LIMITS)).desired is None
    assert change(decide([found], [*wanted, part("f", 1)], NOW, LIMITS)).desired == 2


# --- claims and pods ---


def test_what_claims_have_is_not_free() -> None:
    """8 and 1 of 15: 0 and 8 to 15 are in use, 3 is bad."""
    [found] = group(cluster(copy.deepcopy(CAPTURED)), share=True).nodes
    assert (found.state, found.free, found.busy) == ("usable", (6, 16), True)
    assert [take(found.devices, count, 9)[0] for count in (8, 4, 1)] == [0, 1, 6]


def test_a_claimed_node_is_not_idle() -> None:
    """A pod that is not on its node yet, or has ended: its request counts it, so that its devices are not taken twice."""
    [found] = group(cluster(objects(pods=[]))).nodes
    assert (found.busy, found.free[0], found.since) == (True, 16, NOW)
    alone = objects(pods=[])
    for each in alone["resourceclaims"]:
        each["status"]["reservedFor"] = []
    assert state(alone) == ("usable", 7)
    ended = objects()
    for each in ended["pods"]:
        each["status"]["phase"] = "Succeeded"
    assert state(ended) == ("usable", 16)
    [found] = group(cluster(objects(resourceclaims=[], pods=[]))).nodes
    assert (found.busy, found.since) == (False, NOW - 60)


def test_whoever_owns_a_pod_its_claims_are_taken() -> None:
    """A claim by name, of a pod of a DaemonSet."""
    kinds = objects()
    for each in kinds["pods"]:
        each["metadata"]["ownerReferences"] = [{"kind": "DaemonSet"}]
        each["spec"]["resourceClaims"] = [{"name": "neurons", "resourceClaimName": "mine"}]
    assert state(kinds) == ("usable", 7)


def test_a_claim_that_only_watches_takes_nothing() -> None:
    kinds = objects(pods=[])
    for each in kinds["resourceclaims"]:
        for result in each["status"]["allocation"]["devices"]["results"]:
            result["adminAccess"] = True
    [found] = group(cluster(kinds)).nodes
    assert (found.free[0], found.busy) == (16, False)


def test_pods_that_are_placed_are_not_counted_again() -> None:
    """By their templates, with the annotation of their request."""
    kinds = objects()
    for each in kinds["pods"]:
        each["metadata"]["annotations"] = {observe.OF_REQUEST: each["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]}  # fmt: skip
    asked = [request(name, 2, provisioned=True) for name in ("d8", "d1")]
    found = cluster(kinds, [pod_template(name, name) for name in ("d8", "d1")], asked)
    assert [(r.key, r.needs, r.holds) for r in found.requests] == [
        ("training/d8", (((8, 0), 1),), True), ("training/d1", (((1, 0), 1),), True),
    ]  # fmt: skip
    there = group(found, share=True)
    assert there.nodes[0].holders == {"training/d8", "training/d1"}
    assert change(decide([there], found.requests, NOW, LIMITS)).desired == 2, "1 to 7 are free: no 8"


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ([exactly(16)], 16),
        ([exactly(4), exactly(1)], 5),
        ([exactly(4), exactly(8, "efa.networking.k8s.aws")], 4),
        ([exactly(2**62)] * 32, 2**67),
        ([exactly(0, mode="All")], None),
        ([{"name": "neuron", "firstAvailable": [{"name": "a", "deviceClassName": devices.DRIVER, "count": 8}]}], None),
        (None, None),
    ],
)
def test_what_a_request_asks_for_is_in_its_templates(made: list[Object] | None, count: int | None) -> None:
    """One that cannot be counted is Kueue's to refuse; where it is gone, so is its job."""
    kinds = objects(resourceclaimtemplates=[claim_template("mine", *made)] if made is not None else [])
    found = cluster(kinds, [pod_template("mine", "mine")], [request("mine", 3)])
    needs = [r.needs for r in found.requests]
    assert needs == ([(((count, 0), 3),)] if count is not None else [])
    assert found.unreadable == []


def test_a_template_of_another_namespace_is_not_the_pods() -> None:
    for namespace, other in (("training", "speech"), ("speech", "training")):
        kinds = objects(resourceclaimtemplates=[claim_template("mine", exactly(16), namespace=other)])
        pods, asked = pod_template("mine", "mine", namespace=namespace), request("mine", namespace=namespace)
        assert cluster(kinds, [pods], [asked]).requests == []


def test_claims_of_other_devices_keep_no_job_from_a_cluster_without_ours() -> None:
    pods = pod_template("mine", "network", count="16")
    [found] = cluster(objects(), [pods], [request("mine")], claims=frozenset()).requests
    assert found.needs == (((16, 0), 1),)


def test_two_templates_of_a_pod_are_added() -> None:
    found = cluster(objects(), [pod_template("mine", "d8", "d1")], [request("mine")])
    assert [r.needs for r in found.requests] == [(((9, 0), 1),)]


@pytest.mark.parametrize(
    ("pods", "groups"),
    [
        (pod_template("mine", "d8"), ("trn",)),
        (pod_template("mine", count="16"), ("plain",)),
        (pod_template("mine", "d8", count="16"), ()),
        (pod_template("mine", "d8", **LABELS["plain"]), ()),
    ],
)
def test_each_form_has_its_own_groups(pods: Object, groups: tuple[str, ...]) -> None:
    """A node of the other form would start, and its pods would wait for ever."""
    [found] = cluster(objects(), [pods], [request("mine")]).requests
    assert found.groups == groups


def test_a_job_without_devices_waits_for_no_node() -> None:
    """Kueue asks for its nodes too, where it cannot know the resource by which a pod asks for devices."""
    asked, elsewhere = request("mine", 2**31 - 1), {"trainium-cdk/role": "system"}
    efa = pod_template("mine")
    efa["template"]["spec"]["containers"][0]["resources"] = {"limits": {NAMES[1]: "16"}}
    [only] = cluster(objects(), [efa], [asked]).requests
    assert (
        answer(only, decide([shared()], [only], NOW, LIMITS), {"trn": shared()}, {}, NOW, LIMITS).reason == "NoDevices"
    )
    for claims, reason in ((None, "Provisioned"), (frozenset[str](), "NoDevices")):
        found = cluster(objects(), [pod_template("mine", **elsewhere)], [asked], nodes=[], claims=claims)
        plan = decide([shared()], found.requests, NOW, LIMITS)
        [told] = [answer(r, plan, {"trn": shared()}, {}, NOW, LIMITS) for r in found.requests]
        assert (told.reason, plan.changes) == (reason, {})


@pytest.mark.parametrize("labels", [{}, {"trainium-cdk/role": "system"}])
def test_pods_without_devices_may_be_on_any_nodes(labels: dict[str, str]) -> None:
    """Those that need devices choose the group."""
    for pods, groups in ((pod_template("mine", "d8"), ("trn",)), (pod_template("mine", count="8"), ("plain",))):
        asked = request("mine", 2)
        asked["spec"]["podSets"].append({"podTemplateRef": {"name": "launcher"}, "count": 9})
        [found] = cluster(objects(), [pods, pod_template("launcher", **labels)], [asked]).requests
        assert (found.needs, found.groups) == ((((8, 0), 2),), groups)


# --- others ---


def test_an_object_that_cannot_be_read_stops_no_other() -> None:
    kinds = objects()
    odd = {"metadata": {"name": "odd", "namespace": "speech"}}
    kinds["resourceclaimtemplates"] += [{**odd, "spec": {}}, {**odd, "spec": {"spec": {"devices": {"requests": 7}}}}]
    kinds["resourceslices"].append({"metadata": {"name": "odd"}, "spec": {"driver": devices.DRIVER}})
    broken = {"allocation": {"devices": {"results": [{"driver": devices.DRIVER}]}}}
    kinds["resourceclaims"] += [{**odd, "status": broken}, {**odd, "spec": {}}]
    found = cluster(kinds, [pod_template("mine", "d8")], [request("mine")])
    assert ([r.key for r in found.requests], group(found).nodes[0].free[0]) == (["training/mine"], 7)
    assert [each.partition(" cannot")[0] for each in found.unreadable] == [
        "template_count speech/odd", "template_count speech/odd", "slice odd", "claim speech/odd",
    ]  # fmt: skip


def test_nothing_is_read_where_no_group_has_claims() -> None:
    def listed(kind: str) -> list[Object]:
        raise AssertionError(kind)

    found = observe.ObservedCluster(NAMES, LABELS, [node()], CAPTURED["pods"], [], [], NOW, listed=listed)
    assert found.unreadable == []
    assert {p.needs for pods in found._pods.values() for p in pods} == {(0, 0)}


def test_the_names_are_the_catalogues() -> None:
    facts = Catalog.load().eks.claims
    assert facts.device_class == devices.DRIVER
    assert {int(devices._GROUP.fullmatch(facts.group.format(count=n))[1]) for n in (1, 4, 8, 16)} == {1, 4, 8, 16}  # type: ignore[index]


def test_groups_of_both_forms_have_their_own_settings() -> None:
    """Those of the device plug-in are as before."""
    kind = {"instance_type": "trn2.48xlarge", "devices": 16, "cores": 64, "efa": 16, "family": "trn2", "nodes": 2}
    fleets = [
        Fleet(queue=name, resource=name, **kind, **more)
        for name, more in (("a", {}), ("b", {"claims": True}), ("c", {"claims": True, "share": True}), ("d", {}))
    ]
    made = scaling._by_type([SimpleNamespace(fleet=f, nodegroup_name=f"x-{f.resource}") for f in fleets])
    same = {"type": "trn2.48xlarge", "resources": [16, 16]}
    assert made == [
        {**same, "groups": {"a": "x-a", "d": "x-d"}},
        {**same, "groups": {"b": "x-b"}, "claims": True},
        {**same, "groups": {"c": "x-c"}, "claims": True, "share": True},
    ]
    text = {"cluster": "c", "namespace": "n", "label": "l", "reserve": True, "resources": NAMES, "limits": {}}
    read = ScalerSettings.read(json.dumps({**text, "types": made}))
    assert [(g.name, g.claims, g.share) for g in read.groups] == [
        ("a", False, False), ("d", False, False), ("b", True, False), ("c", True, True),
    ]  # fmt: skip


def test_an_idle_node_ends_once_no_claim_has_a_device() -> None:
    notes = {**node()["metadata"], "annotations": {observe.IDLE_SINCE: str(int(OLD)), observe.NOT_OURS: "true"}}
    for claims, cordon in ((CAPTURED["resourceclaims"], ()), ([], (NODE,))):
        found = cluster(objects(pods=[], resourceclaims=claims), nodes=[node(metadata=notes)])
        assert change(decide([group(found)], [], NOW, LIMITS)).cordon == cordon


@pytest.mark.parametrize(("ready", "busy"), [("Unknown", False), ("True", True)])
def test_claims_of_a_lost_node_do_not_keep_it(ready: str, busy: bool) -> None:
    """Its pods are being deleted for ever, and so their claims stay."""
    kinds, lost = objects(), node()
    for each in kinds["pods"]:
        each["metadata"]["deletionTimestamp"] = "2027-01-15T07:50:00Z"
    lost["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    for published in (kinds["resourceslices"], []):
        assert group(cluster({**kinds, "resourceslices": published}, nodes=[lost])).nodes[0].busy == busy
