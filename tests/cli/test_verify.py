"""`trn verify` on the command line: the plan without an account, what is asked before money is spent, and what is said when it ends."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.support import TRN, completed
from trainium_cdk import engines
from trainium_cdk.cli.app import app
from trainium_cdk.cli.verify import _write
from trainium_cdk.errors import TrnError
from trainium_cdk.operations.verify.permissions import policy
from trainium_cdk.operations.verify.plan import make
from trainium_cdk.operations.verify.run import what_stays
from trainium_cdk.operations.verify.state import Done, Run, alone, load

NO_AWS = {
    **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@pytest.mark.parametrize("engine", list(engines.ENGINES))
def test_the_plan_without_credentials(engine: str, tmp_path: Path) -> None:
    """Every step and the highest cost; nothing is written."""
    done = completed([TRN, "verify", "--dry-run", "--engine", engine], cwd=tmp_path, env=NO_AWS)
    assert done.returncode == 0, done.stderr
    plan = make(engine, None, None, None)
    assert [row.split("\t")[0] for row in done.stdout.splitlines()] == ["step", *(step.name for step in plan.all)]
    assert f"at most {plan.highest:,.2f}" in done.stderr
    assert f"trn verify --print-policy --engine {engine}" in done.stderr
    [advice] = re.findall("these permissions: trn (.*)", done.stderr)
    assert json.loads(completed([TRN, *advice.split()], env=NO_AWS).stdout) == policy(plan)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", list(engines.ENGINES))
def test_the_policy_without_credentials(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["verify", "--print-policy", "--engine", engine], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    statements = document["Statement"]
    assert all(s["Effect"] == "Allow" for s in statements)
    assert {"iam:CreateRole"} <= {
        a for s in statements for a in s["Action"] if s["Resource"] == ["arn:aws:iam::*:role/trn-verify"]
    }
    assert [
        s for s in statements if s["Resource"] in ("*", ["*"]) and any(a.startswith("iam:") for a in s["Action"])
    ] == []
    assert not any("{" in text for s in statements for text in s["Resource"])


def test_what_is_asked_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        TrnError, match=r"give --max-usd: how many USD it may cost at most\. `trn verify --dry-run` prints the plan"
    ):
        app(["verify"], standalone_mode=False)
    with pytest.raises(TrnError, match=r"unknown engine 'ek'\. Choose one of slurm, eks, pcs"):
        app(["verify", "--engine", "ek", "--max-usd", "20"], standalone_mode=False)
    with pytest.raises(TrnError, match="Give --max-usd 20"):
        app(["verify", "--max-usd", "3", "--instance-type", "trn1.2xlarge"], standalone_mode=False)
    monkeypatch.setattr("trainium_cdk.cli.verify._alone_in_account", lambda _: None)
    assert app(["verify", "--max-usd", "20", "--instance-type", "trn1.2xlarge"], standalone_mode=False) == 2
    assert "nothing was done: give --yes to begin without confirmation" in capsys.readouterr().err
    assert load(tmp_path / "trn-verify") is None
    with pytest.raises(
        TrnError, match=r"'TrnPclusterStack' is no stack of a verification\. These are: TrnPclusterStack-verify, "
    ):
        app(["verify", "--remove", "TrnPclusterStack"], standalone_mode=False)


def test_one_program_at_once_in_a_folder(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(TrnError, match="another `trn verify` works in"), alone(tmp_path):
        pass
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(TrnError, match=r"run\.json is no record of a verification"):
        load(tmp_path)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = Run(
        "0123456789ab",
        make("slurm", None, None, None),
        25.0,
        1.0,
        [(1.0, "idle"), (2.0, "full")],
        {"check": Done("passed", 3.0)},
        {"a": "b"},
        9.0,
        stopped=True,
    )
    run.save(tmp_path)
    assert load(tmp_path) == run


def test_what_was_not_as_predicted_is_to_be_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make("slurm", None, None, None)
    run = Run(
        "0123456789ab",
        plan,
        25.0,
        time.time() - 60,
        [(time.time() - 60, "idle")],
        {"deploy": Done("failed", 60.0, "why")},
        removed=True,
    )
    _write(run, tmp_path)
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == str(tmp_path / "verified.md")
    assert "not as predicted: deploy, deploy: why. Please report it, with" in err
    assert json.loads((tmp_path / "verified.json").read_text())["steps"][0]["name"] == "deploy"


def test_what_stays_is_said_with_the_command() -> None:
    said = what_stays(Run("0123456789ab", make("slurm", None, None, None), 25.0, 1.0))
    assert "trn destroy TrnPclusterStack-verify --region us-east-1" in said
    assert "costs up to 2.55 USD an hour" in said
