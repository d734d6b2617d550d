"""`TrnPclusterProvider`: the function that CloudFormation calls to create a cluster; and the claim of the cluster's name before that."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnStack, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.custom_resources import custom_resource, permissions_of
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.cdk.helpers.stack_wide import StackPart, place_of, stack_of
from trainium_cdk.cdk.helpers.types import AnyRole
from trainium_cdk.description.catalog import Catalog

_NAME = "TrnClusterName"


class TrnPclusterProvider(Checked):
    """AWS's own provider of `Custom::PclusterCluster`, from the template it publishes for each region and release.

    One for each cluster: the function caches responses in memory, and would mix up several clusters. Deploying it needs
    CAPABILITY_NAMED_IAM and CAPABILITY_AUTO_EXPAND, which the CDK's command line always gives. Its log group is kept for 90 days
    by that template when the stack is destroyed.

    Example:
        provider = TrnPclusterProvider(self, "Provider")
        CustomResource(self, "Slurm", service_token=provider.service_token, resource_type="Custom::PclusterCluster")

    Args:
        version: ParallelCluster's. Default: the catalogue's.
        role: The role its function runs with. Default: a new one with ParallelCluster's published policies.
        policies: Policies added to the new role. Default: none.

    Raises:
        ValueError: ParallelCluster does not list the stack's region.
    """

    service_token: str
    """The service token of a `Custom::PclusterCluster`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        version: str | None = None,
        role: AnyRole | None = None,
        policies: Sequence[iam.IManagedPolicy] = (),
    ) -> None:
        super().__init__(scope, id)
        place, facts = place_of(self), Catalog.load().parallelcluster
        if not unresolved(place.region) and place.region not in facts.regions:
            raise ValueError(
                f"{self.node.path}: ParallelCluster {facts.default} does not list the region {place.region}, so that the bucket of its template there "
                "could be anybody's. Deploy to a region that it lists"
            )
        url = facts.provider_template.format(
            region=place.region, suffix=place.url_suffix, version=version or facts.default
        )
        parameters = {
            "CustomLambdaRole": role.role_arn if role else "",
            "AdditionalIamPolicies": ",".join(policy.managed_policy_arn for policy in policies),
        }
        given = {name: value for name, value in parameters.items() if value}
        provider = CfnStack(self, "Resource", template_url=url, timeout_in_minutes=15, parameters=given or None)
        self.service_token = provider.get_att("Outputs.ServiceToken").to_string()


class TrnClusterName(StackPart):
    """Fails the deployment if the cluster's name is taken. Let the cluster depend on it: ParallelCluster's provider deletes
    by name when a creation is rolled back, whichever stack created the cluster.

    Args:
        cluster_name: ParallelCluster creates a CloudFormation stack of this name.
        removal_policy: for the cluster's log group when the cluster is deleted. After a failed creation the log group is kept
            for its retention time. Default: DESTROY.
    """

    def __init__(
        self, scope: Construct, id: str, *, cluster_name: str, removal_policy: RemovalPolicy = RemovalPolicy.DESTROY
    ) -> None:
        super().__init__(scope, id)
        self.resource = custom_resource(
            self,
            "Resource",
            kind=_NAME,
            properties={
                "ClusterName": cluster_name,
                "DeleteLogs": "yes" if removal_policy == RemovalPolicy.DESTROY else "no",
            },
            permissions=permissions_of(self, _NAME).add(
                cluster_name, lambda: _statements(stack_of(self), cluster_name)
            ),
        )


def _statements(stack: Stack, cluster_name: str) -> list[iam.PolicyStatement]:
    cluster_stack = stack.format_arn(service="cloudformation", resource="stack", resource_name=f"{cluster_name}/*")
    place, stack_id = place_of(stack), stack.stack_id
    log_groups = f"arn:{place.partition}:logs:{place.region}:{place.account}:log-group:"
    allowed = (
        ("cloudformation:DescribeStacks", [cluster_stack, stack_id]),
        ("cloudformation:ListStackResources", [stack_id]),
        ("logs:DescribeLogGroups", [f"{log_groups}*"]),
        ("logs:DeleteLogGroup", [f"{log_groups}/aws/parallelcluster/{cluster_name}-*"]),
        ("logs:DeleteLogGroup", [f"{log_groups}/aws/lambda/pcluster-Cleanup*"]),
    )
    return [allow(resources, action) for action, resources in allowed]
