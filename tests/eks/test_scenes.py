"""Whole sets of nodes for jobs, with the real Kueue and JobSet under the configuration that is deployed: they come from none on, as many
as the job has, no job loses one, and none stays for longer than is stated. The jobs are users' own: nothing of `trn` is in them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sandbox.kubernetes.api import path_of
from tests.eks.conftest import Open
from tests.eks.scenes import (
    FAILS,
    JOB_SETS,
    LIMITS,
    MERGE,
    NAME,
    PODS,
    SLACK,
    TRN1,
    Scene,
    job,
    jobset,
    pod,
    thing,
)
from tests.support import until


def test_nodes_for_a_job_from_no_node(opened: Open) -> None:
    """zero: all in one minute, within one reservation, which is cancelled."""
    scene = opened("zero", 32)
    assert len(discovery_tags(scene)) == 2
    scene.minute()
    assert (scene.nodes, scene.desired) == ([], 0)
    assert discovery_tags(scene) == [], "a Cluster Autoscaler in the same cluster does not find the group any more"
    scene.submit("gang", 16)
    scene.asks("gang")
    scene.minute()
    assert scene.desired == 16
    assert "waits for 16 nodes of trn, since " in scene.why("gang")
    scene.minute()
    assert scene.running("gang", 16) == set(scene.nodes)
    assert scene.reserved() == []
    scene.minute()
    scene.settled()
    for node in scene.nodes:  # it does not remove them either
        notes = scene.api.get(path_of("v1", "Node", node))["metadata"]["annotations"]
        assert notes["cluster-autoscaler.kubernetes.io/scale-down-disabled"] == "true"
    scene.end("gang")
    assert scene.until_gone() <= LIMITS.idle + SLACK
    assert (scene.desired, scene.most) == (0, 16)


def discovery_tags(scene: Scene) -> list[str]:
    return [t["Key"] for t in scene.asg["Tags"] if t["Key"].startswith("k8s.io/cluster-autoscaler/")]


def test_no_node_of_a_live_job_is_removed(opened: Open) -> None:
    """straggler: one pod has ended long ago, the other works."""
    scene = opened("straggler", 4)
    scene.submit("gang", 2)
    nodes = scene.runs("gang", 2)
    scene.end_pod(scene.pods("gang")[0])
    assert until(lambda: scene.phases("gang") == ["Running", "Succeeded"])
    scene.minutes(int((LIMITS.idle + SLACK) / 60) + 5)
    assert set(scene.nodes) == nodes
    assert scene.phases("gang") == ["Running", "Succeeded"]
    assert len(scene.instances(protected=True)) == 2
    scene.end("gang")
    assert scene.until_gone() <= LIMITS.idle + SLACK


def test_a_job_that_lost_a_node_keeps_the_others(opened: Open) -> None:
    """lost: it starts again before younger ones."""
    scene = opened("lost", 4)
    scene.submit("a", 3)
    before = scene.runs("a", 3)
    scene.submit("b", 3)
    scene.capacity(2)
    scene.lose(sorted(before)[0])
    assert until(lambda: "Running" not in scene.phases("a"))
    scene.minutes(int((LIMITS.idle + SLACK) / 60))
    assert len(set(scene.nodes) & before) == 2
    assert not scene.is_("b", "QuotaReserved")
    scene.capacity(None)
    scene.minutes(2)
    assert len(scene.running("a", 3) & before) == 2
    assert (scene.desired, scene.pods("b")) == (3, [])
    scene.end("a")
    assert scene.runs("b", 3) == set(scene.nodes)


@pytest.mark.sweep
def test_a_job_that_waits_is_not_overtaken(opened: Open) -> None:
    """order"""
    scene = opened("order", 4)
    for name in ("s1", "s2"):
        scene.submit(name, 2)
        scene.runs(name, 2)
    scene.submit("large", 4)
    scene.submit("s3", 2)
    scene.minutes(2)
    scene.end("s1")
    scene.minutes(3)
    assert not scene.is_("s3", "QuotaReserved")
    scene.end("s2")
    assert scene.runs("large", 4) == set(scene.nodes)
    assert (scene.pods("s3"), scene.desired, scene.most) == ([], 4, 4)


def test_a_higher_priority_takes_the_nodes_of_a_lower_one(opened: Open) -> None:
    """They are not started again, and the job that gave way comes back on them."""
    scene = opened("priority", 2)
    scene.submit("low", 2, "low")
    nodes = scene.runs("low", 2)
    scene.submit("high", 2, "high")
    assert scene.runs("high", 2) == nodes
    scene.end("high")
    assert scene.runs("low", 2) == nodes
    assert scene.most == 2


@pytest.mark.sweep
def test_a_smaller_size_never_ends_a_busy_node(opened: Open) -> None:
    """shrink: AWS ends the oldest instances; the job runs on them."""
    scene = opened("shrink", 8)
    scene.submit("a", 4)
    mine = {scene.instance(node) for node in scene.runs("a", 4)}
    scene.submit("b", 4)
    scene.runs("b", 4)
    scene.end("b")
    scene.minute()
    assert scene.instances(protected=True) == mine
    bounds = {"minSize": 0, "maxSize": 8, "desiredSize": 4}
    scene.eks.update_nodegroup_config(clusterName=NAME, nodegroupName="shrink", scalingConfig=bounds)
    assert scene.instances() == mine
    scene.sync()
    assert scene.phases("a") == ["Running"] * 4


AFFINE = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["trn2.48xlarge"]}]}]}}}  # fmt: skip


@pytest.mark.sweep
def test_nodes_are_counted_for_pods_with_devices_only(opened: Open) -> None:
    """mixed: a master without devices, and two workers that share a node."""
    scene = opened("mixed", 4)
    scene.create(jobset("own", {"master": job(1, pod(0)), "worker": job(2, pod(8)), "whole": job(1, pod(16))}))
    assert until(lambda: scene.workload("own"))
    scene.asks("own")
    scene.minute()
    assert (scene.desired, len(scene.nodes)) == (2, 2)
    scene.minutes(4)  # where the scheduler spreads the workers over both nodes, `whole` gets a third
    scene.running("own", 4)
    assert scene.desired in (2, 3)


@pytest.mark.sweep
def test_a_job_for_other_nodes_starts_none(opened: Open) -> None:
    """mixed: required node affinity. The reason is told."""
    scene = opened("affinity", 4)
    scene.submit("aff", 2, affinity=AFFINE)
    scene.asks("aff")
    scene.minute()
    assert until(lambda: "no node group has nodes with the labels and resources of these pods" in scene.why("aff"))
    scene.minutes(2)
    assert (scene.desired, scene.most) == (0, 0)


def test_a_plain_job_of_kubernetes_gets_nodes(opened: Open) -> None:
    """A batch Job with the queue's label. A gated pod, and one without a queue, start nothing."""
    scene = opened("plain", 4)
    scene.create(thing("v1", "Pod", "gated", **pod(16, schedulingGates=[{"name": "example.com/wait"}])))
    scene.create(thing("v1", "Pod", "unqueued", **pod(16)))
    assert not any(plan.changes for plan in scene.minutes(2))
    scene.create(thing("batch/v1", "Job", "own", {"kueue.x-k8s.io/queue-name": "trn"}, spec=job(2, pod(16))))
    assert until(lambda: scene.workload("own"))
    scene.asks("own")
    scene.minutes(4)
    own = "job-name=own"
    assert until(lambda: scene.phases(own) == ["Running"] * 2)
    assert scene.desired == 3, "the other pod has taken one of the job's nodes"


@pytest.mark.sweep
def test_a_larger_job_after_a_smaller_one(opened: Open) -> None:
    """grow"""
    scene = opened("grow", 4)
    scene.submit("small", 2)
    first = scene.runs("small", 2)
    scene.submit("large", 4)
    scene.minutes(3)
    assert scene.desired == 2
    scene.end("small")
    assert scene.runs("large", 4) == set(scene.nodes) > first
    assert (scene.desired, scene.most) == (4, 4)


@pytest.mark.sweep
def test_devices_that_are_announced_late(opened: Open) -> None:
    """late: no second set of nodes, and the job starts only when all devices are there."""
    scene = opened("late", 8)
    scene.devices = False
    scene.submit("gang", 4)
    scene.asks("gang")
    scene.minutes(5)
    assert (len(scene.nodes), scene.desired, scene.pods("gang")) == (4, 4, [])
    scene.kubernetes.announce_devices(TRN1, scene.nodes)
    scene.minute()
    assert scene.running("gang", 4) == set(scene.nodes)
    assert (scene.desired, scene.most) == (4, 4)


@pytest.mark.sweep
def test_a_job_that_fails_starts_again_on_its_nodes(opened: Open) -> None:
    scene = opened("restart", 4)
    scene.submit("gang", 2)
    nodes = scene.runs("gang", 2)
    scene.submit("younger", 4)
    scene.end_pod(scene.pods("gang")[0], FAILS)
    assert until(lambda: scene.api.get(f"{JOB_SETS}/gang")["status"].get("restarts") == 1)
    assert scene.running("gang", 2) == nodes
    scene.minutes(2)
    assert (scene.desired, scene.pods("younger")) == (2, [])


def test_a_job_that_does_not_go_on_is_told_once(opened: Open, capsys: pytest.CaptureFixture[str]) -> None:
    """unready: the kubelet reports the pod of a job that runs as not ready. The function reads it with its own rights."""
    scene = opened("unready", 2)
    scene.settings = replace(scene.settings, job_ends=True)
    template = pod(TRN1.neuron_devices)
    template["spec"]["containers"][0]["name"] = "train"
    made = jobset("stuck", {"train": job(1, template)})
    made["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "trn"
    scene.create(made)
    assert until(lambda: scene.workload("stuck"))
    scene.runs("stuck", 1)
    [mine] = scene.pods("stuck")

    def told(ready: bool) -> list[str]:
        """The jobs of the lines in five minutes, from whose begin on the pod is ready, or is not."""
        at = f"{datetime.fromtimestamp(scene.now, UTC):%Y-%m-%dT%H:%M:%SZ}"
        others = [c for c in mine["status"]["conditions"] if c["type"] != "ContainersReady"]
        now = {"type": "ContainersReady", "status": str(ready), "lastTransitionTime": at}
        containers = [{**one, "ready": ready} for one in mine["status"]["containerStatuses"]]
        status = {"conditions": [*others, now], "containerStatuses": containers}
        scene.api.call("PATCH", f"{PODS}/{mine['metadata']['name']}/status", {"status": status}, kind=MERGE)
        capsys.readouterr()
        scene.minutes(5)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"Job')]
        return [one["JobFound"] for one in lines]

    assert [told(ready) for ready in (False, True, False)] == [["stuck"], [], ["stuck"]]
    assert scene.running_on("stuck"), "nothing is done about it"
    scene.end("stuck")
