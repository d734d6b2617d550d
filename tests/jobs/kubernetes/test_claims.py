"""Jobs that claim their devices: whole nodes, parts of one, and an LNC of their own. With a real API server: test_claims_running.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox.kubernetes import schemas
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import fleet, make_cluster, script
from tests.jobs.kubernetes.test_objects import containers, pod_specs
from tests.jobs.kubernetes.test_render import NATIVE, REF, readable
from tests.support import golden
from trainium_cdk.client.jobs.kinds.nccom import Nccom
from trainium_cdk.client.jobs.kubernetes import nodes, parts, reasons, render
from trainium_cdk.client.jobs.kubernetes.objects import Objects, objects
from trainium_cdk.client.jobs.kubernetes.submit import resume_problem
from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.client.jobs.plan import hour_usd, plan
from trainium_cdk.client.jobs.report.run import price
from trainium_cdk.client.jobs.status import JobStatus, Stage
from trainium_cdk.client.operations.why_kubernetes import in_cluster
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL
from trainium_cdk.jobs import AnyJob, BertLarge, JobError, TorchTitan
from trainium_cdk.runner.spec import Place

GOLDEN = Path(__file__).parent / "golden"
TRN2 = "trn2.48xlarge"
CLUSTER = make_cluster(
    fleet(TRN2, 4, claims=True),
    fleet(TRN2, 2, queue="debug", resource="debug", claims=True, share=True),
    fleet(TRN2, 2, queue="old", resource="old"),
    neuron_release="2.28.1",
    region="us-east-2",
)
NAME = "aws.amazon.com/neuron"
ON_NATIVE = {name: getattr(NATIVE, name) for name in ("neuron_release", "neuron_driver", "framework", "image")}
"""TorchNeuron on that cluster."""


def of(job: AnyJob, **changes: Any) -> Plan:
    return render(job, CLUSTER.model_copy(update=changes), "t")


def template(found: Objects) -> dict[str, Any]:
    [made] = [part for part in found.parts if part["kind"] == "ResourceClaimTemplate"]
    return made


def claim(found: Objects) -> dict[str, Any]:
    devices: dict[str, Any] = template(found)["spec"]["spec"]["devices"]
    return devices


def part(devices: int = 4, **fields: Any) -> AnyJob:
    return script(nodes=1, queue="debug", devices=devices, **fields)


@pytest.mark.parametrize(("name", "job"), [("claims", BertLarge(nodes=2)), ("part", part(8, lnc=1, precompile=True))])
def test_golden(name: str, job: AnyJob) -> None:
    found = readable(of(job))
    assert found == golden(GOLDEN / f"{name}.yaml", found)


@pytest.mark.parametrize("job", [BertLarge(nodes=2), part(4, lnc=2), part(1, array="0-2"), script(nodes=2, lnc=1)])
def test_each_container_that_uses_devices_has_the_one_claim_of_its_pod(job: AnyJob) -> None:
    found = objects(of(job), CLUSTER)
    assert schemas.validate_all([found.runner, *found.all]) == []
    name = template(found)["metadata"]["name"]
    for pod in pod_specs(found):
        trains = "train" in containers(pod)
        claims = [{"name": "neuron", "resourceClaimTemplateName": name}]
        assert pod.get("resourceClaims", []) == claims * trains
        for stage, one in containers(pod).items():
            uses = [{"name": "neuron"}] if stage in ("precompile", "train") else None
            assert one["resources"].get("claims") == uses
            assert NAME not in {**one["resources"]["requests"], **one["resources"]["limits"]}


def test_no_member_of_an_array_is_in_a_queue_before_the_template() -> None:
    """It has all of them as owners from its creation: nobody may change a template, which Kueue counts once."""
    found = objects(of(part(4, array="0-2")), CLUSTER)
    assert len(found.jobs) == 3
    assert not any({parts.QUEUE_LABEL, parts.AFTER_LABEL} & job["metadata"]["labels"].keys() for job in found.jobs)
    assert template(found)["metadata"]["name"] == "run-t-4"


def test_those_of_a_plugin_group_are_as_before() -> None:
    found = objects(of(script(queue="old")), CLUSTER)
    assert "ResourceClaimTemplate" not in {part["kind"] for part in found.parts}
    [pod] = pod_specs(found)
    assert "resourceClaims" not in pod
    resources = pod["containers"][0]["resources"]
    assert resources.keys() == {"requests", "limits"}
    assert resources["limits"].items() >= {NAME: "16", "vpc.amazonaws.com/efa": "16"}.items()


@pytest.mark.parametrize(
    ("job", "count", "group", "lnc"),
    [
        (script(nodes=2), 16, 16, 2),
        (script(nodes=2, lnc=1), 16, 16, 1),
        (part(1), 1, None, 2),
        (part(4), 4, 4, 2),
        (part(8, lnc=2), 8, 8, 2),
    ],
)
def test_a_claim_has_the_count_its_group_and_the_jobs_lnc(job: AnyJob, count: int, group: int | None, lnc: int) -> None:
    """Where the type has a choice, the job always names its LNC."""
    found = claim(objects(of(job), CLUSTER))
    exactly = {"deviceClassName": "neuron.aws.com", "allocationMode": "ExactCount", "count": count}
    assert found["requests"] == [{"name": "neuron", "exactly": exactly}]
    match = [{"requests": ["neuron"], "matchAttribute": f"resource.aws.com/devicegroup{group}_id"}] if group else None
    assert found.get("constraints") == match
    sizes = [one["opaque"]["parameters"]["logicalNeuronCore"] for one in found.get("config", [])]
    assert sizes == [lnc]


def test_types_without_documented_groups_or_a_choice_of_lnc_claim_a_count_alone() -> None:
    """The driver refuses any LNC on Trn1, and publishes groups of nodes with EFA alone."""
    for one, lnc, more in ((fleet(claims=True), 1, set()), (fleet(TRN2, claims=True, efa=0), None, {"config"})):
        found = claim(objects(of(script(nodes=1, lnc=lnc), fleets=(one,)), CLUSTER))
        assert found.keys() == {"requests", *more}


@pytest.mark.parametrize(
    ("devices", "lnc", "cores", "cpu", "memory"),
    [(1, None, 4, "11", "114Gi"), (4, None, 16, "45", "458Gi"), (8, None, 32, "90", "916Gi"), (8, 1, 64, "90", "916Gi")],
)  # fmt: skip
def test_a_part_has_its_part_of_everything(devices: int, lnc: int | None, cores: int, cpu: str, memory: str) -> None:
    made = of(part(devices, lnc=lnc, launcher="torchrun", filename="train.py"))
    assert (made.workers, made.started, made.spec.environment.cores) == (cores, cores, cores)
    [pod] = pod_specs(objects(made, CLUSTER))
    wanted = {"cpu": cpu, "memory": memory}
    assert pod["containers"][0]["resources"]["limits"] == wanted, "EFA, and huge pages for it, connect nodes"
    [shm] = [one["emptyDir"]["sizeLimit"] for one in pod["volumes"] if one["name"] == "shm"]
    assert shm == f"{int(memory[:-2]) // 2}Gi"
    assert pod["nodeSelector"][GROUP_LABEL] == "debug"
    whole = Catalog.load().price(TRN2, "us-east-2")
    assert whole
    assert hour_usd(made, Catalog.load()) == whole * devices / 16
    variables = made.spec.stages[-1].program.variables  # type: ignore[union-attr]
    assert variables.get("NEURON_LOGICAL_NC_CONFIG") == (str(lnc) if lnc else None)


def test_all_parts_of_a_node_fit_into_a_whole_one() -> None:
    [whole] = pod_specs(objects(of(script(nodes=1)), CLUSTER))
    limits = whole["containers"][0]["resources"]["limits"]
    for count in Catalog.load().eks.claims.parts[TRN2]:
        [pod] = pod_specs(objects(of(part(count)), CLUSTER))
        found = pod["containers"][0]["resources"]["limits"]
        for name in ("cpu", "memory"):
            assert 16 // count * int(found[name].removesuffix("Gi")) <= int(limits[name].removesuffix("Gi"))


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (script(nodes=1, devices=4), "devices is 4, but jobs in queue trn have whole nodes. Remove --devices, or use --queue debug"),
        (script(nodes=1, queue="debug"), "jobs in queue debug take a part of a node. Give --devices 1, 4 or 8, or --queue trn for whole nodes"),
        (part(5), "devices is 5, but jobs in queue debug take 1, 4 or 8 of the 16 devices of a trn2.48xlarge. Choose one of them"),
        (part(16), "devices is 16, but jobs in queue debug take 1, 4 or 8 of the 16 devices of a trn2.48xlarge. Choose one of them, or --queue trn for whole nodes"),
        (script(nodes=2, queue="debug", devices=4), "nodes is 2, but devices is 4, and a part is of one node. Remove --nodes, or --devices"),
        (script(queue="old", lnc=1), "lnc is 1, but the nodes of old offer 64 NeuronCores of LNC 2 to pods. Deploy the node group with `lnc: 1`, or one with `devices: claims`, where each job chooses"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_to_write(job: AnyJob, told: str) -> None:
    with pytest.raises(JobError) as refused:
        of(job)
    assert str(refused.value) == told


def test_an_instance_type_alone_chooses_the_queue_that_suits_the_job() -> None:
    turned = tuple(reversed(CLUSTER.fleets))
    for devices, name in ((None, "old"), (4, "debug")):
        assert of(script(nodes=1, instance_type=TRN2, devices=devices), fleets=turned).fleet.queue == name
    first = CLUSTER.fleets[1], CLUSTER.fleets[0]
    assert of(script(nodes=1, instance_type=TRN2), fleets=first).fleet.queue == "trn"


def test_without_a_shared_group_the_refusal_says_how_to_get_one() -> None:
    alone = CLUSTER.fleets[0]
    with pytest.raises(JobError, match="deploy a node group with `share: true`: TrnEksStack has none"):
        of(script(nodes=1, devices=4), fleets=(alone,))
    with pytest.raises(JobError, match=r"runs Slurm, where jobs have whole nodes\. Remove --devices"):
        plan(script(nodes=1, devices=4), slurm())


def test_connected_devices_are_known_by_their_efa() -> None:
    """No group is published of others, so that the claim would wait for ever (Neuron documentation, deploy/eks/dra)."""
    without = (fleet(TRN2, 2, queue="debug", resource="debug", claims=True, share=True, efa=0),)
    with pytest.raises(JobError, match=r"devices is 4, but nodes of queue debug have no EFA.*Use --devices 1, or"):
        of(part(4), fleets=without)
    assert of(part(1), fleets=without).fleet.devices == 1


def test_graphs_of_a_part_or_another_lnc_are_kept_apart() -> None:
    """A graph that was compiled for a ring of 16 devices does not run on 8."""
    shared = {"cache": "s3://bucket/compiled"}
    jobs = [script(nodes=1), script(nodes=1, lnc=1), part(4), part(8), part(8, lnc=1)]
    made = [of(job) for job in jobs]
    assert [one.spec.environment.cache for one in made] == [
        "script-run", "script-run-lnc-1", "script-run-devices-4", "script-run-devices-8", "script-run-devices-8-lnc-1",
    ]  # fmt: skip
    guards = [objects(one, CLUSTER).parts[2]["metadata"] for one in made]
    assert [one["annotations"][parts.CACHE_LABEL] for one in guards] == [one.spec.environment.cache for one in made]
    assert len({one["name"] for one in guards}) == len(jobs)
    addresses = [of(job.model_copy(update=shared)).spec.environment.compiled for job in jobs]
    assert addresses[0] == f"s3://bucket/compiled/torch-xla/{TRN2}"
    assert len(set(addresses)) == len(jobs)
    on_slurm = make_cluster(fleet(TRN2, lnc=1, cores=128))
    assert render(script(lnc=1), on_slurm, "t").spec.environment.cache == "script-run", "a node group's LNC is one"


def test_checkpoints_of_other_workers_are_refused() -> None:
    """Where a kind's checkpoints are of each worker: other devices, or another LNC, are other workers."""
    same = {"ref": REF, "preset": "qwen3-8b", "tensor_parallel": 4, "resume_from": "titan-t"}
    whole = TorchTitan(**same)
    record = {"kind": "torchtitan", "checkpoints_of": dict(whole.layout(of(whole, **ON_NATIVE)))}
    for fields, workers in (({}, 0), ({"lnc": 1}, 128), ({"queue": "debug", "devices": 8}, 32)):
        told = resume_problem(of(TorchTitan(**same, **fields), **ON_NATIVE), record)
        assert (f"and this job has workers {workers}, with which they cannot be read" in told) is bool(workers)


def test_kinds_take_the_parts_numbers() -> None:
    bert = of(BertLarge(queue="debug", devices=4))
    assert bert.batch
    assert bert.batch.data_parallel == 16
    with pytest.raises(JobError, match=r"has 4 NeuronCores, which do not divide by the tensor parallelism"):
        of(TorchTitan(ref=REF, preset="qwen3-8b", queue="debug", devices=1, tensor_parallel=8), **ON_NATIVE)
    words = of(Nccom(queue="debug", devices=4)).spec.stages[-1].program.words  # type: ignore[union-attr]
    assert json.loads(cast(str, words[3])) == {"devices": 4, "cores": 16, "efa": 0}
    assert Place("problem") in cast(tuple[Any, ...], words[4])


def test_a_report_has_the_price_of_the_part() -> None:
    job = JobStatus("run", "script", "debug", TRN2, 1, None, (Stage("train", "1", "RUNNING"),))
    whole = price(job, CLUSTER, Catalog.load())
    some = price(job, CLUSTER, Catalog.load(), 4)
    assert whole.hour
    assert some.hour == whole.hour / 4
    assert some.note.startswith("4 of the devices of a trn2.48xlarge in us-east-2")
    for damaged in (-4, 0, 10**9):
        assert price(job, CLUSTER, Catalog.load(), damaged).hour == whole.hour


def test_the_plan_says_what_a_part_is() -> None:
    assert of(part(4)).describe()[0] == "4 devices of a node of trn2.48xlarge in queue debug, 16 NeuronCores"
    assert of(part(1)).describe()[0].startswith("1 device of a node")
    assert of(script(nodes=2)).describe()[0] == "2 nodes of trn2.48xlarge in queue trn, 64 NeuronCores each"


def allocated(pod: str, count: int, driver: str = "neuron.aws.com") -> dict[str, Any]:
    results = [
        {"driver": driver, "pool": "n", "device": f"neuron-device-{i}", "request": "neuron"} for i in range(count)
    ]
    return {
        "metadata": {"name": f"{pod}-neuron-x"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}]},
    }  # fmt: skip


def test_nodes_show_the_devices_that_pods_have_claimed() -> None:
    def pod(name: str, job: str = "") -> dict[str, Any]:
        labels = {parts.JOB_LABEL: job, parts.TASK_LABEL: "train"} if job else {}
        return {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"nodeName": "n"}}

    there: Mapping[str, list[dict[str, Any]]] = {
        "Pod": [pod("a", "debug-a"), pod("b", "debug-b"), pod("c"), pod("d")],
        "ResourceClaim": [allocated("a", 4), allocated("b", 1), allocated("c", 8), allocated("d", 8, "dra.net"), {"metadata": {"name": "new"}}],
        "Node": [{"metadata": {"name": "n", "creationTimestamp": "2026-11-20T08:00:00Z", "labels": {GROUP_LABEL: "debug"}}, "spec": {}}],
    }  # fmt: skip
    api = cast("Any", SimpleNamespace(list=lambda kind, **_: there[kind]))
    [node] = nodes.list_nodes(api, CLUSTER)
    assert node.job == "devices in use: debug-a:train 4, debug-b:train 1, pod c 8"


def test_what_holds_parts_is_told_in_devices() -> None:
    def holds(name: str, count: int) -> dict[str, Any]:
        sets = [{"resourceUsage": {NAME: str(count)}, "flavors": {NAME: "debug"}}]
        return {
            "metadata": {"name": name},
            "spec": {"queueName": "debug"},
            "status": {"admission": {"clusterQueue": "debug", "podSetAssignments": sets}},
        }

    waits = {"metadata": {"name": "w", "ownerReferences": [{"name": "w", "uid": "w"}]}, "spec": {"queueName": "debug"}}
    lacks = (
        f"couldn't assign flavors to pod set train: insufficient unused quota for {NAME} in flavor debug, 4 more needed"
    )
    waits["status"] = {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "", "message": lacks}]}
    local = [{"metadata": {"name": "debug"}, "spec": {"clusterQueue": "debug"}}]
    found = reasons.waiting([waits], [holds("a", 16), holds("b", 4)], local, [], {"debug": 16})["w"]
    assert reasons.describe_wait(waits, found) == (
        "position 1 in its queue: it lacks 4 devices of debug (a node has 16); devices of debug in use: a 16, b 4"
    )


PODSET = "spec.podSets[0].template.spec.resourceClaims[0]"
KUEUE = {
    f"{PODSET}: Invalid value: \"run\": ResourceClaimTemplate run: AllocationMode 'All' is not supported": "claim-form",
    f"{PODSET}: Invalid value: \"run\": ResourceClaimTemplate run: FirstAvailable device selection is not supported": "claim-form",
    f"{PODSET}: Not found: DeviceClass efa.networking.k8s.aws is not mapped in DRA configuration for podset train": "claim-class",
    "KueueDRAIntegration feature does not support use of resource claims": "claim-form",
    f"{PODSET}: Internal error: ResourceClaimTemplate run: insufficient matching devices for CEL selector in DeviceClass neuron.aws.com: 0 device(s) "
    "match in the cluster but 16 requested": "claim-selector",
    f'{PODSET}: Internal error: failed to get claim spec for ResourceClaimTemplate run in podset train: "run" not found': "claim-template",
    "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled": "claim-class",
}  # fmt: skip
EVENTS = {
    ("FailedScheduling", "0/3 nodes are available: 3 cannot allocate all claims. still not schedulable"): "claim-does-not-fit",
    ("FailedScheduling", "0/3 nodes are available: 1 cannot allocate all claims, 2 timed out trying to allocate devices."): "claim-timed-out",
    ("FailedScheduling", 'running "DynamicResources" filter plugin: node n: timed out trying to allocate devices'): "claim-timed-out",
    ("FailedScheduling", "0/3 nodes are available: 3 request neuron: device class neuron.aws.com does not exist."): "claim-no-class",
    ("FailedResourceClaimCreation", 'PodResourceClaim neuron: resource claim template "run": not found'): "claim-not-created",
    ("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: NodePrepareResources failed for ResourceClaim c: error applying config: LNC value "
     "is not configurable for instance type trn1.2xlarge"): "claim-lnc",
    ("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: plugin neuron.aws.com is not registered"): "claim-not-prepared",
    ("FailedScheduling", "0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron."): "plugin-devices",
}  # fmt: skip


@pytest.mark.parametrize("message", KUEUE)
def test_why_explains_what_kueue_says_of_claims(message: str) -> None:
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Inadmissible", "message": message}
    waits = {
        "metadata": {"name": "w", "ownerReferences": [{"name": "theirs", "uid": "w"}]},
        "status": {"conditions": [condition]},
        "spec": {},
    }
    there: Mapping[str, list[Any]] = {"Event": [], "Node": [], "Workload": [waits]}
    [found] = in_cluster(cast("Any", SimpleNamespace(list=lambda kind, **_: there[kind])))
    assert (found.where, found.text) == ("job theirs", f"it cannot start as it is written: {message}")
    assert found.error
    assert found.error.name == KUEUE[message]


@pytest.mark.parametrize(("reason", "message"), EVENTS)
def test_why_explains_warnings_of_pods_with_claims(reason: str, message: str) -> None:
    event = {
        "reason": reason, "message": message, "involvedObject": {"kind": "Pod", "name": "p"},
        "metadata": {"creationTimestamp": "2026-11-20T08:00:00Z"},
    }  # fmt: skip
    there: Mapping[str, list[Any]] = {"Event": [event], "Node": [], "Workload": []}
    [found] = in_cluster(cast("Any", SimpleNamespace(list=lambda kind, **_: there[kind])))
    assert found.error
    assert found.error.name == EVENTS[reason, message]
