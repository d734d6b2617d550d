"""Where jobs may read and write in S3 beside the stack's bucket: what `jobs.keep` and `jobs.cache` add to a stack, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack, Token
from aws_cdk import aws_iam as iam

from tests.cdk import app
from tests.stacks.synthesis import EKS, PCS, SLURM, Stacks
from trainium_cdk import settings
from trainium_cdk.cdk.helpers.permissions import address_statements, grant_addresses

ENGINES = [(SLURM, "pcluster"), (PCS, "pcs"), (EKS, "eks")]
JOBS = "{keep: 's3://mine/runs/', cache: 's3://graphs'}"
OBJECTS = [
    f"s3:{verb}"
    for verb in ("AbortMultipartUpload", "DeleteObject", "GetObject", "ListMultipartUploadParts", "PutObject")
]
BELOW = ["arn:aws:s3:::graphs/*", "arn:aws:s3:::mine/runs/*"]
ADDED = [
    {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::mine",
     "Condition": {"StringLike": {"s3:prefix": ["runs", "runs/*"]}}},
    {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::graphs"},
    {"Effect": "Allow", "Action": "s3:GetBucketLocation", "Resource": ["arn:aws:s3:::graphs", "arn:aws:s3:::mine"]},
    {"Effect": "Allow", "Action": OBJECTS, "Resource": BELOW},
    {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": "arn:aws:kms:*:*:key/*",
     "Condition": {"StringLike": {"kms:ViaService": "s3.*", "kms:EncryptionContext:aws:s3:arn": [
         "arn:aws:s3:::mine", "arn:aws:s3:::graphs", "arn:aws:s3:::mine/runs/*", "arn:aws:s3:::graphs/*"]}}},
]  # fmt: skip


def _template(stacks: Stacks, section: str, jobs: str = "{}") -> dict[str, Any]:
    found: dict[str, Any] = stacks.template_of(settings.parse(f"{section}: {{}}\njobs: {jobs}")).to_json()
    return found


def _statements(resource: Any) -> list[Any]:
    return list(resource["Properties"]["PolicyDocument"]["Statement"]) if resource else []


@pytest.mark.parametrize(("stacks", "section"), ENGINES, ids=["slurm", "pcs", "eks"])
def test_the_role_of_jobs_and_the_outputs_are_all_that_changes(stacks: Stacks, section: str) -> None:
    """So a cluster in use gets and loses them without any of its nodes."""
    plain, kept = _template(stacks, section), _template(stacks, section, JOBS)
    assert {part for part in kept if kept[part] != plain[part]} == {"Resources", "Outputs"}
    more = {key: one["Value"] for key, one in kept["Outputs"].items() if plain["Outputs"].get(key) != one}
    assert more == {"JobKeep": "s3://mine/runs", "JobCache": "s3://graphs"}
    before, after = plain["Resources"], kept["Resources"]
    [(name, policy)] = [(name, one) for name, one in after.items() if before.get(name) != one]
    [role] = policy["Properties"]["Roles"]
    assert role["Ref"].startswith("PluginsJobIdentityRole" if stacks is EKS else "ClusterJobRole")
    assert before.keys() <= after.keys()
    assert [s for s in _statements(policy) if s not in _statements(before.get(name))] == ADDED
    assert [s for s in _statements(before.get(name)) if s not in _statements(policy)] == []


def test_a_token_is_the_name_of_a_bucket() -> None:
    stack = Stack(app(), "Stack")
    bucket = Token.as_string({"Ref": "Bucket"})
    jobs = settings.Jobs(keep=f"s3://{bucket}/runs/", cache=f"s3://{bucket}")
    role = iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal())
    grant_addresses(role, [*jobs.addresses.values()])
    statements = stack.resolve(
        [each.to_statement_json() for each in address_statements("aws", [*jobs.addresses.values()])]
    )
    listed = {"Fn::Join": ["", ["arn:aws:s3:::", {"Ref": "Bucket"}]]}
    assert [s["Resource"] for s in statements[:2]] == [listed, listed]
    assert statements[3]["Resource"] == [
        {"Fn::Join": ["", ["arn:aws:s3:::", {"Ref": "Bucket"}, f"{below}/*"]]} for below in ("/runs", "")
    ]
    assert "Token" not in json.dumps(statements)


@pytest.mark.parametrize(
    "address",
    ["mine/runs", "arn:aws:s3:::mine", "", Token.as_string({"Ref": "Address"})],
    ids=["path", "arn", "empty", "token"],
)
def test_other_texts_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address in S3\. Fix: write s3://BUCKET/PREFIX$"):
        address_statements("aws", ["s3://mine", address])


def test_no_address_gives_nothing() -> None:
    assert address_statements("aws", []) == []
