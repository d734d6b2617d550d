"""One setting encrypts everything that can have a key, and the key's policy lets in who must use it and nobody else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.audit.principals import ACCOUNT, REGION, ask, filled, of
from tests.stacks import eks_synthesis, synthesis
from trainium_cdk import settings
from trainium_cdk._cdk.encryption import AUTO_SCALING_ROLE

OWN = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"
STORAGE = {"efs": {}, "fsx": {"deployment": "PERSISTENT_2", "capacity_gib": 1200}}
WHERE = {
    "AWS::Logs::LogGroup": "KmsKeyId",
    "AWS::ECR::Repository": "EncryptionConfiguration.KmsKey",
    "AWS::EFS::FileSystem": "KmsKeyId",
    "AWS::FSx::FileSystem": "KmsKeyId",
    "AWS::Lambda::Function": "KmsKeyArn",
    "AWS::CodeBuild::Project": "EncryptionKey",
    "AWS::EC2::Instance": "BlockDeviceMappings.0.Ebs.KmsKeyId",
    "AWS::EKS::Cluster": "EncryptionConfig.0.Provider.KeyArn",
}
BUCKET = "BucketEncryption.ServerSideEncryptionConfiguration.0.ServerSideEncryptionByDefault.KMSMasterKeyID"
VOLUME = "LaunchTemplateData.BlockDeviceMappings.0.Ebs.KmsKeyId"


def template(engine: str, encryption: str) -> dict[str, Any]:
    data: dict[str, Any] = {"encryption": encryption, "storage": STORAGE, "pcluster": {"login_nodes": {}}, "eks": {}}
    make = synthesis.template_of if engine == "slurm" else eks_synthesis.template_of
    found: dict[str, Any] = make(settings.validate(data)).to_json()
    return found


@pytest.fixture(scope="module", params=["slurm", "eks"])
def made(request: pytest.FixtureRequest) -> dict[str, Any]:
    return template(request.param, "customer-key")


def at(node: Any, path: str) -> Any:
    for part in path.split("."):
        node = (
            (node[int(part)] if isinstance(node, list) and len(node) > int(part) else None)
            if part.isdigit()
            else (node or {}).get(part)
        )
    return node


def keys(template: Mapping[str, Any]) -> dict[str, Any]:
    """Logical id -> the key of each resource that can have one; None: none."""
    found: dict[str, Any] = {}
    for name, resource in template["Resources"].items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        if kind == "AWS::S3::Bucket" and "DestinationBucketName" in properties["LoggingConfiguration"]:
            found[name] = at(properties, BUCKET)
        elif kind == "AWS::EC2::LaunchTemplate" and "BlockDeviceMappings" in properties["LaunchTemplateData"]:
            found[name] = at(properties, VOLUME)
        elif kind in WHERE:
            found[name] = at(properties, WHERE[kind])
    return found


def test_everything_has_the_stacks_key(made: dict[str, Any]) -> None:
    [key] = [name for name, r in made["Resources"].items() if r["Type"] == "AWS::KMS::Key"]
    found = keys(made)
    assert {k: v for k, v in found.items() if v != {"Fn::GetAtt": [key, "Arn"]}} == {}
    kinds = {made["Resources"][name]["Type"] for name in found}
    assert {"AWS::S3::Bucket", "AWS::Logs::LogGroup", "AWS::ECR::Repository", "AWS::EFS::FileSystem"} <= kinds
    assert made["Resources"][key]["Properties"]["EnableKeyRotation"] is True


@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_a_key_that_is_named_is_used_and_none_is_made(engine: str) -> None:
    found = template(engine, OWN)
    assert not [r for r in found["Resources"].values() if r["Type"] == "AWS::KMS::Key"]
    assert set(map(str, keys(found).values())) == {OWN}


def test_without_the_setting_the_clusters_key_serves_the_logs_on_eks() -> None:
    found = eks_synthesis.document("default")
    [key] = [name for name, r in found["Resources"].items() if r["Type"] == "AWS::KMS::Key"]
    groups = [
        r["Properties"].get("KmsKeyId") for r in found["Resources"].values() if r["Type"] == "AWS::Logs::LogGroup"
    ]
    assert groups
    assert all(k == {"Fn::GetAtt": [key, "Arn"]} for k in groups)


def test_lustre_without_a_key_of_its_own_is_left_alone() -> None:
    data = {"encryption": "customer-key", "storage": {"fsx": {"deployment": "SCRATCH_2"}}}
    found = synthesis.template_of(settings.validate(data)).find_resources("AWS::FSx::FileSystem")
    [system] = found.values()
    assert "KmsKeyId" not in system["Properties"]


def test_who_may_use_the_key(made: dict[str, Any]) -> None:
    """The key's policy and the roles' own, evaluated."""
    [(name, key)] = [(n, r) for n, r in made["Resources"].items() if r["Type"] == "AWS::KMS::Key"]
    policy = filled(key["Properties"]["KeyPolicy"], made)
    arn = filled({"Fn::GetAtt": [name, "Arn"]}, made)
    eks = any(r["Type"] == "AWS::EKS::Cluster" for r in made["Resources"].values())
    logs = {
        "action": "kms:GenerateDataKey",
        "resource": arn,
        "resource_policy": policy,
        "service": f"logs.{REGION}.amazonaws.com",
        "caller": "a service",  # none of the account's principals
    }
    role = {
        "action": "kms:CreateGrant",
        "resource": arn,
        "resource_policy": policy,
        "caller": f"arn:aws:iam::{ACCOUNT}:role/{AUTO_SCALING_ROLE}",
    }
    job, nobody = ("PluginsJobIdentityRole", "ClusterAccessRole") if eks else ("compute", "ClustertrnslurmNameRole")
    roles = of(made).policies

    def of_role(role: str, via: str) -> dict[str, Any]:
        return {
            "action": "kms:Decrypt",
            "resource": arn,
            "resource_policy": policy,
            "policies": roles[role],
            "context": {"kms:ViaService": f"{via}.{REGION}.amazonaws.com"},
        }

    group = "kms:EncryptionContext:aws:logs:arn"
    rows = [
        ({**logs, "context": {group: f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/eks/x"}}, True),
        ({**logs, "context": {group: f"arn:aws:logs:{REGION}:999999999999:log-group:/aws/eks/x"}}, False),
        ({**logs, "service": "sns.amazonaws.com"}, False),
        ({**role, "context": {"kms:GrantIsForAWSResource": "true"}}, eks),
        ({**role, "context": {"kms:GrantIsForAWSResource": "false"}}, False),
        (
            {
                **role,
                "caller": f"arn:aws:iam::{ACCOUNT}:role/somebody",
                "context": {"kms:GrantIsForAWSResource": "true"},
            },
            False,
        ),
        (of_role(job, "s3"), True),
        (of_role(job, "ec2"), False),
        (of_role(nobody, "s3"), False),
    ]
    answers = ask([question for question, _ in rows])
    assert answers == [wanted for _, wanted in rows], json.dumps(policy, indent=1)
