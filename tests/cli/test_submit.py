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
from tests.tools.reference.test_blocks import job_files
from trainium_cdk.client.cli import app, submit
from trainium_cdk.client.cli.options import choices_of
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import Job

GIVEN = {
    *("kind", "nodes", "env", "filename", "content", "args", "command", "inside", "tree", "user", "workdir"),
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
        for name in ("notebook.sh", "serve.sh"):
            Path(folder, name).write_text("1\n")
    for name in (
        "train.py",
        "train.sh",
        "evaluate.sh",
        "unpack.sh",
        "my-script.py",
        "multinode.sh",
        "my-project/train.py",
    ):
        Path(name).write_text("1\n")
    Path("values.csv").write_text("lr\n1e-4\n3e-4\n")
    locked.folder(Path("my-project"), locked.LOCK + "".join(locked.ALL))
    for name in ("requirements.txt", "my-project/requirements.txt"):
        Path(name).write_text("einops\n")
    for name in ("environment.yaml", "east.yaml"):
        Path(name).write_text(on_aws.example())
    for name, text in job_files().items():
        Path(name).write_text(text)
    words = shlex.split(line.partition(" > ")[0].replace("COMMIT", "a" * 40).replace("IMAGE", "an/image:1"))[2:]
    if "--environment" in words:  # no cluster is asked
        dry = [] if "--dry-run" in words else ["--dry-run"]
        assert app.app(["submit", *words, *dry], standalone_mode=False) in (None, 0)
        return
    job, _ = made(monkeypatch, words)
    assert job.kind in (words[0], "script")
    if job.devices:
        shared = cases.kubernetes.fleet("trn2.48xlarge", queue=job.queue, claims=True, share=True)
        assert plan(job, cases.kubernetes.make_cluster(shared)).job is job
        return
    for engine in cases.ENGINES:
        if not (job.image and engine == "slurm") and not (
            (job.after or job.array or job.sbatch or job.queue == "cpu" or "batch" in words) and engine != "slurm"
        ):
            on = cases.slurm.make_cluster() if job.queue == "cpu" else cases.cluster(engine, job)
            assert plan(job, on).job is job


BEHIND = table(__file__, "options after --")


@pytest.mark.parametrize("case", BEHIND, ids=lambda case: case["line"])
def test_an_option_of_trn_behind_two_dashes(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that limits the cost stops the submission, and the advice works; others are named; a script's own is the script's."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(case.get("script", "print(1)\n"))
    Path("environment.yaml").write_text(on_aws.example())
    words = shlex.split(case["line"])
    if "refused" in case:
        monkeypatch.setattr(submit, "backend", lambda *_: Jobs())
        monkeypatch.setattr(submit, "planned", lambda *_: None)
        with pytest.raises(JobError, match=f"^{case['refused']} is after --, so your script gets it.*or give --yes"):
            app.app(["submit", *words], standalone_mode=False)
        words = ["--yes", *words]
    job, _ = made(monkeypatch, words)
    assert getattr(job, "args", ()) == tuple(words[words.index("--") + 1 :])
    assert re.findall(r"^(--[a-z-]+) is after", capfd.readouterr().err, re.MULTILINE) == case.get("named", [])


@pytest.mark.parametrize("case", table(__file__, "processes"), ids=lambda case: case["line"])
def test_what_a_dry_run_says_of_processes(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As many as the program's words start: a NeuronCore is no process."""
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "train.sh"):
        Path(name).write_text("print(1)\n")
    Path("environment.yaml").write_text(on_aws.example())
    line = ["submit", *shlex.split(case["line"]), "--dry-run", "--environment", "environment.yaml"]
    assert app.app(line, standalone_mode=False) in (None, 0)
    assert case["says"] in capfd.readouterr().err.splitlines()
    assert app.app([*line, "--json"], standalone_mode=False) in (None, 0)
    assert json.loads(capfd.readouterr().out)["ranks"] == case["ranks"]


def test_the_notebook_page_begins_with_a_cheap_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = next(line for line in printed() if "notebook.sh" in line)
    monkeypatch.chdir(ROOT)
    (tmp_path / "environment.yaml").write_text(on_aws.example())
    words = [*shlex.split(line)[2:], "--dry-run", "--json", "--environment", str(tmp_path / "environment.yaml")]
    assert app.app(["submit", *words], standalone_mode=False) in (None, 0)
    assert json.loads(capfd.readouterr().out)["usd_per_hour"] < 1
