"""Custom resources: what CloudFormation cannot do itself. One function serves all of a stack (`trainium_cdk.cdk.deployment`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from aws_cdk import CustomResource, Duration, IgnoreMode, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from constructs import Construct

from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.functions import deployment_logs, function_role
from trainium_cdk.cdk.helpers.stack_wide import StackPart, stack_wide

DEPLOYMENT_FUNCTION = "TrnDeploymentFunction"
"""Id of the function in its stack."""
_PACKAGE = Path(__file__).parent.parent
_LONGEST = 15
"""Minutes that a call may take: to empty a large bucket. Lambda calls again twice if it takes longer."""


def custom_resource(
    scope: Construct,
    id: str,
    *,
    kind: str,
    properties: Mapping[str, Any],
    permissions: Permissions | None = None,
    minutes: int = 5,
) -> CustomResource:
    """A resource of the type `Custom::KIND`, which a module of `trainium_cdk.cdk.deployment` serves.

    Args:
        permissions: what CloudFormation creates first, and deletes last. Default: none.
        minutes: until CloudFormation gives up.
    """
    return CustomResource(
        scope,
        id,
        service_token=(permissions or deployment_function(scope)).token,
        resource_type=f"Custom::{kind}",
        service_timeout=_minutes(minutes),
        removal_policy=RemovalPolicy.DESTROY,
        # a reference among the properties takes fewer requests to the CDK than a dependency
        properties={**properties, **({"Permissions": permissions.arn} if permissions else {})},
    )


def deployment_function(scope: Construct) -> DeploymentFunction:
    """The function of the scope's stack."""
    return stack_wide(scope, DEPLOYMENT_FUNCTION, DeploymentFunction, DeploymentFunction)


def permissions_of(scope: Construct, kind: str) -> Permissions:
    """The permissions of a stack's custom resources of one type."""
    return stack_wide(scope, f"{kind}Permissions", Permissions, Permissions)


class DeploymentFunction(StackPart):
    """The function, with the permission to write its log."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        group = deployment_logs(self)
        self.role, _ = function_role(self, group)
        self.token = functions.Function(
            self,
            "Resource",
            description="Serves the custom resources of the stack (trainium-cdk)",
            code=functions.Code.from_asset(
                str(_PACKAGE),
                exclude=["*", "!deployment", "deployment/*", "!deployment/*.py"],
                ignore_mode=IgnoreMode.GIT,
            ),
            handler="deployment.function.handler",
            runtime=functions.Runtime.PYTHON_3_14,
            timeout=_minutes(_LONGEST),
            role=self.role,
            log_group=group,
        ).function_arn


class Permissions(StackPart):
    """A managed policy of the function's role, without statements at first.

    One for each type, as a role can have few. The function does not wait for it: what it names may be created after other custom
    resources.
    """

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        function = deployment_function(self)
        self.token = function.token
        self.policy = iam.ManagedPolicy(self, "Policy", roles=[function.role])
        self.arn = self.policy.managed_policy_arn
        self._known: set[object] = set()

    def add(self, key: object, statements: Callable[[], Sequence[iam.PolicyStatement]]) -> Permissions:
        """Allow this, once for each key."""
        if key not in self._known:
            self._known.add(key)
            allowed = statements()
            self.policy.add_statements(*allowed)
            acknowledge_wildcards(self.policy, allowed, self)
        return self


@cache
def _minutes(number: int) -> Duration:
    return Duration.minutes(number)
