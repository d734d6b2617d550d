"""Without a clone: the wheel in a fresh environment, and an empty folder. To a job on Slurm and back, in the local AWS."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sandbox import LocalAws, shell, slurm
from sandbox.leftovers import beyond, inventory
from tests.foreign.test_trn import HELLO, attached
from tests.support import completed, need
from tests.wheels import ROOT

pytestmark = pytest.mark.sweep

CDK = ROOT / "node_modules/.bin/cdk"


@pytest.fixture
def commands(local_aws: LocalAws, installed: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of a user's shell: `trn` and Python of the wheel's environment, `cdk`, and node. Nothing of this checkout's."""
    need(CDK.exists(), f"the CDK command line is not installed ({CDK}): make setup")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "cdk").symlink_to(CDK)
    (programs / "node").symlink_to(Path(sys.executable).with_name("node"))
    return {
        **shell.variables(local_aws),
        "PATH": f"{installed.parent}:{programs}:/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "home/.config"),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "CI": "true",
    }


def test_to_a_job_and_back(local_aws: LocalAws, commands: dict[str, str], tmp_path: Path) -> None:
    need(slurm.available() is None, str(slurm.available()))
    folder = tmp_path / "empty"
    folder.mkdir()

    def typed(line: str) -> str:
        done = completed(["bash", "-c", line], env=commands, cwd=folder, timeout=1500)
        assert done.returncode == 0, f"{line}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    before = inventory(local_aws.client)
    with attached(local_aws, "slurm"):
        written = typed("trn init my-cluster --region us-east-1 --instance-type trn1.32xlarge --nodes 2")
        assert {file.name for file in folder.iterdir()} == {"environment.yaml", "app.py", "cdk.json"}
        assert f"in use: {folder}/environment.yaml, in us-east-1. " in written
        deployed = typed("cdk deploy TrnPclusterStack --require-approval never --no-notices")
        assert (
            f"environment: {folder}/environment.yaml (trn use), name my-cluster, region us-east-1, stacks: " in deployed
        )
        assert re.search(r"stacks: .*TrnPclusterStack-my-cluster", deployed)
        (folder / "hello.sh").write_text(HELLO)
        assert "node 1 of 2: <a b>" in typed("trn submit hello.sh --nodes 2 --follow 'a b'")
        assert "TrnPclusterStack-my-cluster is deleted" in typed("trn destroy --yes")
    assert beyond(inventory(local_aws.client), before) == {}


def test_what_is_there_stays(commands: dict[str, str], tmp_path: Path) -> None:
    """An app of the user's own, and one of a clone's: never overwritten, also with --force."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "app.py").write_text("theirs\n")
    done = completed(["trn", "init", "mine"], env=commands, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "app.py is there already, and stays as it is\n" in done.stderr
    assert "written too, for cdk: cdk.json\n" in done.stderr
    flags = (folder / "cdk.json").read_text()
    (folder / "cdk.json").write_text(flags.replace("true", "false"))
    done = completed(["trn", "init", "mine", "--force"], env=commands, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "app.py").read_text() == "theirs\n"
    assert (folder / "cdk.json").read_text() == flags
