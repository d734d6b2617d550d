"""The role of jobs: boto3 and the AWS CLI get it from root's service, which gets it from STS."""

from __future__ import annotations

import datetime
import http.client
import importlib.util
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import CredentialRetrievalError

from sandbox.processes import free_ports, wait_until
from tests.bootstrap.conftest import NewNode
from tests.bootstrap.test_users import BARE
from tests.support import completed, swept

PROGRAM = Path("bootstrap/lib/credentials.py").resolve()
ROLE = "arn:aws:iam::111122223333:role/Jobs"
TIME = "%Y-%m-%dT%H:%M:%SZ"
KEYS = [f"ASIA{n:016d}" for n in range(3)]
RESPONSE = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIA{n:016d}</AccessKeyId><SecretAccessKey>of-{n}</SecretAccessKey><SessionToken>token-{n}</SessionToken>
<Expiration>{end}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class Aws(ThreadingHTTPServer):
    """Stands in for STS, and for S3: it keeps what it was asked, and who by."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, list[str]]] = []
        self.signed: list[str] = []
        self.seconds, self.status = 3600, 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Aws

    def do_POST(self) -> None:
        self.server.asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self.server.signed.append(self.headers["Authorization"])
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.server.seconds)
        body = RESPONSE.format(n=len(self.server.asked), end=end.strftime(TIME))
        if self.server.status != 200:
            body = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>may not</Message></Error></ErrorResponse>"
        self._answer(self.server.status, body)

    def do_GET(self) -> None:
        self.server.signed.append(self.headers["Authorization"] + self.headers["X-Amz-Security-Token"])
        self._answer(200, "content")

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Fri, 01 Jan 2027 00:00:00 GMT")
        self.send_header("ETag", '"9a0364b9e99bb480dd25e1f0284c8555"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def aws() -> Iterator[Aws]:
    with Aws() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def service(aws: Aws, folder: Path) -> Iterator[dict[str, str]]:
    """Root's service, with a role of its own; the variables of a job."""
    port = free_ports(1)[0]
    folder.mkdir(exist_ok=True)
    own = {"AWS_ACCESS_KEY_ID": "AKIANODE", "AWS_SECRET_ACCESS_KEY": "of-the-node", "AWS_DEFAULT_REGION": "us-east-1"}
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "AWS_ENDPOINT_URL_STS": aws.address, **own}
    words = [sys.executable, "-I", str(PROGRAM), ROLE, str(folder), str(port)]
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE) as process:
        try:
            assert wait_until((folder / "token").exists, 20, 0.02)
            yield {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{port}/",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(folder / "token"),
                "AWS_REGION": "us-east-1",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            process.terminate()


@pytest.fixture
def job(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The variables of a job; this process has them, and nothing else that gives credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with service(aws, tmp_path / "run") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield variables


def test_silent_and_slow_connections_end(job: dict[str, str]) -> None:
    address = ("127.0.0.1", int(job["AWS_CONTAINER_CREDENTIALS_FULL_URI"].rpartition(":")[2].strip("/")))

    def ended(connection: socket.socket) -> bool:
        try:
            connection.sendall(b"G")  # a byte at a time: the limit is of the whole request
        except OSError:
            return True
        return False

    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(160)]
        assert wait_until(lambda: any(map(ended, slow[130:])), 20, 0.3), "a limit of connections"
        assert wait_until(lambda: ended(slow[0]), 20, 0.3), "a limit of a request"
        assert wait_until(lambda: all(map(ended, slow)), 40, 0.3)
        assert boto3.Session().get_credentials() is not None


def test_boto3_and_the_command_line_have_the_role_of_jobs(aws: Aws, job: dict[str, str], tmp_path: Path) -> None:
    found = boto3.Session().get_credentials()
    assert found is not None
    frozen = found.get_frozen_credentials()
    assert (frozen.access_key, frozen.secret_key, frozen.token) == (KEYS[1], "of-1", "token-1")
    assert (aws.asked[0]["Action"], aws.asked[0]["RoleArn"]) == (["AssumeRole"], [ROLE])
    assert "AKIANODE/" in aws.signed[0], "the node's role asks"
    config = Config(s3={"addressing_style": "path"})
    body = boto3.Session().client("s3", endpoint_url=aws.address, config=config).get_object(Bucket="b", Key="k")["Body"]
    assert body.read() == b"content"
    copied = completed(
        ["aws", "s3", "cp", "s3://bucket/key", tmp_path / "copy"],
        env={**os.environ, "AWS_ENDPOINT_URL_S3": aws.address},
    )
    assert copied.returncode == 0, copied.stderr
    assert (tmp_path / "copy").read_text() == "content"
    assert all(f"{KEYS[1]}/" in one and "token-1" in one for one in aws.signed[1:])
    assert len(aws.asked) == 1, "they are kept while they are good"


def test_credentials_that_end_soon_are_replaced(aws: Aws, job: dict[str, str]) -> None:
    aws.seconds = 14 * 60
    answers = [ask(job)[1]["AccessKeyId"] for _ in range(2)]
    assert answers == KEYS[1:]
    aws.status = 403  # the old ones are given while they last
    assert ask(job) == (200, {**ask(job)[1], "AccessKeyId": KEYS[2]})
    assert len(aws.asked) == 3


def test_without_the_token_nobody_gets_them(aws: Aws, job: dict[str, str]) -> None:
    token = Path(job["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"])
    assert stat.S_IMODE(token.stat().st_mode) == 0o444
    for given in ("", "x", token.read_text()[:-1], f"Bearer {token.read_text()}"):
        assert ask(job, given)[0] == 401
    assert aws.asked == []


def test_a_refusal_is_said_and_not_repeated_at_once(aws: Aws, job: dict[str, str]) -> None:
    aws.status = 403
    for _ in range(3):
        status, answer = ask(job)
        assert (status, "AccessDenied" in answer["Message"]) == (503, True)
    assert len(aws.asked) == 1
    with pytest.raises(CredentialRetrievalError, match="AccessDenied"):
        boto3.Session().client("s3").list_buckets()


def test_a_connection_that_says_nothing_ends(job: dict[str, str]) -> None:
    place = job["AWS_CONTAINER_CREDENTIALS_FULL_URI"].split("/")[2]
    silent = [http.client.HTTPConnection(place, timeout=20) for _ in range(50)]
    with ExitStack() as stack:
        for one in silent:
            one.connect()
            stack.callback(one.close)
        assert ask(job)[0] == 200
        began = time.monotonic()
        assert silent[0].sock.recv(1) == b""
        assert time.monotonic() - began < 10


def ask(job: dict[str, str], token: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(job["AWS_CONTAINER_CREDENTIALS_FULL_URI"].split("/")[2], timeout=60)
    given = Path(job["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text() if token is None else token
    with closing(connection):
        connection.request("GET", "/", headers={"Authorization": given})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


ANSWER = {
    "Credentials": {
        "AccessKeyId": "A",
        "SecretAccessKey": "S",
        "SessionToken": "T",
        "Expiration": "2099-01-01T00:00:00+00:00",
    }
}
GET = """. /etc/profile.d/trn-aws.sh && echo "$AWS_REGION" &&
curl -s -H "Authorization: $(cat "$AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")" "$AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""


@pytest.mark.parametrize("system", swept(["ubuntu-22.04", "ubuntu-24.04", "amzn-2023"], "ubuntu-24.04"))
@pytest.mark.parametrize("role", swept(["compute", "cpu", "head"], "compute"))
def test_a_node_gives_its_users_the_role_of_jobs(new_node: NewNode, system: str, role: str) -> None:
    """With the system's own Python. What systemd would start is started here."""
    region = "TRN_REGION=eu-west-1"
    node = new_node(system, **BARE, TRN_JOBS_USER="trn-jobs:1999", TRN_OS_PACKAGES="", TRN_JOB_ROLE=ROLE)
    node.write("/usr/local/bin/aws", f"#!/bin/sh\necho \"$@\" >>/root/asked\necho '{json.dumps(ANSWER)}'\n", 0o755)
    done = node.configure(f"TRN_NODE_ROLE={role}", region)
    assert done.code == 0, done.err
    told = node.read("/var/log/systemctl").splitlines()
    assert [line for line in told if "credentials" in line] == [
        f"{verb} trn-credentials.service" for verb in ("enable", "restart")
    ]
    unit = node.read("/etc/systemd/system/trn-credentials.service")
    [start] = [line.removeprefix("ExecStart=").split() for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert node.run("mkdir", "/run/trn-credentials").code == 0
    with subprocess.Popen(node.words(*start)) as service:
        try:
            assert wait_until(node.path("/run/trn-credentials/token").exists, 20, 0.05)
            as_job = ("runuser", "-u", "trn-jobs", "--", "sh", "-c")
            found = node.run(*as_job, GET)
            name, _, answer = found.out.partition("\n")
            assert (name, json.loads(answer)["Token"]) == ("eu-west-1", "T"), found
            assert f"--role-arn={ROLE}" in node.read("/root/asked")
            for attack in (
                "echo x > /run/trn-credentials/token",
                "mv /run/trn-credentials/token /tmp",
                "rm -f /run/trn-credentials/token",
            ):
                assert node.run(*as_job, attack).code != 0
        finally:
            service.kill()
    port = start[-1]
    take = f"import socket; socket.create_server(('127.0.0.1', {port}))"
    assert "Permission denied" in node.run("runuser", "-u", "trn-jobs", "--", "python3", "-c", take).err
    given = dict(line.split("=", 1) for line in node.read("/etc/trn-job-environment").split("\0") if line)
    assert given == {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{port}/",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/run/trn-credentials/token",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    # root, and administrators, have the node's role instead
    assert "AWS_" not in node.run("sh", "-c", ". /etc/profile.d/trn-aws.sh; env").out
    assert "AWS_" not in node.run("runuser", "-u", "ubuntu", "--", "sh", "-c", ". /etc/profile.d/trn-aws.sh; env").out
    assert node.configure(f"TRN_NODE_ROLE={role}", region).code == 0
    assert node.status()["changes"] == []


def test_where_no_role_is_known_nothing_is_started(new_node: NewNode) -> None:
    node = new_node(**BARE, TRN_JOBS_USER="trn-jobs:1999", TRN_OS_PACKAGES="", TRN_NODE_ROLE="head")
    assert node.configure().code == 0
    assert not node.path("/etc/trn-job-environment").exists()
    for wrong in ("TRN_JOB_ROLE=arn:aws:iam::1:role/x", f"TRN_JOB_ROLE={ROLE} --x", "TRN_REGION=x y"):
        assert "is not" in node.configure(wrong).err


def test_what_aws_must_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("credentials_of_jobs", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for output in ("", "[]", "{}", '{"Credentials": null}', '{"Credentials": {"Expiration": 5}}', "nonsense"):
        done = subprocess.CompletedProcess([], 0, output.encode(), b"")
        monkeypatch.setattr(module.subprocess, "run", lambda *_, done=done, **__: done)
        with pytest.raises(module.Failed):
            module.assume(ROLE)
