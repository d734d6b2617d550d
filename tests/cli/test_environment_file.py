"""`--environment` and TRN_ENV: every command finds stack and region by the environment file; and the message if a stack does not exist."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from sandbox import LocalAws
from sandbox.paths import HOME as ROOT
from tests import command
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.support import TRN, table
from trainium_cdk import outputs, settings
from trainium_cdk.client.cli import app as cli
from trainium_cdk.description import engines
from trainium_cdk.errors import TrnError

ENVIRONMENT = "region: us-west-2\nname: {name}\neks: {{}}\n"


@pytest.fixture(scope="module")
def deployed(local_aws: LocalAws) -> Iterator[str]:
    """Name of a stack in us-west-2 with the outputs of an EKS environment called after it."""
    name = "file-test"
    stack_outputs = outputs.eks_outputs(settings.load(), bucket="trn-bucket")
    template = {
        "Resources": {"Note": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "x"}}},
        "Outputs": {key: {"Value": value} for key, (value, _) in stack_outputs.items()},
    }
    client, stack = local_aws.client("cloudformation", "us-west-2"), f"TrnEksStack-{name}"
    client.create_stack(StackName=stack, TemplateBody=json.dumps(template))
    client.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 600})
    yield name
    client.delete_stack(StackName=stack)
    client.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 600})


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--environment", "bert.yaml"], {}),
        (["--environment", "bert.yaml", "--stack", "TrnEksStack"], {}),
        (["--stack", "TrnEksStack-file-test"], {"TRN_ENV": "bert.yaml"}),
        ([], {"TRN_ENV": "bert.yaml", "TRN_STACK": "TrnEksStack"}),
        (["--stack", "TrnEksStack-file-test", "--region", "us-west-2"], {}),
    ],
)
def test_the_file_names_stack_and_region(
    arguments: list[str], variables: dict[str, str], deployed: str, local_aws: LocalAws, tmp_path: Path
) -> None:
    (tmp_path / "bert.yaml").write_text(ENVIRONMENT.format(name=deployed))
    done = trn(local_aws, tmp_path, "show", "cluster", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["stack"], found["region"]) == ("TrnEksStack-file-test", "us-west-2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "cannot read other.json"),
        (["--stack", "TrnEksStack-nowhere"], "there is no stack TrnEksStack-nowhere"),
        (["--stack", "TrnEksStack-nowhere", "--cluster", "given.json"], "cannot read given.json"),
    ],
)
def test_a_stack_that_is_given_comes_before_a_cluster_that_is_set(
    arguments: list[str], message: str, local_aws: LocalAws, tmp_path: Path
) -> None:
    assert message in trn(local_aws, tmp_path, "list", *arguments, TRN_CLUSTER="other.json").stderr


@pytest.mark.parametrize(
    ("words", "stack", "told"),
    [
        (["cost"], "", "\ntrn: 0 to "),
        (["cost"], "TrnPclusterStack", "\ncompute1/trn: 0 to "),
        (["cost", "TrnPclusterStack"], "", "compute1/trn: 0 to "),
        (["check"], "", "TrnEksStack-file-test in "),
        (["why"], "", "stack TrnEksStack-file-test is CREATE_COMPLETE"),
        (["destroy", "--dry-run"], "", "TrnEksStack-file-test"),
    ],
)
def test_the_file_names_the_stack_of_an_argument(
    words: list[str], stack: str, told: str, deployed: str, local_aws: LocalAws, tmp_path: Path
) -> None:
    """Of an environment with `eks` alone: the costs of a Slurm cluster that it does not describe were printed."""
    (tmp_path / "bert.yaml").write_text(ENVIRONMENT.format(name=deployed))
    variables = {"TRN_STACK": stack} if stack else {}
    done = trn(local_aws, tmp_path, *words, "--environment", "bert.yaml", **variables)
    assert told in done.stdout + done.stderr


def test_trn_use(deployed: str, local_aws: LocalAws, tmp_path: Path) -> None:
    """The remembered file, named in each answer; --environment and TRN_ENV come before it."""
    config = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    bert, slurm = tmp_path / "bert.yaml", tmp_path / "slurm.yaml"
    bert.write_text(ENVIRONMENT.format(name=deployed))
    slurm.write_text("name: slurm\nregion: eu-west-1\npcluster: {}\n")
    assert "no environment file is in use" in trn(local_aws, tmp_path, "use", **config).stderr
    assert f"export TRN_ENV={bert}\n" in trn(local_aws, tmp_path, "use", "bert.yaml", **config).stderr
    assert f". In use before: {bert}\n" in trn(local_aws, tmp_path, "use", "slurm.yaml", **config).stderr
    assert f". In use before: {slurm}\n" in trn(local_aws, tmp_path, "use", "bert.yaml", **config).stderr
    assert trn(local_aws, tmp_path, "use", **config).stdout == f"{bert}\n"
    done = trn(local_aws, tmp_path, "show", "cluster", **config)
    assert json.loads(done.stdout)["stack"] == f"TrnEksStack-{deployed}"
    assert f"using {bert} (trn use)" in done.stderr
    for arguments, variables in (["--environment", "slurm.yaml"], {}), ([], {"TRN_ENV": "slurm.yaml"}):
        done = trn(local_aws, tmp_path, "show", "cluster", *arguments, **config, **variables)
        assert "there is no stack TrnPclusterStack-slurm in eu-west-1" in done.stderr
        assert "trn use" not in done.stderr
    done = trn(local_aws, tmp_path, "submit", str(TRN), "--environment", "slurm.yaml", **config)
    assert "there is no stack TrnPclusterStack-slurm in eu-west-1" in done.stderr
    (tmp_path / "bad.yaml").write_text("nmae: x\n")
    assert trn(local_aws, tmp_path, "use", "bad.yaml", **config).returncode == 1
    bert.unlink()
    assert "(trn use FILE), or none (trn use --none)" in trn(local_aws, tmp_path, "show", "cluster", **config).stderr
    assert trn(local_aws, tmp_path, "use", "--none", **config).returncode == 0
    assert "trn use" not in trn(local_aws, tmp_path, "submit", "--list", **config).stderr


TEAMS = """region: us-west-2
name: {name}
eks:
  queues: [{{namespace: speech, nodes: {{trn: 1}}}}]
pcluster:
  users: [{{name: alice, uid: 2001}}]
"""


def test_trn_use_as_a_team_and_as_a_user(
    local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each for the stack that has it; an option, a variable, a cluster's file or another environment file comes before it."""
    for name, value in {**local_aws.variables, "XDG_CONFIG_HOME": str(tmp_path / "config")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Path("both.yaml").write_text(TEAMS.format(name="both"))
    Path("other.yaml").write_text(TEAMS.format(name="other"))
    Path("cluster.json").write_text(make_eks().model_dump_json())

    def told(*words: str) -> tuple[str, str]:
        with contextlib.suppress(TrnError):  # there are no such stacks
            cli.app(list(words), standalone_mode=False)
        return capsys.readouterr()

    for words, message in (
        (
            ["both.yaml", "--team", "vision"],
            "both.yaml describes no team 'vision'. Correct it, or add it to the file (eks",
        ),
        (
            ["both.yaml", "--user", "bob"],
            "both.yaml describes no user 'bob'. Correct it, or add it to the file (users of pcluster or pcs)",
        ),
        (["--user", "alice"], "give the environment file too: a team or user is remembered with it"),
        (["--none", "--team", "speech"], "give a file, or --none"),
    ):
        with pytest.raises((TrnError, typer.BadParameter), match=re.escape(message)):
            cli.app(["use", *words], standalone_mode=False)
    said = told("use", "both.yaml", "--team", "speech", "--user", "alice")[1]
    assert f"trn and cdk now use {tmp_path}/both.yaml, team speech, user alice (us-west-2). " in said
    assert told("use") == (f"{tmp_path}/both.yaml\n", f"{tmp_path}/both.yaml, team speech, user alice\n")
    as_alice, as_speech = "using user alice (trn use)", "using team speech (trn use)"
    for words, variables, used in (
        ([], {}, {as_alice}),
        (["--stack", "TrnEksStack"], {}, {as_speech}),
        (["--stack", "TrnEksStack-both"], {}, {as_speech}),
        (["--stack", "TrnPcsStack"], {}, set()),
        (["--stack", "SomeOtherStack"], {}, set()),
        (["--user", "bob"], {}, set()),
        ([], {"TRN_CLUSTER_USER": "bob"}, set()),
        (["--stack", "TrnEksStack"], {"TRN_TEAM": "vision"}, set()),
        (["--environment", "other.yaml"], {}, set()),
        (["--cluster", "cluster.json", "--local"], {}, set()),
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            said = told("list", *words)[1]
        assert (f"using {tmp_path}/both.yaml (trn use)" in said) is ("--environment" not in words)
        assert {line for line in (as_alice, as_speech) if line in said} == used, (words, said)
    assert "user" not in told("use", "both.yaml")[1].partition("now use")[2]
    assert told("use")[1] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--environment", "slurm.yaml"], "there is no stack TrnPclusterStack-slurm in eu-west-1"),
        (["--environment", "nowhere.yaml"], "nowhere.yaml: the file does not exist"),
        ([], "there is no stack TrnEksStack-bert in us-west-2"),
    ],
)
def test_a_submission_follows_the_file_of_its_command_line_and_not_trn_env(
    arguments: list[str], message: str, local_aws: LocalAws, tmp_path: Path
) -> None:
    (tmp_path / "bert.yaml").write_text(ENVIRONMENT.format(name="bert"))
    (tmp_path / "slurm.yaml").write_text("name: slurm\nregion: eu-west-1\npcluster: {}\n")
    done = trn(local_aws, tmp_path, "submit", str(TRN), *arguments, TRN_ENV="bert.yaml")
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "messages"),
    table(__file__, "a missing stack"),
)
def test_a_missing_stack(
    arguments: list[str], messages: list[str], deployed: str, local_aws: LocalAws, tmp_path: Path
) -> None:
    assert deployed
    done = trn(local_aws, tmp_path, "show", "cluster", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    for message in messages:
        assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "messages", "unsuitable"),
    table(__file__, "of another engine"),
)
def test_a_command_for_one_engine_suggests_no_stack_of_another(
    arguments: list[str], messages: list[str], unsuitable: str, deployed: str, local_aws: LocalAws, tmp_path: Path
) -> None:
    assert deployed
    done = trn(local_aws, tmp_path, *arguments, "--region", "us-west-2")
    assert (done.returncode, done.stdout) == (1, "")
    for message in messages:
        assert message in done.stderr
    assert unsuitable not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "messages"),
    [
        (["slurm.yaml"], 0, ["valid, can be deployed"]),
        (["slurm.yaml", "TrnPclusterStack"], 0, ["valid, can be deployed"]),
        (["slurm.yaml", "TrnEksStack"], 1, ["error"]),
        (["slurm.yaml", "TrnEksStack-closed"], 1, ["error"]),
        (["empty.yaml"], 0, ["it has no settings, and describes the default environment, in us-east-1", "valid"]),
        (["slurm.yaml", "TrnEksStak"], 1, ["there is no stack 'TrnEksStak'. Did you mean TrnEksStack or "]),
        (["slurm.yaml", "Trn"], 1, ["there is no stack 'Trn'. Use TrnPclusterStack, "]),
    ],
)
def test_an_offline_check_refuses_what_is_described_and_says_nothing_of_the_rest(
    arguments: list[str], code: int, messages: list[str], tmp_path: Path, local_aws: LocalAws
) -> None:
    """Where nothing reaches the internet, a Slurm cluster can be, and an EKS cluster's plug-ins cannot."""
    (tmp_path / "slurm.yaml").write_text((ROOT / "tests/environments/no-internet.yaml").read_text())
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    done = trn(local_aws, tmp_path, "check", "--offline", "--environment", *arguments)
    assert done.returncode == code, done.stderr
    for message in messages:
        assert message in done.stderr
    if code == 0:
        assert not {engine.stack for engine in engines.ENGINES.values()} & set(re.findall(r"\w+", done.stderr))
        assert "warning" not in done.stderr


def trn(aws: LocalAws, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in aws.env.items() if not name.startswith("TRN_")}
    return command.trn(arguments, {**env, **variables}, folder)
