"""Dependencies are exactly those that were locked: each file by its hash, all of it in a bill of materials."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from sandbox import install, paths
from tests.support import ROOT, completed, need
from tests.wheels import closure
from trainium_cdk.description.catalog import Catalog

LOCKS = [
    ROOT / "requirements.txt",
    ROOT / "requirements-dev.txt",
    *sorted(ROOT.glob("requirements/*.txt")),
    *sorted(ROOT.glob("sandbox/requirements-*.txt")),
    *sorted(ROOT.glob("conformance/requirements-*.txt")),
]
PINNED = re.compile(
    r"([A-Za-z0-9_.-]+)(?:\[[\w,-]+\])?==(\S+?)(?: ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)"
)


def pinned(lock: Path) -> dict[tuple[str, str], set[str]]:
    """(name, version) -> hashes. Every line of the file belongs to one."""
    text = lock.read_text("utf-8")
    found = list(PINNED.finditer(text))
    assert "\n".join(m[0] for m in found) + "\n" == text, lock
    return {(m[1], m[2]): set(re.findall(r"sha256:([0-9a-f]{64})", m[3])) for m in found}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda f: f.stem)
def test_every_requirement_is_pinned_with_hashes(lock: Path) -> None:
    assert pinned(lock)
    assert all(pinned(lock).values())


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("requirements.txt", ["cdk", "jobs", "node"]), ("requirements-dev.txt", ["cdk", "jobs", "node", "dev"])],
)
def test_pip_finds_everything_that_a_locked_package_requires(lock: str, extras: list[str]) -> None:
    """pip resolves again what uv has locked: a requirement that was taken out of the file makes it fail."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    names = {canonicalize_name(name) for name, _ in pinned(ROOT / lock)}
    missing = {name for name, _ in closure(asked)} - names
    assert missing == set()
    assert names <= {canonicalize_name(name) for name, _ in pinned(ROOT / "requirements-dev.txt")}


def test_hashes_are_required_wherever_something_is_installed() -> None:
    """As make would run it in a new checkout, for every environment."""
    own = [f".venvs/{f.stem.partition('-')[2]}/.done" for f in LOCKS if f.parent.name == "conformance"]
    targets = ["setup", *own, ".venvs/py3.11/.done"]
    printed = completed(["make", "--no-print-directory", "-n", "-B", *targets], cwd=ROOT, check=True).stdout
    installs = [
        part
        for part in re.split(r"\n|&&", printed)
        if re.search(r"\bpip (install|sync)\b|\bnpm (i|ci|install)\b", part)
    ]
    ours = [part for part in installs if part.rstrip().endswith("--no-deps --no-build-isolation --editable .")]
    locked = [part for part in installs if "--require-hashes" in part or "npm ci" in part]
    assert len(ours) == 2
    assert len(locked) == 4 + len(own)  # uv, and with it two environments; the CDK command line
    assert sorted(ours + locked) == sorted(installs)


def test_the_sandbox_installs_nothing_else_than_it_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not the one that was locked: one package, whose wheel was changed."""
    wheel = tmp_path / "changed-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in {
            "changed.py": "",
            "changed-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: changed\nVersion: 1.0\n",
            "changed-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "changed-1.0.dist-info/RECORD": "changed.py,,\n",
        }.items():
            packed.writestr(name, text)
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = tmp_path / "requirements-x.txt"
    monkeypatch.setattr(paths, "environment", lambda name: tmp_path / name)
    monkeypatch.setattr(paths, "requirements", lambda _: lock)
    for name, value in {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for refused in ("changed==1.0\n", f"changed==1.0 --hash=sha256:{'0' * 64}\n"):
        lock.write_text(refused)
        with pytest.raises(install.SetupFailed, match=r"(?i)hash"):
            install.environment("x", lambda _: None)
    lock.write_text(f"changed==1.0 --hash=sha256:{right}\n")
    folder = install.environment("x", lambda _: None)
    assert list(folder.glob("lib/python3*/site-packages/changed.py"))


def test_npm_packages_have_hashes() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert len(packages) > 1
    assert [name for name, package in packages.items() if name and "integrity" not in package] == []


def test_the_bill_of_materials_has_every_locked_package(tmp_path: Path) -> None:
    need((ROOT / ".venvs/sbom/.done").exists(), "cyclonedx-bom is not installed: make .venvs/sbom/.done")
    command = [
        "make",
        "--no-print-directory",
        "-o",
        "setup",
        "-o",
        ".venvs/sbom/.done",
        "sbom",
        f"SBOM={tmp_path}",
        "LOCKS=",
    ]
    done = completed(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    python = json.loads((tmp_path / "requirements.cdx.json").read_text())
    assert (python["bomFormat"], python["metadata"]["component"]["name"]) == ("CycloneDX", "trainium-cdk")
    listed = {
        (c["name"], c["version"]): {h["content"] for r in c["externalReferences"] for h in r.get("hashes", [])}
        for c in python["components"]
    }
    assert listed == pinned(ROOT / "requirements.txt")
    node = json.loads((tmp_path / "node.cdx.json").read_text())
    assert node["bomFormat"] == "CycloneDX"
    assert "aws-cdk" in {c["name"] for c in node["components"]}


def test_no_message_recommends_a_package_that_is_not_published() -> None:
    """Any user of PyPI could publish one under this name."""
    command = re.compile(r"\b(?:pip3?|uv|pipx)\b[^\n`\"']*?\binstall\s+(?:-\S+\s+)*trainium[-_]cdk\b")
    files = (ROOT / "constructs").rglob("*.py")
    assert [f.relative_to(ROOT) for f in files if command.search(f.read_text("utf-8"))] == []


def test_charts_without_a_digest_are_the_few_with_a_reason() -> None:
    charts = Catalog.load().eks.charts
    assert {name for name, chart in charts.items() if chart.digest is None} == {
        "jobset", "kueue", "neuron", "neuron-claims", "volcano",
    }  # fmt: skip
