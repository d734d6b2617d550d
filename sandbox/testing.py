"""What tests that run through the sandbox share: its own tests, and tests of what it runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox import guard, kubernetes, paths, slurm
from sandbox.kubernetes.build import SESSION_MANAGER
from sandbox.local_aws import CDK, EMULATOR_PYTHON, LocalAws
from sandbox.pcluster_validator import PCLUSTER_PYTHON, installed_version


def need(condition: object, reason: str) -> None:
    """Skip the test with ``reason`` unless ``condition`` holds; in continuous integration (CI=true) fail instead.

    A test that starts a server or a program from outside its own environment requests it here; with PARTS=none all of
    these are skipped, available or not.
    """
    if os.environ.get("PARTS") == "none":
        pytest.skip("PARTS=none: only what needs no server and no program of another environment")
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true allows no skip: {reason}", pytrace=False)
    pytest.skip(reason)


def need_local_aws() -> None:
    """Skip or fail as `need` does, unless a local AWS can be started."""
    need(EMULATOR_PYTHON.exists(), f"the emulator is not installed ({EMULATOR_PYTHON}): make setup")
    need(CDK.exists(), f"the CDK command line is not installed ({CDK}): make setup")


def need_pcluster() -> None:
    """Skip or fail as `need` does, unless AWS ParallelCluster's own package is installed."""
    need(installed_version(), f"aws-parallelcluster is not installed ({PCLUSTER_PYTHON}): make setup")


def need_slurm() -> None:
    """Skip or fail as `need` does, unless a local Slurm can be started."""
    reason = slurm.available()
    need(reason is None, str(reason))


def need_kubernetes(*, volcano: bool = False) -> None:
    """Skip or fail as `need` does, unless a local Kubernetes can be started, with Volcano if `volcano`."""
    reason = kubernetes.available(volcano=volcano)
    need(reason is None, str(reason))


def completed(command: Sequence[Any], *, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """A program that has ended, and what it wrote, as text; `options`: of `subprocess.run`."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)


def session_manager_plugin() -> Path:
    """The folder with AWS's own session-manager-plugin; skips or fails as `need` does without it."""
    need(SESSION_MANAGER.built, "session-manager-plugin is not built: make kubernetes")
    return SESSION_MANAGER.directory / "bin"


@contextlib.contextmanager
def head_node(aws: LocalAws, cluster: str) -> Iterator[str]:
    """The instance of a cluster's head node; what runs its commands is in the file `clusters/CLUSTER/node.json` of the sandbox, in a folder of
    the caller's."""
    ec2 = aws.client("ec2")
    tags = {"parallelcluster:cluster-name": cluster, "parallelcluster:node-type": "HeadNode"}
    tags |= {"aws:cloudformation:stack-name": cluster, "aws:cloudformation:logical-id": "HeadNode"}
    tagged = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]
    made = ec2.run_instances(InstanceType="c5.4xlarge", MinCount=1, MaxCount=1, TagSpecifications=tagged)
    instance: str = made["Instances"][0]["InstanceId"]
    try:
        yield instance
    finally:
        ec2.terminate_instances(InstanceIds=[instance])


@contextlib.contextmanager
def sandbox_up(directory: Path, *parts: str) -> Iterator[LocalAws]:
    """`python -m sandbox up`, and `down` at the end: the local AWS. If this process is killed before that, the guard stops what `up` has started."""
    sandbox = [sys.executable, "-m", "sandbox"]
    guard.watch("aws", directory)
    try:
        subprocess.run([*sandbox, "up", *parts, "--dir", str(directory)], cwd=paths.HOME, check=True)
        aws = LocalAws.attach(directory)
        assert aws is not None  # noqa: S101  it has just been started
        yield aws
    finally:
        subprocess.run([*sandbox, "down", "--dir", str(directory)], cwd=paths.HOME, check=True)
        guard.release("aws", directory)


def until(found: Callable[[], Any], seconds: float = 600) -> Any:
    """What `found` gives once it is true; its last answer if it does not become true in that time. The longer it has waited, the more
    rarely it asks: what answers uses the processor, too."""
    begin = time.monotonic()
    while not (last := found()) and (waited := time.monotonic() - begin) < seconds:
        time.sleep(min(0.5, 0.05 + waited / 10))
    return last
