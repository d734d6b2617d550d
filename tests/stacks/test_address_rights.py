"""The rights that `jobs.keep` and `jobs.cache` give, as the local AWS judges them, are all that a job's program needs in S3; and they lead nowhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests.credentials import User
from tests.runner.preparing import Cluster
from tests.runner.test_keep import Kept, whole
from tests.runner.test_resume import MADE
from tests.support import need
from trainium_cdk.cdk.helpers.permissions import address_statements
from trainium_cdk.runner import aws
from trainium_cdk.runner.prepare import compiled
from trainium_cdk.runner.spec import PrepareStep

KEEP, CACHE = "s3://rights/runs", "s3://rights/compiled"


@pytest.fixture
def variables(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Of a program with the statements' rights."""
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    local_aws.client("s3").create_bucket(Bucket="rights")
    user = User(local_aws)
    statements = [one.to_statement_json() for one in address_statements("aws", [KEEP, CACHE])]
    user.may({"Version": "2012-10-17", "Statement": statements})
    made = {"PATH": os.environ["PATH"], **local_aws.variables, **user.variables}
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    yield made
    user.close()


def test_they_are_enough(variables: dict[str, str], local_aws: LocalAws, tmp_path: Path) -> None:
    made, make = MADE["bert-large"]
    job = Kept(Cluster(tmp_path / "one", variables), replace(made, keeps=1), KEEP, "bert-large")
    name = make(job.folder)
    assert job.look()[0].startswith("kept: ")
    shutil.copy(job.folder / name, job.folder / "ckpt_99.pt")
    assert job.look()[0].startswith("kept: ckpt_99.pt"), "an old one was deleted"
    assert whole(local_aws.client("s3"), KEEP).keys() == {"ckpt_99.pt"}
    graph = tmp_path / "caches/node-1/neuronxcc-1/MODULE_1"
    graph.mkdir(parents=True)
    for name in ("model.neff", "model.done"):
        (graph / name).write_text("x")
    compiled.send(tmp_path / "caches", f"{CACHE}/neuronx-cc-unknown", variables, set())

    elsewhere = {**variables, "AWS_REGION": "us-east-2", "AWS_DEFAULT_REGION": "us-east-2"}
    other = Cluster(tmp_path / "other", elsewhere)
    steps = [PrepareStep("compiled", {"uri": CACHE})]
    source = replace(made, source=f"{KEEP}/run-1", transfer={"us-east-1": 0.06})
    code, output = other.prepare(other.write(steps, kind="bert-large", checkpoints=source))
    assert code == 0, output
    assert "It is in us-east-1: AWS charges about 0.00 USD" in output
    assert "1 compiled graphs in" in output


@pytest.mark.parametrize(
    "ask",
    [
        lambda variables: aws.copy(variables, "-", "s3://rights/other", "x"),
        lambda variables: aws.copy(variables, "-", "s3://rights/runs-of-others/x", "x"),
        lambda variables: aws.sizes(variables, "s3://rights/other"),
        lambda variables: aws.sizes(variables, "s3://rights/run"),
        lambda variables: aws.remove(variables, "s3://rights/other"),
    ],
)
def test_they_lead_nowhere_else(ask: Any, variables: dict[str, str]) -> None:
    with pytest.raises(aws.Unreached, match=r"AccessDenied|Forbidden|not authorized"):
        ask(variables)
