"""The wheel, as somebody else's CDK app meets it: a fresh environment, no checkout, scripts included."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from email import message_from_string
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent

FOREIGN_APP = """
import aws_cdk as cdk
from trainium_cdk import settings
from trainium_cdk.bootstrap import TrnBootstrap
from trainium_cdk.bucket import TrnBucket
from trainium_cdk.network import TrnNetwork
from trainium_cdk.storage import TrnStorage

env = settings.load()
app = cdk.App()
stack = cdk.Stack(app, "Foreign")
network = TrnNetwork(stack, "Net", settings=env.network, zone_ids=env.zone_ids, name="foreign")
TrnStorage(stack, "Disk", settings=env.storage, network=network)
TrnBootstrap(stack, "Boot", environment=env, bucket=TrnBucket(stack, "Files").bucket)
app.synth()
"""


def run(*words: str | Path, cwd: Path, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(words, cwd=cwd, env=clean | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=ROOT)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_every_script_and_fact(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, target in (
        ("bootstrap", "trainium_cdk/bootstrap_scripts"),
        ("constructs/trainium_cdk", "trainium_cdk"),
    ):
        tracked = run("git", "ls-files", folder, cwd=ROOT).split()
        missing = {t for t in tracked if target + t.removeprefix(folder) not in names}
        assert tracked
        assert not missing


def required_by(wheel: Path) -> set[str]:
    """What the wheel requires, and what that requires in turn, in the versions that are installed here."""
    with zipfile.ZipFile(wheel) as z:
        metadata = z.read(next(n for n in z.namelist() if n.endswith("dist-info/METADATA"))).decode()
    wanted = [(line, {""}) for line in message_from_string(metadata).get_all("Requires-Dist") or []]
    found: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        line, extras = wanted.pop()
        requirement = Requirement(line)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        if (asked := (requirement.name, frozenset(requirement.extras))) not in found:
            found.add(asked)
            wanted += [(line, {"", *requirement.extras}) for line in requires(requirement.name) or []]
    return {f"{name}=={version(name)}" for name, _ in found}


def test_a_foreign_app_synthesises_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    python = tmp_path / "fresh/bin/python"
    run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "fresh", cwd=tmp_path)
    # `make setup` has filled uv's cache with the files, though not with what each of them requires: nothing is fetched here
    install = (uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python)
    run(*install, wheel, *required_by(wheel), cwd=tmp_path)
    run(uv, "pip", "check", "--python", python, cwd=tmp_path)
    (tmp_path / "app.py").write_text(FOREIGN_APP)
    node = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run(python, "app.py", cwd=tmp_path, PATH=node, CDK_OUTDIR=str(tmp_path / "out"), CDK_VALIDATION="false")
    template = json.loads((tmp_path / "out/Foreign.template.json").read_text())
    types = {r["Type"] for r in template["Resources"].values()}
    assert {"AWS::EC2::VPC", "AWS::EC2::NatGateway", "AWS::EFS::FileSystem"} <= types
    staged = {p.name for p in (tmp_path / "out").rglob("*.sh")}
    assert "configure-node.sh" in staged
    assert any(
        p.name.startswith("asset.") and b"trn-bootstrap" in p.read_bytes()
        for p in (tmp_path / "out").glob("asset.*.sh")
    )


def test_the_command_is_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as z:
        entry = next(n for n in z.namelist() if n.endswith("entry_points.txt"))
        assert "trn = trainium_cdk.trn:main" in z.read(entry).decode()


ENVIRONMENTS = [ROOT / ".venv", *sorted((ROOT / ".venvs").glob("*"))]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.name)
def test_no_two_packages_install_the_same_file(environment: Path) -> None:
    """Which of the two contents is there would be a matter of chance: installers work in parallel."""
    contents: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for record in environment.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        with record.open(encoding="utf-8", newline="") as file:
            for path, digest, _ in csv.reader(file):
                contents[path][record.parent.name] = digest
    assert len(contents) > 10
    twice = {path: packages for path, packages in contents.items() if len(set(packages.values())) > 1}
    # jsii makes this module of the same schema for both, of slightly different age
    twice.pop("aws_cdk/cloud_assembly_schema/__init__.py", None)
    assert twice == {}
