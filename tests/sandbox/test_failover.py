"""`trn launch --failover` in two regions with a Slurm each: nodes are taken away after a checkpoint, and the job goes on from it in the other
region. The command is killed at many points, and is run again each time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import LocalAws, slurm
from sandbox.paths import HOME as ROOT
from tests.sandbox import on_aws
from tests.support import need_slurm, until

TRAIN = """\
import fcntl, os, pathlib, sys, time

# the sandbox's nodes are this machine: its shared file systems are in a folder
folder = pathlib.Path(os.environ["TRN_SHARED_ROOT"] + sys.argv[sys.argv.index("--checkpoints") + 1])
here = pathlib.Path(sys.argv[-1])
with (here / "started").open("a") as alone:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a second copy at the same time fails
    folder.mkdir(exist_ok=True)
    done = max((int(file.stem) for file in folder.glob("*.step")), default=0)
    own = len(list(pathlib.Path(os.environ["TRN_CHECKPOINTS"]).iterdir()))  # went with the job, too
    print(done, own, file=alone, flush=True)
    pathlib.Path(os.environ["TRN_CHECKPOINTS"], str(done)).touch()
    (folder / f"{done + 10}.step").write_text(str(done + 10))
    print(f"steps {done} to {done + 10}", flush=True)
    while not (here / f"end-{done + 10}").exists():
        time.sleep(0.2)
"""
REASON = "(Code:InsufficientInstanceCapacity)Failure when resuming nodes"


class Launch:
    """The one command, in the sandbox's shell."""

    def __init__(self, shell: on_aws.Shell, folder: Path) -> None:
        self.shell = shell
        self.command = (
            f"env XDG_STATE_HOME={folder}/state trn launch environment.yaml train.py --workdir my-project --yes --remove --patience 0 "
            f"--checkpoints /efs/run7 --failover east.yaml -- --checkpoints /efs/run7 {folder}"
        )

    def run(self, kill_at: str = "") -> str:
        """What it prints, to its end, or until a line has this, at which it is killed."""
        said = []
        with subprocess.Popen(
            self.shell.split(self.command), cwd=self.shell.checkout, env=self.shell._environment(), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        ) as running:  # fmt: skip
            for line in running.stdout or ():
                said.append(line)
                if kill_at and re.search(kill_at, line):
                    os.kill(running.pid, signal.SIGKILL)
                    break
            else:
                assert running.wait() == 0, "".join(said)[-6000:]
                assert not kill_at, f"no line with {kill_at}\n{''.join(said)[-6000:]}"
        return "".join(said)


@pytest.mark.sweep
def test_goes_on_in_the_other_region_however_often_it_is_killed(tmp_path: Path) -> None:
    need_slurm()
    directory, folder = tmp_path / "sandbox", tmp_path / "checkout"
    for path in (directory, folder):
        path.mkdir()
    shell = on_aws.Shell(directory, on_aws.checkout(folder))
    (folder / "my-project").mkdir()
    (folder / "my-project/train.py").write_text(TRAIN)
    launch, started = Launch(shell, tmp_path), tmp_path / "started"
    sandbox, where = [sys.executable, "-m", "sandbox"], ["--dir", str(directory)]
    try:
        subprocess.run([*sandbox, "up", "--slurm", *where], cwd=ROOT, check=True)
        shell.run("trn init east.yaml --from environment.yaml --region us-east-2 --zone use2-az3 --name east")
        for file in ("environment.yaml", "east.yaml"):
            shell.run(f"cdk bootstrap -c env={file}")
        said = launch.run(r"deploying\.\.\. \[1/1\]")
        assert "TrnPclusterStack is not deployed in us-west-2. It will cost" in said
        assert "TrnPclusterStack-east is not deployed in us-east-2. It will cost" in said
        launch.run("submitting train-")
        launch.run("--- train")
        assert until(lambda: started.exists() and started.read_text() == "0 0\n")

        west = slurm.LocalSlurm.open(directory / "slurm/trn-slurm")
        west.kill_node("compute1-dy-trn-1")
        nodes = ",".join(name for name in west.node_names if name.startswith("compute1"))
        west.run(["scontrol", "update", f"nodename={nodes}", "state=down", f"reason={REASON}"])
        for point in (
            "leaves TrnPclusterStack in us-west-2",
            r": train CANCELLED",
            r"deploying\.\.\. \[1/1\]",
            "^/efs/run7 to ",
            " to /efs/run7: ",
            "submitting train-",
        ):
            launch.run(point)
        launch.run("steps 10 to 20")
        (tmp_path / "end-20").touch()
        said = launch.run()
        assert re.search(r"train-\w+ on TrnPclusterStack-east in us-east-2: completed", said)
        assert started.read_text().splitlines() == ["0 0", "10 1"]
        assert not list((tmp_path / "state/trainium-cdk/launch").glob("*/"))
        aws = LocalAws.attach(directory)
        assert aws is not None
        assert {kind for kind in aws.leftovers() if not kind.startswith("log groups")} == set()
    finally:
        subprocess.run([*sandbox, "down", *where], cwd=ROOT, check=True)
