"""An EKS cluster as the jobs see it, and a real Kubernetes with Volcano to run them on."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, available, eks, image, supplier
from sandbox.kubernetes.api import Object, path_of
from sandbox.kubernetes.build import VOLCANO
from tests.support import need, until
from trainium_cdk import outputs, settings
from trainium_cdk.cdk.eks import kueue, manifests
from trainium_cdk.cdk.eks.access import EDITORS
from trainium_cdk.cdk.eks.boundaries import boundaries, network_policies
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.storage.options import FileSystemMount
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, kubernetes_api, parts
from trainium_cdk.client.jobs.kubernetes.parts import MANAGED_BY
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL, EksCluster, Fleet
from trainium_cdk.description.outputs.contract import COPIES
from trainium_cdk.description.outputs.eks import DEVICES_LABEL, JOB_USER
from trainium_cdk.description.settings import Environment
from trainium_cdk.jobs import Script
from trainium_cdk.runner.spec import PrepareStep

NAME = "jobs-test"
VOLUME = "training-efs-team-fs-0123456789abcdef0"
NODES = 2


RANKS = b'#!/bin/bash\necho "node $NODE_RANK of $NNODES at $MASTER_ADDR"\n'


@pytest.fixture(autouse=True, scope="session")
def sockets_that_were_reset_are_closed() -> Iterator[None]:
    """Python 3.11 leaves a connection that was reset before its TLS began to the garbage collector, which warns in whichever test
    runs then. Connections that are cut cause that now and then."""
    create = ssl.SSLSocket._create  # type: ignore[attr-defined]

    def created(*args: Any, **options: Any) -> Any:
        try:
            return create(*args, **options)
        except OSError as e:
            trace = e.__traceback__
            while trace:
                if trace.tb_frame.f_code is create.__func__.__code__ and (made := trace.tb_frame.f_locals.get("self")):
                    made.close()
                trace = trace.tb_next
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLSocket, "_create", created)
        yield


def script(content: bytes = RANKS, **fields: Any) -> Script:
    return Script(**{"filename": "run.sh", "content": content, "nodes": 2, **fields})


def let_it_prepare(patch: pytest.MonkeyPatch) -> None:
    """Scripts have a stage `prepare`, which looks for the program that their variable NEEDS names."""

    def prepare(self: Script, plan: Any) -> Any:
        return (PrepareStep("tools", {"names": [self.env.get("NEEDS", "sh")], "fix": "Install it"}),)

    patch.setattr(Script, "prepares", True)
    patch.setattr(Script, "prepare", prepare)


def text(chunks: Any) -> str:
    return b"".join(c.data for c in chunks).decode()


EFS = FileSystemMount("efs", "fs-0123456789abcdef0", "/efs", dns_name="")
FOLDERS = {name: f"fsap-0123456789abcdef{i}" for i, name in enumerate(("training", "speech", "vision"))}


def make_cluster(*fleets: Fleet, **changes: Any) -> EksCluster:
    """The tutorial's cluster (2 trn1.32xlarge in node group trn), or that of another environment (`env`), with changes."""
    env: Environment = changes.pop("env", None) or settings.load()
    stack_outputs = outputs.eks_outputs(env, bucket="trn-bucket", claims=manifests.claims([EFS]))
    made = outputs.parse("TrnEksStack", "us-east-1", {key: value for key, (value, _) in stack_outputs.items()})
    assert isinstance(made, EksCluster)
    return made.model_copy(update={**changes, **({"fleets": fleets} if fleets else {})})


def fleet(kind: str = "trn1.32xlarge", nodes: int = NODES, **changes: Any) -> Fleet:
    facts = Catalog.load().instance(kind)
    base = {
        "queue": "trn",
        "resource": "trn",
        "instance_type": kind,
        "nodes": nodes,
        "devices": facts.neuron_devices,
        "cores": facts.logical_cores(),
        "efa": facts.efa_interfaces,
        "family": facts.family,
        "ultraserver": facts.ultraserver or 0,
    }
    return Fleet(**{**base, **changes})


def base_objects(env: Environment | None = None) -> list[Object]:
    """What the stack brings into the cluster."""
    wanted = Installation.of(env or settings.load())
    return [
        *manifests.namespaces(wanted),
        manifests.service_account(wanted),
        *manifests.access(wanted),
        *network_policies(wanted),
        *boundaries(wanted),
        *manifests.volumes(wanted, [EFS], FOLDERS),
        *(manifests.queues(wanted) if VOLCANO.built else ()),
        *kueue.queues(wanted),
    ]


def access_point(kubernetes: LocalKubernetes, volume: str) -> None:
    """The folder of a volume, as EFS makes that of an access point."""
    folder = kubernetes.directory / "volumes" / volume
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, JOB_USER, JOB_USER)


def until_open(kubernetes: LocalKubernetes) -> None:
    """Wait until Kueue lets jobs of the queue start."""
    queue = path_of(kueue.API, "ClusterQueue", "trn.training")
    assert until(lambda: parts.condition(kubernetes.api().get(queue), "Active"))


class Running(NamedTuple):
    """The local Kubernetes, and the keys of a user who may submit jobs to it."""

    kubernetes: LocalKubernetes
    cluster: EksCluster
    variables: dict[str, str]
    tools: Path
    """Programs of the image, as it were: first in the PATH of the pods."""

    @property
    def shared(self) -> Path:
        """The cluster's /efs."""
        return self.kubernetes.directory / "volumes" / VOLUME


@pytest.fixture(autouse=True)
def the_users_keys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of this folder run as that user."""
    if "running" in request.fixturenames:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials it was made with
        for name, value in request.getfixturevalue("running").variables.items():
            monkeypatch.setenv(name, value)


@contextlib.contextmanager
def serving(
    folder: Path, local_aws: LocalAws, name: str = NAME, env: Environment | None = None, **how: Any
) -> Iterator[Running]:
    """All nodes of an environment (default: two virtual trn1.32xlarge) and a system node behind an EKS cluster of the local AWS, whose user may only
    edit jobs. `how`: further arguments of `LocalKubernetes.start`."""
    secret, cluster, user = (
        eks.new_secret(),
        make_cluster(env=env, cluster_name=name),
        f"{name.partition('-')[0]}-editor",
    )
    webhook = eks.webhook_url(local_aws.endpoint, name, secret)
    environment = image.environment(local_aws.variables)
    with (
        LocalKubernetes.start(
            folder,
            name=name,
            token_webhook=webhook,
            run_jobs=True,
            job_environment=environment,
            volcano=VOLCANO.built,  # for the component of TorchX
            **how,
        ) as kubernetes,
        supplier.supplying(kubernetes),
    ):
        tools = image.make(kubernetes.directory) / "bin"
        access_point(kubernetes, VOLUME)
        for one in cluster.fleets:
            by = {DEVICES_LABEL: "claims"} if one.claims else {}
            labels = {GROUP_LABEL: one.resource, ROLE_LABEL: "training", **by}
            kubernetes.add_nodes(
                Catalog.load().instance(one.instance_type), one.nodes, zone="us-east-1b", labels=labels
            )
        kubernetes.add_system_nodes(labels={ROLE_LABEL: "system"})
        apply(kubernetes, base_objects(env))
        until_open(kubernetes)
        eks.attach(local_aws.directory, kubernetes, secret)
        client, iam = local_aws.client("eks"), local_aws.client("iam")
        role = f"arn:aws:iam::{eks.ACCOUNT}:role/eks"
        client.create_cluster(name=name, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]})
        arn = iam.create_user(UserName=user)["User"]["Arn"]
        key = iam.create_access_key(UserName=user)["AccessKey"]
        actions = ["eks:DescribeCluster", "ssm:StartSession", "ssm:TerminateSession"]
        policy = [{"Effect": "Allow", "Action": actions, "Resource": "*"}]
        copies = [f"s3:{name}" for name in ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload")]
        policy += [{"Effect": "Allow", "Action": copies, "Resource": f"arn:aws:s3:::*/{COPIES}*"}]  # trn cp
        own = ["s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"]
        policy += [
            {"Effect": "Allow", "Action": own, "Resource": "arn:aws:s3:::trn-copies-own*"}
        ]  # from a bucket of one's own
        document = json.dumps({"Version": "2012-10-17", "Statement": policy})
        iam.put_user_policy(UserName=user, PolicyName="describe", PolicyDocument=document)
        client.create_access_entry(clusterName=name, principalArn=arn, kubernetesGroups=[EDITORS])
        client.associate_access_policy(
            clusterName=name,
            principalArn=arn,
            policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy",
            accessScope={"type": "namespace", "namespaces": ["training"]},
        )
        keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        yield Running(kubernetes, cluster, {**local_aws.variables, **keys}, tools)
        client.delete_cluster(name=name)
        iam.delete_access_key(UserName=user, AccessKeyId=key["AccessKeyId"])
        iam.delete_user_policy(UserName=user, PolicyName="describe")
        iam.delete_user(UserName=user)
        eks.detach(local_aws.directory, name)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[Running]:
    need(available() is None, str(available()))
    with serving(tmp_path_factory.mktemp("jobs"), local_aws) as made:
        yield made


def left(kubernetes: LocalKubernetes) -> dict[str, int]:
    """Pods that run on, and files and locks that belong to no job."""
    ours = {"labelSelector": f"app.kubernetes.io/managed-by={MANAGED_BY}"}
    found = {
        kind: kubernetes.api().get(path_of("v1", kind, namespace="training"), **ours)["items"]
        for kind in ("Pod", "Secret", "ConfigMap")
    }
    return {
        "pods": sum(pod["status"].get("phase") in ("Pending", "Running") for pod in found["Pod"]),
        "files": sum(
            "ownerReferences" not in o["metadata"] and not o["metadata"]["name"].startswith("trn-runner-")
            for o in [*found["Secret"], *found["ConfigMap"]]
        ),
    }


@pytest.fixture(scope="module")
def nothing_left(running: Running) -> Iterator[None]:
    """The module's tests leave no pod that runs on, and no file or lock that belongs to no job."""
    before = left(running.kubernetes)
    yield
    assert until(lambda: all(number <= before[what] for what, number in left(running.kubernetes).items()), 120)


def apply(kubernetes: LocalKubernetes, objects: list[Object]) -> None:
    file = kubernetes.directory / "applied.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    done = kubernetes.kubectl("apply", "-f", str(file))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def backend(running: Running) -> Iterator[KubernetesBackend]:
    """Jobs on that cluster, with tokens of boto3's making. What a test leaves running is cancelled."""
    made = KubernetesBackend(running.cluster, lambda: kubernetes_api(running.cluster))
    yield made
    for job in made.list():
        if not job.done:
            made.cancel(job.id)
    made.api.close()
