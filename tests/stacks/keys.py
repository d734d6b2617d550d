"""Which key encrypts each resource of a deployed stack that can have one, as the local AWS reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML

from sandbox import LocalAws

Client = Callable[[str], Any]
Reader = Callable[[Client, str], "str | None"]
FROM_TEMPLATE = {
    "AWS::CodeBuild::Project",
    "AWS::EC2::Instance",
    "AWS::EC2::LaunchTemplate",
    "AWS::EKS::Cluster",
    "AWS::FSx::FileSystem",
    "AWS::Lambda::Function",
    "AWS::S3::Bucket",
}
"""Of these the local AWS does not keep the key that a template gives: it is read from the template that was deployed."""
PATHS = {
    "AWS::CodeBuild::Project": "EncryptionKey",
    "AWS::EC2::Instance": "BlockDeviceMappings.0.Ebs.KmsKeyId",
    "AWS::EC2::LaunchTemplate": "LaunchTemplateData.BlockDeviceMappings.0.Ebs.KmsKeyId",
    "AWS::ECR::Repository": "EncryptionConfiguration.KmsKey",
    "AWS::EFS::FileSystem": "KmsKeyId",
    "AWS::EKS::Cluster": "EncryptionConfig.0.Provider.KeyArn",
    "AWS::FSx::FileSystem": "KmsKeyId",
    "AWS::Lambda::Function": "KmsKeyArn",
    "AWS::Logs::LogGroup": "KmsKeyId",
    "AWS::S3::Bucket": "BucketEncryption.ServerSideEncryptionConfiguration.0.ServerSideEncryptionByDefault.KMSMasterKeyID",
}
"""Every type of resource in the stacks that can have a key, with the property that names it."""


def at(node: Any, path: str) -> Any:
    """A part of a resource's properties; None: it is not there."""
    for part in path.split("."):
        if part.isdigit():
            node = node[int(part)] if isinstance(node, list) and len(node) > int(part) else None
        else:
            node = (node or {}).get(part)
    return node


def has_one(kind: str, properties: Mapping[str, Any]) -> bool:
    """Whether a resource can have a key of a customer's: not the bucket of access logs, to which S3 delivers under its own key alone,
    no template without volumes, no function without variables, and no Lustre of the kind that always has FSx's own key."""
    if kind == "AWS::S3::Bucket":
        return "DestinationBucketName" in properties["LoggingConfiguration"]
    if kind == "AWS::EC2::LaunchTemplate":
        return "BlockDeviceMappings" in properties["LaunchTemplateData"]
    if kind == "AWS::Lambda::Function":
        return "Environment" in properties
    if kind == "AWS::FSx::FileSystem":
        return bool(properties["LustreConfiguration"]["DeploymentType"] != "SCRATCH_2")
    return kind in PATHS


def without(aws: LocalAws, stack: str) -> dict[str, str]:
    """The resources of a deployed stack that have another key than the stack's own, with what they have: as reported by the local AWS
    or, of those in `FROM_TEMPLATE`, by the template that it has deployed."""
    cloudformation = aws.client("cloudformation")
    resources = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    ids = {r["LogicalResourceId"]: r["PhysicalResourceId"] for r in resources}
    template = _template(cloudformation.get_template(StackName=stack)["TemplateBody"])
    [own] = [name for name, r in template["Resources"].items() if r["Type"] == "AWS::KMS::Key"]
    key = aws.client("kms").describe_key(KeyId=ids[own])["KeyMetadata"]
    wrong = {}
    for name, kind, properties in _with_keys(template):
        if kind in FROM_TEMPLATE:
            found, right = at(properties, PATHS[kind]), {"Fn::GetAtt": [own, "Arn"]}
        else:
            found, right = READERS[kind](aws.client, ids[name]), key["Arn"]
        if found != right:
            wrong[name] = f"{kind}: {found}"
    return wrong


def _with_keys(template: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        if resource["Type"] in PATHS and has_one(resource["Type"], properties):
            yield name, resource["Type"], properties


def _template(body: Any) -> dict[str, Any]:
    if not isinstance(body, str):
        return dict(body)
    found: dict[str, Any] = json.loads(body) if body.lstrip().startswith("{") else YAML(typ="safe").load(body)
    return found


def _repository(client: Client, name: str) -> str | None:
    [found] = client("ecr").describe_repositories(repositoryNames=[name])["repositories"]
    return str(found["encryptionConfiguration"].get("kmsKey"))


def _file_system(client: Client, id: str) -> str | None:
    return str(client("efs").describe_file_systems(FileSystemId=id)["FileSystems"][0].get("KmsKeyId"))


def _group(client: Client, name: str) -> str | None:
    [found] = client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return str(found.get("kmsKeyId"))


READERS: dict[str, Reader] = {
    "AWS::ECR::Repository": _repository,
    "AWS::EFS::FileSystem": _file_system,
    "AWS::Logs::LogGroup": _group,
}
