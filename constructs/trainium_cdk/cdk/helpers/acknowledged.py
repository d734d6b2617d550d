"""Acknowledged cdk-nag findings of our constructs, each with its reason, where it occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import jsii
from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct, IValidation

from trainium_cdk.cdk.helpers.stack_wide import kept_with, once, stack_of

_ANYTHING = "AWS accepts no narrower resource for {}, or the statement's condition is narrower"
_BELOW = "the names below this are not known before the deployment: {}"


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Acknowledge one finding of AWS Solutions, for the construct and what is below it."""
    _acknowledge(construct, {rule: reason})


def _acknowledge(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    found = [Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason) for rule, reason in reasons.items()]
    Validations.of(construct).acknowledge(*found)


def aws_policies(holder: IConstruct, *names: str) -> list[iam.IManagedPolicy]:
    """Managed policies of AWS for a role below the holder, which EKS asks for."""
    arns = [f"arn:<AWS::Partition>:iam::aws:policy/{name}" for name in names]
    _acknowledge(holder, {f"IAM4[Policy::{arn}]": "EKS asks for it by its name" for arn in arns})
    return [iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in names]


def acknowledge_wildcards(
    holder: IConstruct, statements: Sequence[iam.PolicyStatement], scope: IConstruct | None = None
) -> None:
    """Acknowledge the wildcards of these statements in the policies of a holder; not those that others add.

    Args:
        scope: of the holder, whose stack may be known.
    """
    if not statements:
        return
    stack = stack_of(scope or holder)
    kept = kept_with(stack, "wildcards")
    if not kept:
        kept["all"] = _Wildcards(stack)
        once(stack, "node").add_validation(kept["all"])
    kept["all"].statements.append((holder, list(statements)))


@jsii.implements(IValidation)
class _Wildcards:
    """Reads the statements of a stack when the names in them are final: all in one request."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.statements: list[tuple[IConstruct, list[iam.PolicyStatement]]] = []

    def validate(self) -> list[str]:
        document = iam.PolicyDocument(statements=[each for _, held in self.statements for each in held])
        found = iter((self._stack.resolve(document.to_json()) or {}).get("Statement", ()))
        for holder, held in self.statements:
            if reasons := wildcards(list(islice(found, len(held)))):
                _acknowledge(holder, {f"IAM5[{finding}]": reason for finding, reason in reasons.items()})
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
