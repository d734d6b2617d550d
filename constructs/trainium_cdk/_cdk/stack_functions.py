"""Settings of all functions of a stack: a queue for failed calls and, optionally, the VPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from trainium_cdk._cdk.functions import interfaces_policy, l1
from trainium_cdk._cdk.groups import ClosedGroup, https_out
from trainium_cdk._cdk.paths import below_stack
from trainium_cdk._cdk.permissions import allow

_KEPT_DAYS = 14


class FunctionsNetwork(Protocol):
    """The parts of a `TrnNetwork` that functions use."""

    @property
    def vpc(self) -> ec2.IVpc: ...
    @property
    def private_subnets(self) -> Sequence[ec2.ISubnet]: ...
    @property
    def internet_ready(self) -> IDependable: ...


class StackFunctions(Construct):
    """Changes every function of the stack. Create it after all of them.

    A queue keeps each call that failed for two weeks, with the reason: CloudFormation reports only that no response came, and
    EventBridge, which runs the scaler, reports nothing. An empty queue costs nothing.

    Args:
        encryption_key: of the queue. Default: SQS's own key in KMS.
        network: for functions that are not in a VPC yet. A deletion of the stack then waits 20 minutes or more for Lambda to
            release the network interfaces. Default: they stay outside.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        encryption_key: kms.IKey | None = None,
        network: FunctionsNetwork | None = None,
    ) -> None:
        super().__init__(scope, id)
        found = _functions(Stack.of(self))
        self._hand_over_failures(found, encryption_key)
        if network:
            self._place(found, network)

    def _hand_over_failures(self, found: list[tuple[functions.CfnFunction, iam.IRole]], key: kms.IKey | None) -> None:
        stack = Stack.of(self)
        queue = sqs.Queue(
            self,
            "Failed",
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.KMS_MANAGED,
            encryption_master_key=key,
            enforce_ssl=True,
            retention_period=Duration.days(_KEPT_DAYS),
            redrive_allow_policy=sqs.RedriveAllowPolicy(redrive_permission=sqs.RedrivePermission.ALLOW_ALL),
            removal_policy=RemovalPolicy.DESTROY,
        )
        may = [allow(queue.queue_arn, "sqs:SendMessage")]
        if key:
            through_sqs = {"StringEquals": {"kms:ViaService": f"sqs.{stack.region}.{stack.url_suffix}"}}
            may.append(allow(key.key_arn, "kms:Decrypt", "kms:GenerateDataKey", conditions=through_sqs))
        failed = functions.CfnFunction.DeadLetterConfigProperty(target_arn=queue.queue_arn)
        for function, role in found:
            # one policy each: a shared policy would make the first function wait for the resources of the last one
            send = iam.CfnManagedPolicy(
                self,
                "Send" + below_stack(role).replace("/", ""),
                description="Hands over the calls that failed",
                policy_document=iam.PolicyDocument(statements=may),
                roles=[role.role_name],
            )
            function.dead_letter_config = failed
            function.add_resource_dependency(send)  # Lambda rejects a queue that the role may not write to

    def _place(self, found: list[tuple[functions.CfnFunction, iam.IRole]], network: FunctionsNetwork) -> None:
        outside = [(function, role) for function, role in found if not function.vpc_config]
        group = ClosedGroup(
            self,
            "Group",
            vpc_id=network.vpc.vpc_id,
            description="Functions of the deployment: HTTPS to AWS",
            egress=https_out("AWS"),
        )
        inside = functions.CfnFunction.VpcConfigProperty(
            subnet_ids=[s.subnet_id for s in network.private_subnets],
            security_group_ids=[group.group.security_group_id],
        )
        interfaces = interfaces_policy(self)
        for function, role in outside:
            role.add_managed_policy(interfaces)
            function.vpc_config = inside
            function.node.add_dependency(network.internet_ready)


def _functions(stack: Stack) -> list[tuple[functions.CfnFunction, iam.IRole]]:
    """Every function of a stack that has a role of the CDK's."""
    return [
        (l1(node, functions.CfnFunction), node.role)
        for node in stack.node.find_all()
        if isinstance(node, functions.Function) and node.role is not None
    ]
