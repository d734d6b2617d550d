"""Environments with much of everything stay within AWS's limits, which cdk-nag, cfn-lint and the CDK do not know or only warn of."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.stacks.synthesis import EKS, PCS, SLURM, Stacks
from trainium_cdk import settings
from trainium_cdk.description.checks.eks import large_tags

MANAGED, INLINE, POLICIES, TRUST = 6144, 10_240, 10, 2048
"""Characters of a managed policy, of all inline policies of a role, managed policies of a role, characters of its trust policy: IAM's quotas."""
TEMPLATE = 1_000_000
"""Bytes of a template in S3 (CloudFormation quotas)."""
EVENT = 262_144
"""Bytes of an event that Lambda took at least of an asynchronous request (aws-cdk issue 19165)."""
RULES = 60
"""Rules of a security group in one direction (VPC quotas)."""
ARN = "arn:aws:iam::111122223333:policy/" + "p" * 60
GROUPS = [{"name": f"a-group-with-a-long-name-{i:02d}", "instance_type": "trn1.32xlarge"} for i in range(8)]
QUEUES = [{"name": f"a-long-queue-{i:02d}", "compute_resources": [{"name": f"a-resource-{i:02d}"}]} for i in range(8)]
MUCH = {
    "storage": {"efs": {}, "fsx": {}},
    "encryption": "customer-key",
    "account": "111122223333",
    "jobs": {key: f"s3://{key}{'b' * 58}/{'p' * (255 - 69)}"[:255] for key in ("keep", "cache")},
}
TAGS = {f"tag-{i}": "x" * 200 for i in range(39)}
SHORT_TAGS = dict.fromkeys(TAGS, "x" * 15)
"""Those of an EKS stack stand on each of its resources. Longer ones are warned of."""
SECTIONS: dict[str, tuple[Stacks, dict[str, Any]]] = {
    "pcluster": (
        SLURM,
        {
            "queues": [
                {"name": f"a-long-queue-{i:02d}", "compute_resources": [{"name": f"a-resource-{i:02d}"}]}
                for i in range(49)
            ],
            "users": [{"name": f"a-user-with-a-long-name-{i:03d}", "uid": 2000 + i} for i in range(100)],
            "node_policies": [f"{ARN}{i}" for i in range(4)],
            "provider": {"policies": [f"{ARN}{i}" for i in range(4)]},
            "shared_storage": [
                # volumes of one file system: of one security group
                *(
                    {
                        "name": f"v{i}",
                        "type": kind,
                        "id": f"fsvol-{i:017x}",
                        "mount_dir": f"/mounts/number-{i}",
                        "security_group": "sg-0123456789abcdef0",
                    }
                    for i, kind in enumerate(["fsx-openzfs", "fsx-ontap"] * 3)
                ),
                *(
                    {
                        "name": f"w{i}",
                        "type": "efs",
                        "id": f"fs-{i:017x}",
                        "mount_dir": f"/more/number-{i}",
                        "security_group": f"sg-{i:017x}",
                    }
                    for i in range(4)
                ),
            ],
        },
    ),
    "pcs": (
        PCS,
        {
            "size": "large",
            "queues": QUEUES,
            "users": [{"name": f"a-user-with-a-long-name-{i:03d}", "uid": 2000 + i} for i in range(100)],
            "node_policies": [f"{ARN}{i}" for i in range(8)],
        },
    ),
    "eks": (
        EKS,
        {
            "node_groups": GROUPS,
            "queues": [{"namespace": f"a-team-with-a-long-name-{i:02d}"} for i in range(20)],
            "data_buckets": [f"{'b' * 60}{i:03d}" for i in range(100)],
            "users": [f"arn:aws:iam::111122223333:user/researcher-{i:02d}" for i in range(37)],
            "access": [{"principal": f"arn:aws:iam::111122223333:role/Role-{i}"} for i in range(20)],
        },
    ),
}


@pytest.fixture(scope="module", params=SECTIONS)
def template(request: pytest.FixtureRequest) -> dict[str, Any]:
    stacks, section = SECTIONS[request.param]
    found: dict[str, Any] = stacks.template_of(_environment(request.param, section)).to_json()
    return found


def _environment(name: str, section: dict[str, Any]) -> settings.Environment:
    return settings.validate({**MUCH, "tags": SHORT_TAGS if name == "eks" else TAGS, name: section})


def test_tags_that_no_check_warns_of_fit() -> None:
    env = _environment("eks", SECTIONS["eks"][1])
    assert not list(large_tags(env))
    assert list(large_tags(env.model_copy(update={"tags": TAGS})))


def test_a_template_is_taken_from_s3(template: dict[str, Any], request: pytest.FixtureRequest) -> None:
    indent = None if "eks" in request.node.callspec.id else 1
    assert len(json.dumps(template, indent=indent, separators=None if indent else (",", ":"))) < TEMPLATE
    assert (len(template["Resources"]), len(template["Outputs"])) <= (500, 200)


def test_iam_takes_every_policy(template: dict[str, Any]) -> None:
    attached: dict[str, int] = {}
    inline: dict[str, int] = {}
    for key, one in template["Resources"].items():
        found = one.get("Properties", {})
        if one["Type"] == "AWS::IAM::Role":
            attached[key] = attached.get(key, 0) + len(found.get("ManagedPolicyArns", []))
            assert _size(found["AssumeRolePolicyDocument"]) <= TRUST, key
            inline[key] = inline.get(key, 0) + sum(_size(each["PolicyDocument"]) for each in found.get("Policies", []))
        elif one["Type"] == "AWS::IAM::Policy":
            for role in found["Roles"]:
                inline[role["Ref"]] = inline.get(role["Ref"], 0) + _size(found["PolicyDocument"])
        elif one["Type"] == "AWS::IAM::ManagedPolicy":
            assert _size(found["PolicyDocument"]) <= MANAGED, key
            for role in found.get("Roles", []):
                attached[role["Ref"]] = attached.get(role["Ref"], 0) + 1
    assert {role: count for role, count in attached.items() if count > POLICIES} == {}
    assert {role: size for role, size in inline.items() if size > INLINE} == {}


def test_lambda_takes_the_events_of_an_update(template: dict[str, Any]) -> None:
    """CloudFormation sends the old and the new properties of a custom resource to its function."""
    sizes = {
        key: 2 * len(json.dumps(_resolved(one["Properties"])))
        for key, one in template["Resources"].items()
        if one["Type"].startswith("Custom::")
    }
    assert {key: size for key, size in sizes.items() if size > EVENT - 4096} == {}


def test_ec2_takes_every_rule_of_a_security_group(template: dict[str, Any]) -> None:
    """Each once: a second one of the same content is refused (InvalidPermission.Duplicate)."""
    rules = [
        (one["Type"], json.dumps({k: v for k, v in one["Properties"].items() if k != "Description"}, sort_keys=True))
        for one in template["Resources"].values()
        if one["Type"] in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
    ]
    assert [rule for rule, count in Counter(rules).items() if count > 1] == []
    counts = Counter((kind, str(json.loads(rule)["GroupId"])) for kind, rule in rules)
    assert max(counts.values(), default=0) < RULES


def _size(document: dict[str, Any]) -> int:
    """IAM does not count white space."""
    return len("".join(json.dumps(_resolved(document)).split()))


def _resolved(value: Any) -> Any:
    """A value of a template with texts of usual length in place of what is known later."""
    if isinstance(value, list):
        return [_resolved(each) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(str(_resolved(part)) for part in parts)
        case {"Ref": "AWS::Partition"}:
            return "aws-us-gov"
        case {"Ref": str()} | {"Fn::GetAtt": _} | {"Fn::Select": _} | {"Fn::ImportValue": _}:
            return "x" * 60
    return {key: _resolved(each) for key, each in value.items()}
