"""The sandbox installed next to a user's own app, without a checkout: their stack is rehearsed by their tests."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from sandbox import slurm
from tests.support import need
from tests.wheels import ROOT, build, fresh_environment, run

APP = """
import aws_cdk as cdk
from aws_cdk import aws_s3 as s3

app = cdk.App()
stack = cdk.Stack(app, "Theirs")
bucket = s3.Bucket(stack, "Data", auto_delete_objects=True, removal_policy=cdk.RemovalPolicy.DESTROY)
cdk.CfnOutput(stack, "Name", value=bucket.bucket_name)
app.synth()
"""
TEST = """
from pathlib import Path
from sandbox import LocalAws

def test_the_stack_is_deployed_and_destroyed(local_aws: LocalAws) -> None:
    local_aws.cdk("deploy", "--app", "python app.py", "--require-approval", "never", cwd=Path(__file__).parent)
    [stack] = local_aws.client("cloudformation").describe_stacks(StackName="Theirs")["Stacks"]
    local_aws.client("s3").put_object(Bucket=stack["Outputs"][0]["OutputValue"], Key="a", Body=b"b")
    local_aws.cdk("destroy", "--app", "python app.py", "--force", cwd=Path(__file__).parent)
    assert set(local_aws.leftovers()) == {"log groups"}  # of the CDK's own function, which stays on AWS too
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from its source distribution, which is built from the checkout."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT / "sandbox", cwd=ROOT)
    [source] = out.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        assert not [member.name for member in archive if member.issym()]
    return next(out.glob("*.whl"))


def test_the_wheel_holds_what_the_sandbox_starts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {info.filename: info.external_attr >> 16 & 0o111 for info in archive.infolist()}
    tracked = [line for line in run("git", "ls-files", "-s", "sandbox", cwd=ROOT).splitlines() if line]
    files = {line.split("\t")[1]: line.startswith("100755") for line in tracked}
    left_out = {"sandbox/pyproject.toml", *(name for name in files if name.startswith("sandbox/tests/"))}
    assert set(files) - set(held) == left_out
    assert {name for name, runs in files.items() if runs and not held[name]} == set()
    assert {"sandbox/package.json", "sandbox/package-lock.json"} <= set(held)


@pytest.mark.sweep
def test_a_foreign_app_is_deployed_by_its_own_tests(wheel: Path, tmp_path: Path) -> None:
    need((ROOT / "node_modules/.bin/cdk").exists(), "npm's cache holds no CDK command line: make setup")
    library = build(ROOT, tmp_path / "dist")
    python = fresh_environment(
        tmp_path,
        wheel,
        library,
        extra=tuple(f"{name}=={version(name)}" for name in ("pytest", "iniconfig", "pluggy", "pygments")),
    )
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    (folder / "test_app.py").write_text(TEST)
    own = {
        "TRN_SANDBOX_HOME": str(tmp_path / "home"),
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "UV_OFFLINE": "1",  # make setup has fetched what this installs
        "npm_config_offline": "true",
    }
    output = run(python, "-m", "sandbox", "setup", cwd=folder, **own)
    assert str(tmp_path / "home") in output
    (tmp_path / "home/.cache").mkdir(exist_ok=True)
    (tmp_path / "home/.cache/slurm").symlink_to(
        ROOT / ".cache/slurm"
    )  # `python -m sandbox.slurm_packages` downloads it
    need(slurm.available() is None, str(slurm.available()))
    at = ("--dir", tmp_path / "aws")
    try:
        assert "each deployed cluster gets a real Slurm" in run(
            python, "-m", "sandbox", "up", "--slurm", *at, cwd=folder, **own
        )
        listed = run(python, "-m", "sandbox", "shell", *at, "--", "aws", "s3", "ls", cwd=folder, **own)
        assert "cdk-hnb659fds-assets" in listed
        assert "nothing is left" in run(python, "-m", "sandbox", "leftovers", *at, cwd=folder, **own)
    finally:
        run(python, "-m", "sandbox", "down", *at, cwd=folder, **own)
    assert "1 passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder, **own)
    assert run(python, "-m", "sandbox", "setup", cwd=folder, **own).count("\n") == 1  # nothing is missing any more
