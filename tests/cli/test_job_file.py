"""Jobs in files: the same job as on the command line, in both directions, and each mistake with its line."""

from __future__ import annotations

import shlex
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.cli.test_submit import Jobs, made
from tests.support import table
from trainium_cdk.client.cli import app, submit
from trainium_cdk.client.cli.job_file import json_schema
from trainium_cdk.description.settings import load
from trainium_cdk.errors import SettingsFileError, TrnError

SCHEMA = jsonschema.Draft202012Validator(json_schema())


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    Path("proj").mkdir()
    texts = {"train.py": "1\n", "proj/run.py": "1\n", "proj/requirements.txt": "einops\n", "vars.env": "C=3\n"}
    for name, text in (texts | {"values.csv": "lr\n1\n2\n"}).items():
        Path(name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("line", table(__file__, "lines"))
def test_a_saved_job_is_the_same_job(line: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Also from another folder than the file's."""
    words = shlex.split(line)
    job, _ = made(monkeypatch, words)
    Path("jobs").mkdir()
    end = words.index("--") if "--" in words else len(words)
    assert app.app(["submit", *words[:end], "--save", "jobs/job.yaml", *words[end:]], standalone_mode=False) in (
        None,
        0,
    )
    assert [e.message for e in SCHEMA.iter_errors(yaml.safe_load(Path("jobs/job.yaml").read_text()))] == []
    for place in (folder, folder / "jobs"):
        monkeypatch.chdir(place)
        file = "jobs/job.yaml" if place == folder else "job.yaml"
        again, _ = made(monkeypatch, [file])
        assert again == job


@pytest.mark.parametrize(("text", "more", "line"), table(__file__, "files"))
def test_a_file_stands_for_a_command_line(
    text: str, more: str, line: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    Path("job.yaml").write_text(text)
    job, _ = made(monkeypatch, ["job.yaml", *shlex.split(more)])
    expected, _ = made(monkeypatch, shlex.split(line))
    assert job == expected
    assert [e.message for e in SCHEMA.iter_errors(yaml.safe_load(text.replace("_limit", "-limit")))] == []


@pytest.mark.parametrize(("text", "message"), table(__file__, "wrong"))
def test_a_mistake_has_its_line(text: str, message: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    Path("job.yaml").write_text(text)
    monkeypatch.setattr(submit, "backend", lambda *_: Jobs())
    with pytest.raises(TrnError) as raised:
        app.app(["submit", "job.yaml"], standalone_mode=False)
    assert message in str(raised.value)


def test_a_job_file_is_no_environment_file(folder: Path) -> None:
    Path("my job.yaml").write_text("job: train.py\n")
    with pytest.raises(SettingsFileError, match=r"it describes a job. Submit it: trn submit 'my job.yaml'"):
        load("my job.yaml")


def test_a_file_that_exists_is_not_overwritten(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with pytest.raises(TrnError, match=r"train.py exists. Remove it, or give another name to --save"):
        app.app(["submit", "train.py", "--save", "train.py"], standalone_mode=False)
    assert Path("train.py").read_text() == "1\n"


def test_a_secret_is_not_saved(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER_KEY", "1")
    words = ["--env", "HF_TOKEN=abc123", "--env", "WANDB_API_KEY=ssm:key", "--env", "A=1", "--env", "USER_KEY"]
    app.app(["submit", "train.py", *words, "--save", "job.yaml"], standalone_mode=False)
    written = {"HF_TOKEN": None, "WANDB_API_KEY": "ssm:key", "A": "1", "USER_KEY": None}
    assert yaml.safe_load(Path("job.yaml").read_text())["env"] == written
    assert "job.yaml has no value of HF_TOKEN, which may be a secret" in capsys.readouterr().err
