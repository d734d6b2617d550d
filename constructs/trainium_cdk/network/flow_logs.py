"""The record of a VPC's traffic."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from trainium_cdk._cdk.permissions import service_of_account


def record_traffic(
    scope: Construct, vpc: ec2.IVpc, retention: logs.RetentionDays, removal_policy: RemovalPolicy
) -> None:
    """Record all traffic in a log group of the stack."""
    group = logs.LogGroup(scope, "FlowLogGroup", retention=retention, removal_policy=removal_policy)
    role = iam.Role(scope, "FlowLogRole", assumed_by=service_of_account(scope, "vpc-flow-logs.amazonaws.com"))
    # no logs:CreateLogGroup: late records must not create a deleted group again
    granted = iam.Grant.add_to_principal(
        grantee=role,
        actions=["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
        resource_arns=[group.log_group_arn],
    )
    log = ec2.CfnFlowLog(
        scope,
        "FlowLog",
        resource_id=vpc.vpc_id,
        resource_type="VPC",
        traffic_type="ALL",
        log_group_name=group.log_group_name,
        deliver_logs_permission_arn=role.role_arn,
    )
    granted.apply_before(log)
