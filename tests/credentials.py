"""Users of the local AWS, whose requests it judges, and credentials of theirs that end."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.config import Config

from sandbox import LocalAws


@contextlib.contextmanager
def session(
    aws: LocalAws, seconds: int, *actions: str, condition: dict[str, Any] | None = None
) -> Iterator[dict[str, str]]:
    """Variables with the credentials of a user's session, which end after so many seconds (AWS: 900 or more).

    Args:
        actions: what the user may do.
        condition: under which conditions.
    """
    iam, name = aws.client("iam"), f"expires-{os.urandom(3).hex()}"
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    may = {"Effect": "Allow", "Action": actions, "Resource": "*", "Condition": condition or {}}
    document = json.dumps({"Version": "2012-10-17", "Statement": [may]})
    iam.put_user_policy(UserName=name, PolicyName="may", PolicyDocument=document)
    sts = boto3.client(
        "sts", endpoint_url=aws.endpoint, region_name=aws.region, aws_access_key_id=key["AccessKeyId"],
        aws_secret_access_key=key["SecretAccessKey"], config=Config(parameter_validation=False),
    )  # fmt: skip
    made = sts.get_session_token(DurationSeconds=seconds)["Credentials"]
    sts.close()
    try:
        yield {
            **aws.variables,
            "AWS_ACCESS_KEY_ID": made["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"],
            "AWS_SESSION_TOKEN": made["SessionToken"],
        }
    finally:
        iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
        iam.delete_user_policy(UserName=name, PolicyName="may")
        iam.delete_user(UserName=name)


class User:
    """An IAM user with an inline policy.

    Attributes:
        keys: arguments of boto3. variables: the same, as variables of a program.
    """

    def __init__(self, aws: LocalAws) -> None:
        self._iam, self._name = aws.client("iam"), f"user-{uuid.uuid4().hex[:6]}"
        self._iam.create_user(UserName=self._name)
        key = self._iam.create_access_key(UserName=self._name)["AccessKey"]
        self.keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
        self.variables = {name.upper(): value for name, value in self.keys.items()}

    def may(self, document: dict[str, Any]) -> None:
        self._iam.put_user_policy(UserName=self._name, PolicyName="p", PolicyDocument=json.dumps(document))

    def close(self) -> None:
        for name in self._iam.list_user_policies(UserName=self._name)["PolicyNames"]:
            self._iam.delete_user_policy(UserName=self._name, PolicyName=name)
        self._iam.delete_access_key(UserName=self._name, AccessKeyId=self.keys["aws_access_key_id"])
        self._iam.delete_user(UserName=self._name)
