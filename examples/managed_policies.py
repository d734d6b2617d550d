"""Managed policies in place of inline ones, for accounts that refuse inline policies.

    cdk deploy --app "python examples/managed_policies.py"

IAM allows 6,144 characters in a managed policy, and ten managed policies on a role where the account's quota was not raised.
"""

import aws_cdk as cdk
import jsii
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from trainium_cdk.stacks import TrnPclusterStack


@jsii.implements(cdk.IAspect)
class ManagedPolicies:
    def visit(self, node: IConstruct) -> None:
        if not isinstance(node, iam.CfnPolicy):  # what grants of the CDK make
            return
        # another logical id: CloudFormation does not change the type of a resource that is deployed
        node.override_logical_id(f"Managed{cdk.Stack.of(node).get_logical_id(node)}")
        node.add_override("Type", iam.CfnManagedPolicy.CFN_RESOURCE_TYPE_NAME)
        node.add_property_deletion_override("PolicyName")


app = cdk.App()
stack = TrnPclusterStack(app, "ExampleManaged", env=cdk.Environment(region="us-east-1"))
cdk.Aspects.of(stack).add(ManagedPolicies())
app.synth()
