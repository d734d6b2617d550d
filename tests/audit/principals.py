"""Principals of a deployed stack with the policies of its template, with names and ARNs resolved as CloudFormation would."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import ROOT, completed, need

PYTHON = ROOT / ".venvs/aws/bin/python"
ACCOUNT, REGION = "111122223333", "us-east-1"
_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": "stack",
    "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/stack/0",
}
_IN_ACCOUNT = f"{REGION}:{ACCOUNT}"
_ARNS = {
    "AWS::S3::Bucket": "arn:aws:s3:::{}",
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{}}",
    "AWS::Lambda::Function": f"arn:aws:lambda:{_IN_ACCOUNT}:function:{{}}",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{_IN_ACCOUNT}:log-group:{{}}:*",
    "AWS::ECR::Repository": f"arn:aws:ecr:{_IN_ACCOUNT}:repository/{{}}",
    "AWS::EKS::Nodegroup": f"arn:aws:eks:{_IN_ACCOUNT}:nodegroup/trn-eks/{{}}/0",
    "AWS::EFS::FileSystem": f"arn:aws:elasticfilesystem:{_IN_ACCOUNT}:file-system/{{}}",
    "AWS::KMS::Key": f"arn:aws:kms:{_IN_ACCOUNT}:key/{{}}",
    "AWS::CodeBuild::Project": f"arn:aws:codebuild:{_IN_ACCOUNT}:project/{{}}",
}


def short(logical_id: str) -> str:
    """A logical id without the CDK's hash."""
    return re.sub(r"[0-9A-F]{8}$", "", logical_id)


@dataclass(frozen=True)
class Principals:
    """The roles of a template.

    Attributes:
        policies: principal -> its policies: documents, and ARNs of AWS-managed policies.
        trust: principal -> its trust policy.
    """

    template: Mapping[str, Any]
    policies: Mapping[str, list[Any]]
    trust: Mapping[str, Any]

    def bucket_policy(self, bucket: str) -> Any:
        """A bucket's policy, by the bucket's logical id without hash."""
        for resource in self.template["Resources"].values():
            if resource["Type"] == "AWS::S3::BucketPolicy":
                properties = filled(resource["Properties"], self.template)
                if properties["Bucket"] == bucket.lower():
                    return properties["PolicyDocument"]
        raise LookupError(f"no policy for bucket {bucket}")


def of(template: Mapping[str, Any]) -> Principals:
    """The roles of a template; a Slurm cluster's node roles have the policies named in its configuration."""
    resources = template["Resources"]
    policies: dict[str, list[Any]] = {}
    trust: dict[str, Any] = {}
    documents: dict[str, Any] = {}
    for logical_id, resource in resources.items():
        if not resource["Type"].startswith(("AWS::IAM::", "Custom::PclusterCluster")):
            continue
        properties = filled(resource.get("Properties", {}), template)
        if resource["Type"] == "AWS::IAM::Role":
            name = short(logical_id)
            policies.setdefault(name, []).extend(p["PolicyDocument"] for p in properties.get("Policies", []))
            policies[name] += properties.get("ManagedPolicyArns", [])
            trust[name] = properties["AssumeRolePolicyDocument"]
        elif resource["Type"] == "AWS::IAM::Policy":
            for role in properties.get("Roles", []):
                policies.setdefault(role, []).append(properties["PolicyDocument"])
        elif resource["Type"] == "AWS::IAM::ManagedPolicy":
            documents[short(logical_id)] = properties["PolicyDocument"]
            for role in properties.get("Roles", []):
                policies.setdefault(role, []).append(properties["PolicyDocument"])
        elif resource["Type"] == "Custom::PclusterCluster":
            policies |= _nodes(properties["ClusterConfiguration"])
    named = {name: [documents.get(p, p) if isinstance(p, str) else p for p in own] for name, own in policies.items()}
    return Principals(template, named, trust)


def _nodes(config: Mapping[str, Any]) -> dict[str, list[Any]]:
    nodes = {
        "head": config["HeadNode"],
        "compute": config["Scheduling"]["SlurmQueues"][0],
        "login": config["LoginNodes"]["Pools"][0],
    }
    return {name: [p["Policy"] for p in node["Iam"]["AdditionalIamPolicies"]] for name, node in nodes.items()}


def filled(node: Any, template: Mapping[str, Any]) -> Any:
    """A part of a template with every reference resolved."""
    if isinstance(node, list):
        return [filled(n, template) for n in node]
    if not isinstance(node, dict):
        return node
    if "Fn::Join" in node:
        separator, parts = node["Fn::Join"]
        return str(separator).join(str(part) for part in filled(parts, template))
    if "Fn::Split" in node:
        separator, text = node["Fn::Split"]
        return str(filled(text, template)).split(separator)
    if "Fn::GetAtt" in node:
        logical_id, attribute = node["Fn::GetAtt"]
        kind = template["Resources"][logical_id]["Type"]
        return _ARNS[kind].format(_name(logical_id, template)) if attribute == "Arn" else short(logical_id).lower()
    if "Ref" in node:
        return _PSEUDO.get(node["Ref"]) or _name(node["Ref"], template)
    return {key: filled(value, template) for key, value in node.items()}


def _name(logical_id: str, template: Mapping[str, Any]) -> str:
    resource = template["Resources"].get(logical_id, {"Type": ""})
    if resource["Type"] == "AWS::SSM::Parameter":
        return str(filled(resource["Properties"]["Name"], template))
    return short(logical_id) if resource["Type"].startswith("AWS::IAM::") else short(logical_id).lower()


def evaluate(requests: Sequence[Mapping[str, Any]]) -> list[bool]:
    """The local AWS's decision for each request: whether it is allowed."""
    need(PYTHON.exists(), f"the local AWS is not installed ({PYTHON}): make setup")
    done = completed([PYTHON, Path(__file__).with_name("evaluate_iam.py")], input=json.dumps(list(requests)))
    assert done.returncode == 0, done.stderr
    found: list[bool] = json.loads(done.stdout)
    return found
