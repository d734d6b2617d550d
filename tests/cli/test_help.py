"""The `--help` of every command at 80 columns, as it is read on a terminal."""

from __future__ import annotations

import os
import re

import pytest
import typer
from typer.testing import CliRunner

from tests.support import TRN, completed
from tools.reference.commands import every
from trainium_cdk.client.cli.app import app

GROUPS = ("image", "nodes", "show")
COMMANDS = [context.command_path.removeprefix("trn ") for context, _ in every()]


def shown(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="trn")
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("command", GROUPS)
def test_no_command_is_described_by_half_a_sentence(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(command, monkeypatch).partition("Commands:\n")[2].split("\n\n")[0].splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"  [a-z]+ +[A-Z].*[^.]\.", line)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_can_be_read(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments in capitals and once, whole sentences, and no default of zero beside one in words."""
    text = shown(command, monkeypatch)
    usage, about, *_ = text.split("\n\n")
    words = usage.partition("[OPTIONS]")[2].split()
    assert [
        w for w in words if not re.fullmatch(r"[\[{]?[A-Z|:\[\]]+[\]}]{0,2}(\.\.\.)?", w) or w.count("...") > 1
    ] == []
    assert re.fullmatch(r"[A-Z].*\.", " ".join(about.split()))
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"Default:[^\[]*\[[^]]*default: 0\b", text)


def test_there_are_all() -> None:
    root = typer.main.get_command(app)
    assert {name for name in root.commands if name != "token"} <= set(COMMANDS)  # type: ignore[attr-defined]


def test_the_first_help_is_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown("", monkeypatch).splitlines()
    commands = [line.split()[0] for line in lines if line.startswith("  ")]
    assert [line for line in lines if re.fullmatch("[A-Z][a-z ]+", line)] == [
        "Set up",
        "Run",
        "Cluster",
        "Pay and remove",
    ]
    assert sorted(commands) == sorted({name.split()[0] for name in COMMANDS})
    assert (len(commands) <= 24, len(lines) <= 30, max(map(len, lines)) <= 80) == (True, True, True)


def test_options_of_a_kind_are_under_that_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    common = shown("submit", monkeypatch)
    assert len(common.splitlines()) <= 70
    assert ("--tensor-parallel" in common, "--array" in common) == (False, True)
    assert "--tensor-parallel" in shown("submit torchtitan", monkeypatch)
    assert "--workdir" not in shown("submit torchtitan", monkeypatch)
    assert "0-99%8" in shown("submit script", monkeypatch)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("trn su", ["submit"]),
        ("trn nodes st", ["status", "stop", "start"]),
        ("trn submit finetune --mod", ["--model"]),
        ("trn submit train.py --mod", []),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, found: list[str]) -> None:
    env = {"_TRN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = completed([TRN], env={**os.environ, **env})
    assert (done.stdout.split(), done.stderr) == (found, "")
