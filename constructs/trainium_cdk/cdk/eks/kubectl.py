"""The function that installs manifests and charts in the cluster: the CDK's own, with restricted logs and permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import IPropertyInjector, PropertyInjectors, Size, custom_resources
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from constructs import Construct, IDependable

from trainium_cdk.cdk.helpers.acknowledged import acknowledge
from trainium_cdk.cdk.helpers.functions import deployment_logs, function_role, l1
from trainium_cdk.cdk.helpers.paths import below_stack
from trainium_cdk.cdk.helpers.permissions import PULL_THROUGH, allow, public_registry
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once

_PULL = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
)
MEMORY_MIB = 1024
"""MiB. Helm and kubectl together run out of memory with 256 MiB (aws-cdk issue 11248)."""


def _kubectl(scope: Construct, version: str) -> functions.ILayerVersion:
    """The layer with kubectl and Helm. kubectl fits a cluster of one minor version more or less (Kubernetes' version skew policy). The one
    of 1.35 is also for 1.33, whose standard support has ended: none of the layers fits both."""
    if int(version.partition(".")[2]) < 36:
        from aws_cdk.lambda_layer_kubectl_v35 import KubectlV35Layer

        return KubectlV35Layer(scope, "Kubectl")
    from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer

    return KubectlV36Layer(scope, "Kubectl")


@jsii.implements(IPropertyInjector)
class _AddProperties:
    """Adds properties to every construct of a class that the CDK creates inside its own. The app's own injector of that class comes
    after it: the CDK itself asks only the nearest.

    Args:
        above: The app's own, the nearest first.
        kind: `PROPERTY_INJECTION_ID` of the class.
        properties: By their names in TypeScript.
    """

    def __init__(self, above: Sequence[PropertyInjectors], kind: str, **properties: object) -> None:
        self._kind, self._properties = kind, properties
        self._next = next((found for each in above if (found := each.for_(kind))), None)

    @property
    def construct_unique_id(self) -> str:
        return self._kind

    def inject(self, original_props: Mapping[str, Any], *, id: str, scope: Construct) -> Any:
        properties = {**original_props, **self._properties}
        return self._next.inject(properties, id=id, scope=scope) if self._next else properties


class KubectlProvider(StackPart):
    """The CDK's kubectl provider in private subnets, in a security group of the stack.

    Not in the cluster's own group: EKS deletes that one with the cluster, which fails while it has the function's network
    interfaces, which Lambda deletes late. Both functions write to the log group of the stack's functions, and their roles, which
    are this construct's, allow only what they do.

    Args:
        version: of the cluster's Kubernetes. It chooses kubectl.
        charts: ARNs of the ECR repositories that charts are pulled from. Default: none, as charts come from public registries.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: eks.ICluster,
        version: str,
        subnets: Sequence[ec2.ISubnet],
        security_group: ec2.ISecurityGroup,
        charts: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        group = deployment_logs(self)
        may = [allow(once(cluster, "cluster_arn"), "eks:DescribeCluster"), *public_registry()]
        if charts:
            may += [allow("*", "ecr:GetAuthorizationToken"), allow(charts, *_PULL, *PULL_THROUGH)]
        own = StackPart(self, "Handler")
        self.role, _ = function_role(own, group, may, in_vpc=True)
        """The role that calls the Kubernetes API."""
        self._entry_role, _ = function_role(StackPart(self, "Entry"), group, in_vpc=True)
        # the CDK would add policies that allow more
        handler, entry = self.role.without_policy_updates(), self._entry_role.without_policy_updates()
        around = reversed(once(once(self, "node"), "scopes")[:-1])
        above = [PropertyInjectors.of(each) for each in around if PropertyInjectors.has_property_injectors(each)]
        PropertyInjectors.of(self).add(
            _AddProperties(above, functions.Function.PROPERTY_INJECTION_ID, logGroup=group),
            _AddProperties(above, custom_resources.Provider.PROPERTY_INJECTION_ID, frameworkOnEventRole=entry),
        )
        provider = eks.KubectlProvider(
            self,
            "Provider",
            cluster=cluster,
            kubectl_layer=_kubectl(self, version),
            private_subnets=list(subnets),
            security_groups=[security_group],
            memory=Size.mebibytes(MEMORY_MIB),
            role=handler,
        )
        # of a policy that our role does not get; CloudFormation's validation warns of a condition that nothing uses
        own.node.try_remove_child("HasEcrPublic")
        acknowledge(provider, "L1", "the CDK's own function, whose runtime comes with aws-cdk-lib")
        self.service_token = provider.service_token
        entry_function = once(provider, "node").find_child("Provider").node.find_child("framework-onEvent")
        # the CDK's has the path from the app on, which changes when the stack moves
        l1(entry_function, functions.CfnFunction).description = f"Calls the function of {below_stack(self)}"
        function = once(provider, "node").find_child("Handler")
        assert isinstance(function, functions.Function)  # noqa: S101  what the CDK's provider calls
        call = allow(function.function_arn, "lambda:GetFunction", "lambda:InvokeFunction")
        iam.ManagedPolicy(self._entry_role, "Call", statements=[call], roles=[self._entry_role])

    def wait_for(self, *others: IDependable) -> None:
        """Let everything that is installed in the cluster wait for these.

        The function that CloudFormation calls waits for its role. The other function is created at the same time as the cluster, as its network
        interfaces take time.
        """
        self._entry_role.node.add_dependency(*others)
