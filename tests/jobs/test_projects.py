"""`--requirements pyproject.toml` and `uv.lock`: the lines that pip gets, from the real uv."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.conftest import make_cluster
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description import requirements
from trainium_cdk.jobs import JobError, Script

PROJECT = '[project]\nname = "own"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = ["accelerate", "tomli; python_version < \'3.11\'"]\n'
LOCK = """version = 1
revision = 3
requires-python = ">=3.10"

[[package]]
name = "own"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "accelerate" }, { name = "tomli", marker = "python_full_version < '3.11'" }]

[package.metadata]
requires-dist = [{ name = "accelerate" }, { name = "tomli", marker = "python_full_version < '3.11'" }]
"""
PACKAGE = """
[[package]]
name = "{name}"
version = "{version}"
source = {source}
dependencies = [{dependencies}]
{files}
"""


def package(name: str, version: str, *needs: str, source: str = '{ registry = "https://pypi.org/simple" }', hashes: bool = True) -> str:  # fmt: skip
    one = '{{ url = "https://h.org/{name}-{version}-{tags}.whl", hash = "sha256:{hash}" }}'
    tags = {"py3-none-any": "aa", "cp312-cp312-manylinux_2_28_x86_64": "bb", "cp312-cp312-win_amd64": "cc", "cp312-cp312-macosx_11_0_arm64": "dd"}  # fmt: skip
    wheels = [one.format(name=name, version=version, tags=tag, hash=hash * 32) for tag, hash in tags.items()]
    needed = ", ".join(f'{{ name = "{need}" }}' for need in needs)
    files = f"wheels = [{', '.join(wheels)}]" if hashes else ""
    return PACKAGE.format(name=name, version=version, source=source, dependencies=needed, files=files)


ALL = (
    package("accelerate", "1.0.0", "torch", "numpy"),
    package("numpy", "2.2.6"),
    package("tomli", "2.0"),
    package("torch", "2.15.0", "numpy", "triton"),
    package("triton", "3.4.0"),
)


def folder(root: Path, lock: str, project: str = PROJECT) -> Path:
    (root / "pyproject.toml").write_text(project)
    (root / "uv.lock").write_text(lock)
    (root / "train.py").write_text("1\n")
    return root


def test_what_is_locked_is_installed_with_its_hashes_but_what_the_nodes_have(tmp_path: Path) -> None:
    """PyTorch, and what it alone needs, is the cluster's. Hashes of wheels for other systems are kept: pip needs one that fits."""
    found = requirements.read(folder(tmp_path, LOCK + "".join(ALL)) / "uv.lock")
    hashes = f"--hash=sha256:{'aa' * 32} --hash=sha256:{'bb' * 32} --hash=sha256:{'cc' * 32} --hash=sha256:{'dd' * 32}"
    assert found.lines == [
        f"accelerate==1.0.0 {hashes}",
        f"numpy==2.2.6 {hashes}",
        f"tomli==2.0 ; python_full_version < '3.11' {hashes}",
    ]
    job = Script(filename="t.py", content=b"1", requirements=tmp_path / "uv.lock")
    [told] = [line for line in plan(job, make_cluster()).describe() if "uv.lock" in line]
    assert "accelerate==1.0.0, numpy==2.2.6" in told


def test_a_package_without_a_hash_leaves_out_all(tmp_path: Path) -> None:
    git = package("tomli", "2.0", source='{ git = "https://h.org/tomli?rev=v2#' + "a" * 40 + '" }', hashes=False)
    lock = LOCK + package("accelerate", "1.0.0") + git
    texts = requirements.read(folder(tmp_path, lock) / "uv.lock").lines
    assert texts[0] == "accelerate==1.0.0"
    assert texts[1].startswith(f"tomli @ git+https://h.org/tomli@{'a' * 40}")


def test_another_index_is_named(tmp_path: Path) -> None:
    own = '[tool.uv]\nindex = [{ name = "own", url = "https://h.org/simple" }]\n'
    lock = LOCK + "".join(ALL)
    texts = requirements.read(folder(tmp_path, lock, PROJECT + own) / "uv.lock").lines
    assert "--extra-index-url https://h.org/simple" in texts
    assert not any("pypi.org" in text for text in texts)  # the nodes' own


def test_the_dependencies_of_a_project(tmp_path: Path) -> None:
    found = requirements.read(folder(tmp_path, "") / "pyproject.toml")
    assert found.lines == ["accelerate", "tomli; python_version < '3.11'"]


REFUSED = [
    ("pyproject.toml", "[project", "is not a TOML file"),
    ("pyproject.toml", '[project]\nname = "x"\ndynamic = ["dependencies"]\n', "a dot (.) in it installs the project, with --workdir"),
    ("pyproject.toml", '[project]\ndependencies = ["einops=1"]\n', "pyproject.toml line 1: einops=1 is not a requirement"),
    ("pyproject.toml", "[tool.poetry]\n", "Give a uv.lock, or a requirements.txt"),
    ("pyproject.toml", '[project]\ndependencies = "einops"\n', "has no list of dependencies"),
    ("pyproject.toml", "[project]\ndependencies = []\n", "names no package"),
    ("pyproject.toml", f'{PROJECT}[tool.uv.sources]\naccelerate = {{ git = "https://h.org/a" }}\n', "says where accelerate is, and pip does not read that. Run uv lock, and give --requirements uv.lock"),
    ("uv.lock", "version = 99\n", "uv does not take"),
    ("uv.lock", "package = 1\nversion = 1\n", "uv does not take"),
    ("poetry.lock", "", "is not a requirements file"),
    ("environment.yml", "", "is not a requirements file"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "message"), REFUSED)
def test_what_pip_cannot_have_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    folder(tmp_path, LOCK)
    (tmp_path / name).write_text(text)
    with pytest.raises(JobError) as raised:
        Script(filename="t.py", content=b"1", requirements=tmp_path / name)
    assert message in str(raised.value)


def test_without_uv_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements.shutil, "which", lambda *_, **__: None)
    with pytest.raises(JobError, match=r"uv reads .*uv.lock, and is not installed. Install it"):
        Script(filename="t.py", content=b"1", requirements=folder(tmp_path, LOCK) / "uv.lock")
