"""Objects that leave a stack: on a real API server with Kueue, as kubectl applies them, removed by the function with its own permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, eks
from sandbox.kubernetes.api import path_of
from sandbox.kubernetes.build import VOLCANO
from tests.eks.test_queues import has, jobset, reason, workload
from tests.support import need_kubernetes, until
from trainium_cdk import settings
from trainium_cdk.cdk.eks import kueue, manifests
from trainium_cdk.cdk.eks.access import OBJECTS
from trainium_cdk.cdk.eks.boundaries import boundaries, network_policies
from trainium_cdk.cdk.eks.installation import Installation, Manifest
from trainium_cdk.cdk.eks.owned import names_by_kind, owned
from trainium_cdk.cdk.eks.scaler import leaving
from trainium_cdk.cdk.eks.scaler.kubernetes import Kubernetes
from trainium_cdk.cdk.storage.options import FileSystemMount

NAME, OWNER = "leaving", "0123456789"
EFS = FileSystemMount("efs", "fs-0123456789abcdef0", "/efs", dns_name="")
LUSTRE = FileSystemMount("fsx", "fs-0aaaaaaaaaaaaaaa0", "/fsx", dns_name="a", mount_name="abcdef12")
GROUP = {"name": "trn", "max_nodes": 4}
SPEECH, VISION = {"namespace": "speech", "nodes": {"trn": 1}}, {"namespace": "vision", "nodes": {"trn": 2}}
BASE: dict[str, Any] = {"node_groups": [GROUP], "queues": [SPEECH]}
AT_ONCE = {"autoscaler": False}
"""Jobs with quota run at once: no function starts nodes here."""
Mounts = Sequence[FileSystemMount]


def with_(mounts: Mounts = (EFS,), **eks_settings: Any) -> tuple[dict[str, Any], Mounts]:
    return {**BASE, **eks_settings}, mounts


PAIRS = {
    "a team": (with_(), with_(queues=[SPEECH, VISION])),
    "the first of two teams": (with_(queues=[VISION]), with_(queues=[SPEECH, VISION])),
    "all teams": (with_(queues=[]), with_(queues=[SPEECH, VISION])),
    "a team's nodes": (with_(), with_(queues=[{"namespace": "speech", "max_nodes": {"trn": 0}}])),
    "a node group": (with_(), with_(node_groups=[GROUP, {"name": "big", "instance_type": "trn2.48xlarge", "max_nodes": 2}])),
    "another node group": (with_(), with_(node_groups=[{"name": "other", "max_nodes": 4}], queues=[])),
    "a file system": (with_(), with_([EFS, LUSTRE])),
    "all file systems": (with_([]), with_([EFS, LUSTRE])),
    "another file system": (with_([LUSTRE]), with_([FileSystemMount("fsx", "fs-0bbbbbbbbbbbbbbb0", "/fsx", dns_name="b", mount_name="abcdef34")])),
    "a corrected mount name": (with_([LUSTRE]), with_([FileSystemMount("fsx", LUSTRE.id, "/fsx", dns_name="a", mount_name="fsx")])),
    "another EFS": (with_(), with_([FileSystemMount("efs", "fs-0cccccccccccccccc", "/efs", dns_name="")])),
    "Lustre for EFS": (with_(), with_([LUSTRE])),
    "another namespace": (with_(), with_(namespace="research")),
    "a team's namespace for all": (with_(queues=[]), with_(namespace="speech", queues=[])),
    "the jobs' namespace for a team": (with_(namespace="speech", queues=[]), with_(queues=[SPEECH])),
    "the scaler": (with_(), with_(plugins={"autoscaler": False})),
    "the detector": (with_(), with_(plugins={"node_problem_detector": False})),
    "Volcano": (with_(), with_(plugins={"volcano": True})),
    "a pause": (with_(), with_(scaling={"retry_minutes": 5})),
    "networks of jobs": (with_(), with_(job_networks=["10.1.0.0/16"])),
}  # fmt: skip
"""Two environments each: without something, and with it."""


def objects(of: tuple[dict[str, Any], Mounts]) -> list[Manifest]:
    """What the stack of an environment applies."""
    wanted = Installation.of(settings.validate({"eks": of[0]}))
    return owned(
        [
            *manifests.namespaces(wanted),
            *(manifests.service_account(wanted, name) for name in wanted.namespaces),
            *manifests.access(wanted),
            *network_policies(wanted),
            *boundaries(wanted),
            *(manifests.scaler_access(wanted) if wanted.plugins.autoscaler else []),
            *manifests.removal_access(),
            *manifests.volumes(wanted, of[1], dict.fromkeys(wanted.namespaces, "fsap-0123456789abcdef0")),
            *kueue.queues(wanted),
            *(manifests.queues(wanted) if wanted.plugins.volcano else []),
        ],
        OWNER,
    )


def names_of(of: tuple[dict[str, Any], Mounts]) -> dict[str, list[str]]:
    """By kind, the names of what the stack of an environment applies."""
    found: dict[str, list[str]] = {}
    for one in objects(of):
        found.setdefault(one["kind"], []).append(leaving.name_of(one))
    return {kind: sorted(names) for kind, names in sorted(found.items())}


class Cluster:
    """The API server as kubectl and the function see it."""

    def __init__(self, kubernetes: LocalKubernetes, function: Kubernetes) -> None:
        self.kubernetes, self.api, self._function = kubernetes, kubernetes.api(), function

    def deploy(self, of: tuple[dict[str, Any], Mounts]) -> dict[str, list[str]]:
        """As the stack's manifests and the resource after them."""
        self.apply(objects(of))
        return self.leave(of)

    def apply(self, found: list[Manifest]) -> None:
        file = self.kubernetes.directory / "applied.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
        done = self.kubernetes.kubectl("apply", "-f", str(file))
        assert done.returncode == 0, done.stderr

    def leave(self, of: tuple[dict[str, Any], Mounts]) -> dict[str, list[str]]:
        return leaving.Leaving(self._function, OWNER).deployed(names_by_kind(objects(of)))

    def finish(self) -> dict[str, list[str]]:
        """The schedule."""
        return leaving.Leaving(self._function, OWNER).finish()

    def names(self) -> dict[str, list[str]]:
        """What has the label."""
        found: dict[str, list[str]] = {}
        for kind, at in leaving.KINDS.items():
            items = self.api.get(
                f"{at.root}/{at.folder}", labelSelector=f"{leaving.LABEL} in ({OWNER},{OWNER}-leaving)"
            )["items"]
            if items:
                found[kind] = sorted(map(leaving.name_of, items))
        return dict(sorted(found.items()))

    def end(self, name: str, namespace: str) -> None:
        self.api.delete(path_of("jobset.x-k8s.io/v1alpha2", "JobSet", name, namespace), propagationPolicy="Foreground")
        assert until(lambda: not workload(self.api, name, namespace))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[Cluster]:
    need_kubernetes()
    secret = eks.new_secret()
    webhook = eks.webhook_url(local_aws.endpoint, NAME, secret)
    folder = tmp_path_factory.mktemp("leaving")
    with LocalKubernetes.start(folder, name=NAME, token_webhook=webhook, volcano=VOLCANO.built) as running:
        eks.attach(local_aws.directory, running, secret)
        client, iam = local_aws.client("eks"), local_aws.client("iam")
        role = f"arn:aws:iam::{eks.ACCOUNT}:role/eks"
        client.create_cluster(name=NAME, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]})
        arn = iam.create_user(UserName=NAME)["User"]["Arn"]
        key = iam.create_access_key(UserName=NAME)["AccessKey"]
        client.create_access_entry(clusterName=NAME, principalArn=arn, kubernetesGroups=[OBJECTS])
        session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
        yield Cluster(running, Kubernetes(client.describe_cluster(name=NAME)["cluster"], session))
        client.delete_cluster(name=NAME)
        iam.delete_access_key(UserName=NAME, AccessKeyId=key["AccessKeyId"])
        iam.delete_user(UserName=NAME)
        eks.detach(local_aws.directory, NAME)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.sweep
def test_after_an_update_the_cluster_has_the_objects_of_a_fresh_deployment(cluster: Cluster, name: str) -> None:
    need_kubernetes(volcano=name == "Volcano")
    for environment in reversed(PAIRS[name]):  # from the first one of the pair before: most are BASE
        done = cluster.deploy(environment)
        assert done["stays"] == []
        assert cluster.names() == names_of(environment)


def nominal(cluster: Cluster, queue: str) -> str:
    [flavor] = cluster.api.get(path_of(kueue.API, "ClusterQueue", queue))["spec"]["resourceGroups"][0]["flavors"]
    return str(flavor["resources"][0]["nominalQuota"])


@pytest.mark.sweep
def test_a_team_that_leaves_gives_its_nodes_back_and_its_jobs_go_on(cluster: Cluster) -> None:
    both, one = with_(queues=[SPEECH, VISION], plugins=AT_ONCE), with_(plugins=AT_ONCE)
    cluster.deploy(both)
    cluster.api.create(jobset("seen", 2, "vision"))
    assert until(lambda: has(cluster.api, "seen", "vision"))
    cluster.api.create(jobset("late", 3, "vision"))
    assert until(lambda: "quota" in reason(cluster.api, "late", "vision"))
    done = cluster.deploy(one)
    assert [line.partition(":")[0] for line in done["stays"]] == ["Namespace vision", "ClusterQueue trn.vision"]
    assert "vision/seen" in done["stays"][1]
    assert (nominal(cluster, "trn.vision"), nominal(cluster, "trn.training")) == ("0", "48")
    assert has(cluster.api, "seen", "vision"), "a running job goes on"
    assert until(lambda: "LocalQueue trn" in reason(cluster.api, "late", "vision")), "a waiting one never starts"
    cluster.api.create(jobset("wide", 2))
    assert until(lambda: has(cluster.api, "wide"))
    cluster.api.create(jobset("own", 1, "speech"))
    assert until(lambda: has(cluster.api, "own", "speech")), reason(cluster.api, "own", "speech")
    assert until(lambda: not has(cluster.api, "seen", "vision")), "it had borrowed the guaranteed node"
    assert has(cluster.api, "wide")
    assert "ClusterQueue trn.vision" not in str(cluster.finish()["stays"]), "nothing runs in it"
    for name, namespace in (("late", "vision"), ("seen", "vision"), ("wide", "training"), ("own", "speech")):
        cluster.end(name, namespace)
    assert until(lambda: cluster.finish()["stays"] == [])
    assert cluster.names() == names_of(one)


@pytest.mark.sweep
def test_a_team_that_comes_back_while_its_jobs_run_has_its_quota_again(cluster: Cluster) -> None:
    """As a rollback of the deployment that took it out does."""
    both, one = with_(queues=[SPEECH, VISION], plugins=AT_ONCE), with_(plugins=AT_ONCE)
    cluster.deploy(both)
    cluster.api.create(jobset("seen", 2, "vision"))
    assert until(lambda: has(cluster.api, "seen", "vision"))
    cluster.deploy(one)
    cluster.apply(objects(both))
    assert cluster.finish() == {"removed": [], "stays": []}, "the schedule removes nothing between the two steps"
    assert cluster.leave(both) == {"removed": [], "stays": []}
    assert (nominal(cluster, "trn.vision"), cluster.names()) == ("32", names_of(both))
    assert has(cluster.api, "seen", "vision")
    cluster.end("seen", "vision")


@pytest.mark.sweep
def test_a_claim_stays_as_long_as_a_job_uses_it(cluster: Cluster) -> None:
    other = with_([FileSystemMount("fsx", "fs-0bbbbbbbbbbbbbbb0", "/fsx", dns_name="b", mount_name="abcdef34")])
    cluster.deploy(with_([LUSTRE]))
    mounts = jobset("mounts", 1)
    [part] = mounts["spec"]["replicatedJobs"]
    old = f"fsx-{LUSTRE.id}-{LUSTRE.mount_name}"
    volume = {"name": "shared", "persistentVolumeClaim": {"claimName": old}}
    part["template"]["spec"]["template"]["spec"]["volumes"] = [volume]
    cluster.api.create(mounts)
    assert until(lambda: has(cluster.api, "mounts"))
    done = cluster.deploy(other)
    assert [line.partition(":")[0] for line in done["stays"]] == [
        f"PersistentVolumeClaim training/{old}", f"PersistentVolume training-{old}",
    ]  # fmt: skip
    assert "training/mounts use it" in done["stays"][0]
    cluster.end("mounts", "training")
    assert cluster.finish()["stays"] == []
    assert cluster.names() == names_of(other)


@pytest.mark.sweep
def test_what_is_not_the_stacks_stays(cluster: Cluster) -> None:
    """Volumes and records of users, in a namespace that leaves too; objects of another owner; a deployment that ended half-way."""
    both, one = with_(queues=[SPEECH, VISION], plugins=AT_ONCE), with_(plugins=AT_ONCE)
    cluster.deploy(both)
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine", "namespace": "vision"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    cluster.api.create(claim)
    theirs = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "theirs", "labels": {leaving.LABEL: "another"}},
    }
    cluster.api.create(theirs)
    cluster.apply(
        objects(with_(node_groups=[GROUP, {"name": "big", "max_nodes": 2}], plugins=AT_ONCE))
    )  # its end was never reached
    done = cluster.deploy(one)
    assert [line.partition(";")[0] for line in done["stays"]] == ["Namespace vision: it has PersistentVolumeClaim mine"]
    assert cluster.api.get(path_of("v1", "PersistentVolumeClaim", "mine", "vision"))
    cluster.api.delete(path_of("v1", "PersistentVolumeClaim", "mine", "vision"))
    assert until(lambda: cluster.finish()["stays"] == [])
    assert cluster.names() == names_of(one)
    assert "deletionTimestamp" not in cluster.api.get(path_of("v1", "Namespace", "theirs"))["metadata"]


def test_every_kind_that_is_applied_can_be_removed() -> None:
    kinds = {one["kind"] for pair in PAIRS.values() for each in pair for one in objects(each)}
    assert kinds <= leaving.KINDS.keys()
    assert set(leaving.KINDS) == kinds, "a kind that no stack applies needs no permission"
