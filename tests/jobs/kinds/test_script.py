"""A user's script or command: what is started, and what is refused as it would not be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_submit import made
from tests.jobs.conftest import make_cluster
from trainium_cdk.client.jobs.kinds.script import Script
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.errors import JobError
from trainium_cdk.runner.spec import Place


def project(root: Path) -> Path:
    for name, text in {
        "pkg/__init__.py": "",
        "pkg/train.py": "1\n",
        "app/__main__.py": "1\n",
        "one.py": "1\n",
        "run.sh": "1\n",
        "call.sh": "srun x\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def started(job: Script) -> list[object]:
    return [w for w in job.program(plan(job, make_cluster())).words if isinstance(w, str)]


@pytest.mark.parametrize(
    ("words", "label"),
    [
        ("python -m pkg.train", "train"),
        ("python3 -m pkg.train --lr 1e-4", "train"),
        ("python -m app a b", "app"),
        ("python -m app.__main__", "app"),
        ("python -m lm_eval --tasks x", "lm-eval"),
        ("python -m finetune", "finetune"),  # also the name of a kind
        ("python one.py --lr 1e-4", "one"),
        ("python ./pkg/train.py", "train"),
        ("bash run.sh -x", "run"),
        ("./run.sh", "run"),
        ("python /fsx/run.py", "python"),
        ("pip list", "pip"),
        ("torchrun --nproc-per-node 4 one.py", "torchrun"),
        ("python -c print(1)", "python"),
        ("finetune", "finetune"),  # a program of this name
    ],
)
def test_a_command_is_started_as_it_is(words: str, label: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job, _ = made(monkeypatch, ["--workdir", str(project(tmp_path)), "--", *words.split()])
    assert isinstance(job, Script)
    assert (started(job), job.label, job.files(plan(job, make_cluster()))) == (words.split(), label, {})


@pytest.mark.parametrize("words", ["python -m pkg.train --lr 1", "python3 one.py --lr 1", "python /fsx/run.py"])
def test_a_launcher_starts_a_command_of_python(words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = ["--workdir", str(project(tmp_path)), "--launcher", "torchrun", "--", *words.split()]
    job, _ = made(monkeypatch, line)
    assert isinstance(job, Script)
    rest = words.split()[1:]
    assert started(job)[-len(rest) :] == rest
    assert plan(job, make_cluster()).started == 32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--workdir . -- python -m pkg.tain", "has no module pkg.tain: neither pkg/tain.py nor pkg/tain/__main__.py is sent"),
        ("--workdir . -- python -m pkg", "has no module pkg: neither pkg.py nor pkg/__main__.py is sent"),
        ("--workdir . -- python -m one.py", "has no module one.py: neither one/py.py nor"),
        ("--workdir . -- python two.py", "two.py is not in "),
        ("--workdir . -- bash ../one.py", "../one.py is not in "),
        ("-- python one.py", "one.py is not sent, as a command has no files. Add --workdir ., or give its path on the cluster"),
        ("-- ./run.sh", "./run.sh is not sent"),
        ("--launcher torchrun -- pip list", "the command pip is not python, and torchrun starts"),
        ("--workdir . --nodes 2 -- bash call.sh", "call.sh calls srun in line 1, but it starts on each of 2 nodes"),
    ],
)  # fmt: skip
def test_what_the_nodes_do_not_have_is_refused(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(project(tmp_path))

    def submitted() -> None:
        job, _ = made(monkeypatch, words.split())
        plan(job, make_cluster())

    with pytest.raises(JobError) as raised:
        submitted()
    assert message in str(raised.value)


def test_a_module_with_a_folder_finds_its_files(tmp_path: Path) -> None:
    job = Script.from_command(("python", "-m", "pkg.train"), project(tmp_path))
    planned = plan(job, make_cluster())
    program = job.program(planned)
    assert (program.folder, program.variables["PYTHONPATH"]) == ((Place("job"), "/code"),) * 2
    assert [step.do for step in job.prepare(planned)] == ["code"]


@pytest.mark.parametrize(
    ("job", "module"),
    [
        (Script.from_command(("python", "-m", "lm_eval")), "lm_eval"),
        (Script.from_command(("python", "-m", "lm_eval.run"), launcher="torchrun"), "lm_eval"),
        (Script(filename="t.py", content=b"1", launcher="torchrun"), ""),
        (Script.from_command(("python", "-m", "http.server")), ""),
        (Script.from_command(("pip", "-m", "x")), ""),
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
