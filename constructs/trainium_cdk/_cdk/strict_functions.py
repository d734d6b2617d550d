"""Functions for organisations with strict rules: in the VPC, with a dead-letter queue and reserved concurrency."""

from __future__ import annotations

from aws_cdk import CfnResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from trainium_cdk._cdk.functions import IN_A_VPC, l1, providers
from trainium_cdk._cdk.groups import ClosedGroup, Egress
from trainium_cdk.network import TrnNetwork

AT_ONCE = 5
"""Concurrent calls of a function: CloudFormation makes one for each manifest or chart, and retries."""
_KEPT_DAYS = 14


class StrictFunctions(Construct):
    """Changes every function of the stack. Create it last.

    It uses reserved concurrency of the account, of which a new account has little; and a deletion of the stack waits 20 minutes or
    more for Lambda to release the network interfaces. So it is a setting (`functions: strict`), not the default.

    Args:
        network: for functions that are not in a VPC yet.
        encryption_key: of the queue. Default: SQS's own key.
    """

    def __init__(
        self, scope: Construct, id: str, *, network: TrnNetwork, encryption_key: kms.IKey | None = None
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        out = Egress(ip_protocol="tcp", from_port=443, to_port=443, cidr_ip="0.0.0.0/0", description="AWS")
        group = ClosedGroup(
            self,
            "Group",
            vpc_id=network.vpc.vpc_id,
            description="Functions of the deployment: HTTPS to AWS",
            egress=(out,),
        )
        queue = sqs.Queue(
            self,
            "Failed",
            encryption=sqs.QueueEncryption.KMS if encryption_key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=encryption_key,
            enforce_ssl=True,
            retention_period=Duration.days(_KEPT_DAYS),
            removal_policy=RemovalPolicy.DESTROY,
        )
        found = _functions(stack)
        may = [iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn])]
        if encryption_key:
            may.append(
                iam.PolicyStatement(
                    actions=["kms:Decrypt", "kms:GenerateDataKey"],
                    resources=[encryption_key.key_arn],
                    conditions={"StringEquals": {"kms:ViaService": f"sqs.{stack.region}.{stack.url_suffix}"}},
                )
            )
        interfaces = f"arn:{stack.partition}:iam::aws:policy/{IN_A_VPC}"
        for function, role in found:
            # one policy each: a shared policy would make the first function wait for the resources of the last one
            send = iam.CfnManagedPolicy(
                self,
                "Send" + "".join(role.node.path.split("/")[1:-1]),
                description="Hands over the calls that failed",
                policy_document=iam.PolicyDocument(statements=may),
                roles=[role.ref],
            )
            function.add_property_override("DeadLetterConfig", {"TargetArn": queue.queue_arn})
            function.add_property_override("ReservedConcurrentExecutions", AT_ONCE)
            if not (isinstance(function, functions.CfnFunction) and function.vpc_config):
                role.add_property_override("ManagedPolicyArns", [interfaces])
                where = {
                    "SubnetIds": [s.subnet_id for s in network.private_subnets],
                    "SecurityGroupIds": [group.group.security_group_id],
                }
                function.add_property_override("VpcConfig", where)
                function.node.add_dependency(network.internet_ready)
            function.add_resource_dependency(send)  # Lambda rejects a queue that the role may not write to


def _functions(stack: Stack) -> list[tuple[CfnResource, CfnResource]]:
    """Every function of a stack, with its role."""
    found = [
        (l1(node), l1(node.role))
        for node in stack.node.find_all()
        if isinstance(node, functions.Function) and node.role is not None
    ]
    return found + [(function, role) for _, function, role in providers(stack)]
