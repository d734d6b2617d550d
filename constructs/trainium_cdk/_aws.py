"""Shared by all callers of AWS: the region, and error messages for users. It imports nothing slow."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from trainium_cdk.errors import TrnError

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
"""Error codes of the services for credentials that they do not accept."""
WRONG_TIME = frozenset({"RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed"})
"""Error codes for a request signed with a wrong clock; some services only report it in the message of a wrong signature."""


def region(given: str | None = None) -> str | None:
    """`given`, else AWS_REGION, which the CDK and other SDKs read; boto3 itself reads only AWS_DEFAULT_REGION."""
    return given or os.environ.get("AWS_REGION") or None


RETRIES: dict[str, Any] = {"mode": "standard", "total_max_attempts": 8}
"""Botocore 1.44 pauses for 50 ms after the first failed attempt, and doubles that: up to 6 s in all. Its own three attempts end in half a second."""
CONNECT_SECONDS = 2
"""Eight attempts at an endpoint that does not answer end within 25 s."""
READ_SECONDS = 10
"""Between two bytes of an answer. Two attempts at an endpoint that takes requests and never answers end within 25 s; botocore's own 60 s would last minutes."""


def patient(config: Any = None, service: str = "") -> Any:
    """Return a `botocore.config.Config` that survives some seconds of trouble at AWS. Values of `config` come first. S3 keeps botocore's own time
    limits: urllib3 holds each piece of an upload to the time for connecting, and a slow link takes longer."""
    from botocore.config import Config

    limits = {} if service == "s3" else {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
    defaults = Config(retries=RETRIES, **limits)  # type: ignore[arg-type]
    return defaults.merge(config) if config else defaults


def _end_of_silence(attempts: int, caught_exception: Exception | None, **_: Any) -> None:
    """Raise the error of a request without an answer: at the second attempt if it was sent, at the eighth if there was no connection."""
    from botocore.exceptions import ReadTimeoutError

    most = 2 if isinstance(caught_exception, ReadTimeoutError) else RETRIES["total_max_attempts"]
    if caught_exception and attempts >= most:
        raise caught_exception


def client(
    service: str, region_name: str | None = None, *, config: Any = None, session: Any = None, **options: Any
) -> Any:
    """A client of a service.

    Args:
        region_name: region; default: as of `region`, else the configuration's.
        config: as of `patient`.
        session: a `boto3.Session`; default: boto3's own, with the usual credentials.
        options: more of `boto3.client`.
    """
    import boto3

    make: Any = (session or boto3).client  # its types are of one service each
    with _ONE_AT_A_TIME:
        made = make(service, region_name=region(region_name), config=patient(config, service), **options)
    made.meta.events.register("needs-retry", _end_of_silence)
    made.meta.events.register_first("before-parse.*.*", _refuse_page)
    return made


def _refuse_page(operation_model: Any, response_dict: Any, **_: object) -> None:
    """Raise an error for a web page in place of AWS's answer. Botocore reads one as an answer with nothing in it."""
    body = response_dict["body"]  # of an object that is read as a stream, no bytes
    if response_dict["status_code"] < 500 and isinstance(body, bytes) and _PAGE.match(body):
        from botocore.exceptions import ClientError

        said = " ".join(re.sub(r"<[^>]*>", " ", body[:4000].decode(errors="replace")).split())[:300]
        message = f"the answer is not AWS's: a proxy, or a page to sign in? It has {len(body):,} bytes: {said}"
        raise ClientError({"Error": {"Code": "NotAws", "Message": message}}, operation_model.name)


def clients(region_name: str | None) -> Callable[[str], Any]:
    """Service name -> client, each created once. They try again for long where AWS throttles: for commands that change or read a whole stack."""
    from botocore.config import Config

    throttled = Config(retries={"mode": "adaptive", "max_attempts": 10})
    return cache(lambda service: client(service, region_name, config=throttled))


_PAGE = re.compile(rb"\s*<(!doctype html|html|head)\b", re.IGNORECASE)
_MOST = 3000  # characters of a message: the longest is an encoded one of a denied call, which people decode
_ONE_AT_A_TIME = threading.Lock()
"""boto3's session is not for several threads; its clients are."""
SANDBOX = "sandbox: no real AWS, no real costs or speeds"
"""Text on every page and table from the sandbox."""
_ASKED_FOR_JOBS = ("cloudformation", "ssm")


def sandboxed() -> bool:
    """Return whether AWS is a local emulator: any of its endpoints has a loopback address. Read AWS_ENDPOINT_URL, its forms for single services,
    and `endpoint_url` of the configuration. Send nothing."""
    from botocore.configprovider import ConfiguredEndpointProvider
    from botocore.session import get_session

    session = get_session()  # without clients, which keep the first credentials that they find
    try:
        if session.get_config_variable("ignore_configured_endpoint_urls"):
            return False
        files = {"full_config": session.full_config, "scoped_config": session.get_scoped_config()}
        urls = [ConfiguredEndpointProvider(client_name=service, **files).provide() for service in _ASKED_FOR_JOBS]
    except failures():  # a configuration with which nothing can be asked
        return False
    return any(of_this_machine(url) for url in urls if url)


def of_this_machine(url: str) -> bool:
    """Return whether a URL leads to a loopback address.

    >>> [of_this_machine(f"http://{host}") for host in ("127.0.0.1:4566", "localhost:4566", "[::1]:80", "ssm.us-east-1.amazonaws.com", "10.0.0.1")]
    [True, True, True, False, False]
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def code_and_message(error: Exception) -> tuple[str, str]:
    """The service's error code and message; empty strings if there was no response."""
    response: Any = getattr(error, "response", None)
    details: dict[str, Any] = response.get("Error", {}) if isinstance(response, dict) else {}
    return str(details.get("Code", "")), str(details.get("Message", ""))[:_MOST]


def credentials_error(error: Exception) -> str:
    """The message for expired or invalid credentials, or a wrong clock; an empty string for every other error."""
    code, message = code_and_message(error)
    reason = message.rstrip(".") or code
    if code in WRONG_TIME or message.startswith(("Signature expired", "Signature not yet current")):
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
        also = ". If it is right, these credentials have expired: renew them" if code == "RequestExpired" else ""
        return f"this machine's clock is wrong: {reason}. Set it (`timedatectl set-ntp true`), and try again{also}"
    if code not in UNKNOWN_CALLER:
        return ""
    return f"these AWS credentials have expired or are not valid: {reason}. Renew them (for example `aws sso login`), and try again"


def failures() -> tuple[type[Exception], type[Exception]]:
    """Return boto3's exceptions, for `except`: errors that AWS reports, and all others."""
    from botocore.exceptions import BotoCoreError, ClientError

    return ClientError, BotoCoreError


@contextlib.contextmanager
def aws_errors_as(error: type[TrnError], what: str) -> Iterator[None]:
    """Raise errors of boto3 as `error`: what failed, and the reason that AWS gives."""
    try:
        yield
    except failures() as e:
        raise error(f"{what}: {describe_error(e)}") from None


def describe_error(error: Exception) -> str:
    """The message of a boto3 error, with the fix if it is known."""
    if code_and_message(error)[0]:
        return credentials_error(error) or str(error)[:_MOST]
    if type(error).__name__ == "NoRegionError":
        return "no AWS region is set. Give --region, or set AWS_REGION"
    return f"{str(error).rstrip('.')}. Check your AWS credentials, region and network"
