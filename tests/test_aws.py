"""AWS's errors, as messages with a fix."""

from __future__ import annotations

import sys

import pytest
from botocore.exceptions import ClientError

from tests.support import completed
from trainium_cdk._aws import describe_error

CLOCK, CREDENTIALS = "this machine's clock is wrong: ", "these AWS credentials have expired or are not valid: "


@pytest.mark.parametrize(
    ("code", "message", "begin"),
    [
        ("RequestTimeTooSkewed", "The difference between the request time and the server's time is too large.", CLOCK),
        ("RequestExpired", "Request has expired.", CLOCK),
        ("RequestInTheFuture", "Signature not yet current", CLOCK),
        ("SignatureDoesNotMatch", "Signature expired: 20261122T080000Z is now earlier than 20261122T085500Z", CLOCK),
        ("InvalidSignatureException", "Signature not yet current: 20261122T100000Z is still later than", CLOCK),
        ("SignatureDoesNotMatch", "The request signature we calculated does not match", CREDENTIALS),
        ("ExpiredToken", "The provided token has expired.", CREDENTIALS),
        ("Throttling", "Rate exceeded", "An error occurred (Throttling) when calling the ListQueues operation: "),
    ],
)
def test_errors_have_a_fix(code: str, message: str, begin: str) -> None:
    described = describe_error(ClientError({"Error": {"Code": code, "Message": message}}, "ListQueues"))
    assert described.startswith(begin)
    assert message.rstrip(".") in described


def test_a_client_is_that_of_boto3() -> None:
    """In a process without boto3, from compiled models without documentation: the same operations with the same shapes, the same address."""
    code = """
import sys
from trainium_cdk._aws import client
if sys.argv[1] == "boto3": import boto3
for service in ("cloudformation", "ssm", "ec2"):
    one = client(service, "us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    print(type(one).__module__, one.meta.endpoint_url, one.meta.service_model.signing_name)
    for name in one.meta.service_model.operation_names:
        operation = one.meta.service_model.operation_model(name)
        shapes = [s and (s.name, sorted(s.required_members), [(m, v.type_name, v.serialization) for m, v in s.members.items()])
                  for s in (operation.input_shape, operation.output_shape)]
        print(name, dict(operation.http), shapes, [e.name for e in operation.error_shapes])
print("boto3" in sys.modules)
"""
    ours, again, theirs = (
        completed([sys.executable, "-c", code, which], check=True).stdout for which in ("ours", "ours", "boto3")
    )
    assert (ours[-6:], theirs[-5:]) == ("False\n", "True\n")
    assert ours == again
    assert ours.removesuffix("False\n") == theirs.removesuffix("True\n")
    assert len(ours) > 400_000
