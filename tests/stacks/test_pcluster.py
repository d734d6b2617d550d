"""`TrnPclusterStack` of every environment: the rules it must keep."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aws_cdk.assertions import Template

from tests.cdk import needs, properties, resources
from tests.stacks.synthesis import SLURM, cluster, environment
from tests.support import swept
from trainium_cdk import outputs, settings
from trainium_cdk.errors import SettingsError

SHORT = ("default", "existing-vpc", "fsx-persistent-s3", "login-and-accounting", "peering", "tutorial")


@pytest.fixture(params=swept(SLURM.names, *SHORT))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_cluster_is_created_last(name: str) -> None:
    """And so removed first: its nodes need the way out, the mount targets and their permissions to the end."""
    found = SLURM.template(name)
    [logical_id] = found.find_resources("Custom::PclusterCluster")
    before = needs(found, logical_id)
    for kind in ("EC2::Route", "EC2::NatGateway", "EC2::SubnetRouteTableAssociation", "EC2::VPCEndpoint",
                 "EFS::MountTarget", "FSx::FileSystem", "FSx::DataRepositoryAssociation", "SSM::Parameter",
                 "IAM::ManagedPolicy", "CloudFormation::Stack"):  # fmt: skip
        missing = {
            k
            for k, r in resources(found, kind).items()
            if k not in before and not k.startswith("NetworkPeering") and _of_nodes(r)
        }
        assert missing == set(), kind


def _of_nodes(resource: dict[str, Any]) -> bool:
    """Policies of functions have no path: only those of nodes must be where the provider's role may attach them."""
    return resource["Type"] != "AWS::IAM::ManagedPolicy" or "Path" in resource["Properties"]


def test_the_provider_gets_only_its_own_parameters(name: str) -> None:
    """It passes every other property to ParallelCluster, which rejects it: ServiceTimeout, or RollbackOnFailure."""
    found = cluster(SLURM.template(name))
    assert set(found["Properties"]) == {"ServiceToken", "ClusterName", "ClusterConfiguration", "DeletionPolicy"}
    assert found["Properties"]["DeletionPolicy"] == "Delete"
    assert found["Properties"]["ClusterName"] == environment(name).cluster_name
    [provider] = properties(SLURM.template(name), "CloudFormation::Stack")
    region, url = environment(name).region, json.dumps(provider["TemplateURL"])
    assert f"https://{region}-aws-parallelcluster.s3.{region}." in url
    assert "/parallelcluster/3.16.1/templates/custom_resource/cluster.yaml" in url


def test_node_policies_name_what_they_allow(name: str) -> None:
    """At a path that the provider's role may attach, and for single resources, except for actions without a resource level."""
    policies = resources(SLURM.template(name), "IAM::ManagedPolicy")
    nodes = {k: r["Properties"] for k, r in policies.items() if re.match(r"Cluster(Node|Head|Login)Policy", k)}
    assert len(nodes) >= 2
    for policy in nodes.values():
        assert policy["Path"] == "/parallelcluster/"
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert not [a for a in actions if "*" in a]
            # these actions have no resource level, but for the agent's registration, which is limited to the region
            free = re.compile(r"ecr:GetAuthorizationToken|(ssm|ec2)messages:|ssm:UpdateInstanceInformation$")
            assert statement["Resource"] != "*" or all(free.match(a) for a in actions)
            if "ssm:UpdateInstanceInformation" in actions:
                assert list(statement["Condition"]["StringEquals"]) == ["aws:RequestedRegion"]


def test_outputs_are_what_the_jobs_read(name: str) -> None:
    env = environment(name)
    found = SLURM.template(name).to_json()["Outputs"]
    values = {k: v["Value"] if isinstance(v["Value"], str) else "not-deployed" for k, v in found.items()}
    read = outputs.parse("TrnPclusterStack", env.region, values)
    assert isinstance(read, outputs.SlurmCluster)
    assert read.fleets == outputs.fleets(env)
    assert (read.cluster_name, read.mount_dirs) == (env.cluster_name, env.storage.mount_dirs + env.pcluster.mount_dirs)
    assert all(len(json.dumps(v).encode()) <= 1024 for v in found.values())
    assert values["NextStep"] == f"trn submit --list --here --stack TrnPclusterStack --region {env.region}"


def test_tags_are_the_stacks(name: str) -> None:
    env = environment(name)
    config = cluster(SLURM.template(name))["Properties"]["ClusterConfiguration"]
    assert {t["Key"]: t["Value"] for t in config.get("Tags", [])} == env.tags


def test_keep_keeps_data_and_delete_leaves_nothing() -> None:
    kept = SLURM.template("fsx-persistent-s3").to_json()["Resources"]
    for kind in ("AWS::EFS::FileSystem", "AWS::FSx::FileSystem", "AWS::S3::Bucket", "AWS::ECR::Repository"):
        assert {r["DeletionPolicy"] for r in kept.values() if r["Type"] == kind} == {"Retain"}, kind
    logs = cluster(SLURM.template("fsx-persistent-s3"))["Properties"]["ClusterConfiguration"]["Monitoring"]["Logs"]
    assert logs["CloudWatch"]["DeletionPolicy"] == "Retain"
    named = [r for r in kept.values() if r.get("DeletionPolicy") == "Retain" and "LogGroupName" in r["Properties"]]
    assert not named  # the next deployment would fail on it
    by_default = SLURM.template("default").to_json()["Resources"].values()
    assert not [r for r in by_default if r.get("DeletionPolicy", "Delete") != "Delete"]


def test_ssh_with_a_created_key() -> None:
    found = SLURM.template("tutorial")
    [(key_id, key)] = resources(found, "EC2::KeyPair").items()
    assert key["Properties"]["KeyType"] == "ed25519"
    assert head(found)["Ssh"] == {"AllowedIps": "203.0.113.0/24", "KeyName": {"Ref": key_id}}
    assert head(found)["Networking"]["ElasticIp"] is True
    stack_outputs = found.to_json()["Outputs"]
    assert stack_outputs["HeadNodePublicIp"]["Value"]["Fn::GetAtt"][1] == "headNode.publicIpAddress"
    assert stack_outputs["SshKeyParameter"]["Value"] == {
        "Fn::Join": ["", ["/ec2/keypair/", {"Fn::GetAtt": [key_id, "KeyPairId"]}]]
    }


def test_ssh_from_several_networks_with_a_key_that_exists() -> None:
    found = SLURM.template("public-ssh")
    assert resources(found, "EC2::KeyPair") == {}
    [(list_id, networks)] = resources(found, "EC2::PrefixList").items()
    assert [e["Cidr"] for e in networks["Properties"]["Entries"]] == ["203.0.113.0/24", "198.51.100.7/32"]
    assert head(found)["Ssh"] == {
        "AllowedIps": {"Fn::GetAtt": [list_id, "PrefixListId"]},
        "KeyName": "office-ed25519",
    }


LIST, OTHER = "pl-0123456789abcdef0", "pl-0123456789abcdef1"


@pytest.mark.parametrize(
    ("sources", "first", "others"),
    [
        ([], "127.0.0.1/32", []),
        ([LIST], LIST, []),
        (["203.0.113.0/24", LIST], "203.0.113.0/24", [LIST]),
        ([LIST, OTHER], LIST, [OTHER]),
        (["203.0.113.0/24", "198.51.100.7/32", LIST], "PrefixListId", [LIST]),
    ],
)
def test_ssh_from_prefix_lists(sources: list[str], first: str, others: list[str]) -> None:
    """ParallelCluster takes one network or list; a security group of the head node and the login nodes has the others."""
    ssh = {"from_cidrs": sources, "key_name": "office"}
    found = SLURM.template_of(settings.validate({"pcluster": {"head": {"ssh": ssh}, "login_nodes": {}}}))
    config = cluster(found)["Properties"]["ClusterConfiguration"]
    for node in (config["HeadNode"], config["LoginNodes"]["Pools"][0]):
        allowed = node["Ssh"]["AllowedIps"]
        assert first in (allowed, *(allowed.get("Fn::GetAtt", []) if isinstance(allowed, dict) else []))
        assert len(node["Networking"]["AdditionalSecurityGroups"]) == 1 + bool(others)
    rules = [r for r in properties(found, "EC2::SecurityGroupIngress") if r["FromPort"] == 22]
    assert [rule["SourcePrefixListId"] for rule in rules] == others


def test_every_node_may_mount() -> None:
    """ParallelCluster requires it: the file systems allow traffic from AND to the clients' group."""
    for each in ("default", "fsx-persistent-s3"):
        found = SLURM.template(each)
        [clients] = (k for k in resources(found, "EC2::SecurityGroup") if k.startswith("StorageClients"))
        group = {"Fn::GetAtt": [clients, "GroupId"]}
        config = cluster(found)["Properties"]["ClusterConfiguration"]
        for node in [config["HeadNode"], *config["Scheduling"]["SlurmQueues"]]:
            assert node["Networking"]["AdditionalSecurityGroups"] == [group]
        into = [r for r in properties(found, "EC2::SecurityGroupIngress") if r.get("SourceSecurityGroupId") == group]
        out = [r for r in properties(found, "EC2::SecurityGroupEgress") if r.get("DestinationSecurityGroupId") == group]
        assert {(r["FromPort"], r["ToPort"]) for r in into} == {(r["FromPort"], r["ToPort"]) for r in out} > set()


def test_a_change_of_release_does_not_change_the_head_node() -> None:
    old = SLURM.template("default")
    new = SLURM.template_of(settings.validate({"bootstrap": {"neuron_release": "2.31.0"}}))
    actions = [head(t)["CustomActions"] for t in (old, new)]
    assert actions[0]["OnNodeConfigured"] == actions[1]["OnNodeConfigured"]
    assert actions[0]["OnNodeUpdated"]["Args"] != actions[1]["OnNodeUpdated"]["Args"]


def test_a_private_head_node_requests_no_public_address() -> None:
    assert "publicIpAddress" not in json.dumps(SLURM.template("default").to_json())


def test_the_version_of_parallelcluster_is_a_setting() -> None:
    found = SLURM.template_of(settings.validate({"pcluster": {"version": "3.15.0"}}))
    [provider] = properties(found, "CloudFormation::Stack")
    assert "/parallelcluster/3.15.0/templates/" in json.dumps(provider["TemplateURL"])


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ({}, None),
        ({"role": "arn:aws:iam::111122223333:role/Provider"}, {"CustomLambdaRole": "arn:aws:iam::111122223333:role/Provider"}),
        (
            {"policies": ["arn:aws:iam::aws:policy/A", "arn:aws:iam::111122223333:policy/B"]},
            {"AdditionalIamPolicies": "arn:aws:iam::aws:policy/A,arn:aws:iam::111122223333:policy/B"},
        ),
    ],
)  # fmt: skip
def test_the_providers_role_and_policies_are_settings(given: dict[str, Any], parameters: dict[str, str] | None) -> None:
    found = SLURM.template_of(settings.validate({"pcluster": {"provider": given}}))
    [provider] = properties(found, "CloudFormation::Stack")
    assert provider.get("Parameters") == parameters


def test_a_stack_cannot_have_the_clusters_name() -> None:
    with pytest.raises(
        SettingsError,
        match=r"^TrnPclusterStack/Cluster: error: cluster_name = TrnPclusterStack: the stack has this name",
    ):
        SLURM.template_of(settings.validate({"pcluster": {"cluster_name": "TrnPclusterStack"}}))


def head(found: Template) -> dict[str, Any]:
    configuration = cluster(found)["Properties"]["ClusterConfiguration"]
    return dict(configuration["HeadNode"])
