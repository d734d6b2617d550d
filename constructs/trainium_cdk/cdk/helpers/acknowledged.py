"""Acknowledged cdk-nag findings of our constructs, each with its reason, where it occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct, IValidation

_ANYTHING = "AWS accepts no narrower resource for {}, or the statement's condition is narrower"
_BELOW = "the names below this are not known before the deployment: {}"


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Acknowledge one finding of AWS Solutions, for the construct and what is below it."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason))


def aws_policies(holder: IConstruct, *names: str) -> list[iam.IManagedPolicy]:
    """Managed policies of AWS for a role below the holder, which EKS asks for."""
    for name in names:
        arn = f"arn:<AWS::Partition>:iam::aws:policy/{name}"
        acknowledge(holder, f"IAM4[Policy::{arn}]", "EKS asks for it by its name")
    return [iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in names]


def acknowledge_wildcards(holder: IConstruct, statements: Sequence[iam.PolicyStatement]) -> None:
    """Acknowledge the wildcards of these statements in the policies of a holder; not those that others add."""
    holder.node.add_validation(_Wildcards(holder, statements))


@jsii.implements(IValidation)
class _Wildcards:
    """Reads the statements when the names in them are final."""

    def __init__(self, holder: IConstruct, statements: Sequence[iam.PolicyStatement]) -> None:
        self._holder, self._statements = holder, list(statements)

    def validate(self) -> list[str]:
        found = Stack.of(self._holder).resolve([each.to_statement_json() for each in self._statements])
        for finding, reason in wildcards(found).items():
            acknowledge(self._holder, f"IAM5[{finding}]", reason)
        return []


def wildcards(statements: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The wildcards that statements allow, by cdk-nag's name for each, with the reason.

    >>> wildcards([{"Effect": "Allow", "Action": "ec2:DescribeSubnets", "Resource": "*"}])
    {'Resource::*': "AWS accepts no narrower resource for ec2:DescribeSubnets, or the statement's condition is narrower"}
    """
    actions: dict[str, list[str]] = {}
    for statement in statements:
        if statement["Effect"] == "Allow":
            for resource in map(_flat, _as_list(statement.get("Resource", ()))):
                if "*" in resource:
                    actions.setdefault(resource, []).extend(_as_list(statement["Action"]))
    reasons = {r: (_ANYTHING if r == "*" else _BELOW).format(", ".join(sorted({*a}))) for r, a in actions.items()}
    return {f"Resource::{resource}": reason for resource, reason in reasons.items()}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _flat(node: Any) -> str:
    """A reference as cdk-nag writes it: `<Bucket.Arn>/*`."""
    if isinstance(node, str):
        return node.replace("${", "<").replace("}", ">")
    if "Fn::Join" in node:
        delimiter, items = node["Fn::Join"]
        return str(delimiter.join(map(_flat, items)))
    if "Fn::GetAtt" in node:
        return f"<{'.'.join(node['Fn::GetAtt'])}>"
    if "Ref" in node:
        return f"<{node['Ref']}>"
    return next((_flat(node[each]) for each in ("Fn::Sub", "Fn::ImportValue") if each in node), "")
