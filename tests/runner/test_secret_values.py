"""Variables whose values are kept in AWS, read from the local one by the real AWS CLI and by the real boto3."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import Jobs, shell
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import Script
from trainium_cdk.runner import aws
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.spec import NodeEnvironment, StageSpec

ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:wandb-AbCdEf"
WHOLE = '{"key": "of-json", "port": 8080, "list": []}'


@pytest.fixture
def kept(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """ARN of a secret, by its name. The environment is that of a job with rights of its own."""
    secrets, parameters = local_aws.client("secretsmanager"), local_aws.client("ssm")
    texts = {"wandb": "of-wandb", "json": WHOLE, "lines": 'two\nlines "é" $HOME'}
    arns = {name: secrets.create_secret(Name=name, SecretString=text)["ARN"] for name, text in texts.items()}
    parameters.put_parameter(Name="/team/token", Value="of-ssm", Type="SecureString")
    for name, value in local_aws.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    yield arns
    for name in texts:
        secrets.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
    parameters.delete_parameter(Name="/team/token")


@pytest.fixture(params=["aws", "boto3"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The PATH of an image with the AWS CLI, or with boto3 alone."""
    if request.param == "aws":
        return str(Path(sys.executable).parent)
    (tmp_path / "python3").symlink_to(sys.executable)
    return str(tmp_path)


def test_values_are_read(kept: dict[str, str], path: str) -> None:
    given = {
        "A": "secretsmanager:wandb", "B": f"secretsmanager:{kept['wandb']}", "C": "secretsmanager:json#key", "D": "secretsmanager:json#port",
        "E": "secretsmanager:lines", "F": "ssm:/team/token", "PLAIN": "a value: secretsmanager:wandb",
    }  # fmt: skip
    assert aws.secret_values(given, "us-east-1", path) == {
        "A": "of-wandb", "B": "of-wandb", "C": "of-json", "D": "8080", "E": 'two\nlines "é" $HOME', "F": "of-ssm",
        "PLAIN": "a value: secretsmanager:wandb",
    }  # fmt: skip


@pytest.fixture
def identity(local_aws: LocalAws, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables that EKS Pod Identity gives a pod, and its agent, which knows the pod by a token in a file."""
    iam, name = local_aws.client("iam"), "pods-of-secrets"
    trust = {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))["Role"]["Arn"]
    may = {"Effect": "Allow", "Action": ["ssm:GetParameter", "secretsmanager:GetSecretValue"], "Resource": "*"}
    iam.put_role_policy(RoleName=name, PolicyName="reads", PolicyDocument=json.dumps({"Statement": [may]}))
    taken = local_aws.client("sts").assume_role(RoleArn=role, RoleSessionName="pod")["Credentials"]
    told = {
        "AccessKeyId": taken["AccessKeyId"],
        "SecretAccessKey": taken["SecretAccessKey"],
        "Token": taken["SessionToken"],
    }
    answer = json.dumps({**told, "Expiration": f"{taken['Expiration']:%Y-%m-%dT%H:%M:%SZ}"}).encode()
    token = tmp_path / "eks-pod-identity-token"
    token.write_text("of-this-pod")

    class Agent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == "of-this-pod" and self.path == "/v1/credentials"
            self.send_response(200 if known else 403)
            self.end_headers()
            self.wfile.write(answer if known else b"{}")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Agent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{server.server_port}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
        }
        server.shutdown()
    iam.delete_role_policy(RoleName=name, PolicyName="reads")
    iam.delete_role(RoleName=name)


def test_a_pod_reads_them_with_its_own_identity(
    kept: dict[str, str], path: str, identity: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    for name, value in identity.items():
        monkeypatch.setenv(name, value)
    given = {"A": "secretsmanager:json#key", "B": "ssm:/team/token"}
    assert aws.secret_values(given, "us-east-1", path) == {"A": "of-json", "B": "of-ssm"}
    Path(identity["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).write_text("of-another-pod")
    with pytest.raises(Refused, match="env A: json cannot be read"):
        aws.secret_values(given, "us-east-1", path)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("secretsmanager:none", "env TOKEN: none cannot be read: .*ResourceNotFoundException.* Let the role of jobs read it, and check the name"),
        ("ssm:/none", "env TOKEN: /none cannot be read: .*ParameterNotFound"),
        ("secretsmanager:json#list", "env TOKEN: the secret has no key list. Write one that its JSON has"),
        ("secretsmanager:wandb#key", "env TOKEN: the secret has no key key"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(kept: dict[str, str], path: str, reference: str, message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        aws.secret_values({"TOKEN": reference}, "us-east-1", path)
    assert not any(text in str(caught.value) for text in ("of-wandb", "of-json"))


def test_an_image_without_both(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"neither the AWS CLI nor Python is here to read it\. Use"):
        aws.secret_values({"TOKEN": "ssm:/x"}, "us-east-1", str(tmp_path))


@pytest.mark.parametrize(
    ("reference", "good"),
    [
        ("secretsmanager:wandb", True),
        (f"secretsmanager:{ARN}#key", True),
        ("ssm:/team/token", True),
        ("secretsmanager:", False),
        ("secretsmanager:a b", False),
        ("ssm:--cli-input-json", False),
        ("secretsmanager:x;id", False),
    ],
)
def test_a_mistyped_reference_is_refused_before_anything_is_sent(reference: str, good: bool) -> None:
    fields: dict[str, Any] = {"filename": "x.sh", "content": b"true", "env": {"TOKEN": reference}}
    if good:
        assert Script(**fields).prepares, "that it may be read shows before nodes are asked for"
        return
    with pytest.raises(
        JobError,
        match=r"is not a reference to a secret\. Write secretsmanager:NAME, secretsmanager:NAME#KEY or ssm:NAME",
    ):
        Script(**fields)


def texts(folder: Path) -> Iterator[str]:
    """What the files of a folder have. The job's variables may be deleted meanwhile, at its end."""
    for one in filter(Path.is_file, folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            yield one.read_text(errors="replace")


def test_a_job_has_the_value_and_its_folder_the_reference(
    kept: dict[str, str], local_aws: LocalAws, slurm: LocalSlurm, tmp_path: Path
) -> None:
    jobs = Jobs(slurm, tmp_path)
    path = f"{slurm.node_env()['PATH']}:{Path(sys.executable).parent}"
    where = NodeEnvironment(region="us-east-1")
    said = {}
    for reference in ("ssm:/team/token", "ssm:/none"):
        job = jobs.job(
            StageSpec("train", program=shell('test "$TOKEN" = of-ssm && echo it is there')), variables={"TOKEN": reference}, environment=where
        )  # fmt: skip
        sent = jobs.submit(job, env={**local_aws.env, "PATH": path})
        said[reference] = (sent.ended().code, sent.log("train.0"))
        kept_there = "".join(texts(sent.folder))
        assert "of-ssm && echo" in kept_there  # the program itself
        assert kept_there.count("of-ssm") == 1
    assert said["ssm:/team/token"][0] == 0
    assert said["ssm:/team/token"][1].endswith("it is there\n")
    code, log = said["ssm:/none"]
    assert code == 64
    assert "trn: env TOKEN: /none cannot be read: An error occurred (ParameterNotFound)" in log
