"""The guard in the local AWS: one in an account, its time is set anew, its role may delete one stack and do nothing else."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws
from tests.credentials import User
from tests.faults.driver import Driver
from trainium_cdk.cli.verify import _alone_in_account
from trainium_cdk.errors import TrnError
from trainium_cdk.operations.verify.guard import NAME, Guard, holder, schedule, status
from trainium_cdk.operations.verify.plan import make

STACK = "TrnPclusterStack-verify"
TEMPLATE = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}


@pytest.fixture
def guard(local_aws: LocalAws) -> Iterator[Guard]:
    made = Guard(cache(local_aws.client), "0123456789ab", STACK)
    yield made
    made.release()


def there(aws: LocalAws) -> dict[str, Any]:
    found: dict[str, Any] = aws.client("scheduler").get_schedule(Name=NAME)
    return found


def test_it_is_made_once_renewed_and_released(local_aws: LocalAws, guard: Guard) -> None:
    now = time.time()
    assert holder(guard.client) is None
    guard.take(now + 3600)
    guard.take(now + 3600)
    assert holder(guard.client) == ("0123456789ab", STACK, "us-east-1")
    first = there(local_aws)
    guard.renew(now + 7200)
    again = there(local_aws)
    assert first["Target"] == again["Target"]
    assert again["StartDate"] - first["StartDate"] == dt.timedelta(hours=1)
    with pytest.raises(
        TrnError, match="another verification runs in this account: TrnPclusterStack-verify in us-east-1"
    ):
        Guard(guard.client, "ba9876543210", STACK).take(now)
    Guard(guard.client, "ba9876543210", STACK).release()  # it is another's: nothing happens
    assert holder(guard.client) is not None
    guard.release()
    guard.release()
    assert holder(guard.client) is None
    with pytest.raises(ClientError):
        there(local_aws)


def test_it_deletes_this_stack_and_may_do_nothing_else(local_aws: LocalAws, guard: Guard) -> None:
    """As EventBridge Scheduler does it: with the schedule's role, from the schedule's own input."""
    mine, other = Driver(local_aws, STACK), Driver(local_aws, f"{STACK}-other")
    guard.take(time.time())
    try:
        assert mine.create(TEMPLATE) == other.create(TEMPLATE) == "CREATE_COMPLETE"
        target = there(local_aws)["Target"]
        assert target["Arn"] == "arn:aws:scheduler:::aws-sdk:cloudformation:deleteStack"
        with as_role(local_aws, target["RoleArn"]) as client:
            with pytest.raises(ClientError, match="AccessDenied"):
                client("cloudformation").delete_stack(StackName=other.name)
            with pytest.raises(ClientError, match="AccessDenied"):
                client("cloudformation").describe_stacks(StackName=STACK)
            with pytest.raises(ClientError, match="AccessDenied"):
                client("s3").list_buckets()
            assert status(guard.client, STACK) == "CREATE_COMPLETE"
            client("cloudformation").delete_stack(**json.loads(target["Input"]))
        assert mine.settle() == "DELETE_COMPLETE"
        assert status(guard.client, STACK) == ""
    finally:
        mine.clear()
        other.clear()


@contextmanager
def as_role(aws: LocalAws, role: str) -> Iterator[Callable[[str], Any]]:
    """Clients that may do what a role may: of a user with the role's own policy, whom the local AWS judges."""
    name = role.rpartition("/")[2]
    user = User(aws)
    try:
        user.may(aws.client("iam").get_role_policy(RoleName=name, PolicyName=NAME)["PolicyDocument"])
        session: Any = boto3.Session(
            **user.keys, region_name=aws.region
        )  # its stubs accept only literal names of services
        yield lambda service: session.client(service, endpoint_url=aws.endpoint)
    finally:
        user.close()


@pytest.mark.parametrize(
    ("until", "minute", "first"),
    [
        (1_800_000_000.0, 1, "2027-01-15T08:01"),
        (1_800_003_541.0, 0, "2027-01-15T09:00"),
        (1_800_003_599.9, 0, "2027-01-15T09:00"),
    ],
)
def test_the_next_whole_minute_is_the_first(until: float, minute: int, first: str) -> None:
    made = schedule(f"arn:aws-us-gov:iam::000000000000:role/{NAME}", STACK, until)
    assert made["ScheduleExpression"] == f"cron({minute} * * * ? *)"
    assert f"{made['StartDate'] + dt.timedelta(seconds=30):%Y-%m-%dT%H:%M}" == first
    assert 0 < (made["StartDate"] + dt.timedelta(seconds=30)).timestamp() - until <= 60
    assert made["Target"]["Arn"].startswith("arn:aws-us-gov:scheduler:::")
    assert json.loads(made["Target"]["Input"]) == {"StackName": STACK}


def test_somebodys_own_environment_is_not_taken_for_a_run(
    local_aws: LocalAws, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal would delete it."""
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    plan = make("slurm", "trn1.2xlarge", "us-east-1", None)
    _alone_in_account(plan)
    theirs = Driver(local_aws, STACK)
    try:
        theirs.create(TEMPLATE)
        with pytest.raises(
            TrnError, match=f"there is a stack {STACK} in us-east-1, of an environment with the name verify"
        ):
            _alone_in_account(plan)
    finally:
        theirs.clear()
    guard.take(time.time())
    with pytest.raises(TrnError, match=f"If the folder is lost: trn verify --remove {STACK} --region us-east-1"):
        _alone_in_account(plan)
