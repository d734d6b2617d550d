"""The options in commands that are printed: those that the next command does not have already, and no others."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from trainium_cdk.client.cli.app import app as commands
from trainium_cdk.client.cli.options import Target, at, on_cluster

EKS, BOTH = "region: us-west-2\nname: mine\neks: {queues: [{namespace: speech}]}\n", "pcluster: {}\neks: {}\n"
FILES = {"eks.yaml": EKS, "both.yaml": BOTH}


def selected(words: str, **variables: str) -> Target:
    """What the options of a command select."""
    found, app = list[Target](), typer.Typer()

    @app.command()
    @on_cluster()
    def _(on: Target) -> None:
        found.append(on)

    done = CliRunner().invoke(app, shlex.split(words), env=variables, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return found[0]


@pytest.mark.parametrize(
    ("used", "variables", "words", "expected"),
    [
        ("", {}, "", ""),
        ("", {}, "--region us-west-2", " --region us-west-2"),
        ("", {}, "--stack Other", " --stack Other"),
        ("", {}, "--stack TrnPclusterStack", ""),
        ("", {}, "--environment eks.yaml", " --stack TrnEksStack-mine --region us-west-2"),
        ("", {"TRN_STACK": "Other"}, "--region us-west-2", " --stack Other --region us-west-2"),
        ("", {"TRN_STACK": "Other"}, "--stack TrnPclusterStack", " --stack TrnPclusterStack"),
        ("", {"TRN_ENV": "eks.yaml"}, "", ""),
        ("", {"TRN_ENV": "eks.yaml"}, "--team speech", " --team speech"),
        ("", {"TRN_ENV": "eks.yaml", "TRN_TEAM": "speech"}, "", " --team speech"),
        ("", {"TRN_ENV": "eks.yaml"}, "--region us-east-2", " --region us-east-2"),
        ("", {"TRN_ENV": "eks.yaml"}, "--environment both.yaml", " --environment both.yaml"),
        ("", {"TRN_ENV": "both.yaml"}, "--stack TrnEksStack", " --stack TrnEksStack"),
        ("eks.yaml", {}, "", ""),
        ("eks.yaml --team speech", {}, "", ""),
        ("eks.yaml", {}, "--stack TrnPclusterStack", " --stack TrnPclusterStack-mine"),
        ("eks.yaml", {}, "--environment both.yaml", " --environment both.yaml"),
        ("eks.yaml", {}, "--environment both.yaml --stack TrnEksStack", " --environment both.yaml --stack TrnEksStack"),
        ("eks.yaml", {"TRN_ENV": "both.yaml"}, "", ""),
    ],
)
def test_printed_options(
    used: str, variables: dict[str, str], words: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    if used:
        assert CliRunner().invoke(commands, ["use", *used.split()]).exit_code == 0
    first = selected(words, **variables)
    assert at(first) == expected
    again = selected(at(first), **variables)
    for name in ("stack", "region", "team", "user"):
        assert getattr(again, name) == getattr(first, name), name
