"""An EKS cluster deployed by the CDK into the local AWS, with a real API server behind it; and taken down again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, available, eks, helm
from sandbox.kubernetes.api import ApiError, path_of
from sandbox.leftovers import beyond, inventory
from tests.support import need

NAME = "eks-app"
QUEUE = path_of("scheduling.volcano.sh/v1beta1", "Queue", "trn")


@pytest.fixture
def kubernetes(tmp_path: Path, local_aws: LocalAws) -> Iterator[LocalKubernetes]:
    need(available() is None, str(available()))
    secret = eks.new_secret()
    webhook = eks.webhook_url(local_aws.endpoint, NAME, secret)
    with LocalKubernetes.start(tmp_path / "kubernetes", name=NAME, token_webhook=webhook) as running:
        eks.attach(local_aws.directory, running, secret)
        try:
            yield running
        finally:
            eks.detach(local_aws.directory, NAME)


@pytest.mark.sweep
def test_deploy_change_and_destroy(local_aws: LocalAws, kubernetes: LocalKubernetes, tmp_path: Path) -> None:
    app = Path(__file__).parent / "app/eks_app.py"
    before, charts = inventory(local_aws.client), len(helm.calls(local_aws.directory))

    def cdk(verb: str, *options: str, devices: int = 32) -> str:
        context = ["-c", f"name={NAME}", "-c", f"devices={devices}", "-o", str(tmp_path / "cdk.out")]
        return local_aws.cdk(verb, "--app", f"{sys.executable} {app}", *context, *options, cwd=tmp_path).stdout

    cdk("deploy", "--require-approval", "never")
    client = local_aws.client("eks")
    api = kubernetes.api()
    described = client.describe_cluster(name=NAME)["cluster"]
    assert (described["endpoint"], described["version"]) == (kubernetes.endpoint, "1.35")
    assert client.describe_addon(clusterName=NAME, addonName="aws-fsx-csi-driver")["addon"]["status"] == "ACTIVE"
    # The provider's role has no certificate, only its access entry: what it made, it made by a token.
    [principal] = client.list_access_entries(clusterName=NAME)["accessEntries"]
    assert "KubectlProvider" in principal
    assert api.get(QUEUE)["spec"]["capability"] == {"aws.amazon.com/neuron": "32"}
    assert api.get(path_of("v1", "Namespace", "training"))["status"]["phase"] == "Active"
    [called] = [call for call in helm.calls(local_aws.directory)[charts:] if call["verb"] == "upgrade"]
    assert (called["chart"].rpartition("/")[2], called["version"]) == ("neuron-helm-chart", "1.10.0")
    assert called["values"] == {"scheduler": {"enabled": False}}

    nodes = eks.sync_nodes(kubernetes, local_aws.client)["trn"]
    assert len(nodes) == 2
    made = api.get(path_of("v1", "Node", nodes[0]))
    assert made["status"]["capacity"]["vpc.amazonaws.com/efa"] == "8"
    labels = made["metadata"]["labels"]
    assert (labels["role"], labels["topology.kubernetes.io/zone"]) == ("training", "us-east-1b")
    assert made["spec"]["taints"] == [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}]

    cdk("deploy", "--require-approval", "never", devices=64)
    assert api.get(QUEUE)["spec"]["capability"] == {"aws.amazon.com/neuron": "64"}
    assert eks.sync_nodes(kubernetes, local_aws.client) == {"trn": nodes}

    cdk("destroy", "--force")
    with pytest.raises(ApiError) as caught:
        api.get(QUEUE)
    assert caught.value.status == 404
    assert eks.sync_nodes(kubernetes, local_aws.client) == {}
    assert api.get("/api/v1/nodes")["items"] == []
    left = beyond(inventory(local_aws.client), before)
    assert {kind: names for kind, names in left.items() if kind != "log groups"} == {}, json.dumps(left)
