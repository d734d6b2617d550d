"""The stand-in of TRL's fine-tuning: it takes the kind's own options, refuses others, and resumes as if it had not been interrupted.
tests/jobs/test_trl.py holds what it prints against what the original printed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox import head_node
from sandbox.training.fakes import sft
from trainium_cdk.jobs import read_log
from trainium_cdk.runner.readers import Step

pytestmark = pytest.mark.sweep

LINES = [
    {"text": "a job waits for its nodes."},
    {"prompt": "who waits", "completion": "a job."},
    {"messages": [{"role": "user", "content": "hello"}]},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and a data set of Hugging Face in the cache, as `prepare` fetches them here, and chats in a folder."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TRN_SANDBOX_STEP_SECONDS", "0")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for package, call in (
        ("huggingface-hub", 'snapshot_download("a/model", allow_patterns=["config.json"])'),
        ("datasets", 'load_dataset("a/chats", split="train")'),
    ):
        module: dict[str, Any] = {}
        exec(head_node.MODULES[package], module)  # noqa: S102  as the nodes import it
        exec(call, module)  # noqa: S102
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/one.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    return tmp_path


def train(folder: Path, output: str, *more: str, model: str = "a/model", data: str = "a/chats") -> int:
    words = [
        "--model_name_or_path",
        model,
        "--dataset_name",
        data,
        "--output_dir",
        str(folder / output),
        "--learning_rate",
        "2e-4",
    ]
    return sft.main([*words, "--per_device_train_batch_size", "4", "--use_peft", "--save_total_limit", "2", *more])


def test_a_restart_equals_no_restart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(folder, "whole", "--max_steps", "7", "--save_steps", "3") == 0
    whole = capsys.readouterr().out
    assert sorted(file.name for file in (folder / "whole").iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "checkpoint-6", "checkpoint-7",
    ]  # fmt: skip
    steps = [one for one in read_log(whole.encode()) if isinstance(one, Step)]
    assert len(steps) == 7
    assert steps[0].loss is not None
    assert steps[-1].loss is not None
    assert steps[-1].loss < steps[0].loss
    assert (
        train(folder, "again", "--max_steps", "7", "--resume_from_checkpoint", str(folder / "whole/checkpoint-6")) == 0
    )
    assert logged(capsys.readouterr().out) == logged(whole)[6:]
    results = [(folder / run / "adapter_model.safetensors").read_bytes() for run in ("whole", "again")]
    assert results[0] == results[1]


def logged(text: str) -> list[dict[str, str]]:
    """The values of each step, without the tokens, which TRL counts again after a restart."""
    steps = [ast.literal_eval(line) for line in text.splitlines() if line.startswith("{'loss'")]
    return [{name: value for name, value in step.items() if name != "num_tokens"} for step in steps]


def test_all_forms_of_a_line_of_data(folder: Path) -> None:
    assert train(folder, "out", "--max_steps", "1", data=str(folder / "mine")) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "a/other"}, "a/other is not a local folder and is not in Hugging Face's cache"),
        ({"data": "a/others"}, "couldn't find the data set a/others"),
    ],
)
def test_what_is_missing_is_refused(
    given: dict[str, str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(folder, "out", "--max_steps", "1", **given) == 1
    assert message in capsys.readouterr().err


def test_an_option_that_is_not_known_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(folder, "out", "--per_device_batch", "1") == 1
    assert "not used by the HfArgumentParser: ['--per_device_batch', '1']" in capsys.readouterr().err
