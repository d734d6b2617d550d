"""What is installed on nodes takes room on the sandbox's nodes, as it does on EKS's: pods that never start there do not start here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.kubernetes import LocalKubernetes, claims, eks, installed, nodes, schemas
from sandbox.kubernetes.api import Object, path_of
from sandbox.testing import need_kubernetes, until
from trainium_cdk import settings
from trainium_cdk.client.jobs.kubernetes.parts import Resources
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.pods import pods
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL
from trainium_cdk.description.outputs.eks import DEVICES_LABEL

pytestmark = pytest.mark.sweep

PARTS = settings.parse("eks: {observability: {}}\nstorage: {efs: {}, fsx: {}}").eks_parts
AMOUNTS = {"cpu": "1", "memory": "2Gi"}
BEFORE = Resources(AMOUNTS, AMOUNTS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKubernetes]:
    need_kubernetes()
    with LocalKubernetes.start(tmp_path_factory.mktemp("installed")) as running:
        installed.install(running.api(), PARTS)
        yield running


def test_the_objects_are_valid() -> None:
    assert schemas.validate_all([*installed.objects(PARTS)]) == []


def test_nodes_announce_what_the_kubelet_leaves() -> None:
    status = nodes.system_node("ip-10-0-0-17.ec2.internal", zone="us-east-1b", instance_type="m5.large")["status"]
    assert {k: status["capacity"][k] for k in ("cpu", "memory", "pods")} == {
        "cpu": "2",
        "memory": "8192Mi",
        "pods": "29",
    }
    assert {k: status["allocatable"][k] for k in ("cpu", "memory", "pods")} == {
        "cpu": "1930m",
        "memory": "6903Mi",
        "pods": "29",
    }


def started(cluster: LocalKubernetes, name: str, resources: Resources) -> None:
    main = {
        "name": "main",
        "image": "x",
        "resources": {"requests": dict(resources.requests), "limits": dict(resources.limits)},
    }
    spec = {"containers": [main], "nodeSelector": {ROLE_LABEL: "system"}}
    cluster.api().create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )


def reason(cluster: LocalKubernetes, name: str) -> str:
    """Why a pod has no node; `node` if it has one; empty until the scheduler has looked."""
    pod: Object = cluster.api().get(path_of("v1", "Pod", name, "default"))
    found = {c["type"]: c for c in pod["status"].get("conditions", [])}.get("PodScheduled", {})
    return "node" if pod["spec"].get("nodeName") else str(found.get("message", ""))


def test_what_was_fatal_on_aws_is_fatal_here(cluster: LocalKubernetes) -> None:
    """The former default nodes have no room for two pods of the former size; today's have room for several of today's."""
    api = cluster.api()
    old = cluster.add_system_nodes(2, instance_type="m5.large", labels={ROLE_LABEL: "system"})
    wanted = {o["metadata"]["name"] for o in installed.objects(PARTS) if o["kind"] == "Deployment"}

    def ready() -> bool:
        there = api.get("/apis/apps/v1/namespaces/kube-system/deployments")["items"]
        return {d["metadata"]["name"] for d in there if d["status"].get("readyReplicas")} >= wanted

    assert until(ready, 120)
    for name in ("former-0", "former-1"):
        started(cluster, name, BEFORE)
    found = [until(lambda: reason(cluster, name), 60) for name in ("former-0", "former-1")]  # noqa: B023
    assert any("Insufficient cpu" in text for text in found), found
    for name in ("former-0", "former-1"):
        api.delete(path_of("v1", "Pod", name, "default"))

    cluster.add_system_nodes(2, labels={ROLE_LABEL: "system"})
    for name in old:
        cluster.remove_node(name)
    assert until(ready, 120)
    sizes = pods().helpers
    several = [sizes.prepare.helper("models")] * 2 + [sizes.reader] * 4 + [sizes.tensorboard]
    for number, helper in enumerate(several):
        started(cluster, f"pod-{number}", Resources.of(helper))
        assert until(lambda: reason(cluster, f"pod-{number}"), 60) == "node", number  # noqa: B023


def daemons(parts: set[str]) -> set[str]:
    return {o["metadata"]["name"] for o in installed.objects(parts) if o["kind"] == "DaemonSet"}


def running(cluster: LocalKubernetes, node: str) -> set[str]:
    there = cluster.api().get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]
    return {pod["metadata"]["labels"]["app"] for pod in there}


def test_trainium_nodes_run_the_pods_of_their_devices(cluster: LocalKubernetes) -> None:
    labels = {GROUP_LABEL: "trn", ROLE_LABEL: "training"}
    [node] = cluster.add_nodes(Catalog.load().instance("trn1.32xlarge"), 1, labels=labels)
    assert until(lambda: running(cluster, node) == daemons({*PARTS}), 60), running(cluster, node)


def test_nodes_of_claims_run_the_driver_of_their_devices_and_not_the_plugin(cluster: LocalKubernetes) -> None:
    claims.install(cluster.api())
    parts = {*PARTS, eks.CLAIMS}
    installed.install(cluster.api(), parts)
    labels = {ROLE_LABEL: "training", DEVICES_LABEL: "claims"}
    [node] = cluster.add_nodes(Catalog.load().instance("trn2.48xlarge"), 1, labels=labels)
    expected = daemons(parts) - {"neuron-device-plugin"}
    assert until(lambda: running(cluster, node) == expected, 60), running(cluster, node)
