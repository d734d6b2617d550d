"""Policies of roles as managed policies, which IAM lists, versions and simulates by themselves, instead of inline ones."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

_DEFAULT = "DefaultPolicy"


def manage_policies(scope: IConstruct) -> None:
    """Turn every inline policy below `scope` (`AWS::IAM::Policy`, what grants of the CDK make) into a managed one. Call it last.

    The resource stays the same object, so that whatever waits for the policy still does. It has another logical id: CloudFormation
    does not change the type of a resource. IAM allows 6,144 characters in a managed policy.

    Example:
        manage_policies(stack)

    Args:
        scope: A stack, or any construct.
    """
    for node in scope.node.find_all():
        if isinstance(node, iam.CfnPolicy):
            before = Stack.of(node).get_logical_id(node)
            after = before.replace(_DEFAULT, "ManagedPolicy") if _DEFAULT in before else f"Managed{before}"
            node.override_logical_id(after)
            node.add_override("Type", iam.CfnManagedPolicy.CFN_RESOURCE_TYPE_NAME)
            node.add_property_deletion_override("PolicyName")
