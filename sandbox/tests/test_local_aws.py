"""The local AWS itself: how it starts, gives a shell its AWS, and ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from sandbox import LocalAws, SandboxError
from sandbox.__main__ import main
from sandbox.paths import HOME, PACKAGE, python_path
from sandbox.testing import completed, need_local_aws, until


@pytest.mark.sweep
def test_the_command_line_gives_a_shell_its_aws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_local_aws()
    where = ["--dir", str(tmp_path / "aws")]
    assert main(["env", *where]) == 2
    assert "python -m sandbox up" in capsys.readouterr().err
    assert main(["up", *where]) == 0
    assert main(["up", *where]) == 0
    first, again = [line for line in capsys.readouterr().out.splitlines() if line.startswith("local AWS")]
    assert first == again, "a second `up` finds the one that runs"
    try:
        assert main(["env", *where]) == 0
        shell = capsys.readouterr().out + "env"
        seen = completed(["sh", "-c", shell], env={**os.environ, "AWS_PROFILE": "real"}, check=True).stdout.splitlines()
        assert f"AWS_ENDPOINT_URL={first.split()[3]}" in seen
        assert not [line for line in seen if line.startswith("AWS_PROFILE=")]
        assert main(["leftovers", *where]) == 0
        running = LocalAws.attach(tmp_path / "aws")
        assert running is not None
        running.client("s3").create_bucket(Bucket="forgotten")
        assert main(["leftovers", *where]) == 1
        assert "S3 buckets: forgotten" in capsys.readouterr().out
    finally:
        assert main(["down", *where]) == 0
    assert LocalAws.attach(tmp_path / "aws") is None


def test_an_emulator_that_does_not_start_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ModuleNotFoundError: ministack'\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sandbox.local_aws.EMULATOR_PYTHON", broken)
    with pytest.raises(SandboxError, match=r"ended with 7(.|\n)*ModuleNotFoundError: ministack"):
        LocalAws.start(tmp_path / "aws")


@pytest.mark.parametrize("removed", [[], ["state.json"]])
def test_the_guard_ends_what_outlives_its_starter(tmp_path: Path, removed: list[str]) -> None:
    """As `python -m sandbox up` starts it; also where its folder is removed before the guard looks."""
    need_local_aws()
    script = """
import os, signal, sys
from pathlib import Path
from sandbox import LocalAws, guard
folder = Path(sys.argv[1])
guard.watch("aws", folder)
print(LocalAws.start(folder).pid, flush=True)
for name in sys.argv[2:]:
    (folder / name).unlink()
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "aws"), *removed]
    done = completed(command, cwd=HOME, env={**os.environ, "PYTHONPATH": python_path()})
    pid = int(done.stdout)
    assert until(lambda: not Path(f"/proc/{pid}").exists(), 60), f"still running: {pid}"


def test_the_guard_acts_without_its_source(tmp_path: Path) -> None:
    copy = tmp_path / "source/sandbox"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "module*", "tests"))
    script = """
import os, shutil, signal, subprocess, sys
from pathlib import Path
from sandbox import guard, paths
assert str(paths.PACKAGE) == sys.argv[2]
left = subprocess.Popen(["sleep", "600"], env={"TRN_SANDBOX": sys.argv[1]}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
print(left.pid, flush=True)
guard.watch("slurm", Path(sys.argv[1]))
for number in range(2000):
    guard.release("slurm", Path("/nowhere" * 10, str(number)))  # more than a pipe holds: the guard has begun to read
shutil.rmtree(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "slurm"), str(copy)]
    where = os.pathsep.join([str(copy.parent), *python_path().split(os.pathsep)[1:]])
    done = completed(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": where})
    pid = int(done.stdout)
    assert not copy.exists(), done.stderr
    try:
        assert until(lambda: not Path(f"/proc/{pid}").exists(), 60), f"still running: {pid}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_what_was_started_ends_with_it(tmp_path: Path) -> None:
    """The emulator ends when the process that started it is killed, and ends a running command as well."""
    need_local_aws()
    script = """
import json, os, signal, sys, time
from sandbox import LocalAws
aws = LocalAws.start()
ec2 = aws.client("ec2")
head = ec2.run_instances(InstanceType="c5.large", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
tags = {"parallelcluster:cluster-name": "c", "parallelcluster:node-type": "HeadNode"}
ec2.create_tags(Resources=[head], Tags=[{"Key": k, "Value": v} for k, v in tags.items()])
(aws.directory / "clusters/c").mkdir()
(aws.directory / "clusters/c/node.json").write_text(json.dumps({"cwd": sys.argv[1]}))
aws.client("ssm").send_command(
    InstanceIds=[head], DocumentName="AWS-RunShellScript",
    Parameters={"commands": ["echo $$ > pid.new; mv pid.new pid; exec sleep 600"]},
)
while not os.path.exists(sys.argv[1] + "/pid"):
    time.sleep(0.05)
print(aws.pid, open(sys.argv[1] + "/pid").read().strip(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = completed(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        cwd=HOME,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids)), f"still running: {pids}"
