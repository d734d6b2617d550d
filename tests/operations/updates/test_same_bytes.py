"""One environment gives the same assembly to the byte, for any user, place and time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, completed

pytestmark = pytest.mark.sweep

PARTS = ("app.py", "cdk.json", "stacks", "constructs", "bootstrap")
FILE = ROOT / "tests/environments/many-queues.yaml"


def checkout(folder: Path) -> Path:
    """The sources, elsewhere: other paths, other times, as another checkout has them."""
    folder.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(
                source, folder / part, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy
            )
        else:
            shutil.copy(source, folder / part)
    for file in folder.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    return folder


def assembly(folder: Path, environment: Path, out: Path, **variables: str) -> dict[str, str]:
    context = {**json.loads((folder / "cdk.json").read_text())["context"], "env": str(environment)}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_", "JSII_", "PYTHON", "LC_"))}
    node = str(Path(sys.executable).parent)
    done = completed(
        [sys.executable, "app.py"],
        cwd=folder,
        env={
            **clean,
            "PATH": f"{node}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder / "constructs"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CDK_OUTDIR": str(out),
            "CDK_CONTEXT_JSON": json.dumps(context),
            **variables,
        },
    )
    assert done.returncode == 0, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(f"environment: {environment} (-c env), ")
    return {
        str(p.relative_to(out)): hashlib.sha256(_without_traces(p)).hexdigest()
        for p in sorted(out.rglob("*"))
        if p.is_file()
    }


def _without_traces(file: Path) -> bytes:
    """What is in a file. The CDK writes into its metadata where jsii was unpacked, which no template has."""
    if not file.name.endswith(".metadata.json"):
        return file.read_bytes()
    found = json.loads(file.read_text("utf-8"))
    return json.dumps({path: [{**each, "trace": []} for each in entries] for path, entries in found.items()}).encode()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return assembly(ROOT, FILE, tmp_path_factory.mktemp("here"), PYTHONHASHSEED="0", TZ="UTC")


PLACES = {
    "Kiritimati": {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LANG": "C"},
    "St. John's": {"PYTHONHASHSEED": "4242", "TZ": "America/St_Johns", "LANG": "tr_TR.UTF-8", "LC_ALL": "C.UTF-8"},
}


@pytest.mark.parametrize("place", PLACES)
def test_another_machine_synthesises_the_same_bytes(place: str, here: dict[str, str], tmp_path: Path) -> None:
    variables = PLACES[place]
    other = checkout(tmp_path / "somewhere else" / "repository")
    (copied := tmp_path / "environment of mine.yaml").write_bytes(FILE.read_bytes())
    unpacked = os.environ.get("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(Path.home() / ".cache/aws/jsii/package-cache"))
    there = assembly(
        other, copied, tmp_path / "there", HOME=str(tmp_path), JSII_RUNTIME_PACKAGE_CACHE_ROOT=unpacked, **variables
    )
    assert {name.partition(".")[2] for name in here} >= {"template.json", "assets.json"}
    assert here == there
