"""Access to the Kubernetes API: the tokens that are sent, the errors for unknown principals, and the tunnel to a private endpoint."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from sandbox import LocalAws
from tests.credentials import session
from tests.jobs.kubernetes.conftest import NAME, Running
from tests.support import completed, session_manager_plugin
from trainium_cdk.client.jobs.kubernetes import Api, ApiError, access, kubernetes_api
from trainium_cdk.client.jobs.kubernetes.api import connections
from trainium_cdk.jobs import TransportError, TrnError, connect


def test_a_token_names_the_principal_and_the_cluster(running: Running) -> None:
    now = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
    token = access.Identity(NAME, "us-east-1").token(now)
    assert token.value.startswith("k8s-aws-v1.")
    assert "=" not in token.value
    text = token.value.removeprefix("k8s-aws-v1.")
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", "sts.us-east-1.amazonaws.com", "/")
    query = parse_qs(url.query)
    assert query["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
    assert query["X-Amz-Expires"] == ["60"]
    assert query["Action"] == ["GetCallerIdentity"]
    assert token.until == dt.datetime(2026, 11, 20, 12, 14, tzinfo=dt.UTC)
    assert token.value not in repr(token)
    credential = json.loads(token.to_exec_credential())
    assert credential["status"] == {"token": token.value, "expirationTimestamp": "2026-11-20T12:14:00Z"}


def test_a_missing_access_entry_is_reported(running: Running, local_aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    iam = local_aws.client("iam")
    iam.create_user(UserName="jobs-stranger")
    key = iam.create_access_key(UserName="jobs-stranger")["AccessKey"]
    policy = {"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [policy]})
    iam.put_user_policy(UserName="jobs-stranger", PolicyName="describe", PolicyDocument=document)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials it was made with
    api = kubernetes_api(running.cluster)
    try:
        with pytest.raises(
            ApiError, match=r"arn:aws:iam::\d+:user/jobs-stranger has no access to cluster .*. Add an access entry"
        ) as caught:
            api.list("Pod")
        assert (caught.value.status, caught.value.again) == (401, False)
    finally:
        api.close()
        iam.delete_user_policy(UserName="jobs-stranger", PolicyName="describe")
        iam.delete_access_key(UserName="jobs-stranger", AccessKeyId=key["AccessKeyId"])
        iam.delete_user(UserName="jobs-stranger")


def test_expired_credentials_are_reported(running: Running, local_aws: LocalAws) -> None:
    """And not to request access: while a job is followed they may expire."""
    endpoint = access.find(running.cluster)
    with session(local_aws, 1, "*") as keys:
        own = boto3.Session(
            keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"], keys["AWS_SESSION_TOKEN"], local_aws.region
        )
        time.sleep(1.5)
        api = Api(endpoint, access.Identity(NAME, local_aws.region, session=own), "training")
        try:
            with pytest.raises(ApiError, match=r"these AWS credentials have expired or are not valid: .*Renew them"):
                api.list("Pod")
        finally:
            api.close()


@pytest.mark.sweep
def test_a_token_whose_credentials_were_renewed_is_renewed(running: Running) -> None:
    """boto3 renews credentials automatically; a token signed with the old ones is refused once."""
    api = kubernetes_api(running.cluster)
    try:
        now = dt.datetime.now(dt.UTC)
        api._token = access.Token("k8s-aws-v1.bm90aGluZw", now + dt.timedelta(minutes=10))
        assert api.list("Pod") == api.list("Pod")
    finally:
        api.close()


def test_no_file_can_be_left_by_a_killed_client(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for requests nor for exec and port-forward, which take the authority's certificate from a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    api = kubernetes_api(running.cluster)
    api.list("Pod")
    assert "BEGIN CERTIFICATE" in Path(api.client.configuration.ssl_ca_cert).read_text()
    assert list(tmp_path.iterdir()) == []
    api.close()


def test_actions_denied_to_job_editors(running: Running) -> None:
    api = kubernetes_api(running.cluster)
    api.namespace = "kube-system"
    with pytest.raises(
        ApiError, match=r"these AWS credentials are not allowed to do that: .*forbidden.*Request the policy edit"
    ):
        api.list("Secret")
    api.close()


@pytest.mark.parametrize(
    ("variables", "proxied"),
    [
        ({}, False),
        ({"HTTPS_PROXY": "http://127.0.0.1:9"}, True),
        ({"https_proxy": "127.0.0.1:9"}, True),
        ({"HTTP_PROXY": "http://127.0.0.1:9"}, False),
        ({"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ".eks.amazonaws.com"}, False),
    ],
)
def test_the_proxy_of_the_environment_is_used(
    variables: dict[str, str], proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = connections(access.Endpoint("https://ABC.gr7.us-east-1.eks.amazonaws.com", "authority"))
    assert (made.proxy is not None) is proxied


def test_no_such_cluster(running: Running) -> None:
    missing = running.cluster.model_copy(update={"cluster_name": "missing"})
    with pytest.raises(
        TransportError, match=r"EKS did not describe cluster|there is no EKS cluster missing in us-east-1"
    ):
        access.find(missing)


def test_local_is_for_head_nodes(running: Running) -> None:
    with pytest.raises(TrnError, match=r"stack TrnEksStack runs Kubernetes and has no head node"):
        connect(cluster=running.cluster, local=True)


TUNNEL = """
import sys
from trainium_cdk.client.jobs.kubernetes import Api, access
from trainium_cdk.description.outputs import EksCluster
from urllib.parse import urlsplit
cluster = EksCluster.model_validate_json(sys.stdin.read())
there = access.find(cluster)
port = urlsplit(there.url).port
private = access.Endpoint(f"https://localhost:{port}", there.authority)
access.answers = lambda host, at, timeout, real=access.answers: at != port and real(host, at, timeout)
near = access.reach(cluster, private)
api = Api(near, access.Identity.of(cluster), cluster.namespace)
print(near.server_name, near.url, len(api.list("Pod")) >= 0)
api.close()
"""


def run_tunnel(running: Running, programs: Path, bastion_host: str) -> subprocess.CompletedProcess[str]:
    cluster = running.cluster.model_copy(update={"bastion_host_id": bastion_host})
    path = os.pathsep.join([str(programs), "/usr/bin", "/bin"])
    return completed(
        [sys.executable, "-c", TUNNEL],
        input=cluster.model_dump_json(),
        env={**running.variables, "PATH": path},
        timeout=900,
    )


def test_a_private_api_is_reached_through_the_bastion_host(running: Running, local_aws: Any) -> None:
    """With AWS's own plugin: TLS works with the API's own name, and nothing is left."""
    ec2 = local_aws.client("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    host = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    done = run_tunnel(running, session_manager_plugin(), host)
    assert done.returncode == 0, done.stderr
    name, url, fine = done.stdout.split()
    assert (name, fine) == ("localhost", "True")
    assert url.startswith("https://127.0.0.1:")
    left = local_aws.client("ssm").describe_sessions(State="Active")["Sessions"]
    assert host not in [session["Target"] for session in left]
    ec2.terminate_instances(InstanceIds=[host])


def test_without_the_plugin_or_with_an_old_one(running: Running, tmp_path: Path) -> None:
    done = run_tunnel(running, tmp_path, "i-0123456789abcdef0")
    assert "session-manager-plugin is not installed, by which the VPC is reached. Install it" in done.stderr
    (tmp_path / "session-manager-plugin").write_text("#!/bin/sh\necho 1.2.339.0\n")
    (tmp_path / "session-manager-plugin").chmod(0o755)
    done = run_tunnel(running, tmp_path, "i-0123456789abcdef0")
    assert "session-manager-plugin is 1.2.339.0; 1.2.497 or newer is needed" in done.stderr


def test_without_a_bastion_host(running: Running) -> None:
    nowhere = access.Endpoint("https://127.0.0.1:9", "")
    with pytest.raises(
        TransportError, match=r"is private, cannot be reached from here, and TrnEksStack has no bastion host"
    ):
        access.reach(running.cluster, nowhere)


@pytest.mark.parametrize(
    ("caller", "name"),
    [
        ("arn:aws:iam::111122223333:user/team/ada", "trn-ada"),
        ("arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Speech_0/ada@example.com", "trn-ada@example.com"),
        ("arn:aws:iam::111122223333:root", "trn-arn-aws-iam--111122223333-root"),
        ("arn:aws:iam::111122223333:user/" + "x" * 64, "trn-" + "x" * 60),
        ("arn:aws:iam::111122223333:user/Zoë", "trn-Zo-"),
    ],
)
def test_the_session_has_the_users_name(caller: str, name: str) -> None:
    assert access.session_name(caller) == name
