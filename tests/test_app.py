"""`app.py` as the CDK's command line starts it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

import app
from tests.support import ROOT, completed, need
from trainium_cdk import settings
from trainium_cdk.client.cli import app as cli
from trainium_cdk.description import engines
from trainium_cdk.errors import TrnError

CDK = ROOT / "node_modules/.bin/cdk"
TUTORIAL = {"env": str(ROOT / "examples/tutorial.yaml")}


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
    first, _, reason = stderr.partition("\n")
    assert first.startswith(f"environment: {file} (-c env)")
    assert message in reason
    assert reason.startswith(str(file))
    assert "\n\n" not in reason.strip()
    assert [f for f in tmp_path.rglob("*") if f.is_file() and f != file] == []


@pytest.mark.parametrize("key", ["Env", "ENV", "environment", "Engine", "engines"])
def test_a_mistyped_context_key_is_an_error(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ignored, it would deploy another environment than the one that was meant."""
    assert app.run(cdk.App(context={key: "mine.yaml"}, outdir=str(tmp_path / "cdk.out"))) == 1
    meant = "env" if key.lower().startswith("env") else "engine"
    assert capsys.readouterr().err == f"-c {key}=mine.yaml: the app does not know this key. Give -c {meant}=\n"


IN, OUT = "here/in.yaml", "elsewhere/out.yaml"


@pytest.mark.parametrize(
    ("given", "variable", "used", "said"),
    [
        (IN, "", "", "{in} (-c env), name inside, region us-west-2, "),
        (OUT, "", "", "{out} (-c env), name outside, region us-east-2, "),
        ("", IN, "", "{in} (TRN_ENV), name inside, region us-west-2, "),
        ("", "", IN, "{in} (trn use), name inside, region us-west-2, "),
        (OUT, IN, "", "{out} (-c env), name outside, region us-east-2, ; not used: {in} (TRN_ENV)"),
        (OUT, "", IN, "{out} (-c env), name outside, region us-east-2, ; not used: {in} (trn use)"),
        ("", OUT, IN, "{out} (TRN_ENV), name outside, region us-east-2, ; not used: {in} (trn use)"),
        ("", IN, OUT, "{in} (TRN_ENV), name inside, region us-west-2, ; not used: {out} (trn use)"),
        (IN, OUT, OUT, "{in} (-c env), name inside, region us-west-2, ; not used: {out} (TRN_ENV); not used: {out} (trn use)"),
        (IN, IN, IN, "{in} (-c env), name inside, region us-west-2, "),
        (OUT, IN, "gone.yaml", "{out} (-c env), name outside, region us-east-2, ; not used: {in} (TRN_ENV); not used: {gone} (trn use)"),
    ],
)  # fmt: skip
def test_the_environment_is_the_one_that_trn_uses(
    given: str,
    variable: str,
    used: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`-c env`, TRN_ENV, then `trn use`; one line names the file, its source, and every other file that a source names."""
    files = _two_files(tmp_path, monkeypatch)
    context = {"env": str(tmp_path / given)} if given else {}
    monkeypatch.setenv("TRN_ENV", str(tmp_path / variable) if variable else "")
    if used:
        _use(tmp_path / used)
    made = cdk.App(context={**context, "engine": "slurm"}, outdir=str(tmp_path / "cdk.out"))
    app.build(made)
    [stack] = (s for s in made.node.children if isinstance(s, cdk.Stack))
    expected, _, others = said.format_map(files).partition(", ;")
    others = f";{others}" if others else ""
    shown = stack.node.id if stack.node.id == stack.stack_name else f"{stack.node.id} ({stack.stack_name})"
    assert capsys.readouterr().err == f"environment: {expected.rstrip(', ')}, stacks: {shown}{others}\n"
    assert f", region {stack.region}" in expected


def test_a_file_in_use_that_is_not_the_apps_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Following each piece of advice works, also the one for no file at all."""
    files = _two_files(tmp_path, monkeypatch)
    _use(Path(files["out"]))

    def run(**context: str) -> tuple[int, str]:
        made = cdk.App(context={"engine": "slurm", **context}, outdir=str(tmp_path / "cdk.out"))
        return app.run(made), capsys.readouterr().err

    code, said = run()
    assert (code, said.count("\n")) == (1, 1)
    assert f"`trn use` names {files['out']}, which is not in the folder of this app, {tmp_path / 'here'}." in said
    assert f"-c env={files['out']}" in said
    assert run(env=files["out"])[0] == 0
    cli.app(["use", "--none"], standalone_mode=False)
    capsys.readouterr()
    code, said = run()
    [named] = re.findall(r"cdk deploy -c env=(\S+), ", said)
    assert (code, named) == (1, "in.yaml")
    assert run(env=named)[0] == 0


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "Write one: trn init\n"),
        ({"job.yaml": "job: finetune\n", "list.yml": "- a\n", "empty.yaml": "", "notes.yaml": "nmae: x\n"}, "Write one: trn init\n"),
        ({"a file.yml": "region: us-east-2\n"}, "Use the one here: trn use 'a file.yml'. For one command: cdk deploy -c env='a file.yml', or "),
        ({"a.yaml": "name: a\n", "environment.yaml": "nmae: x\n"}, "Use the one here: trn use environment.yaml. For one"),
    ],
)  # fmt: skip
def test_without_a_file_it_refuses(
    files: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And so does `trn`. A second default beside that of `trn init` deployed other nodes, in another region."""
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        Path(name).write_text(text)
    assert app.run(cdk.App(outdir=str(tmp_path / "cdk.out"))) == 1
    refused = capsys.readouterr().err
    assert refused.startswith(f"no environment file is named. {said}")
    for words in ["check"], ["check", "--offline"], ["cost"], ["cost", "TrnEksStack"], ["capacity", "--nodes", "2"]:
        with pytest.raises(TrnError) as e:
            cli.app(words, standalone_mode=False)
        assert str(e.value).startswith(refused.strip())
    assert "Or give --type and --regions" in str(e.value)


def test_a_file_in_use_that_is_gone_or_wrong_is_named_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = _two_files(tmp_path, monkeypatch)
    _use(Path(files["in"]))
    Path(files["in"]).unlink()
    assert app.run(cdk.App(outdir=str(tmp_path / "cdk.out"))) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"environment: {files['in']} (trn use)"
    assert "the file does not exist" in second
    assert "use another one (trn use FILE), or none (trn use --none)" in second


def _two_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """One in the app's folder, which is the current one, and one elsewhere; the paths of both, and of none."""
    for name, text in (IN, "name: inside\nregion: us-west-2\n"), (OUT, "name: outside\nregion: us-east-2\n"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    monkeypatch.chdir(folder / "here")
    return {"in": str(folder / IN), "out": str(folder / OUT), "gone": str(folder / "gone.yaml")}


def _use(file: Path) -> None:
    engines.place().parent.mkdir(parents=True, exist_ok=True)
    engines.place().write_text(engines.InUse(file).text)


def test_the_command_line_names_the_environment_and_stops_without_a_traceback(tmp_path: Path) -> None:
    """What `trn use` remembers counts for each command of `cdk`."""
    _use(tmp_path / "elsewhere.yaml")
    done = run_cdk("diff", "--output", tmp_path / "out")
    assert done.returncode == 1
    assert f"`trn use` names {tmp_path}/elsewhere.yaml" in done.stderr
    assert str(ROOT) in done.stderr
    assert "Traceback" not in done.stderr


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
    done = run_cdk("ls", "--output", tmp_path, "-c", "env=examples/tutorial.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["TrnPclusterStack", "TrnEksStack", "TrnPcsStack"]
    assert [line for line in done.stderr.splitlines() if line.startswith("environment: ")] == [
        "environment: examples/tutorial.yaml (-c env), name trn, region us-east-1, "
        "stacks: TrnPclusterStack, TrnEksStack, TrnPcsStack"
    ]


@pytest.mark.sweep
def test_errors_of_one_engine_do_not_stop_the_other_and_warnings_are_shown(tmp_path: Path) -> None:
    """An engine with errors gives an empty stack with the reason: only commands that select it fail."""
    file = tmp_path / "halves.yaml"
    file.write_text(
        "pcluster:\n  overrides: {Scheduling: {SlurmQueues: [{Name: cpu, CapacityType: SPOT}]}}\neks:\n  namespace: kube-system\n"
    )
    good = run_cdk("synth", "TrnPclusterStack", "--quiet", "--output", tmp_path / "good", "-c", f"env={file}")
    assert good.returncode == 0, good.stderr
    assert f"WARNING {file}:2: warning: pcluster.overrides.Scheduling.SlurmQueues[0].CapacityType" in good.stderr
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

    monkeypatch.setattr("trainium_cdk.app._STACKS", dict.fromkeys(engines.ENGINES, lambda: plain))
    made = cdk.App(context={**TUTORIAL, **context}, outdir=str(tmp_path / "cdk.out"))
    app.build(made)
    assert [s.node.id for s in made.node.children if isinstance(s, cdk.Stack)] == stacks


@pytest.mark.sweep
def test_the_command_line_passes_the_selection(tmp_path: Path) -> None:
    done = run_cdk(
        "synth",
        "--exclusively",
        "TrnPclusterStack",
        "--quiet",
        "--output",
        tmp_path,
        "-c",
        "env=examples/tutorial.yaml",
    )
    assert done.returncode == 0, done.stderr
    assert [f.name for f in tmp_path.glob("*.template.json")] == ["TrnPclusterStack.template.json"]


def test_nothing_of_another_engine_is_imported(tmp_path: Path) -> None:
    context = json.dumps({**TUTORIAL, "engine": "slurm"})
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
    # TrnObservability and TrnOutputs take clusters of any engine, whose types are checked
    types = {f"aws_cdk.{each}{part}" for each in ("aws_eks_v2", "interfaces.aws_eks") for part in ("", "._private")}
    types |= {
        "trainium_cdk.cdk.eks",
        "trainium_cdk.cdk.eks.view",
        "trainium_cdk.cdk.eks.groups",
        "trainium_cdk.cdk.eks.user_data",
    }
    found = {name for name in done.stdout.split() if name.startswith(("aws_cdk", "trainium_cdk.cdk.eks", "stacks"))}
    assert found - types == set()


@pytest.mark.parametrize(("variables", "reported"), [({}, True), ({"CDK_VALIDATION": "false"}, False)])
def test_templates_are_validated_by_default(variables: dict[str, str], reported: bool, tmp_path: Path) -> None:
    code = """
import aws_cdk as cdk
from trainium_cdk import app
app.build = lambda made: cdk.CfnResource(cdk.Stack(made, "One"), "It", type="AWS::S3::Bucket", properties={"Nope": 1})
app.run()
"""
    env = {**plain_environment(), "PYTHONPATH": f"{ROOT}/constructs", "CDK_OUTDIR": str(tmp_path), **variables}
    completed([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    report = tmp_path / "validation-report.json"  # without a validator there is none
    assert (report.exists() and "Nope" in report.read_text("utf-8")) is reported


def test_an_unknown_engine_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(cdk.App(context={"engine": "nomad"}, outdir=str(tmp_path / "cdk.out"))) == 1
    assert capsys.readouterr().err == "unknown engine 'nomad'. Choose one of slurm, eks, pcs\n"


def test_a_selected_engine_must_be_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one-zone.yaml"
    file.write_text("pcluster: {}\nnetwork: {zone_ids: [use1-az6]}\n")
    assert app.run(cdk.App(context={"env": str(file), "engine": "eks"}, outdir=str(tmp_path / "cdk.out"))) == 1
    assert f"{file}:2: error: network.zone_ids" in capsys.readouterr().err


@pytest.mark.sweep
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
