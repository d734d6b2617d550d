"""A queue for the failed calls of a stack's functions."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from trainium_cdk._cdk.checked import Checked
from trainium_cdk._cdk.paths import below_stack
from trainium_cdk._cdk.permissions import allow
from trainium_cdk._cdk.stack_functions import functions_of
from trainium_cdk._cdk.types import AnyKey

_KEPT_DAYS = 14


class TrnFailedCalls(Checked):
    """A queue that keeps each failed call of a stack's functions for two weeks, with the reason. Create it after all of them.

    CloudFormation reports only that no response came, and EventBridge, which runs the scaler, reports nothing. An empty queue costs
    nothing. Functions with a queue of their own keep it, and those of nested stacks get none.

    Example:
        TrnFailedCalls(stack, "FailedCalls")

    Args:
        encryption_key: Key of the queue. Default: SQS's own key in KMS.
    """

    def __init__(self, scope: Construct, id: str, *, encryption_key: AnyKey | None = None) -> None:
        super().__init__(scope, id)
        key = encryption_key
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
        send: dict[str, iam.CfnManagedPolicy] = {}
        for function, role in functions_of(stack):
            if function.dead_letter_config:
                continue
            at = below_stack(role)
            if at not in send:
                # one for each role: a shared policy would make the first function wait for the resources of the last one
                send[at] = iam.CfnManagedPolicy(
                    self,
                    "Send" + at.replace("/", ""),
                    description="Hands over the calls that failed",
                    policy_document=iam.PolicyDocument(statements=may),
                    roles=[role.role_name],
                )
            function.dead_letter_config = failed
            function.add_resource_dependency(send[at])  # Lambda rejects a queue that the role may not write to
