"""The whole life of a stack with the real CDK command line, in the local AWS: made, looked at, changed, refused, removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests.stacks import keys
from tests.stacks.conftest import Cdk
from trainium_cdk import outputs

STACK, ENGINE = "TrnPclusterStack", "slurm"


def recorded(aws: LocalAws, name: str) -> dict[str, Any]:
    """The configuration that the provider got last."""
    record: dict[str, Any] = json.loads((aws.directory / f"clusters/{name}-slurm/cluster.json").read_text())
    return record


@pytest.mark.sweep  # `make scenes` deploys and destroys this stack in the demo, and updates one in test_constructs_alone.py
def test_life_of_a_stack(cdk: Cdk, local_aws: LocalAws, name: str, tmp_path: Path) -> None:
    first: dict[str, Any] = {
        "encryption": "customer-key",
        "tags": {"team": "speech"},
        "storage": {"efs": {}, "fsx": {"deployment": "PERSISTENT_2", "capacity_gib": 1200}},
        "pcluster": {
            "head": {"subnet": "public", "ssh": {"from_cidrs": ["203.0.113.0/24"]}},
            "login_nodes": {},
            "queues": [{"name": "bert", "compute_resources": [{"max_nodes": 4}]}],
        },
    }
    code, output = cdk("deploy", first, "--outputs-file", str(tmp_path / "outputs.json"))
    assert code == 0, output
    stack = f"TrnPclusterStack-{name}"
    said_by_stack = json.loads((tmp_path / "outputs.json").read_text())[stack]
    made = outputs.parse(stack, "us-east-1", said_by_stack)
    assert isinstance(made, outputs.SlurmCluster)
    assert (made.cluster_name, made.mount_dirs) == (f"{name}-slurm", ("/efs", "/fsx"))
    assert made.registry_uri
    assert keys.without(local_aws, stack) == {}
    head = recorded(local_aws, name)
    assert head["headNode"] == made.head_node_id
    assert {"Key": "team", "Value": "speech"} in head["config"]["Tags"]
    pointer = local_aws.client("ssm").get_parameter(Name=f"/trainium/{name}-slurm/node-scripts")["Parameter"]["Value"]
    assert exists(local_aws, pointer)
    assert exists(local_aws, head["config"]["HeadNode"]["CustomActions"]["OnNodeConfigured"]["Script"])
    [key] = local_aws.client("ec2").describe_key_pairs(KeyNames=[f"{name}-slurm"])["KeyPairs"]
    assert key["KeyType"] == "ed25519"
    private = local_aws.client("ssm").get_parameter(Name=said_by_stack["SshKeyParameter"], WithDecryption=True)
    assert "PRIVATE KEY" in private["Parameter"]["Value"]

    code, output = cdk("diff", first)
    assert code == 0
    assert "Number of stacks with differences: 0" in output, output
    code, output = cdk("deploy", first)
    assert (code, f"({stack}) (no changes)" in output) == (0, True), output

    grown = {**first, "bootstrap": {"neuron_release": "2.31.0"}}
    grown["pcluster"] = {**first["pcluster"], "queues": [{"name": "bert", "compute_resources": [{"max_nodes": 8}]}]}
    code, output = cdk("deploy", grown)
    assert code == 0, output
    after = recorded(local_aws, name)
    assert after["headNode"] == made.head_node_id
    newer = local_aws.client("ssm").get_parameter(Name=f"/trainium/{name}-slurm/node-scripts")["Parameter"]["Value"]
    assert newer != pointer
    assert exists(local_aws, newer)
    assert after["config"]["HeadNode"]["CustomActions"]["OnNodeUpdated"]["Args"] == [newer, "TRN_ON_FAILURE=report"]

    refused = {**grown, "bootstrap": {}, "pcluster": {**grown["pcluster"], "os": "ubuntu2204"}}
    code, output = cdk("deploy", refused)
    assert code == 1
    # the provider keeps the end of a long reason
    assert "Restore 'Os' value to 'ubuntu2404'" in " ".join(output.split()), output
    assert recorded(local_aws, name)["config"]["Image"] == {"Os": "ubuntu2404"}

    local_aws.set_compute_fleet(f"{name}-slurm", running=False)  # then fewer nodes are allowed
    code, output = cdk("deploy", {**grown, "pcluster": first["pcluster"]})
    assert code == 0, output


@pytest.mark.sweep
def test_what_parallelcluster_refuses_is_rolled_back(cdk: Cdk, local_aws: LocalAws, name: str) -> None:
    """No rule of ours covers this, but its validators do: the deployment fails with their message."""
    code, output = cdk("deploy", {"pcluster": {"head": {"instance_type": "c5.huge"}}})
    assert code == 1
    assert "[c5.huge]" in output
    found = local_aws.client("cloudformation").describe_stacks(StackName=f"TrnPclusterStack-{name}")["Stacks"][0]
    assert found["StackStatus"] == "ROLLBACK_COMPLETE"


def exists(aws: LocalAws, url: str) -> bool:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bool(aws.client("s3").head_object(Bucket=bucket, Key=key)["ContentLength"])
