"""The whole life of `TrnEksStack` with the real CDK command line and a real Kubernetes API: made, used, scaled, changed, removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, eks, helm
from sandbox.kubernetes.api import Api, path_of
from sandbox.processes import wait_until
from tests.eks.scenes import job as jobs_of
from tests.eks.scenes import jobset, pod
from tests.stacks import keys
from tests.stacks.conftest import Cdk
from tests.support import need_kubernetes
from trainium_cdk import outputs
from trainium_cdk.cdk.eks import kueue
from trainium_cdk.cdk.eks.charts import CONTROLLERS
from trainium_cdk.client.jobs.kubernetes.access import Identity
from trainium_cdk.description.catalog import Catalog

STACK, ENGINE = "TrnEksStack", "eks"


@pytest.fixture
def kubernetes(local_aws: LocalAws, name: str, tmp_path: Path) -> Iterator[LocalKubernetes]:
    need_kubernetes()
    secret, cluster = eks.new_secret(), f"{name}-eks"
    webhook = eks.webhook_url(local_aws.endpoint, cluster, secret)
    with LocalKubernetes.start(tmp_path / "kubernetes", name=cluster, token_webhook=webhook) as running:
        eks.attach(local_aws.directory, running, secret)
        try:
            yield running
        finally:
            eks.detach(local_aws.directory, cluster)


def may(api: Api, verb: str, group: str, resource: str, namespace: str = "training") -> bool:
    """Whether the API's user may do it, as the API reports."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"].get("allowed"))


def quota(api: Api) -> dict[str, str]:
    """Of the devices of the node group."""
    [flavor] = api.get(path_of(kueue.API, "ClusterQueue", "trn.training"))["spec"]["resourceGroups"][0]["flavors"]
    return {resource["name"]: resource["nominalQuota"] for resource in flavor["resources"]}


@pytest.mark.sweep  # as test_deploy.py
def test_life_of_a_cluster(
    cdk: Cdk,
    kubernetes: LocalKubernetes,
    local_aws: LocalAws,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs_of_runs: list[str] = []

    def deploy(environment: dict[str, Any]) -> dict[str, str]:
        file = tmp_path / "outputs.json"
        code, printed = cdk("deploy", environment, "--outputs-file", str(file))
        assert code == 0, printed
        outputs_of_runs.append(printed)
        found: dict[str, str] = json.loads(file.read_text())[f"TrnEksStack-{name}"]
        return found

    first: dict[str, Any] = {
        "encryption": "customer-key",
        "tags": {"team": "speech"},
        "storage": {"efs": {}, "fsx": {"deployment": "PERSISTENT_2", "capacity_gib": 1200}},
        "eks": {
            "node_groups": [{"max_nodes": 4}],
            "data_buckets": ["speech-corpus"],
            "observability": {},
            "support": "extended",
        },
    }
    made = outputs.parse(f"TrnEksStack-{name}", "us-east-1", deploy(first))
    assert isinstance(made, outputs.EksCluster)
    assert made.cluster_name == f"{name}-eks"
    assert [claim.split("-fs-")[0] for claim in made.claims] == ["efs-team", "fsx"]
    assert made.build_project
    assert made.bastion_host_id.startswith("i-")
    assert keys.without(local_aws, f"TrnEksStack-{name}") == {}

    # what came into the real API
    api, client = kubernetes.api(), local_aws.client("eks")
    assert quota(api) == {"aws.amazon.com/neuron": "64"}
    for claim in made.claims:
        found = api.get(path_of("v1", "PersistentVolumeClaim", claim, "training"))
        volume = api.get(path_of("v1", "PersistentVolume", found["spec"]["volumeName"]))
        assert volume["spec"]["csi"]["volumeHandle"].startswith("fs-")
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    account = api.get(path_of("v1", "ServiceAccount", made.service_account, made.namespace))
    assert account["automountServiceAccountToken"] is False
    assert (
        api.get(path_of("v1", "Namespace", "training"))["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        == "baseline"
    )
    assert {
        (a["namespace"], a["serviceAccount"])
        for a in client.list_pod_identity_associations(clusterName=made.cluster_name)["associations"]
    } >= {
        ("training", "trn-job"),
        ("neuron-healthcheck-system", "node-problem-detector"),
    }
    assert {"eks-node-monitoring-agent", "amazon-cloudwatch-observability"} <= set(
        client.list_addons(clusterName=made.cluster_name)["addons"]
    )
    pinned = {
        name: chart for name, chart in Catalog.load().eks.charts.items() if name not in ("volcano", "neuron-claims")
    }
    called = {c["release"]: c for c in helm.calls(local_aws.directory) if c["verb"] == "upgrade"}
    for release, chart in pinned.items():
        assert called[release]["version"] == chart.version
        assert called[release]["wait"] is (release in CONTROLLERS)

    # the role that `trn` takes: only jobs in the one namespace
    for key, value in local_aws.variables.items():
        monkeypatch.setenv(key, value)
    user = kubernetes.api(Identity.of(made).token().value)
    assert may(user, "create", "jobset.x-k8s.io", "jobsets")
    assert may(user, "get", "", "pods")
    assert may(user, "list", "", "nodes", "")
    assert not may(user, "create", "jobset.x-k8s.io", "jobsets", "default")
    assert not may(user, "delete", "", "nodes", "")
    assert not may(user, "get", "", "secrets", "kube-system")

    # nodes start for a job, from none on
    eks.sync_nodes(kubernetes, local_aws.client)
    job = path_of("jobset.x-k8s.io/v1alpha2", "JobSet", "first", "training")
    api.create(jobset("first", {"train": jobs_of(2, pod(16))}))
    requests = path_of("autoscaling.x-k8s.io/v1", "ProvisioningRequest", namespace="training")
    pods = path_of("v1", "Pod", namespace="training")
    assert wait_until(lambda: len(api.get(requests)["items"]) == 1, 600)
    [scaler] = [
        f["FunctionName"]
        for f in local_aws.client("lambda").list_functions()["Functions"]
        if f["Description"] == f"Starts and stops the Trainium nodes of {made.cluster_name} for waiting jobs"
    ]
    for _ in range(2):  # minutes
        answer = local_aws.client("lambda").invoke(FunctionName=scaler)
        assert "FunctionError" not in answer, answer["Payload"].read()
        eks.sync_nodes(kubernetes, local_aws.client)
    assert wait_until(lambda: [p["status"]["phase"] for p in api.get(pods)["items"]] == ["Running"] * 2, 600)
    assert len({one["spec"]["nodeName"] for one in api.get(pods)["items"]}) == 2
    api.delete(job, propagationPolicy="Foreground")
    assert wait_until(lambda: not api.get(pods)["items"], 600)

    assert "Number of stacks with differences: 0" in cdk("diff", first)[1]
    deploy(first)
    assert f"(TrnEksStack-{name}) (no changes)" in outputs_of_runs[-1]

    # scaled manually, and deployed again with a higher maximum: no node is removed
    [group] = [
        g for g in client.list_nodegroups(clusterName=made.cluster_name)["nodegroups"] if "system" not in g.lower()
    ]
    sizes = {"minSize": 0, "maxSize": 4, "desiredSize": 3}
    client.update_nodegroup_config(clusterName=made.cluster_name, nodegroupName=group, scalingConfig=sizes)
    nodes = eks.sync_nodes(kubernetes, local_aws.client)[group]
    assert len(nodes) == 3
    node = api.get(path_of("v1", "Node", nodes[0]))
    assert node["status"]["capacity"]["vpc.amazonaws.com/efa"] == "8"
    assert {"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"} in node["spec"]["taints"]
    grown = {**first, "eks": {**first["eks"], "node_groups": [{"max_nodes": 8}]}}
    deploy(grown)
    after = client.describe_nodegroup(clusterName=made.cluster_name, nodegroupName=group)["nodegroup"]["scalingConfig"]
    assert after == {"minSize": 0, "maxSize": 8, "desiredSize": 3}
    assert quota(api) == {"aws.amazon.com/neuron": "128"}
