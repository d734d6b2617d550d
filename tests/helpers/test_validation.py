"""The offline rules in the CDK's validation report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

import app


def synthesise(folder: Path, text: str, **context: str) -> dict[str, Any]:
    """Synthesises the stacks of an environment; the plugin's part of the report, which exists if it has findings."""
    file, out = folder / "environment.yaml", folder / "cdk.out"
    file.write_text(text)
    made = cdk.App(context={"env": str(file), **context}, outdir=str(out), builtin_cloud_formation_validation=False)
    assert app.run(made) == 0
    parts = json.loads((out / "validation-report.json").read_text())["pluginReports"]
    if not parts:
        return {"violations": []}
    assert [(p["pluginName"], p["conclusion"]) for p in parts] == [("trn", "success")]
    return dict(parts[0])


def test_no_findings_are_reported_as_such(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert synthesise(tmp_path, "")["violations"] == []
    assert "warning" not in capfd.readouterr().err.lower()


def test_a_finding_has_a_location_reason_and_fix(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "on_destroy: keep\npcluster:\n  queues:\n    - compute_resources:\n        - min_nodes: 1\n"
    found = {v["ruleName"]: v for v in synthesise(tmp_path, text)["violations"]}
    assert found.keys() == {"static-nodes", "data-kept"}
    paid, kept = found["static-nodes"], found["data-kept"]
    assert paid["description"].startswith(
        f"{tmp_path}/environment.yaml:5: warning: pcluster.queues[0].compute_resources[0].min_nodes = 1: 1 x trn1.32xlarge"
    )
    assert paid["suggestedFix"] == "write min_nodes: 0 to pay for nodes only while jobs run"
    assert (paid["severity"], kept["severity"]) == ("warning", "info")
    assert [c["constructPath"] for c in paid["violatingConstructs"]] == ["TrnPclusterStack"]
    assert [c["constructPath"] for c in kept["violatingConstructs"]] == ["TrnPclusterStack"]
    stderr, end = "", time.monotonic() + 600
    while "Acknowledge with 'trn::static-nodes'" not in stderr:  # printed by the CDK's own process, asynchronously
        assert time.monotonic() < end, stderr
        time.sleep(0.05)
        stderr += capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "engine", "described"),
    [
        ("on_destroy: keep\npcluster: {cpu_queue: null}\n", "", {"TrnPclusterStack"}),
        ("on_destroy: keep\npcluster: {cpu_queue: null}\n", "pcs", {"TrnPcsStack"}),
        ("on_destroy: keep\neks: {}\n", "", {"TrnEksStack"}),
        ("on_destroy: keep\npcs: {}\n", "", {"TrnPcsStack"}),
        ("on_destroy: keep\neks: {}\npcs: {}\n", "", {"TrnEksStack", "TrnPcsStack"}),
        ("on_destroy: keep\n", "", {"TrnPclusterStack", "TrnEksStack", "TrnPcsStack"}),
    ],
)
def test_a_file_is_judged_for_the_stacks_that_it_describes_or_that_are_selected(
    text: str, engine: str, described: set[str], tmp_path: Path
) -> None:
    found = synthesise(tmp_path, text, **({"engine": engine} if engine else {}))["violations"]
    assert {c["constructPath"] for v in found for c in v["violatingConstructs"]} == described


def test_errors_of_one_engine_are_reported_and_the_other_synthesises(tmp_path: Path) -> None:
    text = "pcluster: {queues: [{compute_resources: [{instance_type: trn9.big}]}]}\neks: {}\n"
    wrong = [v for v in synthesise(tmp_path, text)["violations"] if v["severity"] == "error"]
    assert [v["ruleName"] for v in wrong] == ["unknown-instance-type"]
    assert [c["constructPath"] for c in wrong[0]["violatingConstructs"]] == ["TrnPclusterStack"]
    assert (tmp_path / "cdk.out" / "TrnEksStack.template.json").stat().st_size > 10_000


def test_a_release_and_a_system_that_cannot_work_are_refused_with_the_nearest_that_work(tmp_path: Path) -> None:
    text = "bootstrap: {neuron_release: 2.30.0}\npcluster: {os: ubuntu2204}\neks: {}\n"
    [wrong] = [v for v in synthesise(tmp_path, text)["violations"] if v["severity"] == "error"]
    assert wrong["ruleName"] == "incompatible-versions"
    assert (
        f"{tmp_path}/environment.yaml:2: error: pcluster.os = ubuntu2204: torch-neuronx 2.9.0.2.14.27725 of Neuron 2.30.0 has wheels "
        "for Python 3.11, 3.12 and 3.13; ubuntu2204 has 3.10" in wrong["description"]
    )
    assert wrong["suggestedFix"] == "write bootstrap.neuron_release: 2.28.1"
    assert [c["constructPath"] for c in wrong["violatingConstructs"]] == ["TrnPclusterStack"]


def test_a_release_and_a_framework_that_cannot_work_end_the_synth(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is wrong for both engines: nothing is synthesised."""
    file, out = tmp_path / "environment.yaml", tmp_path / "cdk.out"
    file.write_text("bootstrap: {neuron_release: 2.33.0, framework: torch-xla}\n")
    assert app.run(cdk.App(context={"env": str(file)}, outdir=str(out))) == 1
    stderr = capfd.readouterr().err
    assert f"{file}:1: error: bootstrap.framework = torch-xla: Neuron 2.33.0 has no torch-xla for training" in stderr
    assert "Fix: write bootstrap.neuron_release: 2.28.1" in stderr
    assert not list(out.glob("*.template.json"))
