"""Without a clone: installed from git at a tag with the extra `all`, in an empty folder. To a job on Slurm and back, in the local AWS."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from sandbox import LocalAws, shell, slurm
from sandbox.leftovers import beyond, inventory
from tests.foreign.test_trn import HELLO, attached
from tests.support import completed, need
from tests.wheels import ROOT, fresh_environment, run
from trainium_cdk.client.operations.updates.spec import VERSION

pytestmark = pytest.mark.sweep

TAG = "v0.0.0-test"
TOOLS = ("bash", "sh", "env", "uname", "dirname", "sed", "tr")
"""All that a user's PATH has beside `trn`: no cdk, no Node, no Python."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `trn` of a fresh environment, from the words that the README installs. `--no-build-isolation`: nothing is fetched here."""
    folder = tmp_path_factory.mktemp("git")
    run("git", "clone", "--quiet", ROOT, folder / "clone", cwd=folder)
    run("git", "-C", folder / "clone", "tag", TAG, cwd=folder)
    words = f"trainium-cdk[all] @ git+file://localhost{folder}/clone@{TAG}"  # pip takes no address without a host
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*build, "--wheel-dir", folder / "dist", words, cwd=folder)
    return fresh_environment(folder, next((folder / "dist").glob("*.whl")), extras=("all",)).with_name("trn")


@pytest.fixture
def commands(local_aws: LocalAws, installed: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of a user's shell. `trn` has installed the CDK's command line before: that needs a network."""
    cdk = ROOT / "node_modules"
    need(cdk.exists(), f"the CDK command line is not installed ({cdk}): make setup")
    programs, cache = tmp_path / "programs", tmp_path / f"home/.cache/trainium-cdk/aws-cdk-{VERSION}"
    programs.mkdir()
    cache.mkdir(parents=True)
    (cache / "node_modules").symlink_to(cdk)
    for name in TOOLS:
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "trn").symlink_to(installed)
    return {
        **shell.variables(local_aws),
        "PATH": str(programs),
        "HOME": str(tmp_path / "home"),
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
        assert f"trn and cdk now use {folder}/environment.yaml (us-east-1). " in written
        (folder / "hello.sh").write_text(HELLO)
        launched = typed("trn launch hello.sh --nodes 2 --yes 'a b'")
        assert (
            f"environment: {folder}/environment.yaml (-c env), name my-cluster, region us-east-1, stacks: " in launched
        )
        assert re.search(r"stacks: .*TrnPclusterStack-my-cluster", launched)
        assert "node 1 of 2: <a b>" in launched
        assert "TrnPclusterStack-my-cluster: no change" in typed("trn diff")
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
