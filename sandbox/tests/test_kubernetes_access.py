"""Access to the local Kubernetes, also of the CDK: EKS tokens, access entries, the kubectl provider."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sandbox import LocalAws
from sandbox.kubernetes import KubernetesFailed, LocalKubernetes, eks
from sandbox.kubernetes.api import ApiError, path_of
from sandbox.local_aws import SHIMS
from sandbox.testing import completed

pytestmark = pytest.mark.sweep

NAME = "kubernetes-test"
SEE = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}],
}
"""What `aws eks update-kubeconfig` needs. It gives nothing inside the cluster."""


def _token(key: str, secret: str, *, cluster: str = NAME, region: str = "us-east-1") -> str:
    """A bearer token as EKS takes it: a GetCallerIdentity, signed for the real STS host with the cluster's name in it."""
    request = AWSRequest(
        "GET",
        f"https://sts.{region}.amazonaws.com/",
        params={"Action": "GetCallerIdentity", "Version": "2011-06-15"},
        headers={"x-k8s-aws-id": cluster},
    )
    SigV4QueryAuth(Credentials(key, secret), "sts", region, expires=60).add_auth(request)
    url = str(request.prepare().url).encode()
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url).decode().rstrip("=")


@pytest.fixture(scope="module")
def eks_cluster(cluster: LocalKubernetes, local_aws: LocalAws) -> Iterator[dict[str, tuple[str, str]]]:
    """The EKS cluster, with an administrator, a reader and a stranger: user name -> access key."""
    client, iam = local_aws.client("eks"), local_aws.client("iam")
    role = f"arn:aws:iam::{eks.ACCOUNT}:role/eks"
    client.create_cluster(name=NAME, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]})
    keys = {}
    for user, policy in (("chief", "AmazonEKSClusterAdminPolicy"), ("reader", "AmazonEKSViewPolicy"), ("stranger", "")):
        arn = iam.create_user(UserName=user)["User"]["Arn"]
        made = iam.create_access_key(UserName=user)["AccessKey"]
        keys[user] = (made["AccessKeyId"], made["SecretAccessKey"])
        iam.put_user_policy(UserName=user, PolicyName="see", PolicyDocument=json.dumps(SEE))
        if policy:
            client.create_access_entry(clusterName=NAME, principalArn=arn)
            client.associate_access_policy(
                clusterName=NAME,
                principalArn=arn,
                policyArn=f"arn:aws:eks::aws:cluster-access-policy/{policy}",
                accessScope={"type": "cluster"},
            )
    yield keys
    client.delete_cluster(name=NAME)
    for user, (key, _) in keys.items():
        iam.delete_user_policy(UserName=user, PolicyName="see")
        iam.delete_access_key(UserName=user, AccessKeyId=key)
        iam.delete_user(UserName=user)


@pytest.mark.sweep
def test_eks_tokens_have_the_rights_of_their_access_entries(
    cluster: LocalKubernetes, eks_cluster: dict[str, tuple[str, str]]
) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made-by-token"}}
    chief = cluster.api(_token(*eks_cluster["chief"]))
    assert chief.create(config_map)["metadata"]["uid"]
    reader = cluster.api(_token(*eks_cluster["reader"]))
    assert reader.get(path_of("v1", "ConfigMap", "made-by-token", "default"))["kind"] == "ConfigMap"
    with pytest.raises(ApiError) as refused:
        reader.create({**config_map, "metadata": {"name": "another"}})
    assert refused.value.status == 403
    chief.delete(path_of("v1", "ConfigMap", "made-by-token", "default"))


def test_invalid_tokens_are_refused(cluster: LocalKubernetes, eks_cluster: dict[str, tuple[str, str]]) -> None:
    key, secret = eks_cluster["chief"]
    for token in (
        _token(*eks_cluster["stranger"]),  # valid, but of a principal without an access entry
        _token(key, secret + "x"),  # signed with another secret
        _token(key, secret, cluster="another"),  # made for another cluster
        "k8s-aws-v1.bm90aGluZw",
        "nothing",
    ):
        with pytest.raises(ApiError) as refused:
            cluster.api(token).get("/api/v1/namespaces")
        assert refused.value.status == 401, token
    with pytest.raises(ApiError) as refused:
        cluster.api("").get("/api/v1/namespaces")
    assert refused.value.status == 403  # no principal at all


def test_aws_and_kubectl_reach_the_cluster_that_eks_describes(
    cluster: LocalKubernetes, local_aws: LocalAws, eks_cluster: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    """What CDK's kubectl provider does: `aws eks update-kubeconfig`, then kubectl with what that wrote."""
    described = local_aws.client("eks").describe_cluster(name=NAME)["cluster"]
    assert described["endpoint"] == cluster.endpoint
    assert described["certificateAuthority"]["data"] == cluster.ca_data
    key, secret = eks_cluster["chief"]
    path = os.pathsep.join([str(SHIMS), os.environ["PATH"]])
    env = {**local_aws.env, "PATH": path, "SANDBOX_DIR": str(local_aws.directory), "HOME": str(tmp_path)}
    env |= {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    config = tmp_path / "kubeconfig"

    def run(*command: str, refused: str = "") -> None:
        done = completed(command, env=env)
        assert (done.returncode == 0) is (not refused), done.stderr
        assert refused in done.stderr.replace("\\", "")

    run("aws", "eks", "update-kubeconfig", "--name", NAME, "--kubeconfig", str(config))
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        '{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"training"}}'
        '{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"trainer","namespace":"training"}}'
    )
    run("kubectl", "create", "--kubeconfig", str(config), "-f", str(manifest), "--save-config")
    assert cluster.api().get(path_of("v1", "ServiceAccount", "trainer", "training"))["kind"] == "ServiceAccount"
    run("kubectl", "delete", "--kubeconfig", str(config), "-f", str(manifest))
    wrong = {"kind": "JobSet", "metadata": {"name": "wrong"}, "spec": {"sucessPolicy": {}}}
    manifest.write_text(json.dumps({"apiVersion": "jobset.x-k8s.io/v1alpha2", **wrong}))
    create = ("kubectl", "create", "--kubeconfig", str(config), "-f", str(manifest))
    run(*create, refused='unknown field "spec.sucessPolicy"')


def test_an_existing_cluster_serves_as_eks(
    cluster: LocalKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller names a kubeconfig with an EKS token in it; what counts is the user's own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubernetesFailed, match="cannot be used"):
        eks.attach_own(tmp_path, "own", tmp_path / "nowhere")
    eks.attach_own(tmp_path, "own", cluster.kubeconfig)
    hook = json.loads((tmp_path / "eks/own.json").read_text())
    assert (hook["endpoint"], hook["ca"]) == (cluster.endpoint, cluster.ca_data)
    env = {"SANDBOX_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": os.defpath}
    command = [str(SHIMS / "kubectl"), "get", "--kubeconfig", "/nowhere", "namespace", "kube-system", "-o", "name"]
    shown = completed(command, env=env, check=True).stdout
    assert shown == "namespace/kube-system\n"
    eks.detach(tmp_path, "own")
    assert list((tmp_path / "eks").iterdir()) == []
