"""The options of `trn submit`: each value that the help documents becomes that value of the job."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance import cases
from tests.jobs import test_projects as locked
from tests.sandbox import on_aws
from tests.support import ROOT, table
from trainium_cdk.cli import app, submit
from trainium_cdk.cli.annotations import choices_of
from trainium_cdk.jobs import Job
from trainium_cdk.jobs.kinds import kinds
from trainium_cdk.jobs.plan import plan

GIVEN = {
    *("kind", "nodes", "env", "filename", "content", "args", "as_module", "inside", "tree", "user", "workdir"),
    *("requirements", "sweep"),
}
"""Fields without an option of their own."""
NEEDS = {
    "module": ["--config", "c"],
    "config": ["--module", "m"],
    "phase=2": ["--checkpoint", "bert-large-1"],
    "checkpoint": ["--phase", "2"],
    "data_name": ["--data", "/efs/corpus"],
}
TEXTS = table(__file__, "texts")


class Made(Exception):
    """The job of a command line."""


class Jobs:
    def render(self, job: Job, token: str) -> None:
        raise Made(job, token)


def documented() -> Iterator[tuple[str, str, str, object]]:
    """Kind, field, value as text, and the field's value."""
    for kind, of_kind in kinds().items():
        for name, field in of_kind.model_fields.items():
            if name in GIVEN:
                continue
            text = str(field.annotation)
            if choices := choices_of(field):
                yield from ((kind, name, c, json.loads(c) if c.isdigit() else c) for c in choices)
            elif name in TEXTS:
                value: Any = int(TEXTS[name]) if TEXTS[name].isdigit() else TEXTS[name]
                yield kind, name, TEXTS[name], (value,) if "tuple" in text else value
            elif "bool" in text:
                yield from ((kind, name, str(value), value) for value in (True, False))
            else:
                value = 0.5 if "float" in text else 1
                yield kind, name, str(value), value


def made(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> tuple[Job, str]:
    monkeypatch.setattr(submit, "backend", lambda *_: Jobs())
    monkeypatch.setattr(submit, "planned", lambda *_: None)  # the cluster of a printed environment file
    with pytest.raises(Made) as caught:
        app.app(["submit", *arguments], standalone_mode=False)
    job, token = caught.value.args
    return job, token


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"), list(documented()), ids=lambda value: str(value).replace("/", "_")
)
def test_each_documented_value(
    kind: str, name: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "run.py"
    script.write_text("1\n")
    dashed = name.replace("_", "-")
    option = [f"--{dashed}" if value else f"--no-{dashed}"] if isinstance(value, bool) else [f"--{dashed}", text]
    needs = NEEDS.get(f"{name}={text}", NEEDS.get(name, []))
    job, _ = made(monkeypatch, [str(script) if kind == "script" else kind, *option, *needs])
    found = getattr(job, name)
    assert (job.kind, found, type(found)) == (kind, value, type(value))


def test_a_token_is_passed_on_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one is refused later: a new one in its place would submit the job of a repeated script twice."""
    assert made(monkeypatch, ["bert-large", "--token", ""])[1] == ""
    assert made(monkeypatch, ["bert-large"])[1]


def printed() -> list[str]:
    """The submissions that README and docs print, in blocks and in sentences."""
    texts = [file.read_text("utf-8") for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
    found = [
        line
        for text in texts
        for line in re.findall(r"^ *(trn submit [^#\n`]+)|`(trn submit [^`]+)`", text, re.MULTILINE)
    ]
    every = [" ".join("".join(line).split()) for line in found]
    return [
        line
        for line in dict.fromkeys(every)
        if not line.startswith("trn submit -")
        and not line.endswith("--help")
        and " " in line.removeprefix("trn submit ")
    ]


@pytest.mark.parametrize("line", printed())
def test_each_printed_command(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is a job, which fits a cluster of each engine on which its kind runs."""
    monkeypatch.chdir(tmp_path)
    for variable in ("HF_TOKEN", "TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.setenv(variable, "hf_x")
    for folder in ("my-project", "examples"):
        Path(folder).mkdir()
        Path(folder, "notebook.sh").write_text("1\n")
    for name in ("train.py", "train.sh", "evaluate.sh", "unpack.sh", "my-script.py", "my-project/train.py"):
        Path(name).write_text("1\n")
    Path("values.csv").write_text("lr\n1e-4\n3e-4\n")
    locked.folder(Path("my-project"), locked.LOCK + "".join(locked.ALL))
    for name in ("requirements.txt", "my-project/requirements.txt"):
        Path(name).write_text("einops\n")
    for name in ("environment.yaml", "east.yaml"):
        Path(name).write_text(on_aws.example())
    words = shlex.split(line.partition(" > ")[0].replace("COMMIT", "a" * 40).replace("IMAGE", "an/image:1"))[2:]
    if "--environment" in words:  # no cluster is asked
        dry = [] if "--dry-run" in words else ["--dry-run"]
        assert app.app(["submit", *words, *dry], standalone_mode=False) in (None, 0)
        return
    job, _ = made(monkeypatch, words)
    assert job.kind in (words[0], "script")
    for engine in cases.ENGINES:
        if not (job.image and engine == "slurm") and not (
            (job.after or job.array or job.sbatch or job.queue == "cpu") and engine != "slurm"
        ):
            on = cases.slurm.make_cluster() if job.queue == "cpu" else cases.cluster(engine, job)
            assert plan(job, on).job is job
