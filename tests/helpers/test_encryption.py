"""One setting encrypts everything that can have a key, and the key's policy allows its users and no one else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]

from tests.audit.principals import ACCOUNT, REGION, evaluate, filled, of
from tests.stacks import keys, synthesis
from trainium_cdk import settings
from trainium_cdk.cdk.hardening.encryption import AUTO_SCALING_ROLE

OWN = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"
STORAGE = {"efs": {}, "fsx": {"deployment": "PERSISTENT_2", "capacity_gib": 1200}}


def template(engine: str, encryption: str) -> dict[str, Any]:
    data: dict[str, Any] = {"encryption": encryption, "storage": STORAGE, "pcluster": {"login_nodes": {}}, "eks": {}}
    make = synthesis.SLURM.template_of if engine == "slurm" else synthesis.EKS.template_of
    found: dict[str, Any] = make(settings.validate(data)).to_json()
    return found


@pytest.fixture(scope="module", params=["slurm", "eks"])
def made(request: pytest.FixtureRequest) -> dict[str, Any]:
    return template(request.param, "customer-key")


def with_keys(template: Mapping[str, Any]) -> dict[str, Any]:
    """Logical id -> the key of each resource that can have one; None: none."""
    return {
        name: keys.at(resource["Properties"], keys.PATHS[resource["Type"]])
        for name, resource in template["Resources"].items()
        if keys.has_one(resource["Type"], resource.get("Properties", {}))
    }


def key_properties(node: Any, schema: Any, path: str = "", seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Paths of the properties that name a key, in CloudFormation's schema of a resource type."""
    if reference := node.get("$ref"):
        found = schema
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        if reference not in seen:
            yield from key_properties(found, schema, path, seen | {reference})
    for name, inner in node.get("properties", {}).items():
        if re.search(r"(kms.*key|key.*arn|encryptionkey)", name, re.IGNORECASE):
            yield f"{path}{name}"
        yield from key_properties(inner, schema, f"{path}{name}.", seen)
    if "items" in node:
        yield from key_properties(node["items"], schema, f"{path}0.", seen)


def test_every_type_that_can_have_a_key_has_one(made: dict[str, Any]) -> None:
    """By CloudFormation's own schemas. What is not in the table has another purpose, which is named here."""
    others = {"AWS::EFS::FileSystem": "Replication", "AWS::Lambda::Function": "(Code.Source|DurableConfig)",
              "AWS::S3::Bucket": "(Metadata|Replication)Configuration", "AWS::EKS::Cluster": "EncryptionConfigKeyArn"}  # fmt: skip
    for kind in {r["Type"] for r in made["Resources"].values() if r["Type"].startswith("AWS::")}:
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, kind).schema
        found = {p for p in key_properties(schema, schema) if not re.match(others.get(kind, "$"), p)}
        assert found == ({keys.PATHS[kind]} if kind in keys.PATHS else set()), kind


def test_everything_has_the_stacks_key(made: dict[str, Any]) -> None:
    [key] = [name for name, r in made["Resources"].items() if r["Type"] == "AWS::KMS::Key"]
    found = with_keys(made)
    assert {k: v for k, v in found.items() if v != {"Fn::GetAtt": [key, "Arn"]}} == {}
    kinds = {made["Resources"][name]["Type"] for name in found}
    assert {"AWS::S3::Bucket", "AWS::Logs::LogGroup", "AWS::ECR::Repository", "AWS::EFS::FileSystem"} <= kinds
    assert made["Resources"][key]["Properties"]["EnableKeyRotation"] is True


@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_a_key_that_is_named_is_used_and_none_is_made(engine: str) -> None:
    found = template(engine, OWN)
    assert not [r for r in found["Resources"].values() if r["Type"] == "AWS::KMS::Key"]
    assert set(map(str, with_keys(found).values())) == {OWN}


def test_without_the_setting_the_clusters_key_serves_the_logs_on_eks() -> None:
    found = synthesis.EKS.document("default")
    [key] = [name for name, r in found["Resources"].items() if r["Type"] == "AWS::KMS::Key"]
    groups = [
        r["Properties"].get("KmsKeyId") for r in found["Resources"].values() if r["Type"] == "AWS::Logs::LogGroup"
    ]
    assert groups
    assert all(k == {"Fn::GetAtt": [key, "Arn"]} for k in groups)


def test_lustre_without_its_own_key_is_unchanged() -> None:
    data = {"encryption": "customer-key", "storage": {"fsx": {"deployment": "SCRATCH_2"}}}
    found = synthesis.SLURM.template_of(settings.validate(data)).find_resources("AWS::FSx::FileSystem")
    [system] = found.values()
    assert "KmsKeyId" not in system["Properties"]


def test_a_key_for_logs_has_no_grants() -> None:
    """The permission to use it cannot be handed on; and no function has the key, for which Lambda would create a grant."""
    found = synthesis.SLURM.document("default")
    [(name, key)] = [(n, r) for n, r in found["Resources"].items() if r["Type"] == "AWS::KMS::Key"]
    request = {
        "action": "kms:CreateGrant",
        "resource": filled({"Fn::GetAtt": [name, "Arn"]}, found),
        "resource_policy": filled(key["Properties"]["KeyPolicy"], found),
        "policies": [{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "kms:*", "Resource": "*"}]}],
    }
    neither = {"kms:GrantIsForAWSResource": "false", "aws:PrincipalIsAWSService": "false"}
    by_a_service = {**neither, "kms:GrantIsForAWSResource": "true"}
    assert evaluate([{**request, "context": neither}, {**request, "context": by_a_service}]) == [False, True]
    assert not [r for r in found["Resources"].values() if "KmsKeyArn" in r.get("Properties", {})]


def test_principals_that_may_use_the_key(made: dict[str, Any]) -> None:
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
        "caller": "a service",  # not a principal of the account
    }
    role = {
        "action": "kms:CreateGrant",
        "resource": arn,
        "resource_policy": policy,
        "caller": f"arn:aws:iam::{ACCOUNT}:role/{AUTO_SCALING_ROLE}",
    }
    job, unprivileged = ("PluginsJobIdentityRole", "ClusterAccessRole") if eks else ("compute", "NetworkFlowLogRole")
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
        ({**role, "context": {"kms:GrantIsForAWSResource": "true"}}, True),
        ({**role, "context": {"kms:GrantIsForAWSResource": "false"}}, False),
        (
            {
                **role,
                "caller": f"arn:aws:iam::{ACCOUNT}:role/stranger",
                "context": {"kms:GrantIsForAWSResource": "true"},
            },
            False,
        ),
        (of_role(job, "s3"), True),
        (of_role(job, "ec2"), False),
        (of_role(unprivileged, "s3"), False),
    ]
    answers = evaluate([question for question, _ in rows])
    assert answers == [wanted for _, wanted in rows], json.dumps(policy, indent=1)
