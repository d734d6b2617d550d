"""The cluster of the scenes: a real Kubernetes with Kueue and JobSet, known to the local AWS as an EKS cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, eks
from tests.eks.scenes import NAME, Scene
from tests.support import need_kubernetes
from trainium_cdk import settings
from trainium_cdk.cdk.eks import kueue, manifests
from trainium_cdk.cdk.eks.access import SCALER
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.storage.options import FileSystemMount
from trainium_cdk.description.outputs import ROLE_LABEL

Open = Callable[..., Scene]


EFS = FileSystemMount("efs", "fs-0123456789abcdef0", "/efs", dns_name="")


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[LocalKubernetes]:
    wanted = Installation.of(settings.load())
    with started(tmp_path_factory.mktemp("scenes"), local_aws, NAME, wanted, trainer=True) as running:
        yield running


@contextlib.contextmanager
def started(
    folder: Path, local_aws: LocalAws, name: str, wanted: Installation, *, trainer: bool = False, **options: Any
) -> Iterator[LocalKubernetes]:
    """A cluster with a stack's objects. `options`: of `LocalKubernetes.start`."""
    need_kubernetes()
    secret = eks.new_secret()
    webhook = eks.webhook_url(local_aws.endpoint, name, secret)
    with LocalKubernetes.start(folder, name=name, token_webhook=webhook, **options) as running:
        if trainer:
            running.start_trainer()  # first: Kueue looks for its kinds at growing intervals, up to two minutes
        running.add_system_nodes(labels={ROLE_LABEL: "system"})
        objects = [
            *manifests.namespaces(wanted), manifests.service_account(wanted), *manifests.scaler_access(wanted),
            *manifests.volumes(wanted, [EFS], {"training": "fsap-0123456789abcdef0"}), *kueue.queues(wanted),
        ]  # fmt: skip
        file = running.directory / "applied.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        done = running.kubectl("apply", "-f", str(file))
        assert done.returncode == 0, done.stderr
        eks.attach(local_aws.directory, running, secret)
        yield running
        eks.detach(local_aws.directory, name)


@pytest.fixture(scope="session")
def session(kubernetes: LocalKubernetes, local_aws: LocalAws) -> Iterator[boto3.Session]:
    """A client with exactly the scaler's permissions in the cluster."""
    with client_of(local_aws, NAME) as made:
        yield made


@contextlib.contextmanager
def client_of(local_aws: LocalAws, name: str, groups: Sequence[str] = (SCALER,)) -> Iterator[boto3.Session]:
    """A client of a cluster's scaler, and the cluster in the local AWS. `groups`: of the client, in Kubernetes."""
    client, iam = local_aws.client("eks"), local_aws.client("iam")
    role = f"arn:aws:iam::{eks.ACCOUNT}:role/eks"
    client.create_cluster(name=name, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]})
    arn = iam.create_user(UserName=name)["User"]["Arn"]
    key = iam.create_access_key(UserName=name)["AccessKey"]
    client.create_access_entry(clusterName=name, principalArn=arn, kubernetesGroups=list(groups))
    yield boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
    client.delete_cluster(name=name)
    iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName=name)


@pytest.fixture
def opened(kubernetes: LocalKubernetes, local_aws: LocalAws, session: boto3.Session) -> Iterator[Open]:
    made: list[Scene] = []

    def open_scene(name: str, maximum: int, **group: Any) -> Scene:
        made.append(Scene(name, maximum, kubernetes, local_aws, session, **group))
        env = settings.validate({"eks": {"node_groups": [{"name": "trn", "max_nodes": maximum}]}})
        for each in kueue.queues(Installation.of(env)):
            kubernetes.api().apply(each)
        return made[-1]

    yield open_scene
    for scene in made:
        scene.close()
