"""Questions to the local AWS's evaluation of policies. Runs in the environment `.venvs/aws`: JSON in, JSON out.

A question has the policies of the principal (documents, or ARNs of AWS's own policies), optionally the policy of the resource
(with the service that asks, if one does), the action, the resource's ARN and the request's condition keys.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ministack.core import iam_evaluator as iam
from ministack.services import iam as service

PULL = ["ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchImportUpstreamImage"]
INTERFACES = ["ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DeleteNetworkInterface",
              "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses"]  # fmt: skip
MISSING = {
    "arn:aws:iam::aws:policy/service-role/AWSLambdaENIManagementAccess": {
        "Statement": [{"Effect": "Allow", "Action": INTERFACES, "Resource": "*"}]
    },
    "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly": {
        "Statement": [{"Effect": "Allow", "Action": PULL, "Resource": "*"}]
    },
}
"""Of AWS's own policies (AWS managed policy reference, 2026-11), those that the local AWS has not."""
ACCOUNT, REGION = "111122223333", "us-east-1"


def allowed(question: dict[str, Any]) -> bool:
    request = iam.EvalContext(
        principal_arn=question.get("caller", f"arn:aws:sts::{ACCOUNT}:assumed-role/role/session"),
        principal_type="AssumedRole",
        principal_account=question.get("account", ACCOUNT),
        action=question["action"],
        resource_arn=question["resource"],
        region=REGION,
        secure_transport=True,
        service_context={key.lower(): value for key, value in question.get("context", {}).items()},
    )
    documents = [_document(p) for p in question.get("policies", [])]
    result = iam.evaluate(request, [iam.parse_policy_document(d) for d in documents])
    if "resource_policy" in question:
        policy = question["resource_policy"]
        if asking := question.get("service"):
            return bool(iam.evaluate_resource_policy(policy, request, service=asking).decision == "Allow")
        required = question["action"].startswith("kms:")
        result = iam.combine_resource_policy(result, request, policy, ACCOUNT, required=required)
    return bool(result.decision == "Allow")


def _document(policy: Any) -> Any:
    """A policy document; of AWS's own policies the one the local AWS knows."""
    if not isinstance(policy, str):
        return policy
    if policy in MISSING:
        return MISSING[policy]
    found = service._lookup_policy(policy)
    if found is None:
        raise SystemExit(f"the local AWS does not know {policy}")
    return found["Versions"][found["DefaultVersionId"]]["Document"]


if __name__ == "__main__":
    json.dump([allowed(question) for question in json.load(sys.stdin)], sys.stdout)
