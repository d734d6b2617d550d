"""`trn why` reads a cluster's Kubernetes through the command line, with a user's own credentials."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from tests.jobs.kubernetes.conftest import NAME, Running, script
from tests.support import completed
from trainium_cdk import outputs, settings
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend

STACK = "TrnEksStack-why"


@pytest.fixture
def stack(local_aws: LocalAws, running: Running) -> Iterator[str]:
    """A stack whose outputs are those of the cluster that runs, and whose events and parts its user may read."""
    assert running.cluster.cluster_name == NAME
    values = {key: value for key, (value, _) in outputs.eks_outputs(settings.load(), bucket="trn-bucket").items()}
    values[next(key for key, (field, _) in outputs.EksCluster.keys.items() if field == "cluster_name")] = NAME
    template = {
        "Resources": {"Log": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": f"/{STACK}"}}},
        "Outputs": {key: {"Value": value} for key, value in values.items()},
    }
    cloudformation = local_aws.client("cloudformation")
    cloudformation.create_stack(StackName=STACK, TemplateBody=json.dumps(template))
    reads = [
        f"{service}:{verb}*"
        for service in ("cloudformation", "logs", "ec2", "eks", "autoscaling")
        for verb in ("Describe", "List", "Get", "Filter")
    ]
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": reads, "Resource": "*"}]}
    iam = local_aws.client("iam")
    iam.put_user_policy(UserName="jobs-editor", PolicyName="why", PolicyDocument=json.dumps(policy))
    yield STACK
    iam.delete_user_policy(UserName="jobs-editor", PolicyName="why")
    cloudformation.delete_stack(StackName=STACK)


def test_warnings_of_the_cluster_are_evidence(backend: KubernetesBackend, running: Running, stack: str) -> None:
    sent = backend.submit(script(b"sleep 3600", nodes=1), "why")
    now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"  # of many events, the newest are shown
    warning = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "trn-why"}, "type": "Warning", "reason": "FailedMount",
        "message": f"driver efs.csi.aws.com not found for {sent.id}",
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": f"{sent.id}-train-0-0", "namespace": "training"},
        "lastTimestamp": now,
    }  # fmt: skip
    backend.api.create("Event", warning)
    trn = Path(sys.executable).with_name("trn")
    env = {**running.variables, "PATH": f"{trn.parent}:/usr/bin:/bin"}
    try:
        done = completed([trn, "why", stack], env=env, timeout=600)
    finally:
        backend.api.delete("Event", "trn-why")
    assert done.returncode == 0, done.stderr
    assert "is CREATE_COMPLETE" in done.stderr
    assert "Kubernetes was not read" not in done.stderr
    assert f"Pod {sent.id}-train-0-0, {now}: FailedMount: {warning['message']}" in done.stdout
