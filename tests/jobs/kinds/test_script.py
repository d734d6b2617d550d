"""A user's script or module: what is started, and what is refused as it would not be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_submit import made
from tests.jobs.conftest import make_cluster
from trainium_cdk.errors import JobError
from trainium_cdk.jobs.kinds.script import Script
from trainium_cdk.jobs.plan import plan
from trainium_cdk.runner.spec import Place


def project(root: Path) -> Path:
    for name, text in {"pkg/__init__.py": "", "pkg/train.py": "1\n", "app/__main__.py": "", "one.py": "1\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def started(job: Script) -> list[object]:
    return [w for w in job.program(plan(job, make_cluster())).words if isinstance(w, str)]


@pytest.mark.parametrize(
    ("words", "expected", "label"),
    [
        (["-m", "pkg.train"], ["python3", "-m", "pkg.train"], "train"),
        (["-m", "pkg.train", "--", "--lr", "1e-4"], ["python3", "-m", "pkg.train", "--lr", "1e-4"], "train"),
        (["-m", "app", "a", "b"], ["python3", "-m", "app", "a", "b"], "app"),
        (["-m", "one"], ["python3", "-m", "one"], "one"),
        (["-m", "app.__main__"], ["python3", "-m", "app.__main__"], "app"),
        (["-m", "lm_eval", "--", "--tasks", "x"], ["python3", "-m", "lm_eval", "--tasks", "x"], "lm-eval"),
        (["-m", "finetune", "--name", "x"], ["python3", "-m", "finetune"], "x"),  # also the name of a kind
    ],
)
def test_a_module_is_started_by_its_name(
    words: list[str], expected: list[str], label: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job, _ = made(monkeypatch, ["--workdir", str(project(tmp_path)), *words])
    assert isinstance(job, Script)
    assert (started(job), job.label) == (expected, label)


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_launcher_starts_a_module(launcher: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["-m", "pkg.train", "--workdir", str(project(tmp_path)), "--launcher", launcher, "--", "--lr", "1"]
    job, _ = made(monkeypatch, words)
    assert isinstance(job, Script)
    assert started(job)[-4:] == ["-m", "pkg.train", "--lr", "1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "pkg.tain"], "has no module pkg.tain: neither pkg/tain.py nor pkg/tain/__main__.py is sent"),
        (["-m", "pkg"], "has no module pkg: neither pkg.py nor pkg/__main__.py is sent"),
        (["-m", "one.py"], "has no module one.py: neither one/py.py nor"),
        (["-m", "pkg/train"], "as_module is 'pkg/train': not in the right format. Write the dotted name of a module"),
        (["-m", ""], "Write the dotted name of a module, as python -m takes it, for example package.train"),
    ],
)
def test_what_is_no_module_is_refused(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(JobError) as raised:
        made(monkeypatch, [*words, "--workdir", str(project(tmp_path))])
    assert message in str(raised.value)


def test_a_module_with_a_folder_finds_its_files(tmp_path: Path) -> None:
    job = Script.from_module("pkg.train", project(tmp_path))
    planned = plan(job, make_cluster())
    program = job.program(planned)
    assert (program.folder, program.variables["PYTHONPATH"]) == ((Place("job"), "/code"),) * 2
    assert [step.do for step in job.prepare(planned)] == ["code"]


@pytest.mark.parametrize(
    ("job", "module"),
    [
        (Script(filename="t.py", content=b"1", launcher="accelerate"), "accelerate"),
        (Script.from_module("lm_eval"), "lm_eval"),
        (Script.from_module("lm_eval.run", launcher="torchrun"), "lm_eval"),
        (Script(filename="t.py", content=b"1", launcher="torchrun"), ""),
    ],
)
def test_what_a_program_needs_is_looked_for_before_its_nodes_start(job: Script, module: str) -> None:
    planned = plan(job, make_cluster())
    assert [step.with_["names"] for step in job.prepare(planned)] == ([(module,)] if module else [])
    assert ("prepare" in planned.stages) == bool(module)


IMPORTS = [
    ("import helper\n", "helper"),
    ("from pkg.train import x\n", "pkg.train"),
    ("from pkg import train\n", "pkg"),
    ("import names.deep\n", "names.deep"),  # a folder without __init__.py
    ("def main():\n    from helper import x\n", "helper"),
    ("import os, sys, json\nimport torch\n", ""),
    ("import datasets\nfrom datasets import load_dataset\n", ""),  # a folder of data
    ("import random\n", ""),  # also Python's own
    ("try:\n    import helper\nexcept ImportError:\n    helper = None\n", ""),
    ("if False:\n    import helper\n", ""),
    ("from . import helper\n", ""),
    ("import helper as\n", ""),
]


@pytest.mark.parametrize(("text", "module"), IMPORTS)
def test_a_script_that_imports_what_lies_beside_it_needs_its_folder(
    text: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path / "my project")
    for name in ("helper.py", "random.py", "names/deep.py", "datasets/train.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("1\n")
    (folder / "run.py").write_text(f"{text}print(1)\n")
    monkeypatch.chdir(tmp_path)
    if not module:
        assert Script.from_file("my project/run.py").content
        return
    with pytest.raises(JobError) as raised:
        Script.from_file("my project/run.py")
    assert str(raised.value) == (
        f"my project/run.py imports {module} from its folder, and only the script is sent. Send the folder: --workdir 'my project'"
    )
    assert Script.from_workdir("my project", "my project/run.py").inside == "run.py"  # the advice
    assert Script.from_file("my project/run.py", env={"PYTHONPATH": "/efs/code"}).content  # it may be there


def test_a_large_notebook_is_refused_as_one(tmp_path: Path) -> None:
    (tmp_path / "My Notes.ipynb").write_bytes(b"x" * 6_000_000)
    with pytest.raises(
        JobError, match=r"My Notes.ipynb is a notebook. Convert it \(jupyter nbconvert --to script '.*ipynb'\)"
    ):
        Script.from_file(tmp_path / "My Notes.ipynb")
