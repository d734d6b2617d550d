"""`examples/prove-on-aws.sh` in the sandbox: it passes, it destroys after a failure in the middle, and what a lost machine leaves ends by itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.testing import sandbox_up
from tests.support import ROOT, SHELLCHECK, TRN, completed, need_kubernetes, need_slurm, swept
from trainium_cdk.client.cli.app import app
from trainium_cdk.description.engines import ENGINES

SCRIPT = ROOT / "examples/prove-on-aws.sh"
PAGE = (ROOT / "docs/about/verified.md").read_text("utf-8")
pytestmark = pytest.mark.timeout(3600)  # hangs only: one run has two deployments, four jobs and a restart


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    need_slurm()
    with sandbox_up(tmp_path_factory.mktemp("sandbox"), "--slurm") as aws:
        yield aws


def run(aws: LocalAws, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = completed([SCRIPT, *words], cwd=folder, env=aws.env)
    assert {kind for kind in aws.leftovers() if not kind.startswith("log groups")} == set(), done.stderr[-4000:]
    return done


def row(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The fields of the row that it prints last."""
    return [field.strip() for field in done.stdout.splitlines()[-1].strip("|").split("|")]


def rows(header: str) -> list[list[str]]:
    """The page's table with this header, and its header."""
    table = PAGE[PAGE.index(header) :].partition("\n\n")[0].splitlines()
    return [[field.strip() for field in line.strip("|").split("|")] for line in table]


def test_it_is_short_and_clean() -> None:
    assert len(SCRIPT.read_text("utf-8").splitlines()) <= 120
    done = completed([SHELLCHECK, SCRIPT])
    assert done.returncode == 0, done.stdout


def passes(engine: str, aws: LocalAws, folder: Path) -> None:
    done = run(aws, folder, engine, "60")
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    fields = dict(zip(rows("| date | engine |")[0], row(done), strict=True))
    assert (fields["engine"], fields["kind"], fields["nodes"]) == (engine, "bert-large", "1 x trn1.2xlarge")
    assert fields["region"] == "us-east-1 (not AWS)"
    assert re.fullmatch(r"\d+\.\d+\.\d+", fields["Neuron SDK"])
    steps = [step for step, _ in rows("| step | passed if |")[2:]]
    assert re.fullmatch(", ".join(rf"{step} \d+ s" for step in steps), fields["steps"])
    assert [word for word in ("000000000000", "arn:", "prove-") if word in done.stdout.splitlines()[-1]] == []


@pytest.mark.parametrize("engine", swept(["slurm", "pcs"], "slurm"))
def test_a_run_passes_and_leaves_nothing(engine: str, aws: LocalAws, tmp_path: Path) -> None:
    passes(engine, aws, tmp_path)


@pytest.mark.sweep
def test_a_run_passes_on_kubernetes(tmp_path: Path) -> None:
    need_kubernetes()
    with sandbox_up(tmp_path, "--kubernetes") as aws:
        (tmp_path / "run").mkdir()
        passes("eks", aws, tmp_path / "run")


def test_it_destroys_after_a_failure_in_the_middle(aws: LocalAws, tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text("raise SystemExit('no chip has this answer')\n")
    done = run(aws, tmp_path, "slurm", "25", str(program))
    assert done.returncode == 1
    assert "no chip has this answer" in done.stdout
    assert re.fullmatch(r"check \d+ s, deploy \d+ s, nccom \d+ s, train FAILED, remove \d+ s", row(done)[-1])


def test_after_kill_9_its_jobs_end_and_all_can_be_removed_from_elsewhere(aws: LocalAws, tmp_path: Path) -> None:
    program, name = tmp_path / "sleeps.py", "prove-lost"
    program.write_text("import time\ntime.sleep(86400)\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with subprocess.Popen(
        [SCRIPT, "slurm", "25", program], cwd=tmp_path, env={**aws.env, "LIMIT": "1m", "NAME": name},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        lines = []
        for line in process.stderr or ():
            lines.append(line)
            if line.startswith("submitted: ") and any(said.startswith("prove: train") for said in lines):
                break
        os.killpg(process.pid, signal.SIGKILL)
    stack = f"TrnPclusterStack-{name}"

    def trn(*words: str) -> subprocess.CompletedProcess[str]:
        config = {"XDG_CONFIG_HOME": str(elsewhere)}
        return completed([TRN, *words], cwd=elsewhere, env={**aws.env, **config})

    ended = trn("status", "latest", "--stack", stack, "--region", aws.region, "--wait", "--json")
    assert ended.returncode == 1, "".join(lines)[-4000:] + ended.stderr
    status = json.loads(ended.stdout)
    assert (status["done"], [stage["state"] for stage in status["stages"]]) == (True, ["TIMEOUT"])
    clusters, destroy = re.findall(r"^trn .*$", PAGE.partition("From any other machine:")[2], re.MULTILINE)[:2]
    assert stack in trn(*clusters.partition("#")[0].split()[1:]).stdout
    words = [stack if word.startswith("TrnPclusterStack-") else word for word in destroy.split()[1:]]
    done = trn(*words, "--yes")
    assert done.returncode == 0, done.stderr
    assert {kind for kind in aws.leftovers() if not kind.startswith("log groups")} == set()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ek"], "unknown engine ek. Choose one of slurm, pcs, eks"),
        (["slurm", "3"], r"the budget of 3 does not last for three. Give (\d+)"),
    ],
)
def test_nothing_is_begun_that_cannot_be_paid(words: list[str], said: str, aws: LocalAws, tmp_path: Path) -> None:
    done = run(aws, tmp_path, *words)
    assert done.returncode == 2
    assert re.search(said, done.stderr), done.stderr


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_lost_machine_costs_what_is_printed(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    app(
        ["init", "prove.yaml", "--engine", engine, "--instance-type", "trn1.2xlarge", "--region", "us-east-1"],
        standalone_mode=False,
    )
    capsys.readouterr()
    app(["cost", ENGINES[engine].stack, "--environment", "prove.yaml", "--json"], standalone_mode=False)
    items = json.loads(capsys.readouterr().out)["items"]
    day = 24 * sum(1.0 if item["idle"] is None else item["idle"] for item in items)
    for text in (SCRIPT.read_text("utf-8"), PAGE):
        assert f"{day:.0f}" in re.findall(rf"(\d+)(?: USD a day)? with {engine}", text)
