"""What removes a cluster of a verification if this machine is lost: a schedule of EventBridge Scheduler that deletes the stack.

The schedule acts as a role of its own, which may delete this one stack and do nothing else: CloudFormation goes on with the role that the CDK's
bootstrap gave the stack. Its time is set anew before each step. The role's name is the same in the whole account, so that it is also the lock:
there is one verification at a time. Sources: the API references of IAM, EventBridge Scheduler and CloudFormation (DeleteStack, RoleARN), 2026-11.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainium_cdk._aws import code_and_message, failures
from trainium_cdk.errors import TrnError

NAME = "trn-verify"
"""Of the role, its policy and the schedule."""
_DAYS = 7
"""So long the schedule tries to delete the stack, each hour."""
_ROLE_SECONDS = 120.0
"""IAM needs some seconds until others may use a new role."""
_RUN, _STACK, _REGION = "trainium-cdk:verify-run", "trainium-cdk:verify-stack", "trainium-cdk:verify-region"
Client = Callable[[str], Any]


@dataclass(frozen=True)
class Guard:
    """The guard of one run.

    Attributes:
        client: service name -> boto3 client of the run's region.
        run: the run's id.
        stack: the stack's name.
    """

    client: Client
    run: str
    stack: str
    sleep: Callable[[float], None] = time.sleep

    def take(self, until: float) -> None:
        """Make it, before anything is deployed. Again: no change but the time.

        Raises:
            TrnError: another run has it; the message says which.
            botocore.exceptions.ClientError: AWS refuses.
        """
        identity = self.client("sts").get_caller_identity()
        account, partition = identity["Account"], identity["Arn"].split(":")[1]
        iam, region = self.client("iam"), self.client("scheduler").meta.region_name
        trust = _policy(
            "sts:AssumeRole",
            Principal={"Service": "scheduler.amazonaws.com"},
            Condition={"StringEquals": {"aws:SourceAccount": account}},
        )
        tags = {_RUN: self.run, _STACK: self.stack, _REGION: region}
        try:
            iam.create_role(
                RoleName=NAME,
                AssumeRolePolicyDocument=trust,
                Description="Deletes the stack of a verification of trainium-cdk, if the program that runs it is gone.",
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )
        except iam.exceptions.EntityAlreadyExistsException:
            if (other := holder(self.client)) is not None and other[0] != self.run:
                raise TrnError(taken(*other)) from None
        stack = f"arn:{partition}:cloudformation:{region}:{account}:stack/{self.stack}/*"
        iam.put_role_policy(
            RoleName=NAME, PolicyName=NAME, PolicyDocument=_policy("cloudformation:DeleteStack", Resource=stack)
        )
        self._schedule(f"arn:{partition}:iam::{account}:role/{NAME}", until)

    def renew(self, until: float) -> None:
        """Set another time for the deletion.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: AWS refuses, or does not respond.
        """
        scheduler = self.client("scheduler")
        role = scheduler.get_schedule(Name=NAME)["Target"]["RoleArn"]
        scheduler.update_schedule(**schedule(role, self.stack, until))

    def _schedule(self, role: str, until: float) -> None:
        scheduler, end = self.client("scheduler"), time.monotonic() + _ROLE_SECONDS
        wanted = schedule(role, self.stack, until)
        while True:
            try:
                scheduler.create_schedule(**wanted)
                return
            except scheduler.exceptions.ConflictException:
                scheduler.update_schedule(**wanted)
                return
            except scheduler.exceptions.ValidationException as e:
                if "role" not in str(e) or time.monotonic() > end:
                    raise
                self.sleep(5)

    def release(self) -> None:
        """Remove it: nothing is left that it could delete. Again, or if another run has it: no change.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: AWS refuses, or does not respond.
        """
        iam, scheduler = self.client("iam"), self.client("scheduler")
        found = holder(self.client)
        if found is None or found[0] != self.run:
            return
        with suppress(scheduler.exceptions.ResourceNotFoundException):
            scheduler.delete_schedule(Name=NAME)
        with suppress(iam.exceptions.NoSuchEntityException):
            iam.delete_role_policy(RoleName=NAME, PolicyName=NAME)
        iam.delete_role(RoleName=NAME)


def holder(client: Client) -> tuple[str, str, str] | None:
    """Run, stack and region of the verification that has the guard; None if there is none."""
    iam = client("iam")
    try:
        tags = {tag["Key"]: tag["Value"] for tag in iam.get_role(RoleName=NAME)["Role"].get("Tags", [])}
    except iam.exceptions.NoSuchEntityException:
        return None
    return tags.get(_RUN, ""), tags.get(_STACK, ""), tags.get(_REGION, "")


def taken(run: str, stack: str, region: str) -> str:
    """What to say where another verification, or something else, has the guard."""
    if not run:
        return f"the account has a role {NAME} that is none of trainium-cdk's. Rename or delete it, and run this again"
    return (
        f"another verification runs in this account: {stack} in {region} (run {run}). Go on with it in its folder, with the same command. "
        f"If the folder is lost: trn verify --remove {stack} --region {region}"
    )


def schedule(role: str, stack: str, until: float) -> dict[str, Any]:
    """The schedule: from `until` on, each hour, CloudFormation is asked to delete the stack.

    The next whole minute is the first, and a cron expression starts exactly then. An hourly rate would count from the creation.
    """
    partition = role.split(":")[1]
    first = dt.datetime.fromtimestamp(until // 60 * 60 + 60, dt.UTC)
    return {
        "Name": NAME,
        "Description": "Deletes the stack of a verification of trainium-cdk, if the program that runs it is gone.",
        "ScheduleExpression": f"cron({first.minute} * * * ? *)",
        "ScheduleExpressionTimezone": "UTC",
        "StartDate": first - dt.timedelta(seconds=30),
        "EndDate": first + dt.timedelta(days=_DAYS),
        "ActionAfterCompletion": "DELETE",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": f"arn:{partition}:scheduler:::aws-sdk:cloudformation:deleteStack",
            "RoleArn": role,
            "Input": json.dumps({"StackName": stack}),
        },
    }


def status(client: Client, stack: str) -> str:
    """CloudFormation's status of the stack; empty where there is none.

    Raises:
        botocore.exceptions.ClientError, BotoCoreError: AWS refuses, or does not respond.
    """
    try:
        found = client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
    except failures() as e:
        if "does not exist" in code_and_message(e)[1]:
            return ""
        raise
    return "" if found in ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS") else str(found)


def _policy(action: str, **rest: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, **rest}]})
