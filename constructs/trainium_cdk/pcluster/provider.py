"""`TrnPclusterProvider`: the function that CloudFormation calls to create a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnStack, Stack
from constructs import Construct

from trainium_cdk.catalog import Catalog


class TrnPclusterProvider(Construct):
    """AWS's own provider of `Custom::PclusterCluster`, from the template it publishes for each region and release.

    One for each cluster: the function caches responses in memory, and would mix up several clusters. Deploying it needs
    CAPABILITY_NAMED_IAM and CAPABILITY_AUTO_EXPAND, which the CDK's command line always gives. Its log group is kept for 90 days
    by that template when the stack is destroyed.

    Example:
        provider = TrnPclusterProvider(self, "Provider")
        CustomResource(self, "Slurm", service_token=provider.service_token, resource_type="Custom::PclusterCluster")

    Args:
        version: Of ParallelCluster. Default: the catalogue's.
        role: ARN of the role its function runs with. Default: a new one with ParallelCluster's published policies.
        policies: ARNs of IAM policies added to the new role. Default: none.
    """

    service_token: str
    """The service token of a `Custom::PclusterCluster`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        version: str | None = None,
        role: str | None = None,
        policies: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        stack, facts = Stack.of(self), Catalog.load().parallelcluster
        url = facts.provider_template.format(
            region=stack.region, suffix=stack.url_suffix, version=version or facts.default
        )
        parameters = {"CustomLambdaRole": role or "", "AdditionalIamPolicies": ",".join(policies)}
        given = {name: value for name, value in parameters.items() if value}
        provider = CfnStack(self, "Resource", template_url=url, timeout_in_minutes=15, parameters=given or None)
        self.service_token = provider.get_att("Outputs.ServiceToken").to_string()
