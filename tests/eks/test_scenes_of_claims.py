"""Nodes for jobs that claim their devices, with the real Kueue, JobSet and scheduler of Kubernetes 1.36 under the configuration that is deployed.
The slices are the sandbox's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, claims
from sandbox.kubernetes.api import Object, path_of
from sandbox.kubernetes.kueue import of_both_forms
from tests.eks.conftest import Open, client_of, started
from tests.eks.scenes import EFA, LIMITS, NAMESPACE, QUEUE, SLACK, Scene, job, jobset, next_second, pod, thing
from tests.support import until
from trainium_cdk import settings
from trainium_cdk.cdk.eks import kueue
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.description.outputs import eks_fleets
from trainium_cdk.description.settings import Environment

NAME = "claims"
CLAIMS = path_of(claims.API, "ResourceClaim", namespace=NAMESPACE)


def environment(maximum: int, *, share: bool = False) -> Environment:
    group = {"name": QUEUE, "instance_type": "trn2.48xlarge", "max_nodes": maximum, "share": share}
    return settings.validate({"eks": {"plugins": {"devices": "claims"}, "node_groups": [group]}})


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[LocalKubernetes]:
    wanted = Installation.of(environment(4))
    configuration = of_both_forms()
    folder = tmp_path_factory.mktemp("claims")
    with started(folder, local_aws, NAME, wanted, kueue_configuration=configuration) as running:
        claims.install(running.api())
        yield running


@pytest.fixture(scope="module")
def session(kubernetes: LocalKubernetes, local_aws: LocalAws) -> Iterator[boto3.Session]:
    with client_of(local_aws, NAME) as made:
        yield made


@pytest.fixture
def opened(kubernetes: LocalKubernetes, local_aws: LocalAws, session: boto3.Session) -> Iterator[Open]:
    made: list[Scene] = []

    def open_scene(name: str, maximum: int, *, share: bool = False) -> Scene:
        env = environment(maximum, share=share)
        made.append(Scene(name, maximum, kubernetes, local_aws, session, fleet=eks_fleets(env)[0]))
        for each in kueue.queues(Installation.of(env)):
            kubernetes.api().apply(each)
        return made[-1]

    yield open_scene
    for scene in made:
        scene.close()


def submit(scene: Scene, name: str, count: int, nodes: int = 1) -> None:
    """A JobSet whose pods claim `count` devices each, and their template, as `trn` makes them."""
    request = {"deviceClassName": claims.DRIVER, "allocationMode": "ExactCount", "count": count}
    devices: dict[str, Any] = {"requests": [{"name": "neuron", "exactly": request}]}
    if count > 1:
        group = f"resource.aws.com/devicegroup{count}_id"
        devices["constraints"] = [{"requests": ["neuron"], "matchAttribute": group}]
    scene.create(thing(claims.API, "ResourceClaimTemplate", name, spec={"spec": {"devices": devices}}))
    template = pod(0, resourceClaims=[{"name": "neuron", "resourceClaimTemplateName": name}])
    amounts = {EFA: "16"} if count == 16 else {}
    wanted = {"limits": amounts, "requests": amounts, "claims": [{"name": "neuron"}]}
    template["spec"]["containers"][0]["resources"] = wanted
    scene.create(jobset(name, {"train": job(nodes, template)}, queue=scene.queue))
    assert until(lambda: scene.workload(name))
    next_second()


def devices_of(scene: Scene, name: str) -> list[tuple[str, int]]:
    """The nodes and numbers of a job's devices."""
    pods, found = {p["metadata"]["name"] for p in scene.pods(name)}, []
    for each in scene.api.get(CLAIMS)["items"]:
        status: Object = each.get("status", {})
        if {user["name"] for user in status.get("reservedFor", [])} & pods:
            results = status["allocation"]["devices"]["results"]
            found += [(one["pool"], int(one["device"].rpartition("-")[2])) for one in results]
    return sorted(found)


def numbers(scene: Scene, name: str) -> list[int]:
    return [number for _, number in devices_of(scene, name)]


def test_whole_nodes_for_a_job_from_no_node(opened: Open) -> None:
    """zero: all in one minute, within one reservation. They end after the time of idle nodes."""
    scene = opened("whole", 4)
    scene.minute()
    submit(scene, "gang", 16, nodes=2)
    scene.asks("gang")
    scene.minute()
    assert scene.desired == 2
    assert "waits for 2 nodes of trn, since " in scene.why("gang")
    scene.minute()
    assert scene.running("gang", 2) == set(scene.nodes)
    assert devices_of(scene, "gang") == [(node, number) for node in sorted(scene.nodes) for number in range(16)]
    scene.minute()
    scene.settled()
    scene.end("gang")
    assert scene.until_gone() <= LIMITS.idle + SLACK
    assert (scene.desired, scene.most) == (0, 2)


def test_jobs_share_a_node_in_whole_groups(opened: Open) -> None:
    """Two of 8; then 4, 4 and 1, beside which no 8 is free; it gets a node of its own."""
    scene = opened("parts", 2, share=True)
    submit(scene, "a", 8)
    submit(scene, "b", 8)
    for name in ("a", "b"):
        scene.asks(name)
    scene.minutes(2)
    [shared] = scene.nodes
    assert scene.running("a", 1) == scene.running("b", 1) == {shared}
    assert sorted([numbers(scene, "a"), numbers(scene, "b")]) == [[*range(8)], [*range(8, 16)]]
    for name in ("a", "b"):
        scene.end(name)
    for name, count in (("c", 4), ("d", 4), ("e", 1)):
        submit(scene, name, count)
        scene.asks(name)
    scene.minutes(2)
    assert scene.running("c", 1) == scene.running("d", 1) == scene.running("e", 1) == {shared}
    assert sorted(len(numbers(scene, name)) for name in ("c", "d", "e")) == [1, 4, 4]
    assert scene.most == 1
    submit(scene, "f", 8)
    [other] = scene.runs("f", 1)
    assert (other == shared, scene.desired) == (False, 2)
    scene.settled()
    for name in ("c", "d", "e"):
        scene.end(name)
    scene.minutes(int((LIMITS.idle + SLACK) / 60))
    assert scene.nodes == [other], "the other's job still runs"
    scene.end("f")


def test_a_job_without_devices_starts_at_once(opened: Open) -> None:
    """Kueue asks for its nodes too."""
    scene = opened("none", 2)
    template = pod(0)
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    scene.create(jobset("plain", {"train": job(3, template)}))
    assert until(lambda: scene.workload("plain"))
    scene.asks("plain")
    assert scene.pods("plain") == []
    scene.minute()
    assert len(scene.running("plain", 3)) == 1
    assert (scene.desired, scene.most) == (0, 0)
    scene.settled()


def test_a_job_of_the_device_plug_in_gets_no_node_of_claims(opened: Open) -> None:
    """Its pods would wait there for ever."""
    scene = opened("form", 2)
    scene.submit("old", 1, devices=16)
    scene.asks("old")
    scene.minute()
    assert until(lambda: "no node group has nodes with the labels and resources of these pods" in scene.why("old"))
    assert scene.desired == 0


def test_slices_that_are_published_late(opened: Open) -> None:
    """late: the job starts only when all nodes have theirs."""
    scene = opened("late", 4)
    scene.devices = False
    submit(scene, "gang", 16, nodes=2)
    scene.asks("gang")
    scene.minutes(4)
    assert (len(scene.nodes), scene.desired, scene.pods("gang")) == (2, 2, [])
    kind = scene.instance_type
    scene.kubernetes.announce_devices(kind, scene.nodes[:1])
    scene.minute()
    assert scene.pods("gang") == []
    scene.kubernetes.announce_devices(kind, scene.nodes[1:])
    scene.minute()
    assert scene.running("gang", 2) == set(scene.nodes)
    assert (scene.desired, scene.most) == (2, 2)


def test_a_whole_node_with_a_bad_device_is_replaced(opened: Open) -> None:
    scene = opened("bad", 3)
    submit(scene, "first", 16, nodes=2)
    scene.runs("first", 2)
    scene.end("first")
    [bad, good] = sorted(scene.nodes)
    claims.break_device(scene.api, bad, 3)
    submit(scene, "second", 16, nodes=2)
    nodes = scene.runs("second", 2)
    assert (good in nodes, bad in nodes) == (True, False)
    scene.minutes(int(LIMITS.unusable / 60) + 3)
    assert (bad in scene.nodes, scene.desired) == (False, 2)


def test_parts_use_the_rest_of_a_node_with_a_bad_device(opened: Open) -> None:
    scene = opened("rest", 2, share=True)
    submit(scene, "third", 4)
    [node] = scene.runs("third", 1)
    claims.break_device(scene.api, node, next(n for n in range(16) if n not in numbers(scene, "third")))
    scene.minute()
    for name, count in (("fourth", 8), ("fifth", 1)):
        submit(scene, name, count)
        assert scene.runs(name, 1) == {node}
    assert scene.most == 1
