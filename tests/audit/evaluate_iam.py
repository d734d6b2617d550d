"""Evaluates requests with the local AWS's IAM. Runs in the environment `.venvs/aws`: JSON in, JSON out.

A case has the principal's policies (documents, or ARNs of AWS-managed policies), optionally the resource's policy
(and the calling service, if any), the action, the resource's ARN, the condition keys, the region, and whether it comes by TLS.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ministack.core import iam_evaluator as iam
from ministack.services import iam as service

PULL = ["ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchImportUpstreamImage"]
MISSING = {
    "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly": {
        "Statement": [{"Effect": "Allow", "Action": PULL, "Resource": "*"}]
    },
}
"""AWS-managed policies (AWS managed policy reference, 2026-11) that the local AWS lacks."""
ACCOUNT, REGION = "111122223333", "us-east-1"


def allowed(case: dict[str, Any]) -> bool:
    request = iam.EvalContext(
        principal_arn=case.get("caller", f"arn:aws:sts::{ACCOUNT}:assumed-role/role/session"),
        principal_type="AssumedRole",
        principal_account=case.get("account", ACCOUNT),
        action=case["action"],
        resource_arn=case["resource"],
        region=case.get("region", REGION),
        secure_transport=case.get("tls", True),
        service_context={key.lower(): value for key, value in case.get("context", {}).items()},
    )
    documents = [_document(p) for p in case.get("policies", [])]
    result = iam.evaluate(request, [iam.parse_policy_document(d) for d in documents])
    if "resource_policy" in case:
        policy = case["resource_policy"]
        if asking := case.get("service"):
            return bool(iam.evaluate_resource_policy(policy, request, service=asking).decision == "Allow")
        required = case["action"].startswith("kms:")
        result = iam.combine_resource_policy(result, request, policy, ACCOUNT, required=required)
    return bool(result.decision == "Allow")


def _document(policy: Any) -> Any:
    """A policy document; for an AWS-managed policy, the local AWS's copy."""
    if not isinstance(policy, str):
        return policy
    if policy in MISSING:
        return MISSING[policy]
    found = service._lookup_policy(policy)
    if found is None:
        raise SystemExit(f"the local AWS does not know {policy}")
    return found["Versions"][found["DefaultVersionId"]]["Document"]


if __name__ == "__main__":
    json.dump([allowed(case) for case in json.load(sys.stdin)], sys.stdout)
