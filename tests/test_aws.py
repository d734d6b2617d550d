"""AWS's errors, as messages with a fix."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from botocore.stub import Stubber

from trainium_cdk import _aws
from trainium_cdk._aws import client, describe_error
from trainium_cdk.client.jobs.slurm import ssm
from trainium_cdk.errors import TransportError

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


def test_ec2_says_of_expired_credentials_that_the_request_has_expired() -> None:
    error = ClientError({"Error": {"Code": "RequestExpired", "Message": "Request has expired."}}, "DescribeInstances")
    assert describe_error(error).endswith("If it is right, these credentials have expired: renew them")


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired"])
def test_credentials_that_expire_before_the_head_node_is_looked_up(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stubbed = Stubber(client("ec2", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b"))
    stubbed.add_client_error("describe_instances", code, "The security token included in the request is expired")
    stubbed.activate()
    monkeypatch.setattr(ssm, "aws_client", lambda *_: stubbed.client)
    with pytest.raises(TransportError, match=r"cannot look up the head node: .* expired.*[Rr]enew them") as caught:
        ssm.find_instances("us-east-1", "the head node", {})
    assert not caught.value.again


def test_a_message_is_cut() -> None:
    assert len(describe_error(ClientError({"Error": {"Code": "Odd", "Message": "x" * 200_000}}, "ListQueues"))) < 4000


@pytest.fixture(params=[200, 403])
def page(request: pytest.FixtureRequest) -> Iterator[str]:
    """A proxy that answers each request with a page."""
    body = b"<!DOCTYPE html>\n<html><body>" + b"<p>Sign in to the guest network" * 7000

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(request.param)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("service", "operation"),
    [("cloudformation", "describe_stacks"), ("ec2", "describe_vpcs"), ("s3", "list_buckets"), ("ssm", "describe_parameters"), ("eks", "list_clusters")],
)  # fmt: skip
def test_a_page_in_place_of_an_answer_is_named(
    service: str, operation: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": page}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClientError) as caught:
        getattr(client(service, "us-east-1"), operation)()
    described = describe_error(caught.value)
    assert "the answer is not AWS's: a proxy, or a page to sign in? It has 2" in described
    assert "Sign in to the guest network" in described
    assert len(described) < 600


@pytest.mark.parametrize("page", [200], indirect=True)
def test_an_object_that_is_a_page_is_read(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": page}.items():
        monkeypatch.setenv(name, value)
    found = client("s3", "us-east-1").get_object(Bucket="bucket", Key="report.html")["Body"].read()
    assert found.startswith(b"<!DOCTYPE html>")


STACKS = b"""<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult><Stacks>
</Stacks></DescribeStacksResult></DescribeStacksResponse>"""


@pytest.fixture
def troubled() -> Iterator[str]:
    """An AWS that answers 503 until a second after the first request."""
    begun: list[float] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            begun.append(time.monotonic())
            well = begun[-1] > begun[0] + 1
            self.send_response(200 if well else 503)
            self.send_header("Content-Length", str(len(STACKS) if well else 0))
            self.end_headers()
            self.wfile.write(STACKS if well else b"")

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_second_of_trouble_at_aws_ends_no_command(troubled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Botocore's own three attempts end in half a second."""
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": troubled}.items():
        monkeypatch.setenv(name, value)
    assert client("cloudformation", "us-east-1").describe_stacks()["Stacks"] == []


@pytest.fixture
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """An AWS that takes requests and answers none, and its connections."""
    taken: list[socket.socket] = []

    def take(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken.append(server.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=take, args=(server,), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", taken
        server.shutdown(socket.SHUT_RDWR)
    for connection in taken:
        connection.close()


def sts(of: Any, endpoint: str) -> Any:
    return of("sts", "us-east-1", endpoint_url=endpoint, aws_access_key_id="k", aws_secret_access_key="s")


SHORT = Config(read_timeout=0.1)


@pytest.mark.parametrize("config", [SHORT, SHORT.merge(Config(retries={"mode": "adaptive", "max_attempts": 10}))])
def test_a_request_without_an_answer_is_sent_twice(silent: tuple[str, list[socket.socket]], config: Config) -> None:
    """Not eight times, each with a time limit of its own."""
    with pytest.raises(ReadTimeoutError):
        sts(partial(client, config=config), silent[0]).get_caller_identity()
    assert len(silent[1]) == 2


@pytest.mark.parametrize("config", [None, Config(retries={"mode": "adaptive", "max_attempts": 10})])
def test_an_endpoint_that_nobody_listens_at_is_tried_eight_times(
    config: Config | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}"
    made = sts(partial(client, config=config), nobody)
    made.meta.events.register("before-send", lambda request, **_: tried.append(request))
    with pytest.raises(EndpointConnectionError):
        made.get_caller_identity()
    assert len(tried) == 8


def test_eight_connections_and_two_answers_are_waited_for_no_longer_than_a_command_may_last() -> None:
    limits = sts(client, "http://127.0.0.1:9").meta.config
    assert 8 * limits.connect_timeout + sum(0.05 * 2**attempt for attempt in range(7)) < 25
    assert 2 * limits.read_timeout < 25


def test_an_upload_may_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3 holds each piece that is sent to the time limit of the connection. On a slow link it takes seconds."""
    monkeypatch.setattr(_aws, "CONNECT_SECONDS", 0.2)
    begun, body = threading.Event(), b"x" * 20_000_000

    class Slow(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # it answers Expect: 100-continue

        def do_PUT(self) -> None:
            assert not begun.is_set()
            begun.set()
            time.sleep(0.6)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        s3 = client("s3", "us-east-1", endpoint_url=f"http://127.0.0.1:{server.server_port}", aws_access_key_id="k", aws_secret_access_key="s")  # fmt: skip
        assert s3.put_object(Bucket="bucket", Key="key", Body=body)["ResponseMetadata"]["RetryAttempts"] == 0
        server.shutdown()
