"""Every Lambda function of a stack in the VPC and with reserved concurrency, which some organisations require.

    cdk deploy --app "python examples/strict_functions.py"

The account must have the concurrency: a new one has 10 in all, and Lambda refuses to reserve any of them. Deleting the stack waits
for Lambda's network interfaces, 20 minutes or more.
"""

import aws_cdk as cdk
import jsii
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from constructs import IConstruct

from trainium_cdk.stacks import TrnPclusterStack

ACTIONS = ("CreateNetworkInterface", "DeleteNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets")


@jsii.implements(cdk.IAspect)
class StrictFunctions:
    def __init__(self, scope: cdk.Stack, vpc: ec2.IVpc) -> None:
        self.subnets, self.group = vpc.private_subnets, ec2.SecurityGroup(scope, "StrictGroup", vpc=vpc)
        may = iam.PolicyStatement(actions=[f"ec2:{action}" for action in ACTIONS], resources=["*"])
        self.policy = iam.ManagedPolicy(scope, "StrictInterfaces", statements=[may])

    def visit(self, node: IConstruct) -> None:
        resource = node.node.default_child
        if not (isinstance(node, functions.Function) and isinstance(resource, functions.CfnFunction)):
            return
        resource.reserved_concurrent_executions = 5
        if node.role and not resource.vpc_config:
            ids, groups = [s.subnet_id for s in self.subnets], [self.group.security_group_id]
            resource.vpc_config = functions.CfnFunction.VpcConfigProperty(subnet_ids=ids, security_group_ids=groups)
            node.role.add_managed_policy(self.policy)  # Lambda makes the network interfaces with the function's role
            node.node.add_dependency(*(s.internet_connectivity_established for s in self.subnets))


app = cdk.App()
stack = TrnPclusterStack(app, "ExampleStrict", env=cdk.Environment(region="us-east-1"))
cdk.Aspects.of(stack).add(StrictFunctions(stack, stack.vpc))
app.synth()
