"""Devices that are given by claims: what Kubernetes and Kueue make of the slices that the sandbox publishes, as far as jobs rely on it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.kubernetes import LocalKubernetes, build, claims, nodes, pod_spec, schemas
from sandbox.kubernetes.api import Object, path_of
from sandbox.kubernetes.claims import API, Given
from sandbox.kubernetes.kueue import of_both_forms
from sandbox.kubernetes.kwok_config import RUN_LABEL
from sandbox.testing import completed, need_kubernetes, until
from trainium_cdk import settings
from trainium_cdk.cdk.eks import kueue, manifests
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL
from trainium_cdk.description.outputs.eks import DEVICES_LABEL

NS, DEVICE = "training", "aws.amazon.com/neuron"
KNOWN = Catalog.load()
TRN1, TRN2 = KNOWN.instance("trn1.32xlarge"), KNOWN.instance("trn2.48xlarge")
ENV = settings.validate({"eks": {"node_groups": [{"name": "trn", "instance_type": TRN2.name, "max_nodes": 2}]}})
LABELS = {DEVICES_LABEL: "claims", ROLE_LABEL: "training"}
JOBSET = "jobset.x-k8s.io/v1alpha2"
MERGE = "application/merge-patch+json"
SHOW = ["sh", "-c", 'echo "devices: $TRN_SANDBOX_DEVICES"']


def neuron_config(**parameters: Any) -> Object:
    return {"apiVersion": f"{claims.DRIVER}/v1", "kind": "NeuronConfig", **parameters}


def template(name: str, count: int, *, group: int = 0, select: str = "", config: Object | None = None) -> Object:
    """A ResourceClaimTemplate; of all devices for 0."""
    exactly: Object = {"deviceClassName": claims.DRIVER, "allocationMode": "ExactCount" if count else "All"}
    exactly |= {"count": count} if count else {}
    exactly |= {"selectors": [{"cel": {"expression": select}}]} if select else {}
    devices: Object = {"requests": [{"name": "neuron", "exactly": exactly}]}
    if group:
        devices["constraints"] = [
            {"requests": ["neuron"], "matchAttribute": KNOWN.eks.claims.group.format(count=group)}
        ]
    if config:
        devices["config"] = [{"requests": ["neuron"], "opaque": {"driver": claims.DRIVER, "parameters": config}}]
    return thing(API, "ResourceClaimTemplate", name, spec={"spec": {"devices": devices}})


def thing(version: str, kind: str, name: str, labels: dict[str, str] | None = None, **more: Any) -> Object:
    metadata = {"name": name, "namespace": NS, "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def spec_of(claim: str, *, node: str = "", **more: Any) -> Object:
    """A pod with a claim. Its second container does not name it."""
    main = {"name": "main", "image": "x", "command": SHOW, "resources": {"claims": [{"name": "neuron"}]}}
    other = {"name": "other", "image": "x", "command": SHOW}
    return {
        "restartPolicy": "Never",
        "tolerations": [{"key": DEVICE, "operator": "Exists"}],
        "containers": [main, other],
        "resourceClaims": [{"name": "neuron", "resourceClaimTemplateName": claim}],
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        **more,
    }


def jobset(name: str, claim: str, pods: int = 1) -> Object:
    job = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": {"spec": spec_of(claim)}}
    parts = [{"name": "train", "replicas": 1, "template": {"spec": job}}]
    labels = {"kueue.x-k8s.io/queue-name": "trn"}
    return thing(JOBSET, "JobSet", name, labels, spec={"suspend": True, "replicatedJobs": parts})


class Claims:
    """Two trn2.48xlarge, and the objects of the test."""

    def __init__(self, cluster: LocalKubernetes, nodes: list[str]) -> None:
        self.cluster, self.api, self.nodes = cluster, cluster.api(), nodes

    def path(self, kind: str, name: str = "", version: str = "v1") -> str:
        return path_of(version, kind, name, NS)

    def items(self, kind: str, version: str = "v1") -> list[Object]:
        return list(self.api.get(self.path(kind, version=version))["items"])

    def pod(self, name: str, claim: str, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """Where it runs, with which devices; or why it does not."""
        self.api.create(thing("v1", "Pod", name, labels, spec=spec_of(claim, **spec)))
        return str(until(lambda: self.placed(name), 60))

    def placed(self, name: str) -> str:
        pod = self.api.get(self.path("Pod", name))
        if node := pod["spec"].get("nodeName"):
            return f"{self.nodes.index(node)}: {self.devices(pod)}"
        found = {c["type"]: c for c in pod["status"].get("conditions", [])}.get("PodScheduled", {})
        return str(found.get("message", ""))

    def devices(self, pod: Object) -> str:
        """The first and the last of its devices, if all between are its own."""
        [status] = pod["status"]["resourceClaimStatuses"]
        claim = self.api.get(self.path("ResourceClaim", status["resourceClaimName"], API))
        results = claim["status"]["allocation"]["devices"]["results"]
        found = sorted(int(r["device"].removeprefix("neuron-device-")) for r in results)
        assert found == list(range(found[0], found[-1] + 1))
        return f"{found[0]}-{found[-1]}"

    def ended(self, name: str) -> bool:
        return bool(self.api.get(self.path("Pod", name))["status"].get("phase") == "Succeeded")

    def log(self, pod: str, container: str) -> str:
        lines = self.cluster.log_file(NS, pod, container).read_text().splitlines()
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def events(self, pod: str) -> dict[str, str]:
        return {e["reason"]: e["message"] for e in self.items("Event") if e["involvedObject"]["name"] == pod}

    def workload(self, job: str) -> Object:
        found = self.items("Workload", kueue.API)
        return next((w for w in found if w["metadata"]["ownerReferences"][0]["name"] == job), {})

    def condition(self, job: str, kind: str) -> Object:
        return next((c for c in self.workload(job).get("status", {}).get("conditions", []) if c["type"] == kind), {})

    def usage(self, job: str) -> dict[str, str]:
        """What its quota is charged with; empty until it has some."""
        sets = self.workload(job).get("status", {}).get("admission", {}).get("podSetAssignments", [])
        return dict(sets[0]["resourceUsage"]) if sets else {}

    def clear(self) -> None:
        for version, kind in ((JOBSET, "JobSet"), ("v1", "Pod"), (API, "ResourceClaimTemplate")):
            for one in self.items(kind, version):
                how: Object = {"Pod": {"gracePeriodSeconds": 0}, "JobSet": {"propagationPolicy": "Foreground"}}.get(
                    kind, {}
                )
                self.api.delete(self.path(kind, one["metadata"]["name"], version), **how)
        assert until(lambda: not [*self.items("Pod"), *self.items("ResourceClaim", API), *self.items("JobSet", JOBSET)])
        for each in self.nodes:
            for device, found in enumerate(claims.slices(self.api, each)[0]["spec"]["devices"]):
                if found.get("taints"):
                    claims.break_device(self.api, each, device, "")


def install_chart(cluster: LocalKubernetes) -> None:
    """As the stack does, beside its release with the device plug-in."""
    values = cluster.directory / "values.json"
    values.write_text(
        json.dumps({**{part: {"enabled": False} for part in ("devicePlugin", "npd")}, "draDriver": {"enabled": True}})
    )
    variables = {
        "SANDBOX_DIR": str(cluster.directory),
        "PATH": f"{build.program('kubectl').parent}:{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "sandbox.kubernetes.helm", "upgrade", "neuron-claims", "oci://x/neuron-helm-chart"]
    options = ["--install", "--version", "1.10.0", "--values", str(values), "--kubeconfig", str(cluster.kubeconfig)]
    completed([*command, *options], env={**os.environ, **variables}, check=True)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Claims]:
    need_kubernetes()
    folder, configuration = tmp_path_factory.mktemp("claims"), of_both_forms()
    wanted = Installation.of(ENV)
    with LocalKubernetes.start(folder, run_jobs=True, kueue_configuration=configuration) as cluster:
        install_chart(cluster)
        assert claims.installed(cluster.api())
        cluster.add_system_nodes()
        made = cluster.add_nodes(TRN2, 2, labels={**LABELS, GROUP_LABEL: "trn"})
        for one in [*manifests.namespaces(wanted), *kueue.queues(wanted)]:
            cluster.api().apply(one)
        account = path_of("v1", "ServiceAccount", "default", NS)
        assert until(lambda: cluster.kubectl("get", "--raw", account).returncode == 0)
        yield Claims(cluster, made)


@pytest.fixture
def box(started: Claims) -> Iterator[Claims]:
    for name, count in (("d16", 16), ("d8", 8), ("d4", 4)):
        started.api.create(template(name, count, group=count))
    started.api.create(template("d1", 1))
    yield started
    started.clear()


# --- without a cluster ---


@pytest.mark.parametrize("name", sorted(KNOWN.instances))
def test_a_node_of_claims_has_its_devices_in_a_slice_alone(name: str) -> None:
    instance = KNOWN.instance(name)
    node = nodes.node(instance, "ip-10-0-0-16.ec2.internal", zone="us-east-1b", labels=LABELS)
    assert not {DEVICE, "aws.amazon.com/neuroncore"} & {*node["status"]["capacity"], *node["status"]["allocatable"]}
    assert ("vpc.amazonaws.com/efa" in node["status"]["capacity"]) == bool(instance.efa_interfaces)
    node["metadata"]["uid"] = "u"
    made = claims.resource_slice(instance, node)
    assert schemas.validate(made) == []
    assert len(made["spec"]["devices"]) == instance.neuron_devices
    has = {"topology_x", "topology_y"} <= {*made["spec"]["devices"][0]["attributes"]}
    assert has == (name in KNOWN.eks.claims.parts)


def test_devices_of_a_group_have_its_id_which_is_no_other_nodes() -> None:
    found: set[str] = set()
    for name in ("a", "b"):
        node = nodes.node(TRN2, name, zone="us-east-1b", labels=LABELS)
        node["metadata"]["uid"] = name
        devices = claims.resource_slice(TRN2, node)["spec"]["devices"]
        for size in (4, 8, 16):
            key = KNOWN.eks.claims.group.format(count=size)
            ids = [device["attributes"][key]["string"] for device in devices]
            assert [ids.count(one) for one in ids] == [size] * 16
            assert not found & {*ids}
            found |= {*ids}


ALLOCATED = {
    "results": [{"request": "neuron", "driver": claims.DRIVER, "device": f"neuron-device-{i}"} for i in range(4)]
}


def configured(*parameters: Object) -> Object:
    config = [{"source": "FromClaim", "opaque": {"driver": claims.DRIVER, "parameters": one}} for one in parameters]
    return {**ALLOCATED, "config": [*config, {"opaque": {"driver": "other.example", "parameters": {"x": 1}}}]}


def test_logical_cores_are_those_of_the_claim_or_of_the_type() -> None:
    assert claims.given(ALLOCATED, TRN2) == Given(4, 4)
    assert claims.given(configured(neuron_config(logicalNeuronCore=1)), TRN2) == Given(4, 8)
    assert claims.given(configured(), TRN1) == Given(4, 2)


@pytest.mark.parametrize(
    ("parameters", "instance", "why"),
    [
        (neuron_config(logicalNeuronCore=1), TRN1, "LNC value is not configurable for instance type trn1.32xlarge"),
        (
            neuron_config(logicalNeuronCoreCount=1),
            TRN2,
            'strict decoding error: unknown field "logicalNeuronCoreCount"',
        ),
        (neuron_config(logicalNeuronCore=4), TRN2, "LNC value 4 is not supported"),
        (neuron_config(), TRN2, "LNC value None is not supported"),
        ({"apiVersion": "neuron.aws.com/v1alpha1", "kind": "NeuronConfig"}, TRN2, "no kind NeuronConfig is registered"),
    ],
)
def test_a_configuration_that_the_driver_does_not_know_is_refused(parameters: Object, instance: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        claims.given(configured(parameters), instance)


def test_a_container_sees_the_claims_that_it_names() -> None:
    pod: Object = {"spec": {}}
    given = {"neuron": Given(4, 4), "other": Given(0, 4)}
    main: Object = {"resources": {"claims": [{"name": "neuron"}], "limits": {"vpc.amazonaws.com/efa": "4"}}}
    assert pod_spec.devices(pod, main, given) == {"TRN_SANDBOX_DEVICES": "*=4x4x4"}
    assert pod_spec.devices(pod, {"resources": {"claims": [{"name": "other"}]}}, given) == {}
    assert pod_spec.devices(pod, {}, given) == {}


# --- parts of a node ---


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((16,), ["0-15"]),
        ((8, 8), ["0-7", "8-15"]),
        ((4, 4, 8), ["0-3", "4-7", "8-15"]),
        ((1, 8, 4), ["0-0", "8-15", "4-7"]),
    ],
)
def test_parts_of_a_node_are_whole_groups(box: Claims, counts: tuple[int, ...], expected: list[str]) -> None:
    made = [box.pod(f"p{i}", f"d{count}", node=box.nodes[0]) for i, count in enumerate(counts)]
    assert made == [f"0: {devices}" for devices in expected]


def test_what_does_not_fit_waits_for_a_device(box: Claims) -> None:
    assert [box.pod(f"whole{i}", "d16") for i in range(2)] in (["0: 0-15", "1: 0-15"], ["1: 0-15", "0: 0-15"])
    assert "cannot allocate all claims" in box.pod("more", "d1")
    box.api.delete(box.path("Pod", "whole1"), gracePeriodSeconds=0)
    assert until(lambda: "0-0" in box.placed("more"), 60)


@pytest.mark.sweep
def test_a_group_is_not_made_of_two_halves(box: Claims) -> None:
    """On Kubernetes 1.36 the scheduler says so; before, it gave up after ten seconds."""
    fours = [box.pod(f"four{i}", "d4", node=box.nodes[0]) for i in range(4)]
    assert fours == ["0: 0-3", "0: 4-7", "0: 8-11", "0: 12-15"]
    for name in ("four1", "four2"):
        box.api.delete(box.path("Pod", name), gracePeriodSeconds=0)
    assert "cannot allocate all claims" in box.pod("eight", "d8", node=box.nodes[0])
    box.api.delete(box.path("Pod", "four0"), gracePeriodSeconds=0)
    assert until(lambda: box.placed("eight") == "0: 0-7", 60)
    box.api.create(template("five", 5, group=4))
    assert "cannot allocate all claims" in box.pod("five", "five")


def test_a_broken_device_is_used_by_nobody(box: Claims) -> None:
    one = box.nodes[0]
    claims.break_device(box.api, one, 3)
    assert box.pod("four", "d4", node=one) == "0: 4-7"
    assert box.pod("eight", "d8", node=one) == "0: 8-15"
    box.api.delete(box.path("Pod", "four"), gracePeriodSeconds=0)
    box.api.delete(box.path("Pod", "eight"), gracePeriodSeconds=0)
    assert "cannot allocate all claims" in box.pod("whole", "d16", node=one)
    claims.break_device(box.api, one, 3, "")
    assert until(lambda: box.placed("whole") == "0: 0-15", 60)


@pytest.mark.sweep
def test_the_pod_of_a_device_that_breaks_ends_if_the_taint_says_so(box: Claims) -> None:
    one = box.nodes[0]
    assert [box.pod(name, "d4", node=one) for name in ("first", "second")] == ["0: 0-3", "0: 4-7"]
    claims.break_device(box.api, one, 2, "NoSchedule")
    claims.break_device(box.api, one, 5, "NoExecute")
    assert until(lambda: [p["metadata"]["name"] for p in box.items("Pod")] == ["first"], 60)
    assert box.events("second")["DeviceTaintManagerEviction"] == "Marking for deletion"


# --- nodes ---


def test_slices_come_late_and_go_with_their_node(box: Claims) -> None:
    [late] = box.cluster.add_nodes(TRN2, 1, labels=LABELS, devices=False)
    try:
        assert claims.slices(box.api, late) == []
        assert "cannot allocate all claims" in box.pod("late", "d16", node=late)
        box.cluster.announce_devices(TRN2, [late])
        assert until(lambda: box.api.get(box.path("Pod", "late"))["status"].get("phase") == "Running", 60)
        node = box.api.get(path_of("v1", "Node", late))
        assert DEVICE not in node["status"]["allocatable"]
        assert node["status"]["allocatable"]["vpc.amazonaws.com/efa"] == "16"
        [own] = claims.slices(box.api, late)
        assert own["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    finally:
        box.cluster.remove_node(late)
    assert until(lambda: not box.items("Pod"), 60)
    assert claims.slices(box.api, late) == []


# --- containers ---


def test_a_container_runs_with_the_devices_of_its_claim(box: Claims) -> None:
    box.api.create(template("lnc", 8, group=8, config=neuron_config(logicalNeuronCore=1)))
    for name, claim, told in (("plain", "d4", "*=4x4x0"), ("lnc", "lnc", "*=8x8x0")):
        box.pod(name, claim, {RUN_LABEL: name})
        assert until(lambda: box.ended(name), 60)  # noqa: B023
        assert (box.log(name, "main"), box.log(name, "other")) == (f"devices: {told}", "devices: ")


@pytest.mark.parametrize("labels", [{RUN_LABEL: "x"}, {}], ids=["runs", "kwok"])
def test_a_pod_whose_claim_the_driver_refuses_does_not_start(box: Claims, labels: dict[str, str]) -> None:
    box.api.create(template("wrong", 4, group=4, config=neuron_config(logicalNeuronCoreCount=1)))
    assert box.pod("wrong", "wrong", labels).endswith("0-3")
    event = until(lambda: box.events("wrong").get("FailedPrepareDynamicResources"), 60)
    assert event.startswith("Failed to prepare dynamic resources: ")
    assert event.endswith('error applying config: strict decoding error: unknown field "logicalNeuronCoreCount"')
    assert box.api.get(box.path("Pod", "wrong"))["status"]["phase"] == "Pending"
    assert box.pod("right", "d4", labels)
    assert until(lambda: box.api.get(box.path("Pod", "right"))["status"]["phase"] != "Pending", 60)


@pytest.mark.sweep
def test_cores_cannot_be_chosen_on_a_type_without_a_choice(box: Claims) -> None:
    [node] = box.cluster.add_nodes(TRN1, 1, labels=LABELS)
    try:
        box.api.create(template("lnc", 16, config=neuron_config(logicalNeuronCore=1)))
        box.api.create(thing("v1", "Pod", "lnc", {RUN_LABEL: "x"}, spec=spec_of("lnc", node=node)))
        event = until(lambda: box.events("lnc").get("FailedPrepareDynamicResources"), 60)
        assert event.endswith("error applying config: LNC value is not configurable for instance type trn1.32xlarge")
        [waiting] = {
            one["state"]["waiting"]["reason"]
            for one in until(lambda: box.api.get(box.path("Pod", "lnc"))["status"].get("containerStatuses"), 60)
        }
        assert waiting == "ContainerCreating"
    finally:
        box.cluster.remove_node(node)


@pytest.mark.sweep
def test_a_pod_that_no_scheduler_placed_does_not_start(box: Claims) -> None:
    """Its claim is allocated to nobody."""
    box.api.create(thing("v1", "Pod", "placed", spec={**spec_of("d1"), "nodeName": box.nodes[0]}))
    assert "is not allowed to use" in until(lambda: box.events("placed").get("FailedPrepareDynamicResources", ""), 60)
    assert box.api.get(box.path("Pod", "placed"))["status"]["phase"] == "Pending"


# --- Kueue ---


def managed(box: Claims, resources: list[str]) -> None:
    path = path_of(kueue.API, "ProvisioningRequestConfig", kueue.CHECK)
    box.api.call("PATCH", path, {"spec": {"managedResources": resources}}, kind=MERGE)


def test_kueue_counts_claims_and_asks_for_their_nodes(box: Claims) -> None:
    managed(box, [])
    box.api.create(jobset("gang", "d16", 2))
    assert until(lambda: box.usage("gang").get(DEVICE) == "32", 60)
    asked = until(lambda: box.items("ProvisioningRequest", "autoscaling.x-k8s.io/v1"), 60)
    [sets] = asked[0]["spec"]["podSets"]
    wanted = box.api.get(box.path("PodTemplate", sets["podTemplateRef"]["name"]))["template"]["spec"]
    assert wanted["resourceClaims"] == [{"name": "neuron", "resourceClaimTemplateName": "d16"}]
    box.api.create(jobset("more", "d4"))
    message = f"insufficient unused quota for {DEVICE} in flavor trn, 4 more needed"
    assert until(lambda: message in box.condition("more", "QuotaReserved").get("message", ""), 60)


@pytest.mark.sweep
def test_with_managed_resources_kueue_would_not_ask_for_nodes(box: Claims) -> None:
    """It looks at what containers request, and never at claims: such a job would start without nodes."""
    managed(box, [DEVICE])
    box.api.create(jobset("gang", "d16", 2))
    assert until(lambda: box.condition("gang", "Admitted").get("status") == "True", 60)
    assert box.items("ProvisioningRequest", "autoscaling.x-k8s.io/v1") == []
    [check] = box.workload("gang")["status"]["admissionChecks"]
    assert check["message"] == "the provisioning request is not needed"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"count": 0}, "AllocationMode 'All' is not supported"),
        (
            {"count": 16, "select": "device.attributes['neuron.aws.com'].instanceType == 'trn3.48xlarge'"},
            "insufficient matching devices for CEL selector in DeviceClass neuron.aws.com: 0 device(s) match in the cluster but 16 requested",
        ),
    ],
    ids=["all", "selector"],
)
def test_kueue_does_not_take(box: Claims, wanted: dict[str, Any], told: str) -> None:
    """A selector of a type that has no node yet waits for ever, as nobody asks for one."""
    managed(box, [])
    box.api.create(template("wanted", **wanted))
    box.api.create(jobset("job", "wanted"))
    assert until(lambda: told in box.condition("job", "QuotaReserved").get("message", ""), 60)
    assert box.condition("job", "QuotaReserved")["reason"] == "Inadmissible"
    assert box.items("ProvisioningRequest", "autoscaling.x-k8s.io/v1") == []


@pytest.mark.sweep
def test_the_template_comes_before_its_job(box: Claims) -> None:
    managed(box, [])
    box.api.create(jobset("early", "later"))
    assert until(
        lambda: "failed to get claim spec" in box.condition("early", "QuotaReserved").get("message", ""), 60
    ), json.dumps(box.workload("early"))
    box.api.create(template("later", 4, group=4))
    assert until(lambda: box.usage("early").get(DEVICE) == "4", 180)
