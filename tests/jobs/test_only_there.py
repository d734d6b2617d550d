"""Checkpoints that a deletion would lose, on a real Slurm and the local AWS: `trn destroy` names them, and its advice keeps them."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION
from tests.jobs.test_copy import bucket
from tests.jobs.test_workdir import on_head_node
from tests.operations.teardown.test_requests import FOUND
from tests.support import need
from trainium_cdk.client.cli import copy, destroy
from trainium_cdk.client.cli.app import app
from trainium_cdk.jobs import Script, SlurmBackend

BUCKET, OWN = "trn-only-there", "trn-only-there-own"
TRAIN = """cd "$TRN_CHECKPOINTS"
echo "has $(echo *)" > ../seen
next=step-$(($(ls | grep -c step) + 1))
mkdir "$next" && echo "$TRN_JOB_ID" > "$next/weights" && touch "$next/COMPLETE"
"""


@pytest.fixture
def slurm(local_aws: LocalAws, tmp_path: Path) -> Iterator[LocalSlurm]:
    need(available() is None, str(available()))
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    with LocalSlurm.start(tmp_path / "slurm", CONFIGURATION, environment=local_aws.variables) as running:
        yield running


@pytest.fixture
def backend(slurm: LocalSlurm, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmBackend]:
    with bucket(local_aws, OWN):
        made = on_head_node(slurm, local_aws, monkeypatch, BUCKET)
        made.cluster = made.cluster.model_copy(update={"keep": f"s3://{OWN}/kept"})
        yield made
        local_aws.client("s3").delete_bucket(Bucket=BUCKET)


@pytest.fixture
def told(backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:  # fmt: skip
    """What a command prints on that cluster, which is of a stack with a file system."""
    survey = replace(FOUND, file_systems=("fs-1",))
    monkeypatch.setattr("trainium_cdk.client.operations.teardown.survey", lambda *_: survey)
    monkeypatch.setattr("trainium_cdk.client.jobs.connection.connect", lambda *_, **__: backend)
    monkeypatch.setattr(destroy, "_leftovers", lambda *_: [])
    monkeypatch.setattr(copy, "backend", lambda _: backend)

    def run(*words: str) -> str:
        capsys.readouterr()
        app(list(words), standalone_mode=False)
        return capsys.readouterr().err

    return run


def test_the_advice_of_a_deletion_keeps_a_checkpoint_and_a_job_continues_from_it(
    slurm: LocalSlurm, backend: SlurmBackend, told: Callable[..., str]
) -> None:
    shared = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs/trn/jobs"

    def destroyed() -> str:
        return told("destroy", "S", "--region", "us-east-1", "--dry-run")

    def train(**fields: str) -> str:
        id = backend.submit(Script(filename="train.sh", content=TRAIN.encode(), nodes=1, **fields)).id
        done = backend.wait(id, timeout=180)
        assert done.ok, b"".join(chunk.data for chunk in backend.logs(id)).decode()
        return id

    assert "all files on fs-1 are deleted. To keep some, copy them first, for example: trn cp" in destroyed()
    kept = train()
    assert f"kept: step-1 in s3://{OWN}/kept/{kept}\n" in (shared / kept / "logs/train.log").read_text()
    assert "all files on fs-1 are deleted\n   the newest checkpoints of 1 job are in S3\n" in destroyed()

    lost = train(keep="no")
    shutil.copytree(shared / kept / "checkpoints/step-1", shared / kept / "checkpoints/step-2")  # and S3 does not
    (shared / kept / "checkpoints/step-2/COMPLETE").touch()
    for id, name, to in ((lost, "step-1", lost), (kept, "step-2", f"{kept}/copied")):
        said = destroyed()
        [(size, command)] = re.findall(rf"   only there: {id}: {name} \((.*)\)\. To keep it: (.*)\n", said)
        assert size == f"{len(id) + 1} bytes"
        assert command == f"trn cp cluster:/efs/trn/jobs/{id}/checkpoints s3://{OWN}/kept/{to} --stack S --region us-east-1"  # fmt: skip
        assert said.count("only there") == 2
        assert f"s3://{OWN}/kept/{to}/ is complete" in told(*shlex.split(command)[1:])
        later = train(resume_from=f"s3://{OWN}/kept/{to}", keep="no")
        assert (shared / later / "seen").read_text() == ("has step-1\n" if id == lost else "has step-1 step-2\n")
        shutil.rmtree(shared / later)
    assert "; 2 complete already, 0 bytes left" in told("cp", f"{lost}:checkpoints", f"s3://{OWN}/kept/{lost}")
