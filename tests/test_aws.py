"""AWS's errors, as messages with a fix."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

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
