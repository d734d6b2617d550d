"""`trn verify` from its first question to the last, on each engine, by a user who has the printed policy and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws, processes
from sandbox.emulator.asked import ASKED
from sandbox.testing import sandbox_up
from tests.credentials import User
from tests.support import TRN, completed, need_kubernetes, need_slurm
from tests.trust.proxy import Cuts
from trainium_cdk.catalog.files import read
from trainium_cdk.operations.verify.permissions import policy
from trainium_cdk.operations.verify.plan import make
from trainium_cdk.operations.verify.state import load

NOT_ASKED = {
    "iam:PassRole": "IAM asks for it where a schedule is made with the role; the sandbox does not",
    "ec2:DeleteNetworkInterface": "interfaces of pods outlive their nodes on AWS alone",
}
"""Actions of the policy that no run in the sandbox needs, and why AWS does."""


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    need_slurm()
    need_kubernetes()
    directory = tmp_path_factory.mktemp("sandbox")
    with sandbox_up(directory, "--slurm", "--kubernetes") as aws:
        yield aws


@pytest.fixture
def user(aws: LocalAws) -> Iterator[User]:
    made = User(aws)
    yield made
    made.close()


def nothing_left(aws: LocalAws) -> bool:
    found = {kind: names for kind, names in aws.leftovers().items() if not kind.startswith(("log groups", "IAM users"))}
    return found == {}


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["slurm", "pcs", "eks"])
def test_a_verification(engine: str, aws: LocalAws, user: User, tmp_path: Path) -> None:
    """Each step passes, nothing is left, the policy was enough and each action of it was asked for, and the page has nothing of the account."""
    document = policy(make(engine, None, None, None))
    user.may(document)
    (aws.directory / ASKED).unlink(missing_ok=True)
    env = {**aws.env, **user.variables, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = completed(
        [TRN, "verify", "--engine", engine, "--max-usd", "60", "--yes", "--folder", "run"], cwd=tmp_path, env=env
    )
    log = (tmp_path / "run/log.txt").read_text()
    assert done.returncode == 0, f"{done.stderr[-4000:]}\n{log[-6000:]}"
    asked = [json.loads(line) for line in (aws.directory / ASKED).read_text().splitlines()]
    assert {(one["action"], one["resource"]) for one in asked if not one["allowed"]} == set()
    given = read("verify")["permissions"]  # those of the checks have a test of their own
    ours = {action for one in [*given["every"], *given[engine]] for action in one["actions"]}
    assert ours - {one["action"] for one in asked} == set(NOT_ASKED) & ours
    assert nothing_left(aws)
    page = (tmp_path / "run/verified.md").read_text() + (tmp_path / "run/verified.json").read_text()
    assert "**In the sandbox: no real AWS, no real costs or speeds.**" in page
    assert [word for word in ("000000000000", "arn:", "i-", user.keys["aws_access_key_id"]) if word in page] == []


@pytest.mark.sweep
@pytest.mark.parametrize("at", ["deploy", "nccom", "resume", "update", "remove"])
def test_a_killed_one_goes_on(at: str, aws: LocalAws, tmp_path: Path) -> None:
    """kill -9 in the middle of a step; the same command does the rest, and nothing is left."""
    words = [str(TRN), "verify", "--max-usd", "60", "--yes", "--folder", "run"]
    env = {**aws.env, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            if line.startswith(f"{at}: ") and "USD so far" in line:
                break
        time.sleep(3)
        process.kill()
        for child in processes.with_environment(lambda env: env.get("XDG_CONFIG_HOME") == str(tmp_path / "config")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child[0].pid, signal.SIGKILL)
    done = completed(words, cwd=tmp_path, env=env)
    run = load(tmp_path / "run")
    assert run is not None
    assert run.removed, done.stderr[-3000:]
    assert done.returncode == 0 or at == "deploy", done.stderr[-3000:]
    assert nothing_left(aws)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_over_a_bad_network(seed: int, aws: LocalAws, tmp_path: Path) -> None:
    """Requests of all its commands are refused, cut, throttled or not answered. Whatever fails, it is removed, and the page says what was."""
    with Cuts(int(aws.endpoint.rpartition(":")[2]), share=0.04, most=60, seed=seed) as network:
        env = {**aws.env, "XDG_CONFIG_HOME": str(tmp_path / "config")}
        env = {key: network.endpoint if key.startswith("AWS_ENDPOINT_URL") else value for key, value in env.items()}
        began = 0
        while network.total <= 10 or not began:  # a fault may end one early, or before it begins
            folder = tmp_path / f"run-{network.total}"
            words = [str(TRN), "verify", "--max-usd", "60", "--yes", "--folder", folder.name]
            for _ in range(4):  # the same command goes on, as it says
                done = completed(words, cwd=tmp_path, env=env)
                assert "Traceback" not in done.stderr
                run = load(folder)
                if run is None or run.removed:
                    break
            if run is not None:
                began += 1
                assert run.removed, done.stderr[-3000:]
                assert "Traceback" not in (folder / "log.txt").read_text()
                assert "| cost |" in (folder / "verified.md").read_text()
            assert nothing_left(aws)
