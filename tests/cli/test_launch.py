"""`trn launch`: nothing is deployed for a job that does not fit; a job is followed on a real Slurm; what is removed, and when."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.exceptions import TyperException

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import backend, slurm  # noqa: F401  fixtures
from trainium_cdk.cli import launch
from trainium_cdk.cli.app import app
from trainium_cdk.errors import JobError, SubmitError, TransportError, TrnError
from trainium_cdk.jobs import Script, SlurmBackend

FILE = """name: launched
region: us-east-1
pcluster:
  queues: [{name: compute1, compute_resources: [{name: trn, instance_type: trn1.32xlarge, max_nodes: 4}]}]
storage: {efs: {}}
"""
STACK = "TrnPclusterStack-launched"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app's folder with an environment file, and a CDK that records how it was called."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.yaml").write_text(FILE)
    (tmp_path / "job.sh").write_text("echo works as $1\nexit $2\n")
    (tmp_path / "cdk.json").write_text("{}")
    (tmp_path / "cdk").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\nexit $(cat {tmp_path}/code)\n')
    (tmp_path / "cdk").chmod(0o755)
    (tmp_path / "code").write_text("0")
    monkeypatch.setattr("trainium_cdk.operations.updates.spec.command", lambda: tmp_path / "cdk")
    monkeypatch.setattr("trainium_cdk.operations.updates.live.deployed", lambda *_: None)
    return tmp_path


def run(*arguments: str) -> int:
    return int(app(["launch", *arguments], standalone_mode=False) or 0)


@pytest.fixture
def ended(backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:  # noqa: F811
    """The cluster is that Slurm; other commands than `submit` are only recorded."""
    calls: list[tuple[str, ...]] = []
    real = launch.run_trn
    monkeypatch.setattr(import_module("trainium_cdk.jobs.connection"), "connect", lambda *_, **__: backend)
    monkeypatch.setattr("trainium_cdk.cli.options.deployed", lambda *_: backend.cluster)
    monkeypatch.setattr(launch, "run_trn", lambda *a: real(*a) if a[0] == "submit" else calls.append(a) or 0)
    return calls


@pytest.mark.parametrize(("code", "remove"), [(0, ["--remove"]), (3, [])])
def test_deploys_submits_follows_and_removes(
    folder: Path, ended: list[Any], code: int, remove: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*remove, "--yes", "env.yaml", "job.sh", "--nodes", "1", "--", "a --yes", str(code)]
    assert run(*words) == (1 if code else 0)
    out, err = capfd.readouterr()
    assert out.count("works as a --yes") == 1
    assert "#!/bin/bash" not in out, "the check before the deployment prints nothing"
    assert (folder / "called").read_text().split() == (
        f"deploy -e TrnPclusterStack -c env={folder}/env.yaml --require-approval never".split()
    )
    assert f"{STACK} is not deployed in us-east-1. It will cost" in err
    assert "USD an hour with all of its nodes, at list prices (trn cost TrnPclusterStack --environment env.yaml)" in err
    if remove:
        assert ended == [("destroy", STACK, "--environment", "env.yaml", "--yes")]
    else:
        assert ended == []
        assert f"{STACK} stays. To remove it: trn destroy {STACK} --environment env.yaml" in err


def test_nothing_is_deployed_for_a_limit_behind_two_dashes(folder: Path, ended: list[Any]) -> None:
    with pytest.raises(JobError, match=r"^--max-usd is after --"):
        run("env.yaml", "job.sh", "--", "x", "0", "--max-usd", "3")
    assert not (folder / "called").exists()
    assert run("--yes", "env.yaml", "job.sh", "--", "x", "0", "--max-usd", "3") == 0


def test_a_cluster_with_other_jobs_stays(
    folder: Path,
    ended: list[Any],
    backend: SlurmBackend,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainium_cdk.operations.updates.live.deployed", lambda *_: {})
    # that cluster itself checks the job; the one that the file describes has no jobs, for --after and --resume-from
    monkeypatch.setattr("trainium_cdk.cli.submit._dry_run", lambda *_, **__: pytest.fail("it is deployed"))
    (folder / "long.sh").write_text("sleep 600\n")
    other = backend.submit(Script.from_file(folder / "long.sh"))
    try:
        assert run("env.yaml", "job.sh", "--remove", "--", "x", "0") == 0
    finally:
        backend.cancel(other.id)
    err = capfd.readouterr().err
    assert ended == []
    assert (
        f"{STACK} is deployed in us-east-1. What a deployment of the file would change: trn diff {STACK} --environment env.yaml"
        in err
    )
    assert f"{other.id} runs or waits there. {STACK} stays. To remove it: trn destroy {STACK}" in err
    assert not (folder / "called").exists()


def test_a_deployment_that_it_left_is_not_begun_again(
    folder: Path, ended: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deployed(*_: Any) -> None:
        raise TrnError(f"stack {STACK} is CREATE_IN_PROGRESS: wait until that has ended, and run this again")

    monkeypatch.setattr("trainium_cdk.operations.updates.live.deployed", deployed)
    with pytest.raises(TrnError, match="wait until that has ended, and run this again"):
        run("env.yaml", "job.sh", "--yes", "--", "x", "0")
    assert not (folder / "called").exists()
    assert ended == []


def test_a_cluster_with_work_of_other_clients_stays(
    folder: Path,
    ended: list[Any],
    slurm: LocalSlurm,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainium_cdk.operations.updates.live.deployed", lambda *_: {})
    number = slurm.run(["sbatch", "--parsable", "-p", "compute1", "-N", "1", "--wrap", "sleep 600"]).stdout.strip()
    try:
        assert run("env.yaml", "job.sh", "--remove", "--", "x", "0") == 0
    finally:
        slurm.run(["scancel", number])
    assert number
    assert f"{number} runs or waits there. {STACK} stays" in capfd.readouterr().err
    assert ended == []


def test_a_job_that_the_scheduler_refuses_leaves_no_cluster_unnoticed(
    folder: Path, ended: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SubmitError, match="this cluster keeps no accounts"):
        run("--yes", "env.yaml", "job.sh", "--account", "vision", "--", "x", "0")
    assert f"{STACK} stays. To remove it: trn destroy {STACK} --environment env.yaml\n" in capfd.readouterr().err
    assert (folder / "called").exists()


@pytest.mark.parametrize(
    ("of_the_team", "told"),
    [
        ([SimpleNamespace(id="theirs-1", user="", state="RUNNING", current=SimpleNamespace(started=None))], "theirs-1 runs or waits there. S stays"),
        (TransportError("forbidden"), "others may use it. S stays"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_cluster_with_jobs_of_another_team_stays(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    of_the_team: Any,
    told: str,
) -> None:
    """`trn destroy --yes` would end them."""

    def connect(*, cluster: Any, **_: Any) -> Any:
        if isinstance(cluster.jobs, Exception):
            raise cluster.jobs
        return SimpleNamespace(
            cluster=cluster, active=lambda: cluster.jobs, list=lambda _: cluster.jobs, others=lambda: ()
        )

    team = SimpleNamespace(jobs=of_the_team)
    cluster = SimpleNamespace(jobs=[], of_teams=lambda: {"vision": team})
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(import_module("trainium_cdk.jobs.connection"), "connect", connect)
    monkeypatch.setattr("trainium_cdk.cli.options.deployed", lambda *_: cluster)
    monkeypatch.setattr(launch, "run_trn", lambda *a: calls.append(a) or 0)
    assert launch._finish("S", Path("env.yaml"), "us-east-1", "S stays", remove=True) == 0
    assert told in capfd.readouterr().err
    assert calls == ([] if told else [("destroy", "S", "--environment", "env.yaml", "--yes")])


def test_nothing_is_deployed_for_what_cannot_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobError, match="nodes is 5, but queue compute1 has at most 4"):
        run("--yes", "env.yaml", "job.sh", "--nodes", "5")
    with pytest.raises(JobError, match="--json is not an option of `trn launch`"):
        run("--yes", "env.yaml", "job.sh", "--json")
    for option in (["--array=0-3"], ["--array", "0-3"]):
        with pytest.raises(JobError, match=f"{option[0]} is not an option of `trn launch`, which follows one job"):
            run("--yes", "env.yaml", "job.sh", *option)
    with pytest.raises(TyperException, match="No such option: --no-such-option"):
        run("--yes", "env.yaml", "job.sh", "--no-such-option")
    assert run("env.yaml", "job.sh") == 2, "no terminal to ask"
    assert "nothing was deployed: give --yes" in capfd.readouterr().err
    assert not (folder / "called").exists()
    (folder / "code").write_text("1")
    with pytest.raises(
        TrnError,
        match=f"{STACK} was not deployed: see above. What failed in it: trn why {STACK} --environment env.yaml",
    ):
        run("--yes", "env.yaml", "job.sh")
    (folder / "cdk.json").unlink()
    with pytest.raises(TrnError, match=r"no cdk\.json"):
        run("--yes", "env.yaml", "job.sh")
