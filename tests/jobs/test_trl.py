"""What TRL's `sft` printed in real runs is read as a person reads it, and its stand-in prints the same. `make conformance` runs the original."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.launched import read_words
from sandbox.training.fakes import sft
from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.log_lines import forms_of_trl
from trainium_cdk.client.jobs.metrics import job_log
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.status import error_patterns
from trainium_cdk.jobs import Finetune
from trainium_cdk.runner.readers import Step
from trainium_cdk.runner.readers.collecting import Collector
from trainium_cdk.runner.readers.ending import why_it_ended
from trainium_cdk.runner.readers.log import JobLog

RUNS = yaml.safe_load(Path(__file__).with_name("trl.yaml").read_text("utf-8"))
CHAT = {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "It is 2."}]}


def read(text: bytes, piece: int = 1_000_000) -> JobLog:
    """The reader of a training's log, once it has taken a text in pieces of a size."""
    log = job_log()
    for at in range(0, len(text), piece):
        log.feed("train", text[at : at + piece])
    log.close()
    return log


def printed(run: dict[str, Any]) -> bytes:
    text: str = run["log"]
    return text.replace("⏎", "\r").encode()


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["run"])
@pytest.mark.parametrize("piece", [1_000_000, 700])
def test_its_steps_are_counted_and_a_lost_loss_is_seen(run: dict[str, Any], piece: int) -> None:
    log = read(printed(run), piece)
    assert (log.steps, log.progress, log.lost_at) == (run["steps"], run["progress"], run.get("lost_at"))
    assert log.throughput == run.get("throughput")


@pytest.mark.parametrize("run", [run for run in RUNS if run["steps"]], ids=lambda run: run["run"])
def test_no_bar_of_another_work_is_the_trainings(run: dict[str, Any]) -> None:
    """Of a few examples that are tokenized, or a model's weights that are loaded, no step, total or time left is made."""
    log = job_log()
    steps = [record for _, record in log.feed("train", printed(run)) if isinstance(record, Step)]
    assert {step.total_steps for step in steps} == {None}
    assert len(steps) == run["steps"]
    assert log.course.position == log.last


@pytest.mark.parametrize("run", [run for run in RUNS if "why" in run], ids=lambda run: run["run"])
def test_why_it_ended_is_the_reason_of_the_first_that_failed(run: dict[str, Any]) -> None:
    collector = Collector()
    collector.feed(printed(run))
    why = why_it_ended(collector.close(), run["code"], 1, error_patterns())
    assert run["why"] in why
    assert "signal" not in why


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conversation in the folder chats, and room for a cache and results."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TRN_SANDBOX_STEP_SECONDS", "0")
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats/train.jsonl").write_text(f"{json.dumps(CHAT)}\n")
    return tmp_path


def stand_in(folder: Path, *words: str) -> int:
    given = {"--model_name_or_path": folder, "--dataset_name": folder / "chats", "--output_dir": folder / "output"}
    base = [str(word) for option in given.items() for word in option]
    return sft.main([*base, "--use_peft", "--max_steps", "12", "--save_steps", "5", *words])


@pytest.mark.parametrize("run", [run for run in RUNS if run["run"] != "bad-value"], ids=lambda run: run["run"])
def test_the_stand_in_prints_what_the_original_printed(
    run: dict[str, Any], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = run.get("words", "").replace("/efs/trn/jobs/finetune-t", str(folder)).split()
    if run["run"] == "resume":
        assert stand_in(folder) == 0
        capfd.readouterr()
    assert stand_in(folder, *words) == run.get("code", 0)
    out, err = capfd.readouterr()
    assert forms_of_trl(f"{err}\n{out}") == forms_of_trl(printed(run).decode())


def test_the_kind_has_a_lost_loss_printed_as_what_it_is(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cluster = make_cluster(
        fleet("trn2.48xlarge"), neuron_release="2.33.0", neuron_driver="2.31.7.0", framework="torch-native"
    )
    job = Finetune(data="/efs/chats", weights="/efs", run_steps=4, override=("learning_rate=1e20",))
    planned = plan(job, cluster)
    (folder / "fsdp.json").write_bytes(job.files(planned)["fsdp.json"])
    words = [read_words(word) for word in job.program(planned).words]
    for place in ("<root>/efs", "<job>", "<files>"):
        words = [word.replace(place, str(folder)) for word in words]
    assert sft.main(words[words.index("trl.scripts.sft") + 1 :]) == 0
    losses = re.findall(r"{'loss': '(.+?)'", capfd.readouterr().out)
    assert losses[1:] == ["nan"] * 3
