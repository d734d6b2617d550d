"""The wheel, in a foreign CDK app: a fresh environment, no checkout, scripts included."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tarfile
import zipfile
from collections import defaultdict
from email import message_from_string
from pathlib import Path

import pytest

from tests.jobs.conftest import make_cluster
from tests.support import ROOT, completed, need
from tests.wheels import fresh_environment, run

FOREIGN_APP = """
import aws_cdk as cdk
from trainium_cdk.cdk.bootstrap import TrnBootstrap
from trainium_cdk.cdk.bucket import TrnBucket
from trainium_cdk.cdk.network import TrnNetwork
from trainium_cdk.stacks import TrnEksStack, TrnPclusterStack, TrnPcsStack
from trainium_cdk.cdk.storage import TrnStorage

app = cdk.App()
for stack in (TrnEksStack, TrnPclusterStack, TrnPcsStack):
    stack(app, stack.__name__)
stack = cdk.Stack(app, "Foreign")
network = TrnNetwork(stack, "Net")
TrnStorage(stack, "Disk", vpc=network.vpc)
TrnBootstrap(stack, "Boot", bucket=TrnBucket(stack, "Files").bucket)
app.synth()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it alone."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


def test_a_package_index_takes_both(built: Path, wheel: Path) -> None:
    """As in `make dist`: metadata and README as PyPI renders it, and nothing beside the package in the wheel."""
    programs = ROOT / ".venvs/dist/bin"
    need(programs.exists(), "twine is not installed: make .venvs/dist/.done")
    assert run(programs / "twine", "check", "--strict", *built.iterdir(), cwd=built).count("PASSED") == 2
    assert run(programs / "check-wheel-contents", wheel, cwd=built).endswith("OK\n")


def test_the_wheel_holds_every_script_and_fact(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, target in (
        ("bootstrap", "trainium_cdk/description/node/bootstrap"),
        ("constructs/trainium_cdk", "trainium_cdk"),
        ("stacks", "trainium_cdk/stacks"),
        ("examples/bert-large", "trainium_cdk/client/jobs/examples/bert-large"),
        ("examples/jax", "trainium_cdk/client/jobs/examples/jax"),
        ("examples/torchneuron", "trainium_cdk/client/jobs/examples/torchneuron"),
    ):
        tracked = [name for name in run("git", "ls-files", folder, cwd=ROOT).split() if not (ROOT / name).is_symlink()]
        missing = {t for t in tracked if target + t.removeprefix(folder) not in names}
        assert tracked
        assert not missing


def test_wheel_and_source_have_the_license(built: Path, wheel: Path) -> None:
    [source] = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed, tarfile.open(source) as unpacked:
        place = next(n for n in packed.namelist() if n.endswith("dist-info/licenses/LICENSE"))
        metadata = message_from_string(packed.read(place.replace("licenses/LICENSE", "METADATA")).decode())
        inside = unpacked.extractfile(f"{source.name.removesuffix('.tar.gz')}/LICENSE")
        assert inside
        assert packed.read(place) == inside.read() == (ROOT / "LICENSE").read_bytes()
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = str(metadata.get_payload())
    assert text.strip() == (ROOT / "PACKAGE.md").read_text("utf-8").strip()
    assert relative(text) == [], "an index shows the text alone"


def relative(markdown: str) -> list[str]:
    """Targets of links and pictures, of Markdown or HTML, that are no whole addresses."""
    targets = re.findall(
        r"\]\(\s*<?([^)\s>]+)|^\s*\[[^]]+\]:\s*(\S+)|(?:href|src)\s*=\s*[\"']?([^\"'\s>]+)", markdown, re.MULTILINE
    )
    found = ["".join(target) for target in targets]
    return [target for target in found if not re.match(r"https?://|mailto:|#", target)]


def test_a_foreign_app_synthesises_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """The constructs and stacks alone: nothing of the job client is there, and `trn` says so."""
    python = fresh_environment(tmp_path, wheel, extras=("cdk",))
    packages = next(tmp_path.glob("fresh/lib/python3*/site-packages"))
    theirs = ("boto3", "botocore", "kubernetes", "pathspec", "rich", "typer", "urllib3")
    assert [name for name in theirs if (packages / name).exists()] == []
    (tmp_path / "app.py").write_text(FOREIGN_APP)
    node = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run(python, "app.py", cwd=tmp_path, PATH=node, CDK_OUTDIR=str(tmp_path / "out"), CDK_VALIDATION="false")
    template = json.loads((tmp_path / "out/Foreign.template.json").read_text())
    types = {r["Type"] for r in template["Resources"].values()}
    assert {"AWS::EC2::VPC", "AWS::EC2::NatGateway", "AWS::EFS::FileSystem"} <= types
    packed = {name for file in (tmp_path / "out").glob("*.zip") for name in zipfile.ZipFile(file).namelist()}
    assert "configure-node.sh" in packed
    assert any(
        p.name.startswith("asset.") and b"trn-bootstrap" in p.read_bytes()
        for p in (tmp_path / "out").glob("asset.*.sh")
    )
    said = completed([python.parent / "trn", "--help"], cwd=tmp_path)
    told = "trn: typer is not installed. Install trainium-cdk with its extra: trainium-cdk[jobs]\n"
    assert (said.returncode, said.stderr) == (1, told)


def test_the_job_client_alone(wheel: Path, tmp_path: Path) -> None:
    """Without the extra `cdk`: small, and everything about jobs and settings works; constructs say what is missing."""
    python = fresh_environment(tmp_path, wheel, extras=("jobs",))
    packages = next(tmp_path.glob("fresh/lib/python3*/site-packages"))
    megabytes = sum(f.stat().st_size for f in packages.rglob("*") if f.suffix != ".pyc" and f.is_file()) / 1e6
    assert megabytes < 160  # of it kubernetes and botocore more than 100
    assert not (packages / "aws_cdk").exists()
    (tmp_path / "cluster.json").write_text(make_cluster().model_dump_json())
    (tmp_path / "environment.yaml").write_text("region: us-west-2\n")
    trn = python.parent / "trn"
    assert "bert-large" in run(trn, "submit", "--list", cwd=tmp_path)
    run(trn, "check", "--offline", "--environment", "environment.yaml", cwd=tmp_path)
    dry = run(trn, "submit", "bert-large", "--nodes", "2", "--cluster", "cluster.json", "--dry-run", cwd=tmp_path)
    assert '"--nodes=2"' in dry
    found = "from pathlib import Path\nfrom trainium_cdk.client.jobs.images import find_example as find\nprint(find(Path('torchneuron')))"
    assert Path(run(python, "-c", found, cwd=tmp_path)).parent == packages / "trainium_cdk/client/jobs/examples"
    asks = "try:\n from trainium_cdk import TrnNodeGroup\nexcept ImportError as e: print(e)"
    assert "with its extra: trainium-cdk[cdk]" in run(python, "-c", asks, cwd=tmp_path)


def test_the_command_is_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as z:
        entry = next(n for n in z.namelist() if n.endswith("entry_points.txt"))
        assert "trn = trainium_cdk.client.cli.__main__:main" in z.read(entry).decode()


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
