"""What all that ask AWS share: where, and what its errors mean to whoever runs a command. It imports nothing slow."""

from __future__ import annotations

import os
from typing import Any

UNKNOWN_CALLER = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""How the services say that they do not take the credentials, each in its own way."""
WRONG_TIME = frozenset({"RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed"})
"""How they say that a request was signed at another time than theirs; some do so in the message of a wrong signature."""


def region(given: str | None = None) -> str | None:
    """The one that was given, else AWS_REGION: boto3 itself reads AWS_DEFAULT_REGION alone, the CDK and other SDKs this one."""
    return given or os.environ.get("AWS_REGION") or None


def code_and_message(error: Exception) -> tuple[str, str]:
    """As the service said them; two empty strings where it has said nothing."""
    response: Any = getattr(error, "response", None)
    said: dict[str, Any] = response.get("Error", {}) if isinstance(response, dict) else {}
    return str(said.get("Code", "")), str(said.get("Message", ""))


def unknown_caller(error: Exception) -> str:
    """What to do where the credentials have ended, are none, or were used with a wrong clock; an empty string for every other
    error."""
    code, message = code_and_message(error)
    reason = message.rstrip(".") or code
    if code in WRONG_TIME or message.startswith(("Signature expired", "Signature not yet current")):
        return f"this machine's clock is wrong: {reason}. Set it (`timedatectl set-ntp true`), and ask again"
    if code not in UNKNOWN_CALLER:
        return ""
    return (
        f"these AWS credentials have expired, or are none: {reason}. Renew them (`aws sso login`, say), and ask again"
    )


def in_words(error: Exception) -> str:
    """Any error of boto3, with what can be done about it where that is known."""
    if code_and_message(error)[0]:
        return unknown_caller(error) or str(error)
    if type(error).__name__ == "NoRegionError":
        return "no AWS region is set. Give --region, or set AWS_REGION"
    return f"{str(error).rstrip('.')}. Check your AWS credentials, region and network"
