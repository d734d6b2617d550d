"""`trn submit --list`, and presets of an environment file in `trn submit`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.jobs.conftest import fleet, make_cluster
from tests.support import completed
from trainium_cdk.client.cli.app import app

RUN = CliRunner()
NATIVE = {"neuron_release": "2.33.0", "neuron_driver": "2.31.7.0", "framework": "torch-native"}


@pytest.fixture
def trn2(tmp_path: Path) -> str:
    file = tmp_path / "cluster.json"
    file.write_text(make_cluster(fleet("trn2.48xlarge"), **NATIVE).model_dump_json())
    return str(file)


def test_each_kind_says_what_it_needs_and_whether_the_cluster_has_it(trn2: str) -> None:
    done = RUN.invoke(app, ["submit", "--list", "--here", "--cluster", trn2, "--json"])
    assert done.exit_code == 0, done.output
    found = {one["kind"]: one for one in json.loads(done.stdout)}
    assert {kind for kind, one in found.items() if one["here"] == "yes"} == {
        "finetune",
        "nccom",
        "script",
        "torchtitan",
    }
    assert found["gpt-6.7b"]["here"].startswith("gpt-6.7b runs on trn1, trn1n, but queue compute1 has trn2.48xlarge")
    assert found["bert-large"]["here"].startswith("bert-large needs framework torch-xla, but the nodes of")
    assert "trl==1.16.0" in found["finetune"]["packages"]
    assert found["script"]["packages"] == ""


def test_kinds_of_what_aws_no_longer_supports_are_named() -> None:
    done = RUN.invoke(app, ["submit", "--list"])
    assert "bert-large, gpt-6.7b: AWS ended PyTorch/XLA for training with Neuron SDK 2.30.0" in done.stderr
    assert "release to stay on. For new work use a kind that is recommended for trn2" in done.stderr
    assert "For new work" not in RUN.invoke(app, ["submit", "torchtitan", "--help"]).stderr


def listed() -> Any:
    return json.loads(RUN.invoke(app, ["submit", "--list", "--json"]).stdout)


def test_what_is_recommended_comes_first() -> None:
    done = RUN.invoke(app, ["submit", "--list"])
    named = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert named == ["finetune", "torchtitan", "script", "nccom", "bert-large", "gpt-6.7b"]
    assert "recommended for trn2, trn2u, trn3, trn2.3xlarge: trn submit finetune --model Qwen/Qwen3-8B\n" in done.stdout
    assert "recommended for trn1, trn1n: trn submit gpt-6.7b\n" in done.stdout
    assert done.stdout.count("recommended for") == sum(bool(one["example"]) for one in listed())
    found = {one["kind"]: one for one in listed()}
    assert found["torchtitan"]["recommended_for"] == ["trn2", "trn2u", "trn3"]


def test_a_preset_of_the_environment_file(trn2: str, tmp_path: Path) -> None:
    """It is new, or changes one; options win over both."""
    environment = tmp_path / "environment.yaml"
    environment.write_text(
        "catalog: {torchtitan: {mine: {module: my.models, config: small, model: me/small}, llama3.1-8b: {model: me/llama}}}\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        base = [
            "submit",
            "torchtitan",
            "--ref",
            "a" * 40,
            "--cluster",
            trn2,
            "--dry-run",
            "--environment",
            str(environment),
        ]
        command = [sys.executable, "-m", "trainium_cdk.client.cli", *base, *words]
        return completed(command)

    def words_of(*words: str) -> tuple[list[str], str]:
        """The job's words about its configuration, and the model that it fetches."""
        job = json.loads(run(*words).stdout)["job"]
        given = next(one for one in job["stages"] if one["name"] == "train")["program"]["words"]
        at = given.index("--module")
        return given[at : at + 4], next(one["with_"]["model"] for one in job["prepare"] if one["do"] == "model")

    assert words_of("--preset", "mine", "--config", "large") == (
        ["--module", "my.models", "--config", "large"],
        "me/small",
    )
    assert words_of("--preset", "llama3.1-8b") == (["--module", "llama3", "--config", "llama3_8b"], "me/llama")
    unknown = run("--preset", "his")
    assert unknown.returncode == 1
    assert "there is no preset 'his'. Give --preset, one of qwen3-8b" in unknown.stderr
