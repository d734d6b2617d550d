"""`trn check` against the local AWS."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import boto3
import pytest

from sandbox import LocalAws
from sandbox.pcluster_validator.seed import Seeded, seed
from tests import command
from trainium_cdk import settings
from trainium_cdk.description.checks.live import Aws, CheckReport, CheckTarget, examine

ZONE = "use1-az6"
Trn = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def made(local_aws: LocalAws) -> Seeded:
    return seed(local_aws.client, ZONE)


@pytest.fixture
def aws(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAws]:
    """Its default responses again after each test; this process queries it too."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    yield local_aws
    for name in ("quotas", "reservations", "block-offerings", "eks-versions"):
        local_aws.set_answers(name, None)


@pytest.fixture
def trn(local_aws: LocalAws, tmp_path: Path) -> Trn:
    def run(text: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "environment.yaml"
        file.write_text(text)
        return command.trn(["check", *words, "--environment", file], {**local_aws.env, **env})

    return run


@cache
def session(**keys: str) -> boto3.Session:
    """One for each caller: it keeps the services' models, which take longer to read than all the requests."""
    return boto3.Session(**keys)


def report(text: str, engine: str = "slurm", **keys: str) -> CheckReport:
    target = CheckTarget(settings.parse(text, "environment.yaml"), engine)
    return examine(target, Aws(target.env.region, session(**keys)))


def wrong(found: CheckReport) -> dict[str, str]:
    """Check -> its message, for errors and warnings of the account (not of the offline rules)."""
    summary: dict[str, list[str]] = {}
    for f in found.of("error", "warning"):
        if not f.rule.startswith("rule "):
            summary.setdefault(f.rule, []).append(f"{f.level}: {f.what} = {f.value}: {f.reason}. {f.fix}")
    return {check: "\n".join(lines) for check, lines in summary.items()}
