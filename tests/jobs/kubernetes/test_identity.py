"""Whose token is sent, and the tunnel's plug-in, without a cluster."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.hooks import HierarchicalEmitter

from trainium_cdk.client.jobs import forward
from trainium_cdk.client.jobs.kubernetes import access
from trainium_cdk.jobs import TransportError

NOW = dt.datetime(2026, 11, 24, 12, 0, tzinfo=dt.UTC)


class Session:
    """boto3's, with a role that may be assumed or not; `trouble` is what STS has instead of an answer."""

    def __init__(self, *, allowed: bool) -> None:
        self.allowed, self.requests = allowed, list[dict[str, str]]()
        self.trouble: Exception | None = None

    def get_credentials(self) -> Credentials:
        return Credentials("own", "secret")

    meta = SimpleNamespace(events=HierarchicalEmitter())

    def client(self, service: str, **_: object) -> Any:
        assert service == "sts"
        return self

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": "arn:aws:sts::111122223333:assumed-role/Lab/ada lovelace"}

    def assume_role(self, **request: str) -> dict[str, Any]:
        self.requests.append(request)
        if self.trouble:
            raise self.trouble
        if not self.allowed:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")
        taken = {
            "AccessKeyId": "taken",
            "SecretAccessKey": "s",
            "SessionToken": "t",
            "Expiration": NOW + dt.timedelta(hours=1),
        }
        return {"Credentials": taken}


@pytest.mark.parametrize(("allowed", "key", "again"), [(True, "taken", 55), (False, "own", 10)])
def test_the_role_is_assumed_where_that_is_allowed(allowed: bool, key: str, again: int) -> None:
    session = Session(allowed=allowed)
    who = access.Identity("c", "us-east-1", role="arn:role", session=session)
    for minutes, requests in ((0, 1), (again - 1, 1), (again, 2)):
        assert who._credentials(NOW + dt.timedelta(minutes=minutes)).access_key == key
        assert len(session.requests) == requests
    assert session.requests[0] == {"RoleArn": "arn:role", "RoleSessionName": "trn-ada-lovelace"}


@pytest.mark.parametrize(
    ("trouble", "again"),
    [
        (EndpointConnectionError(endpoint_url="https://sts.us-east-1.amazonaws.com"), True),
        (ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "AssumeRole"), True),
        (ClientError({"Error": {"Code": "ExpiredToken", "Message": "it has expired"}}, "AssumeRole"), False),
    ],
)
def test_a_minute_without_sts_does_not_change_who_asks(trouble: Exception, again: bool) -> None:
    """A `trn status --wait` of a day renews the role each hour. With the caller's own credentials instead, the cluster would refuse it."""
    session = Session(allowed=True)
    who = access.Identity("c", "us-east-1", role="arn:role", session=session)
    who._credentials(NOW)
    session.trouble = trouble
    with pytest.raises(TransportError, match=r"^cannot assume the role arn:role again: ") as failed:
        who._credentials(NOW + dt.timedelta(minutes=55))
    assert failed.value.again == again
    session.trouble = None
    assert who._credentials(NOW + dt.timedelta(minutes=56)).access_key == "taken"


def test_a_token_as_kubectl_reads_it() -> None:
    assert json.loads(access.Token("secret", NOW).to_exec_credential()) == {
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {"interactive": False},
        "status": {"token": "secret", "expirationTimestamp": "2026-11-24T12:00:00Z"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "message"),
    [("1.2.30.0", "is 1.2.30.0; "), ("", "is of no known version; "), (None, "is not installed")],
)
def test_an_old_plug_in_is_refused(
    version: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward.shutil, "which", lambda _: None if version is None else "plugin")
    monkeypatch.setattr(forward.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{version}\n"))
    with pytest.raises(TransportError) as refused:
        forward.plugin()
    assert message in str(refused.value)


def test_a_session_without_access_gets_the_command_that_prints_its_roles_arn() -> None:
    """The session does not show the role's path."""
    session = Session(allowed=False)
    session.client = lambda *_, **__: session  # type: ignore[method-assign]
    text = access.Identity("c", "us-east-1", session=session).why_unknown()
    assert (
        "for the role whose ARN this prints: aws iam get-role --role-name Lab --query Role.Arn --output text;" in text
    )
