"""The README and docs/start/first-fine-tuning.md: their commands run in the sandbox as they are printed, and print what the page shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT
from sandbox.testing import sandbox_up
from tests.sandbox import pages
from tests.support import need_kubernetes, need_slurm

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs/start/first-fine-tuning.md"
_KUBERNETES = "## The same on Kubernetes"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_slurm()
    need_kubernetes()
    directory = tmp_path_factory.mktemp("sandbox")
    with sandbox_up(directory, "--slurm", "--kubernetes") as aws:
        yield directory
        assert {kind for kind in aws.leftovers() if not kind.startswith("log groups")} == set()


def section(title: str) -> str:
    """A part of the README."""
    return README.read_text("utf-8").partition(f"\n## {title}")[2].partition("\n## ")[0]


def tutorial(*, kubernetes: bool) -> tuple[int, str]:
    """A part of the tutorial, and where it begins."""
    text = TUTORIAL.read_text("utf-8")
    at = text.index(_KUBERNETES)
    return (at, text[at:]) if kubernetes else (0, text[:at])


def test_the_readme_on_slurm(sandbox: Path, tmp_path: Path) -> None:
    found = pages.steps(section("Fine-tune"))
    assert len(found) == 1
    [printed] = pages.run(found, pages.empty_folder(tmp_path / "r"), sandbox)
    assert "train COMPLETED" in printed
    assert re.search(r"'loss': '\d", printed)
    assert "model is complete" in printed
    assert "nothing is left" in printed


@pytest.mark.sweep
@pytest.mark.parametrize("kubernetes", [False, True], ids=["slurm", "kubernetes"])
def test_the_tutorial(kubernetes: bool, sandbox: Path, tmp_path: Path) -> None:
    """With TRN_UPDATE_GOLDEN=1 the outputs are written into the page; those with `...` stay."""
    begin, part = tutorial(kubernetes=kubernetes)
    found = pages.steps(part)
    printed = pages.run(found, pages.empty_folder(tmp_path / "t"), sandbox)
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
