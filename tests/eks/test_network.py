"""A job below one network node, with the real Kueue and kube-scheduler: from no node on, and after nodes that came elsewhere."""

from __future__ import annotations

from typing import Any

from sandbox.kubernetes.api import path_of
from tests.eks.conftest import Open
from tests.eks.scenes import Scene
from tests.support import until
from trainium_cdk.eks.scaler.look import TRIED
from trainium_cdk.jobs.kubernetes.pods import near
from trainium_cdk.outputs import NETWORK_LABEL


def at(topology: str, name: str) -> dict[str, Any]:
    """As `trn submit --topology` writes it."""
    return {"affinity": near(topology, {"jobset.sigs.k8s.io/jobset-name": name})}


def below(scene: Scene, nodes: set[str]) -> list[str]:
    """The network nodes of layer 3 above these nodes."""
    found = (scene.api.get(path_of("v1", "Node", node))["metadata"]["labels"] for node in nodes)
    return sorted(labels[f"{NETWORK_LABEL}3"] for labels in found)


def test_a_job_below_one_network_node(opened: Open) -> None:
    """required: its nodes come apart, so that it gives its turn to others and none is started for it again; it runs when there is room."""
    scene = opened("required", 8)
    scene.retry_after_seconds(1)
    scene.file("topology.json", [["1", "2", "x"], ["1", "2", "y"]])
    scene.submit("gang", 2, **at("required", "gang"))
    scene.asks("gang")
    scene.minutes(2)
    assert len(scene.nodes) == 2
    scene.minute()
    reason = "no network node of layer 3 has room for its 2 pods (x has 1, y has 1)"
    assert until(lambda: reason in scene.why("gang")), scene.why("gang")
    assert TRIED in (scene.workload("gang") or {})["metadata"]["labels"]
    for name in ("b", "c"):
        scene.submit(name, 2)
    both = scene.runs("b", 2) | scene.runs("c", 2)
    assert below(scene, both) == ["x", "x", "y", "y"]
    assert (scene.most, scene.pods("gang")) == (4, [])
    for name in ("b", "c"):
        scene.end(name)
    assert until(lambda: scene.minute() and scene.phases("gang") == ["Running"] * 2), scene.why("gang")
    before = scene.running("gang", 2)
    [first, second] = below(scene, before)
    assert first == second
    chosen = [pod["spec"]["nodeSelector"].get(f"{NETWORK_LABEL}3") for pod in scene.pods("gang")]
    assert chosen == [first] * 2, "the first pod does not choose it"
    assert scene.most == 4
    scene.file("topology.json", [["1", "2", "z"]])
    scene.lose(sorted(before)[0])
    assert until(lambda: scene.minute() and len(scene.running_on("gang") - before) == 2), scene.why("gang")
    after = scene.running("gang", 2)
    assert below(scene, after) == ["y" if first == "x" else "x"] * 2
    scene.end("gang")


def test_preferred(opened: Open) -> None:
    """preferred: where there is a choice, the nodes are below one network node; where there is none, the job runs all the same."""
    scene = opened("preferred", 4)
    scene.file("topology.json", [["1", "2", "x"], ["1", "2", "y"]])
    scene.submit("all", 4, **at("preferred", "all"))
    assert below(scene, scene.runs("all", 4)) == ["x", "x", "y", "y"]
    scene.end("all")
    for name in ("a", "b", "c"):
        scene.submit(name, 2, **at("preferred", name))
        first, second = below(scene, scene.runs(name, 2))
        assert first == second
        scene.end(name)
