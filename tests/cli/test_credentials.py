"""Every command that calls AWS reports in one line that the credentials have expired, or that there are none."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from tests.credentials import session
from tests.jobs.conftest import make_cluster as slurm_cluster
from tests.jobs.kubernetes.conftest import make_cluster as eks_cluster
from tests.support import TRN, completed, swept, table

COMMANDS = table(__file__, "commands")


@pytest.fixture(scope="module")
def expired(local_aws: LocalAws) -> Iterator[dict[str, str]]:
    with session(local_aws, 1, "*") as keys:
        time.sleep(1.5)
        yield keys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slurm.json").write_text(slurm_cluster().model_dump_json())
    (tmp_path / "eks.json").write_text(
        eks_cluster(registry_uri="registry.example/bert", build_project="builds").model_dump_json()
    )
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "environment.yaml").write_text("pcluster: {}\n")
    return tmp_path


def error_line(arguments: str, folder: Path, **env: str) -> str:
    plain = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "AWS_EC2_METADATA_DISABLED": "true"}
    done = completed([TRN, *arguments.split()], env={**plain, **env}, cwd=folder, stdin=subprocess.DEVNULL, timeout=900)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("name", swept(COMMANDS, "list", "submit to Kubernetes", "check"))
def test_expired_credentials(name: str, expired: dict[str, str], folder: Path) -> None:
    line = error_line(COMMANDS[name], folder, **expired)
    if name == "check":
        assert "error credentials = " in line
        assert "ExpiredToken" in line
        assert "Fix: sign in (aws sso login)" in line
    else:
        assert "these AWS credentials have expired or are not valid: " in line
        assert "Renew them (for example `aws sso login`)" in line


@pytest.mark.parametrize("name", swept(COMMANDS, "submit through SSM", "destroy"))
def test_no_credentials(name: str, local_aws: LocalAws, folder: Path) -> None:
    line = error_line(COMMANDS[name], folder, AWS_REGION=local_aws.region, AWS_ENDPOINT_URL=local_aws.endpoint)
    assert "Unable to locate credentials" in line
    assert "Check your AWS credentials" in line or "Fix: sign in (aws sso login)" in line
