"""What AWS ParallelCluster itself says about a cluster configuration.

`Oracle` keeps one process of the environment `.venvs/pcluster` alive (importing pcluster takes seconds) and
asks it. The validators look up subnets, keys, buckets, file systems and reservations in the AWS named by the
environment variables handed over; `sandbox.oracle.seed` makes such objects for a test.

Why one AWS for all: the validators' questions (DescribeSubnets, DescribeInstanceTypes, DescribeImages, ...) are
answered by the same emulator that the stacks are deployed into. ministack is the base, because the network a
stack made must be what the validators see; what it lacks (instance types, offerings, official images, capacity
reservations, key types, FSx) is added to it. moto alone would validate as well, but cannot deploy the stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sandbox import paths

PCLUSTER_PYTHON = paths.environment("pcluster") / "bin/python"


class Finding(NamedTuple):
    """One result of pcluster's validation.

    level: "ERROR" (pcluster refuses to create the cluster), "WARNING" or "INFO".
    type: the validator's name, "ConfigSchemaValidator" for the schema.
    message: pcluster's own words.
    """

    level: str
    type: str
    message: str


class Change(NamedTuple):
    """One difference between two configurations and what pcluster's update policy says about it."""

    path: str
    old: Any
    new: Any
    allowed: bool
    reason: str
    action_needed: str


class OracleError(RuntimeError):
    """pcluster could not be asked: it is not installed, or broke."""


def installed_version(python: Path = PCLUSTER_PYTHON) -> str | None:
    """The version of aws-parallelcluster in the environment of `python`; None when it is not there."""
    found = sorted(python.parent.parent.glob("lib/python*/site-packages/aws_parallelcluster-*.dist-info"))
    return found[-1].name.removeprefix("aws_parallelcluster-").removesuffix(".dist-info") if found else None


class Oracle:
    """A running pcluster to ask. Use as a context manager, or call `close`.

    env: AWS_ENDPOINT_URL, region and credentials (`LocalAws.env` will do). Requests are answered one at a time;
    the object may be shared between threads.
    """

    def __init__(self, env: Mapping[str, str], python: Path = PCLUSTER_PYTHON) -> None:
        if installed_version(python) is None:
            raise OracleError(f"aws-parallelcluster is not installed at {python}: run `{paths.SETUP}`")
        self._env = {key: value for key, value in env.items() if key.startswith("AWS_")}
        self._lock = threading.Lock()
        self._home = tempfile.TemporaryDirectory(prefix="pcluster-home-")  # pcluster writes its log there
        self._log = (Path(self._home.name) / "worker.log").open("w+")
        path = os.pathsep.join([str(paths.BIN), os.environ.get("PATH", os.defpath)])  # it asks for node
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                "PATH": path,
                "HOME": self._home.name,
                "PYTHONWARNINGS": "ignore",
                **self._env,
            },
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        to_worker, from_worker = self._process.stdin, self._process.stdout
        with self._lock:
            line = ""
            if to_worker and from_worker and not to_worker.closed:
                with contextlib.suppress(BrokenPipeError):
                    to_worker.write(json.dumps({**request, "env": self._env}) + "\n")
                    to_worker.flush()
                    line = from_worker.readline()
            if not line:
                self._log.seek(0)
                raise OracleError(f"pcluster's process ended: {self._log.read()[-2000:].strip()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise OracleError(f"pcluster broke: {answer['error']}")
        return answer

    def validate(self, config: Mapping[str, Any], name: str = "trn") -> list[Finding]:
        """Everything pcluster's dry run says about creating cluster `name` from `config`; errors come last.

        An empty list, or one without a finding of level ERROR, means that pcluster would create the cluster.
        """
        order = {"INFO": 0, "WARNING": 1, "ERROR": 2}
        answer = self._ask({"op": "validate", "name": name, "config": config})
        findings = [Finding(**item) for item in answer["findings"]]
        return sorted(findings, key=lambda finding: order.get(finding.level, 2))

    def typed(self, config: Mapping[str, Any], name: str = "trn") -> dict[str, Any]:
        """`config` as pcluster reads it: numbers and booleans that came as strings in their own types.

        Raises OracleError for a configuration that its schema refuses.
        """
        answer: dict[str, Any] = self._ask({"op": "typed", "name": name, "config": config})["config"]
        return answer

    def judge_update(
        self,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        *,
        fleet_running: bool,
        login_running: bool | None = None,
        name: str = "trn",
    ) -> list[Change]:
        """The changes from `old` to `new`, each with the verdict of pcluster's update policy. Empty: no difference.

        Args:
            fleet_running: whether compute nodes may be up; many changes need a stopped fleet.
            login_running: whether login nodes are up. Default: whether `old` has any.

        Raises:
            OracleError: pcluster's own check ended with an exception, and so would the update.
        """
        if login_running is None:
            pools = (old.get("LoginNodes") or {}).get("Pools") or []
            login_running = any(int(pool.get("Count", 1)) > 0 for pool in pools)
        request = {"op": "judge", "name": name, "old": old, "new": new, "fleet_running": fleet_running}
        answer = self._ask({**request, "login_running": login_running})
        return [Change(**item) for item in answer["changes"]]

    def close(self) -> None:
        """End the process and remove its folder."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def errors(findings: list[Finding]) -> list[Finding]:
    """The findings for which pcluster refuses the configuration."""
    return [finding for finding in findings if finding.level == "ERROR"]


def validate(config: Mapping[str, Any], env: Mapping[str, str], name: str = "trn") -> list[Finding]:
    """`Oracle.validate` for one configuration; starts and ends a process of its own (some seconds)."""
    with Oracle(env) as oracle:
        return oracle.validate(config, name)


def judge_update(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    fleet_running: bool,
    login_running: bool | None = None,
    name: str = "trn",
) -> list[Change]:
    """`Oracle.judge_update` for one pair; starts and ends a process of its own (some seconds)."""
    with Oracle(env) as oracle:
        return oracle.judge_update(old, new, fleet_running=fleet_running, login_running=login_running, name=name)
