"""A running cluster moves a node group from the device plug-in to claims, as docs/guides/devices.md says: a second group, and then without the first.

Kueue gets its configuration by the upgrade of its real chart, and starts again only where that says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, claims
from sandbox.kubernetes.api import path_of
from sandbox.kubernetes.kueue import of_both_forms
from tests.eks.conftest import client_of, started
from tests.eks.scenes import Scene
from tests.eks.test_leaving import Cluster, names_of
from tests.eks.test_scenes_of_claims import devices_of, submit
from tests.support import until
from trainium_cdk import settings
from trainium_cdk.cdk.eks import kueue
from trainium_cdk.cdk.eks.access import OBJECTS, SCALER
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.eks.scaler.function import Kubernetes
from trainium_cdk.cdk.eks.scaler.leaving import name_of

NAME = "moving"
OLD = {"name": "trn", "instance_type": "trn2.48xlarge", "max_nodes": 2}
NEW = {**OLD, "name": "new", "devices": "claims"}
BEFORE: dict[str, Any] = {"node_groups": [OLD]}
DURING: dict[str, Any] = {"node_groups": [OLD, NEW]}
AFTER: dict[str, Any] = {"node_groups": [NEW], "plugins": {"devices": "claims"}}


def installation(of: dict[str, Any]) -> Installation:
    return Installation.of(settings.validate({"eks": of}))


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[LocalKubernetes]:
    with started(tmp_path_factory.mktemp("moving"), local_aws, NAME, installation(BEFORE)) as running:
        yield running


@pytest.fixture(scope="module")
def session(kubernetes: LocalKubernetes, local_aws: LocalAws) -> Iterator[boto3.Session]:
    with client_of(local_aws, NAME, [SCALER, OBJECTS]) as made:
        yield made


@pytest.fixture
def groups(kubernetes: LocalKubernetes, local_aws: LocalAws, session: boto3.Session) -> Iterator[list[Scene]]:
    """The old node group and the new one. The second scene is the function's after the update, with both."""
    old, new = (
        Scene(fleet.queue, fleet.nodes, kubernetes, local_aws, session, fleet=fleet)
        for fleet in installation(DURING).fleets
    )
    new.settings = dataclasses.replace(new.settings, groups=(*old.settings.groups, *new.settings.groups))
    yield [old, new]
    for scene in (old, new):
        scene.eks.delete_nodegroup(clusterName=NAME, nodegroupName=scene.name)  # their cluster ends with its jobs


def lives(scene: Scene, name: str) -> Any:
    """What a disturbance of a running job changes: its pods, where they run, and when it was admitted."""
    conditions = (scene.workload(name) or {})["status"]["conditions"]
    return (
        sorted((p["metadata"]["uid"], p["spec"]["nodeName"], p["status"]["phase"]) for p in scene.pods(name)),
        [c for c in conditions if c["type"] in ("QuotaReserved", "Admitted", "Evicted", "Requeued")],
    )


def test_a_group_moves_while_its_job_runs(
    kubernetes: LocalKubernetes, local_aws: LocalAws, session: boto3.Session, groups: list[Scene]
) -> None:
    old, new = groups
    described = local_aws.client("eks").describe_cluster(name=NAME)["cluster"]
    cluster = Cluster(kubernetes, Kubernetes(described, session))
    cluster.deploy((BEFORE, []))
    old.submit("first", 2)
    nodes = old.runs("first", 2)
    old.submit("waits", 1)
    first = lives(old, "first")

    mapped = of_both_forms()
    assert kubernetes.upgrade_kueue(kueue.configuration(), mapped), "it reads its configuration only when it starts"
    assert not kubernetes.upgrade_kueue(mapped, mapped)
    claims.install(kubernetes.api())
    assert cluster.deploy((DURING, [])) == {"removed": [], "stays": []}
    [config] = kubernetes.api().get(path_of(kueue.API, "ProvisioningRequestConfig"))["items"]
    assert "managedResources" not in config["spec"]

    submit(new, "second", 16, nodes=2)
    moved = new.runs("second", 2)
    assert {node for node, _ in devices_of(new, "second")} == moved
    assert (moved & nodes, lives(old, "first")) == (set(), first)
    second = lives(new, "second")
    old.end("first")
    assert new.runs("waits", 1) <= nodes, "what waited in the old queue goes on there"
    old.sync()
    assert (old.most, new.most) == (2, 2)

    done = cluster.deploy((AFTER, []))
    [stays, *_] = done["stays"]
    assert "ClusterQueue trn.training: training/waits run; it has no quota and takes no new job" in stays, done
    waits = lives(old, "waits")
    new.minutes(2)
    assert (lives(old, "waits"), lives(new, "second")) == (waits, second)
    old.end("waits")
    assert until(lambda: cluster.finish()["stays"] == [])
    for kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor"):
        found = kubernetes.api().get(path_of(kueue.API, kind))["items"]
        assert sorted(map(name_of, found)) == names_of((AFTER, []))[kind]
    assert lives(new, "second") == second
