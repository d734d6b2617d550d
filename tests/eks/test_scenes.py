"""Nodes for gangs, with the real Volcano under the configuration that is deployed: they come from none on, as many as the gang
has, and none stays for longer than is stated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, available, eks
from sandbox.kubernetes.api import path_of
from tests.eks.scenes import LIMITS, SLACK, Scene, until
from tests.support import need, swept
from trainium_cdk import outputs, settings
from trainium_cdk.eks import manifests
from trainium_cdk.eks.access import SCALER
from trainium_cdk.eks.installation import Installation
from trainium_cdk.outputs import ROLE_LABEL
from trainium_cdk.storage.options import FileSystemMount

NAME = "scenes"
Open = Callable[[str, int], Scene]


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[LocalKubernetes]:
    need(available() is None, str(available()))
    secret, wanted = eks.new_secret(), Installation.of(settings.load())
    webhook = eks.webhook_url(local_aws.endpoint, NAME, secret)
    with LocalKubernetes.start(tmp_path_factory.mktemp("scenes"), name=NAME, token_webhook=webhook) as running:
        running.add_system_nodes(labels={ROLE_LABEL: "system"})
        objects = [
            *manifests.namespaces(wanted), manifests.service_account(wanted), *manifests.scaler_access(),
            *manifests.volumes(wanted, [FileSystemMount("efs", "fs-0123456789abcdef0", "/efs", dns_name="")]), *manifests.queues(wanted),
        ]  # fmt: skip
        file = running.directory / "applied.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        done = running.kubectl("apply", "-f", str(file))
        assert done.returncode == 0, done.stderr
        queue = path_of("scheduling.volcano.sh/v1beta1", "Queue", "trn")
        assert until(lambda: running.api().get(queue).get("status", {}).get("state") == "Open")
        eks.attach(local_aws.directory, running, secret)
        yield running
        eks.detach(local_aws.directory, NAME)


@pytest.fixture(scope="module")
def session(kubernetes: LocalKubernetes, local_aws: LocalAws) -> Iterator[boto3.Session]:
    """A client with exactly the scaler's permissions in the cluster."""
    client, iam = local_aws.client("eks"), local_aws.client("iam")
    role = f"arn:aws:iam::{eks.ACCOUNT}:role/eks"
    client.create_cluster(name=NAME, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]})
    arn = iam.create_user(UserName=NAME)["User"]["Arn"]
    key = iam.create_access_key(UserName=NAME)["AccessKey"]
    client.create_access_entry(clusterName=NAME, principalArn=arn, kubernetesGroups=[SCALER])
    yield boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
    client.delete_cluster(name=NAME)
    iam.delete_access_key(UserName=NAME, AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName=NAME)


@pytest.fixture
def opened(kubernetes: LocalKubernetes, local_aws: LocalAws, session: boto3.Session) -> Iterator[Open]:
    made: list[Scene] = []

    def open_scene(name: str, maximum: int) -> Scene:
        env = settings.validate({"eks": {"node_groups": [{"name": "trn", "max_nodes": maximum}]}})
        printed: dict[str, Any] = outputs.eks_outputs(env, bucket="b")
        values = {key: value for key, (value, _) in printed.items()}
        cluster = outputs.parse("TrnEksStack", "us-east-1", values)
        assert isinstance(cluster, outputs.EksCluster)
        made.append(Scene(name, maximum, kubernetes, local_aws, cluster, session))
        for queue in manifests.queues(Installation.of(env)):
            kubernetes.api().apply(queue)
        return made[-1]

    yield open_scene
    for scene in made:
        scene.close()


def test_a_gang_of_16_from_no_node(opened: Open) -> None:
    scene = opened("zero", 32)
    scene.minute()
    assert (scene.nodes, scene.desired) == ([], 0)
    scene.submit("gang", 16)
    scene.minute()
    assert scene.desired == 16
    assert scene.runs("gang") == set(scene.nodes)
    assert not any(plan.groups or plan.attempts for plan in scene.minutes(5)[1:])
    scene.end("gang")
    assert scene.until_gone() * 60 <= LIMITS.idle + SLACK
    assert (scene.desired, scene.most) == (0, 16)


@pytest.mark.sweep
def test_a_larger_job_after_a_smaller_one(opened: Open) -> None:
    scene = opened("grow", 4)
    scene.submit("small", 2)
    scene.minute()
    first = scene.runs("small")
    scene.submit("large", 4)
    scene.minutes(3)
    assert scene.desired == 2
    assert "waits for room: trn has at most 4 nodes, of which 2 in use" in scene.why("large")
    scene.end("small")
    scene.minute()
    assert scene.runs("large") == set(scene.nodes) > first
    assert (scene.desired, scene.most) == (4, 4)


def test_the_node_of_a_pod_that_ended_stays_while_its_gang_works(opened: Open) -> None:
    """Without it Volcano would start the whole job again."""
    scene = opened("straggler", 2)
    scene.submit("gang", 2)
    scene.minute()
    nodes = scene.runs("gang")
    scene.end_pod(scene.pods("gang")[0])
    assert until(lambda: sorted(p["status"]["phase"] for p in scene.pods("gang")) == ["Running", "Succeeded"])
    assert not any(plan.groups for plan in scene.minutes(int((LIMITS.idle + SLACK) / 60) + 2))
    assert scene.runs("gang") == nodes == set(scene.nodes)
    scene.end("gang")
    assert scene.until_gone() * 60 <= LIMITS.idle + SLACK


@pytest.mark.parametrize("sizes", swept([(11, 16), (3, 4)], (3, 4)), ids="{0[0]} of {0[1]}".format)
def test_a_gang_gets_no_node_while_one_is_unavailable(sizes: tuple[int, int], opened: Open) -> None:
    some, size = sizes
    scene = opened(f"part-{size}", size)
    scene.capacity(some)
    scene.submit("gang", size)
    scene.minute()
    assert (len(scene.nodes), scene.desired) == (some, size)
    assert f"waits for {size} nodes of trn" in scene.why("gang")
    scene.minutes(int(LIMITS.capacity / 60))
    assert scene.desired == some
    printed = scene.why("gang")
    assert f"{some} of {size} nodes of trn came within 10 minutes" in printed
    assert "InsufficientInstanceCapacity" in printed
    assert "next attempt at" in printed
    assert scene.until_gone() * 60 <= LIMITS.idle + SLACK
    assert not any(plan.groups for plan in scene.minutes(2))
    scene.capacity(None)
    while not scene.nodes:
        scene.minute()
    assert scene.runs("gang") == set(scene.nodes)
    assert (scene.desired, scene.most) == (size, size)


def test_devices_that_are_announced_late(opened: Open) -> None:
    scene = opened("late", 8)
    scene.devices = False
    scene.submit("gang", 4)
    scene.minutes(5)
    assert (len(scene.nodes), scene.desired) == (4, 4)
    scene.announce_devices()
    assert scene.runs("gang") == set(scene.nodes)
    scene.minutes(2)
    assert (scene.desired, scene.most) == (4, 4)


@pytest.mark.sweep
def test_nodes_that_never_announce_devices_do_not_stay(opened: Open) -> None:
    scene = opened("broken", 8)
    scene.devices = False
    scene.submit("gang", 2)
    scene.minutes(int(LIMITS.start / 60) + 1)
    assert "its pods were not placed on trn within 20 minutes" in scene.why("gang")
    assert scene.until_gone() * 60 <= SLACK
