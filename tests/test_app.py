"""`app.py` as the CDK's command line starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

import app
from tests.support import ROOT, completed, need
from trainium_cdk import engines, settings

CDK = ROOT / "node_modules/.bin/cdk"


def plain_environment() -> dict[str, str]:
    """No credentials, no account, and no virtual environment on the PATH."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_", "TRN_", "VIRTUAL_ENV", "JSII_"))}
    clean["PATH"] = ":".join(p for p in clean["PATH"].split(":") if ".venv" not in p)
    return clean


def run_cdk(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    need(CDK.exists(), f"the CDK command line is not installed ({CDK}): make setup")
    node = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} if arguments[0] == "synth" else {}
    return completed(
        [CDK, *arguments, "--no-notices"],
        cwd=ROOT,
        env={**plain_environment(), **node, "CI": "true", "NO_COLOR": "1", "AWS_EC2_METADATA_DISABLED": "true"},
        stdin=subprocess.DEVNULL,
    )


BAD: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "the file does not exist. Check the path"),
    "not YAML": (b"name: [\n", "not YAML"),
    "not text": (b"\xff\xfe\x00", "not UTF-8 text"),
    "a list": (b"- a\n", "its top level is not a mapping"),
    "a wrong key": (b"regin: us-east-1\n", "error: regin = us-east-1: this key does not exist. Fix: write region."),
    "a wrong type": (b"region: us-east-1\npcluster:\n  queues: 3\n", ":3: error: pcluster.queues = 3"),
    "a wrong pair": (
        b"pcluster: {queues: [{compute_resources: [{instance_type: trn1.2xlarge, efa: 'on'}]}]}\n",
        "error: pcluster.queues[0].compute_resources[0].efa",
    ),
    "a zone without the type": (b"network: {zone_ids: [use1-az1]}\n", "use1-az1"),
    "an unknown release": (b"bootstrap: {neuron_release: 9.9.9}\n", "9.9.9"),
    "an unknown type": (
        b"pcluster: {queues: [{compute_resources: [{instance_type: trn9.big}]}]}\n", "trn9.big"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_environment_is_reported_in_one_paragraph(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BAD[case]
    file = tmp_path / "environment.yaml"
    if content is not None:
        file.write_bytes(content)
    assert app.run(cdk.App(context={"env": str(file)}, outdir=str(tmp_path / "cdk.out"))) == 1
    printed, stderr = capsys.readouterr()
    assert printed == ""
    assert message in stderr
    assert stderr.startswith(str(file))
    assert "\n\n" not in stderr.strip()
    assert [f for f in tmp_path.rglob("*") if f.is_file() and f != file] == []


@pytest.mark.parametrize("key", ["Env", "ENV", "environment", "Engine", "engines"])
def test_a_mistyped_context_key_is_an_error(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ignored, it would deploy the default environment over the one that was meant."""
    assert app.run(cdk.App(context={key: "mine.yaml"}, outdir=str(tmp_path / "cdk.out"))) == 1
    meant = "env" if key.lower().startswith("env") else "engine"
    assert capsys.readouterr().err == f"-c {key}=mine.yaml: the app does not know this key. Give -c {meant}=\n"


def test_the_environment_is_the_one_that_trn_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRN_ENV, unless `-c env` names another. Without it, `cdk deploy` would put the default environment in place of the user's."""
    regions = {"one.yaml": "us-west-2", "two.yaml": "us-east-2"}
    for name, region in regions.items():
        (tmp_path / name).write_text(f"region: {region}\n")

    def region_of(context: dict[str, str]) -> str:
        made = cdk.App(context={**context, "engine": "slurm"}, outdir=str(tmp_path / "cdk.out"))
        app.build(made)
        [stack] = (s for s in made.node.children if isinstance(s, cdk.Stack))
        return stack.region

    monkeypatch.setenv("TRN_ENV", str(tmp_path / "one.yaml"))
    assert region_of({}) == "us-west-2"
    assert region_of({"env": str(tmp_path / "two.yaml")}) == "us-east-2"
    monkeypatch.setenv("TRN_ENV", "")
    assert region_of({}) == "us-east-1"


@pytest.mark.parametrize(("text", "account"), [("", "111122223333"), ("account: '444455556666'", "444455556666")])
def test_the_account_is_the_files_or_that_of_the_credentials(
    text: str, account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environment.yaml").write_text(f"{text}\npcluster: {{}}\n")
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "111122223333")
    context = {"env": str(tmp_path / "environment.yaml"), "engine": "slurm"}
    made = cdk.App(context=context, outdir=str(tmp_path / "cdk.out"))
    app.build(made)
    assert [s.account for s in made.node.children if isinstance(s, cdk.Stack)] == [account]


def test_the_command_line_needs_no_credentials_and_no_active_environment(tmp_path: Path) -> None:
    done = run_cdk("ls", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["TrnPclusterStack", "TrnEksStack", "TrnPcsStack"]


def test_errors_of_one_engine_do_not_stop_the_other_and_warnings_are_shown(tmp_path: Path) -> None:
    """An engine with errors gives an empty stack with the reason: only commands that select it fail."""
    file = tmp_path / "halves.yaml"
    file.write_text("pcluster:\n  overrides: {SharedStorage: []}\neks:\n  namespace: kube-system\n")
    good = run_cdk("synth", "TrnPclusterStack", "--quiet", "--output", tmp_path / "good", "-c", f"env={file}")
    assert good.returncode == 0, good.stderr
    assert f"WARNING {file}:2: warning: pcluster.overrides.SharedStorage" in good.stderr
    bad = run_cdk("synth", "TrnEksStack", "--quiet", "--output", tmp_path / "bad", "-c", f"env={file}")
    assert bad.returncode == 1
    assert f"{file}:4: error: eks.namespace = kube-system" in bad.stderr


@pytest.mark.parametrize(
    ("text", "stacks"),
    [
        ("name: trn", {"TrnPclusterStack", "TrnEksStack", "TrnPcsStack"}),
        ("pcluster: {}", {"TrnPclusterStack", "TrnEksStack", "TrnPcsStack"}),
        # one zone is enough for Slurm, and EKS was not selected
        ("pcluster: {}\nnetwork: {zone_ids: [use1-az6]}", {"TrnPclusterStack", "TrnPcsStack"}),
        # a region that ParallelCluster's default nodes are not offered in
        ("region: ap-south-2\neks: {node_groups: [{instance_type: trn2.48xlarge}]}", {"TrnEksStack"}),
    ],
)
def test_the_stacks_are_those_that_the_environment_describes_or_that_fit_it(
    text: str, stacks: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "environment.yaml"
    file.write_text(text)
    # the pattern for all, with which the CDK's command line begins, selects none of them
    context = {"env": str(file), "aws:cdk:bundling-stacks": ["**"]}
    made = cdk.App(context=context, outdir=str(tmp_path / "cdk.out"), builtin_cloud_formation_validation=False)
    app.build(made)
    assert {s.node.id for s in made.node.children if isinstance(s, cdk.Stack)} == stacks


@pytest.mark.parametrize(
    ("context", "stacks"),
    [
        ({"engine": "eks"}, ["TrnEksStack"]),
        ({"engine": "eks, slurm"}, ["TrnEksStack", "TrnPclusterStack"]),
        ({"aws:cdk:bundling-stacks": ["TrnPclusterStack"]}, ["TrnPclusterStack"]),
        ({"aws:cdk:bundling-stacks": ["TrnP*"]}, ["TrnPclusterStack", "TrnPcsStack"]),
        ({"aws:cdk:bundling-stacks": ["**"]}, ["TrnPclusterStack", "TrnEksStack", "TrnPcsStack"]),
        ({"aws:cdk:bundling-stacks": []}, ["TrnPclusterStack", "TrnEksStack", "TrnPcsStack"]),
        ({"aws:cdk:bundling-stacks": ["Another"]}, ["TrnPclusterStack", "TrnEksStack", "TrnPcsStack"]),
    ],
)
def test_only_the_selected_stacks_are_built(
    context: dict[str, Any], stacks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(environment: settings.Environment, **into: Any) -> cdk.Stack:
        """What is in a stack has no part in this."""
        return cdk.Stack(**into)

    for engine in engines.every().values():
        monkeypatch.setattr(engine.stack_class.replace(":", "."), plain)
    made = cdk.App(context=context, outdir=str(tmp_path / "cdk.out"))
    app.build(made)
    assert [s.node.id for s in made.node.children if isinstance(s, cdk.Stack)] == stacks


@pytest.mark.sweep
def test_the_command_line_passes_the_selection(tmp_path: Path) -> None:
    done = run_cdk("synth", "--exclusively", "TrnPclusterStack", "--quiet", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [f.name for f in tmp_path.glob("*.template.json")] == ["TrnPclusterStack.template.json"]


def test_nothing_of_another_engine_is_imported(tmp_path: Path) -> None:
    context = json.dumps({"engine": "slurm"})
    code = "import app, aws_cdk, sys; app.run(aws_cdk.App()); print(*(m for m in sys.modules if 'eks' in m))"
    done = completed(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **plain_environment(),
            "CDK_OUTDIR": str(tmp_path),
            "CDK_CONTEXT_JSON": context,
            "CDK_VALIDATION": "false",
        },
        check=True,
    )
    assert [name for name in done.stdout.split() if name.startswith(("aws_cdk", "trainium_cdk.eks", "stacks"))] == []


def test_an_unknown_engine_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(cdk.App(context={"engine": "nomad"}, outdir=str(tmp_path / "cdk.out"))) == 1
    assert capsys.readouterr().err == "unknown engine 'nomad'. Choose one of slurm, eks, pcs\n"


def test_a_selected_engine_must_be_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one-zone.yaml"
    file.write_text("pcluster: {}\nnetwork: {zone_ids: [use1-az6]}\n")
    assert app.run(cdk.App(context={"env": str(file), "engine": "eks"}, outdir=str(tmp_path / "cdk.out"))) == 1
    assert f"{file}:2: error: network.zone_ids" in capsys.readouterr().err


def test_the_command_line_ends_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("on_destroy: maybe\n")
    done = run_cdk("synth", "--output", tmp_path / "out", "-c", f"env={file}")
    assert done.returncode == 1
    assert (
        f"{file}:1: error: on_destroy = maybe: not one of the allowed values. Fix: write 'delete' or 'keep'."
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == [file]


def test_modules_imported_by_another_thread_send_no_request() -> None:
    """The CDK's connection to Node belongs to the main thread alone."""
    program = (
        "import sys, aws_cdk; from importlib import import_module; from jsii._runtime import kernel\n"
        "requests = []; kernel.provider._process.send = lambda *request: requests.append(request)\n"
        "for service in sys.argv[1:]: import_module(f'aws_cdk.aws_{service}')\n"
        "print(len(requests))"
    )
    done = completed([sys.executable, "-c", program, *app._SERVICES], check=True)
    assert done.stdout == "0\n"
