"""Words of other programs on the command line: understood, or answered."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.jobs.conftest import fleet, make_cluster
from tests.support import table
from tools.reference.commands import every
from trainium_cdk.client.cli.app import COMMANDS, app
from trainium_cdk.description import engines
from trainium_cdk.description.catalog.lookup import read

RUN = CliRunner()


@pytest.mark.parametrize(("line", "code", "message"), table(__file__, "words of others"))
def test_a_word_of_another_program_is_answered(line: str, code: int, message: str) -> None:
    test_a_kind_is_judged_before_its_options(line, code, message)


@pytest.mark.parametrize("words", [[], ["submit"], ["submit", "finetune"], ["nodes", "stop"]])
def test_help_is_a_command_too(words: list[str]) -> None:
    done = RUN.invoke(app, ["help", *words], prog_name="trn")
    assert (done.exit_code, done.stdout) == (0, RUN.invoke(app, [*words, "--help"], prog_name="trn").stdout)


@pytest.mark.parametrize(
    ("engine", "section"), [("kubernetes", "eks"), ("K8s", "eks"), ("parallelcluster", "pcluster")]
)
def test_an_engine_has_other_names(engine: str, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    done = RUN.invoke(app, ["init", "--engine", engine], prog_name="trn")
    assert (done.exit_code, f"\n{section}:\n" in Path("environment.yaml").read_text()) == (0, True)


def test_each_answer_is_one_of_ours() -> None:
    """Commands and options that the table names exist."""
    words = read("words")
    for ours in words["commands"]:
        program, name, *_ = ours.split()
        assert program == "cdk" or name in (*COMMANDS, "--version"), ours
    root = typer.main.get_command(app)
    contexts = [c for c, _ in every()]
    known = {o for c in contexts for p in c.command.params for o in p.opts}
    for kind in ("finetune", "torchtitan", "bert-large"):
        _, command, _ = root.resolve_command(root.make_context("trn", ["submit", kind]), ["submit", kind])  # type: ignore[attr-defined]
        known |= {o for p in command.params for o in p.opts}
    assert {ours.split()[0] for ours in words["options"]} <= known
    assert set(words["engines"]) == set(engines.ENGINES)


@pytest.mark.parametrize(("line", "code", "message"), table(__file__, "checkpoints in S3"))
def test_a_checkpoint_in_s3_is_copied_first(line: str, code: int, message: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(make_cluster(fleet("trn2.48xlarge")).model_dump_json())
    test_a_kind_is_judged_before_its_options(f"{line} --dry-run --cluster {file}", code, message)


@pytest.mark.parametrize(("line", "code", "message"), table(__file__, "kinds before options"))
def test_a_kind_is_judged_before_its_options(line: str, code: int, message: str) -> None:
    done = RUN.invoke(app, line.split(), prog_name="trn")
    said = done.stderr + str(done.exception)
    assert (done.exit_code, message in said) == (code, True), said
