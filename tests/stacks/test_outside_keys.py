"""Keys that are chosen outside the stack: its own roles may use them, and no others, and only through the service that needs them."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from tests.cdk import app, properties, resources
from trainium_cdk import settings
from trainium_cdk.stacks.eks import TrnEksStack
from trainium_cdk.stacks.pcluster import TrnPclusterStack

KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd"
SECRET = "arn:aws:secretsmanager:us-east-1:111122223333:secret:d-AbCdEf"
FOR_VOLUMES = ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"]  # fmt: skip


def template(kind: Any, text: str) -> Template:
    environment = settings.parse(f"region: us-east-1\n{text}")
    env = cdk.Environment(account="111122223333", region="us-east-1")
    return Template.from_stack(kind(app(), "Stack", environment=environment, env=env))


def statements(found: Template, sid: str) -> dict[str, dict[str, Any]]:
    """The statement of this id in each policy, by the policy's logical id without its hash."""
    return {
        name[:-8]: statement
        for name, policy in resources(found, "IAM::ManagedPolicy").items()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement.get("Sid") == sid
    }


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"pcluster: {{volume_keys: ['{KEY}']}}", KEY),
        (f"encryption: {KEY}\npcluster: {{}}", KEY),
        ("encryption: customer-key\npcluster: {}", '"Key'),
    ],
    ids=["of the account", "given", "of the stack"],
)
def test_the_function_and_the_head_node_may_start_nodes_with_a_key(text: str, key: str) -> None:
    found = template(TrnPclusterStack, text)
    used, granted = statements(found, "KeysOfVolumes"), statements(found, "KeysOfVolumesAttached")
    assert used.keys() == granted.keys() == {"ClusterProviderPolicy", "ClusterHeadPolicy"}
    for use, grant in zip(used.values(), granted.values(), strict=True):
        assert key in json.dumps(use["Resource"])
        assert (use["Resource"], use["Action"], grant["Action"]) == (grant["Resource"], FOR_VOLUMES, "kms:CreateGrant")
        for statement in (use, grant):
            assert "ec2.us-east-1." in json.dumps(statement["Condition"]["StringEquals"]["kms:ViaService"])
        assert grant["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    [provider] = properties(found, "CloudFormation::Stack")
    assert "ClusterProviderPolicy" in json.dumps(provider["Parameters"]["AdditionalIamPolicies"])


def test_without_such_a_key_nothing_is_added() -> None:
    found = template(TrnPclusterStack, "pcluster: {}")
    assert statements(found, "KeysOfVolumes") == statements(found, "KeysOfSecrets") == {}
    assert "ClusterProviderPolicy" not in json.dumps(found.to_json())


def test_a_role_of_your_own_for_the_function_gets_no_policy() -> None:
    role = "arn:aws:iam::111122223333:role/Provider"
    found = template(TrnPclusterStack, f"pcluster: {{volume_keys: ['{KEY}'], provider: {{role: '{role}'}}}}")
    assert statements(found, "KeysOfVolumes").keys() == {"ClusterHeadPolicy"}


def test_the_head_node_may_use_the_keys_of_its_secrets_for_these_alone() -> None:
    """Also that of a directory in `overrides`; ParallelCluster itself lets the head node read the secret."""
    directory = f"{{DomainName: c, DomainAddr: 'ldaps://c', DomainReadOnlyUser: cn=r, PasswordSecretArn: '{SECRET}'}}"
    text = f"pcluster: {{overrides: {{DirectoryService: {directory}}}}}"
    [statement] = statements(template(TrnPclusterStack, text), "KeysOfSecrets").values()
    assert statement["Condition"]["StringEquals"]["kms:EncryptionContext:SecretARN"] == [SECRET]
    assert statement["Action"] == "kms:Decrypt"


def test_jobs_may_use_the_keys_of_their_buckets_through_s3_alone() -> None:
    """S3 asks KMS for objects that the jobs may read or write, and for no others."""
    [statement] = statements(template(TrnEksStack, "eks: {data_buckets: [speech]}"), "KeysOfData").values()
    assert statement["Condition"] == {"StringLike": {"kms:ViaService": "s3.*"}}
    assert statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


def test_login_nodes_are_started_by_a_service_that_the_stacks_key_allows() -> None:
    found = template(TrnPclusterStack, "encryption: customer-key\npcluster: {login_nodes: {}}")
    [key] = properties(found, "KMS::Key")
    assert "AWSServiceRoleForAutoScaling" in json.dumps(key["KeyPolicy"])
