"""`TrnJobNotices`: a message when a job has ended."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration, IgnoreMode
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_logs_destinations as destinations
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.functions import function_role
from trainium_cdk.cdk.helpers.functions import log_group as own_log_group
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import place_of, stack_of


class TrnJobNotices(Checked):
    """Sends a message to an SNS topic when a job has ended, however it ended: also when signal 9 killed it, or its node was lost. And when
    a job runs without progress.

    Slurm's queue, or Kubernetes, knows the end. On Slurm root's service `trn-metrics` of the head node reads it, on EKS `TrnScaler` (with
    `job_ends`), each minute. Both write a line to a log group. A function sends it: no node, and no job, may publish.

    Example:
        TrnJobNotices(self, "Notices", log_group=watched.log_group, topic=topic)

    Args:
        log_group: with the lines: `TrnObservability.log_group` on Slurm, `TrnScaler.function.log_group` on EKS.
        topic: where the messages are sent. Its key, if it has one of yours, must let the account's roles use it.
    """

    def __init__(self, scope: Construct, id: str, *, log_group: logs.ILogGroup, topic: sns.ITopic) -> None:
        super().__init__(scope, id)
        stack, place = stack_of(self), place_of(self)
        through_sns = {
            "StringEquals": {
                "kms:ViaService": f"sns.{place.region}.{place.url_suffix}",
                "kms:EncryptionContext:aws:sns:topicArn": topic.topic_arn,
            }
        }
        keys = stack.format_arn(service="kms", resource="key", resource_name="*")
        group = own_log_group(self)
        role, _ = function_role(
            self,
            group,
            [
                allow(topic.topic_arn, "sns:Publish"),
                allow(keys, "kms:Decrypt", "kms:GenerateDataKey", conditions=through_sns),
            ],
        )
        self.function = functions.Function(
            self,
            "Resource",
            description="Tells an SNS topic of jobs that have ended, or make no progress",
            code=functions.Code.from_asset(
                str(Path(__file__).with_name("notice")), exclude=["*", "!*.py"], ignore_mode=IgnoreMode.GIT
            ),
            handler="function.handler",
            runtime=functions.Runtime.PYTHON_3_14,
            memory_size=128,
            timeout=Duration.seconds(30),
            role=role,
            log_group=group,
            environment={"TOPIC": topic.topic_arn},
        )
        logs.SubscriptionFilter(
            self,
            "Ends",
            log_group=log_group,
            destination=destinations.LambdaDestination(self.function),
            filter_pattern=logs.FilterPattern.literal('{ ($.JobEnded = "*") || ($.JobFound = "*") }'),
        )
