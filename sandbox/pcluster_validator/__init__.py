"""AWS ParallelCluster's validation of a cluster configuration.

`PclusterValidator` keeps a process of the environment `.venvs/pcluster` running (importing pcluster takes seconds) and
sends it requests. The validators look up subnets, keys, buckets, file systems and reservations in the AWS that the
variables select; `sandbox.pcluster_validator.seed` creates such resources for a test.

The validators use the same emulator that the stacks are deployed into, because they must see the network
that a stack created. ministack is its base; what it lacks (instance types, offerings, official images, capacity
reservations, key types, FSx) is added to it. moto alone would suffice for validation, but cannot deploy the stack.
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
from typing import Any, NamedTuple, Self

from sandbox import paths

PCLUSTER_PYTHON = paths.environment("pcluster") / "bin/python"


class Finding(NamedTuple):
    """A finding of pcluster's validation.

    level: "ERROR" (pcluster does not create the cluster), "WARNING" or "INFO".
    type: the validator's name, "ConfigSchemaValidator" for the schema.
    message: pcluster's text.
    """

    level: str
    type: str
    message: str


class Change(NamedTuple):
    """A difference between two configurations, with the result of pcluster's update policy."""

    path: str
    old: Any
    new: Any
    allowed: bool
    reason: str
    action_needed: str


class ValidatorError(RuntimeError):
    """pcluster is not installed, or failed."""


def installed_version(python: Path = PCLUSTER_PYTHON) -> str | None:
    """The version of aws-parallelcluster in the environment of `python`, or None."""
    found = sorted(python.parent.parent.glob("lib/python*/site-packages/aws_parallelcluster-*.dist-info"))
    return found[-1].name.removeprefix("aws_parallelcluster-").removesuffix(".dist-info") if found else None


class PclusterValidator:
    """A running pcluster process. Use it as a context manager, or call `close`.

    env: AWS_ENDPOINT_URL, region and credentials (for example `LocalAws.env`). Requests are processed one at a time;
    threads can share the object.
    """

    def __init__(self, env: Mapping[str, str], python: Path = PCLUSTER_PYTHON) -> None:
        if installed_version(python) is None:
            raise ValidatorError(f"aws-parallelcluster is not installed at {python}: run `{paths.SETUP}`")
        self._env = {key: value for key, value in env.items() if key.startswith("AWS_")}
        self._lock = threading.Lock()
        self._home = tempfile.TemporaryDirectory(prefix="pcluster-home-")  # pcluster writes its log there
        self._log = (Path(self._home.name) / "worker.log").open("w+")
        path = os.pathsep.join([str(paths.BIN), os.environ.get("PATH", os.defpath)])  # it runs node
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
                raise ValidatorError(f"pcluster's process ended: {self._log.read()[-2000:].strip()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ValidatorError(f"pcluster failed: {answer['error']}")
        return answer

    def validate(self, config: Mapping[str, Any], name: str = "trn") -> list[Finding]:
        """All findings of pcluster's dry run for the creation of cluster `name` from `config`; errors come last.

        An empty list, or one without a finding of level ERROR, means that pcluster accepts it.
        """
        order = {"INFO": 0, "WARNING": 1, "ERROR": 2}
        answer = self._ask({"op": "validate", "name": name, "config": config})
        findings = [Finding(**item) for item in answer["findings"]]
        return sorted(findings, key=lambda finding: order.get(finding.level, 2))

    def typed(self, config: Mapping[str, Any], name: str = "trn") -> dict[str, Any]:
        """`config` as pcluster reads it: strings converted to numbers and booleans where the schema has them.

        Raises ValidatorError for a configuration that its schema rejects.
        """
        answer: dict[str, Any] = self._ask({"op": "typed", "name": name, "config": config})["config"]
        return answer

    def check_update(
        self,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        *,
        fleet_running: bool,
        login_running: bool | None = None,
        name: str = "trn",
    ) -> list[Change]:
        """The changes from `old` to `new`, each with the result of pcluster's update policy. Empty: no difference.

        Args:
            fleet_running: whether the fleet is running; many changes require a stopped fleet.
            login_running: whether login nodes are running. Default: whether `old` has any.

        Raises:
            ValidatorError: pcluster's check raised an exception, as the update would.
        """
        if login_running is None:
            pools = (old.get("LoginNodes") or {}).get("Pools") or []
            login_running = any(int(pool.get("Count", 1)) > 0 for pool in pools)
        request = {"op": "check_update", "name": name, "old": old, "new": new, "fleet_running": fleet_running}
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

    def __exit__(self, *_: object) -> None:
        self.close()


def errors(findings: list[Finding]) -> list[Finding]:
    """The findings with which pcluster rejects the configuration."""
    return [finding for finding in findings if finding.level == "ERROR"]
