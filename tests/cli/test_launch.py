"""`trn launch`: nothing is deployed for a job that does not fit; a job is followed on a real Slurm; what is removed, and when."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import backend, slurm  # noqa: F401  fixtures
from trainium_cdk import settings
from trainium_cdk.client.cli import launch
from trainium_cdk.client.cli.app import app
from trainium_cdk.description.checks.live import Aws
from trainium_cdk.errors import AwsError, JobError, SubmitError, TransportError, TrnError
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
    (tmp_path / "cdk").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/called\npwd >> {tmp_path}/folders\nexit $(cat {tmp_path}/code)\n'
    )
    (tmp_path / "cdk").chmod(0o755)
    (tmp_path / "code").write_text("0")
    monkeypatch.setattr("trainium_cdk.client.operations.updates.spec.command", lambda: tmp_path / "cdk")
    monkeypatch.setattr("trainium_cdk.client.operations.updates.live.deployed", lambda *_: None)
    monkeypatch.setattr("trainium_cdk.client.cli.launch._to_bootstrap", lambda *_: "")
    return tmp_path


def run(*arguments: str, file: tuple[str, ...] = ("--environment", "env.yaml")) -> int:
    return int(app(["launch", *file, *arguments], standalone_mode=False) or 0)


@pytest.fixture
def ended(backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:  # noqa: F811
    """The cluster is that Slurm; other commands than `submit` are only recorded."""
    calls: list[tuple[str, ...]] = []
    real = launch.run_trn
    monkeypatch.setattr(import_module("trainium_cdk.client.jobs.connection"), "connect", lambda *_, **__: backend)
    monkeypatch.setattr("trainium_cdk.client.cli.options.deployed", lambda *_: backend.cluster)
    monkeypatch.setattr(launch, "run_trn", lambda *a: real(*a) if a[0] == "submit" else calls.append(a) or 0)
    return calls


@pytest.mark.parametrize(("code", "remove"), [(0, ["--remove"]), (3, [])])
def test_deploys_submits_follows_and_removes(
    folder: Path, ended: list[Any], code: int, remove: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*remove, "job.sh", "--nodes", "1", "--yes", "--", "a --yes", str(code)]
    assert run(*words) == (1 if code else 0)
    out, err = capfd.readouterr()
    assert out.count("works as a --yes") == 1
    assert "#!/bin/bash" not in out, "the check before the deployment prints nothing"
    assert (folder / "called").read_text().split() == (
        f"deploy -e TrnPclusterStack -c env={folder}/env.yaml --require-approval never".split()
    )
    least = (
        "22.29 USD at least, for an hour of 1 x trn1.32xlarge and of the idle stack; 0.79 USD an hour while no job runs"
    )
    assert f"{STACK} is not deployed in us-east-1. It will cost {least}" in err
    assert "USD an hour with all of its nodes, at list prices (trn cost --environment env.yaml)" in err
    if remove:
        assert ended == [("destroy", "--environment", "env.yaml", "--yes")]
    else:
        assert ended == []
        assert f"{STACK} stays. To remove it: trn destroy --environment env.yaml" in err


def test_nothing_is_deployed_for_a_limit_behind_two_dashes(folder: Path, ended: list[Any]) -> None:
    with pytest.raises(JobError, match=r"^--max-usd is after --"):
        run("job.sh", "--", "x", "0", "--max-usd", "3")
    assert not (folder / "called").exists()
    assert run("--yes", "job.sh", "--", "x", "0", "--max-usd", "3") == 0


def test_a_cluster_with_other_jobs_stays(
    folder: Path,
    ended: list[Any],
    backend: SlurmBackend,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainium_cdk.client.operations.updates.live.deployed", lambda *_: {})
    # that cluster itself checks the job; the one that the file describes has no jobs, for --after and --resume-from
    monkeypatch.setattr("trainium_cdk.client.cli.submit._dry_run", lambda *_, **__: pytest.fail("it is deployed"))
    (folder / "long.sh").write_text("sleep 600\n")
    other = backend.submit(Script.from_file(folder / "long.sh"))
    try:
        assert run("job.sh", "--remove", "--", "x", "0") == 0
    finally:
        backend.cancel(other.id)
    err = capfd.readouterr().err
    assert ended == []
    assert (
        f"{STACK} is deployed in us-east-1. What a deployment of the file would change: trn diff --environment env.yaml"
        in err
    )
    assert f"{other.id} runs or waits there. {STACK} stays. To remove it: trn destroy --environment env.yaml" in err
    assert not (folder / "called").exists()


def test_a_deployment_that_it_left_is_not_begun_again(
    folder: Path, ended: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deployed(*_: Any) -> None:
        raise TrnError(f"stack {STACK} is CREATE_IN_PROGRESS: wait until that has ended, and run this again")

    monkeypatch.setattr("trainium_cdk.client.operations.updates.live.deployed", deployed)
    with pytest.raises(TrnError, match="wait until that has ended, and run this again"):
        run("job.sh", "--yes", "--", "x", "0")
    assert not (folder / "called").exists()
    assert ended == []


def test_a_cluster_with_work_of_other_clients_stays(
    folder: Path,
    ended: list[Any],
    slurm: LocalSlurm,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainium_cdk.client.operations.updates.live.deployed", lambda *_: {})
    number = slurm.run(["sbatch", "--parsable", "-p", "compute1", "-N", "1", "--wrap", "sleep 600"]).stdout.strip()
    try:
        assert run("job.sh", "--remove", "--", "x", "0") == 0
    finally:
        slurm.run(["scancel", number])
    assert number
    assert f"{number} runs or waits there. {STACK} stays" in capfd.readouterr().err
    assert ended == []


def test_a_job_that_the_scheduler_refuses_leaves_no_cluster_unnoticed(
    folder: Path, ended: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SubmitError, match="this cluster keeps no accounts"):
        run("--yes", "job.sh", "--account", "vision", "--", "x", "0")
    assert f"{STACK} stays. To remove it: trn destroy --environment env.yaml\n" in capfd.readouterr().err
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
    monkeypatch.setattr(import_module("trainium_cdk.client.jobs.connection"), "connect", connect)
    monkeypatch.setattr("trainium_cdk.client.cli.options.deployed", lambda *_: cluster)
    monkeypatch.setattr(launch, "run_trn", lambda *a: calls.append(a) or 0)
    stack = launch._Stack("S", "S", settings.Environment(), Path("env.yaml"), ("S", "--environment", "env.yaml"))
    assert launch._remove(stack) == 0
    assert told in capfd.readouterr().err
    assert calls == ([] if told else [("destroy", "S", "--environment", "env.yaml", "--yes")])


def test_nothing_is_deployed_for_what_cannot_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobError, match="nodes is 5, but queue compute1 has at most 4"):
        run("--yes", "job.sh", "--nodes", "5")
    with pytest.raises(JobError, match="--json is not an option of `trn launch`"):
        run("--yes", "job.sh", "--json")
    for option in (["--array=0-3"], ["--array", "0-3"]):
        with pytest.raises(JobError, match=f"{option[0]} is not an option of `trn launch`, which follows one job"):
            run("--yes", "job.sh", *option)
    with pytest.raises(TyperException, match="No such option: --no-such-option"):
        run("--yes", "job.sh", "--no-such-option")
    assert run("job.sh") == 2, "no terminal to ask"
    assert "nothing was deployed: give --yes" in capfd.readouterr().err
    assert not (folder / "called").exists()
    (folder / "code").write_text("1")
    with pytest.raises(
        TrnError,
        match=f"{STACK} was not deployed: see above. What failed in it: trn why --environment env.yaml",
    ):
        run("--yes", "job.sh")
    (folder / "cdk.json").unlink()
    with pytest.raises(TrnError, match=r"no cdk\.json"):
        run("--yes", "job.sh")


def test_the_file_in_use_is_not_repeated(
    folder: Path, ended: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`trn use` names it for all commands that are printed; a team or a user that it remembers counts, too."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    app(["use", "env.yaml"], standalone_mode=False)
    (folder / "job.yaml").write_text("job: job.sh\nargs: [used, 0]\n")
    assert run("job.yaml", "--yes", "--remove", file=()) == 0
    out, err = capfd.readouterr()
    assert "works as used" in out
    assert err.count(f"using {folder}/env.yaml (trn use)") == 1
    assert "(trn cost)\n" in err
    assert ended == [("destroy", "--yes")]
    assert f"env={folder}/env.yaml" in (folder / "called").read_text()


def test_a_command_in_place_of_a_script(
    folder: Path, ended: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRN_ENV", str(folder / "env.yaml"))
    assert run("--yes", "--nodes", "1", "--", "echo", "it", "--remove", file=()) == 0
    out, err = capfd.readouterr()
    assert "it --remove" in out
    assert f"{STACK} stays. To remove it: trn destroy\n" in err
    assert ended == []


@pytest.mark.parametrize(
    ("version", "context", "words"),
    [
        (None, {}, "bootstrap aws://111122223333/us-east-1"),
        ("5", {}, "bootstrap aws://111122223333/us-east-1"),
        ("21", {}, ""),
        (None, {"@aws-cdk/core:bootstrapQualifier": "other"}, ""),
        (AwsError("denied"), {}, ""),
    ],
)
def test_the_account_is_bootstrapped_within_the_one_question(
    folder: Path,
    ended: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    version: Any,
    context: dict[str, str],
    words: str,
) -> None:
    def parameter(_: Any, name: str) -> str | None:
        if isinstance(version, Exception):
            raise version
        return str(version) if version and name == "/cdk-bootstrap/hnb659fds/version" else None

    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("trainium_cdk.client.operations.updates.spec.command", lambda: folder / "cdk")
    monkeypatch.setattr(Aws, "parameter", parameter)
    monkeypatch.setattr(Aws, "__call__", lambda *_, **__: {"Account": "111122223333"})
    (folder / "cdk.json").write_text(json.dumps({"context": context}))
    env = settings.load(folder / "env.yaml")
    stack = launch._Stack("TrnPclusterStack", STACK, env, folder / "env.yaml", ())
    with pytest.raises(typer.Exit):  # no terminal to ask
        launch._deploy(stack, folder, yes=False)
    assert not (folder / "called").exists()
    launch._deploy(stack, folder, yes=True)
    called = (folder / "called").read_text().replace("\n", " ")
    assert called.startswith(f"{words} deploy -e".strip())
    said = "aws://111122223333/us-east-1 is not bootstrapped for the CDK. That is done first"
    assert (said in capfd.readouterr().err) == bool(words)
    *before, last = (folder / "folders").read_text().splitlines()
    assert last == str(folder)
    assert len(before) == bool(words)
    assert str(folder) not in before, "it would synthesise the app"


def test_a_failed_bootstrap_deploys_nothing(folder: Path, ended: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainium_cdk.client.cli.launch._to_bootstrap", lambda *_: "aws://111122223333/us-east-1")
    (folder / "code").write_text("1")
    with pytest.raises(TrnError, match=r"^aws://111122223333/us-east-1 was not bootstrapped: see above"):
        run("--yes", "job.sh", "--", "x", "0")
    assert (folder / "called").read_text() == "bootstrap\naws://111122223333/us-east-1\n"


def test_a_wrong_option_is_answered_once(folder: Path) -> None:
    (folder / "train.py").write_text("1\n")
    with pytest.raises(TyperException) as raised:
        run("train.py", "--node", "2")
    assert str(raised.value.format_message()).count("write --nodes") == 1
