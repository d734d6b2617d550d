"""The README and docs/start/first-fine-tuning.md: their commands run in the sandbox as they are printed, and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.paths import HOME as ROOT
from tests.sandbox import pages
from tests.support import need_kubernetes, need_slurm
from trainium_cdk import settings
from trainium_cdk.checks.live import Target
from trainium_cdk.checks.live.cost import cost
from trainium_cdk.cli import app as cli
from trainium_cdk.jobs import read_log
from trainium_cdk.jobs.readers.records import Step

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs/start/first-fine-tuning.md"
_KUBERNETES = "## The same on Kubernetes"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_slurm()
    need_kubernetes()
    directory = tmp_path_factory.mktemp("sandbox")
    command = [sys.executable, "-m", "sandbox"]
    try:
        subprocess.run([*command, "up", "--slurm", "--kubernetes", "--dir", directory], cwd=ROOT, check=True)
        yield directory
        aws = LocalAws.attach(directory)
        assert aws is not None
        assert {kind for kind in aws.leftovers() if not kind.startswith("log groups")} == set()
    finally:
        subprocess.run([*command, "down", "--dir", directory], cwd=ROOT, check=True)


def section(title: str) -> str:
    """A part of the README."""
    return README.read_text("utf-8").partition(f"\n## {title}")[2].partition("\n## ")[0]


def tutorial(*, kubernetes: bool) -> tuple[int, str]:
    """A part of the tutorial, and where it begins."""
    text = TUTORIAL.read_text("utf-8")
    at = text.index(_KUBERNETES)
    return (at, text[at:]) if kubernetes else (0, text[:at])


@pytest.mark.sweep
def test_the_readme_on_slurm(sandbox: Path, tmp_path: Path) -> None:
    found = pages.steps(section("Fine-tune"))
    assert len(found) == 1
    [printed] = pages.run(found, pages.folder_like_a_checkout(tmp_path / "r"), sandbox)
    assert "train COMPLETED" in printed
    assert re.search(r"'loss': '\d", printed)
    assert "nothing is left" in printed


@pytest.mark.sweep
def test_the_readme_on_kubernetes(sandbox: Path, tmp_path: Path) -> None:
    found = pages.steps(section("Which stack"))
    assert len(found) == 1
    [printed] = pages.run(found, pages.folder_like_a_checkout(tmp_path / "k"), sandbox)
    assert "train COMPLETED" in printed


def test_the_readme_is_short_and_says_what_has_not_happened() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 80
    assert "\nThis has not run on AWS yet.\n" in text
    assert (text.count("make test"), text.count("make demo")) == (1, 1)


def test_what_the_first_hour_costs(tmp_path: Path) -> None:
    """One node, and the file that the README's first command writes: by the catalogue."""
    told = re.search(
        r"costs about (\d+) USD: ([\d.]+) for one node, ([\d.]+) for the head node, less than ([\d.]+) for the rest",
        section("Fine-tune"),
    )
    assert told
    about, node, head, rest = map(float, told.groups())
    file = tmp_path / "environment.yaml"
    cli.app(["init", str(file), "--nodes", "1"], standalone_mode=False)
    found = cost(Target(settings.load(file), "slurm"))
    full = {item["what"]: item["full"] for item in found["items"]}
    [of_node] = [usd for what, usd in full.items() if "x trn2.48xlarge" in what]
    assert round(of_node, 2) == node
    assert full["head node: c5.4xlarge"] == head
    assert 0 < found["full_hour"] - node - head < rest
    assert round(found["full_hour"]) == about


def test_your_own_script_of_the_readme() -> None:
    """The line that it says to print is read: with its step, its loss and its learning rate."""
    [line] = re.findall(r"`(\{\"step\".*?\})`", section("Your own script"))
    [step] = [one for one in read_log(f"{line}\n".encode()) if isinstance(one, Step)]
    assert (step.step, step.loss, step.learning_rate) == (10, 3.48, 1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("kubernetes", [False, True], ids=["slurm", "kubernetes"])
def test_the_tutorial(kubernetes: bool, sandbox: Path, tmp_path: Path) -> None:
    """With TRN_UPDATE_GOLDEN=1 the outputs are written into the page; those with `...` stay."""
    begin, part = tutorial(kubernetes=kubernetes)
    found = pages.steps(part)
    printed = pages.run(found, pages.folder_like_a_checkout(tmp_path / "t"), sandbox)
    if os.environ.get("TRN_UPDATE_GOLDEN"):
        text = TUTORIAL.read_text("utf-8")
        begin, part = tutorial(kubernetes=kubernetes)  # the other part may have been written
        for step, said in reversed([*zip(pages.steps(part), printed, strict=True)]):
            if step.shown is not None and "...\n" not in step.shown:
                text = text[: begin + step.at[0]] + said + text[begin + step.at[1] :]
        TUTORIAL.write_text(text, "utf-8")
        return
    for step, said in zip(found, printed, strict=True):
        assert step.shown is None or pages.matches(step.shown, said), f"{step.commands}\n{said}"


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("job a-20261126-dea8a7\n", "job a-20261124-000000\n", True),
        ("job a\n", "job b\n", False),
        ("cost 35.76\n", "cost 35.77\n", False),
        ("a\n", "a\nb\n", False),
        ("...\nb\n", "x\na\nb\n", True),
        ("...\nb\n", "b\nc\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("took 5s\n", "took 1 min 12 s\n", True),
        ("{'loss': '1.5', 'epoch': '2'}\n", "{'loss': '0.5', 'epoch': '1'}\n", True),
    ],
)
def test_what_counts_as_the_same_output(shown: str, printed: str, expected: bool) -> None:
    assert pages.matches(shown, printed) == expected
