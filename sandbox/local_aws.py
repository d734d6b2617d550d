"""Starts, uses and stops the local AWS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from sandbox import catalogue, leftovers, paths, processes
from sandbox.pcluster_validator import PCLUSTER_PYTHON, PclusterValidator, installed_version

EMULATOR_PYTHON = paths.environment("aws") / "bin/python"
CDK = paths.cdk()
SHIMS = paths.PACKAGE / "kubernetes/shims"
"""kubectl, helm and aws for the CDK's functions in the local AWS."""
ACCOUNT = "000000000000"
"""The account of the dummy key `test` in the emulator."""
DEFAULT_DIRECTORY = paths.CACHE / "sandbox"
START_SECONDS = 180.0


class SandboxError(RuntimeError):
    """The local AWS could not be started or used; the message has the fix."""


def plain_environment() -> dict[str, str]:
    """This process's environment without real credentials, profiles and proxies."""
    dropped = ("AWS_", "SANDBOX_", "CDK_")
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}
    return {
        key: value
        for key, value in os.environ.items()
        if not key.upper().startswith(dropped) and key.upper() not in proxies
    }


def _answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}/_ministack/health", timeout=2) as reply:  # noqa: S310 - loopback
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class LocalAws:
    """A running local AWS. Call `start`; stop it with `stop` or at the end of the `with` block.

    directory: the sandbox's folder: logs, `clusters/<name>/`, `faults.json`, the CDK's own folder.
    endpoint: http://127.0.0.1:<port>; for all services.
    """

    _started: ClassVar[dict[int, subprocess.Popen[bytes]]] = {}  # children of this process, to be reaped

    def __init__(self, directory: Path, state: Mapping[str, Any], *, temporary: bool = False) -> None:
        self.directory = directory
        self.endpoint = str(state["endpoint"])
        self.region = str(state["region"])
        self.pid = int(state["pid"])
        self._temporary = temporary
        self._validator: PclusterValidator | None = None
        self._clients: dict[tuple[str, str], Any] = {}

    # --- lifecycle ---

    @classmethod
    def start(cls, directory: str | Path | None = None, region: str = "us-east-1") -> LocalAws:
        """Start a local AWS in `directory`, or return the one that is already running there.

        Without a directory, a temporary one is used, and `stop` removes it. Raises SandboxError with the end of the
        emulator's log if it does not start.
        """
        temporary = directory is None
        folder = Path(directory or tempfile.mkdtemp(prefix="local-aws-")).resolve()
        running = None if temporary else cls.attach(folder)
        if running:
            return running
        for path, what in ((EMULATOR_PYTHON, "the emulator"), (CDK, "the CDK command line")):
            if not path.exists():
                raise SandboxError(f"{what} is not installed ({path} is missing): run `{paths.SETUP}`")
        for name in ("tmp", "clusters", "cdk-home"):  # the emulator's state is in memory and does not survive it
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        for name in ("eks", "attach"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (
            "baseline.json", "faults.json", "helm.jsonl", "helm-releases.json", "kubectl.jsonl",
            "quotas.json", "capacity.json", "unreservable.json", "nodegroups.json", "reservations.json", "block-offerings.json",
            "run-command.json", "regions.json", "spot.json",
        ):  # fmt: skip
            (folder / name).unlink(missing_ok=True)
        (folder / "offerings.json").write_text(json.dumps(catalogue.offerings()))
        (folder / "eks-versions.json").write_text(json.dumps(catalogue.kubernetes()))
        port, clusters = processes.free_ports(2)
        state: dict[str, Any] = {"endpoint": f"http://127.0.0.1:{port}", "region": region}
        log = folder / "emulator.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [str(EMULATOR_PYTHON), "-m", "sandbox.emulator"],
                env={
                    **cls._emulator_environment(folder, port, clusters, region),
                    **({"SANDBOX_PARENT": str(os.getpid())} if temporary else {}),
                },
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        state |= {"pid": process.pid, "began": processes.identity(process).began}
        aws = cls(folder, state, temporary=temporary)
        cls._started[process.pid] = process
        try:
            aws._wait(process, log)
        except BaseException:
            aws.stop()
            raise
        (folder / "state.json").write_text(json.dumps(state) + "\n")
        return aws

    @classmethod
    def attach(cls, directory: str | Path) -> LocalAws | None:
        """The local AWS that is running in `directory`, or None.

        Raises:
            SandboxError: it is running but does not respond.
        """
        path = Path(directory).resolve() / "state.json"
        if not path.is_file():
            return None
        state = json.loads(path.read_text())
        process = processes.Started(state["pid"], state.get("began", -1))
        if not processes.wait_until(lambda: not process.alive or _answers(state["endpoint"]), START_SECONDS, 0.1):
            raise SandboxError(f"the local AWS in {path.parent} does not respond. End its process: kill {process.pid}")
        if not process.alive:
            path.unlink()
            return None
        return cls(path.parent, state)

    @staticmethod
    def _emulator_environment(folder: Path, port: int, clusters: int, region: str) -> dict[str, str]:
        return {
            **plain_environment(),
            "PATH": os.pathsep.join([str(SHIMS), str(paths.BIN), os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": str(paths.source()),
            "NODE_PATH": str(paths.NODE_MODULES),
            "TMPDIR": str(folder / "tmp"),
            "TEST_OUTDIR": str(folder / "tmp"),  # for the CDK's kubectl provider; default: /tmp
            "STATE_DIR": str(folder / "tmp"),
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_REGION": region,
            "LAMBDA_EXECUTOR": "local",
            "DOCKER_HOST": f"unix://{folder}/no-docker.sock",  # otherwise it runs a k3s for each cluster
            "EKS_BASE_PORT": str(clusters),
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SANDBOX_DIR": str(folder),
            "SANDBOX_SOURCE": str(paths.source()),
            "SANDBOX_FAULTS": str(folder / "faults.json"),
            "SANDBOX_OFFERINGS": str(folder / "offerings.json"),
            "SANDBOX_PCLUSTER_PYTHON": str(PCLUSTER_PYTHON),
            "SANDBOX_PCLUSTER_VERSION": installed_version() or "",
        }

    def _wait(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Wait until the emulator responds. Raises SandboxError with the end of the log if it does not."""
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.endpoint):
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                what = f"ended with {process.returncode}" if ended else f"did not respond within {START_SECONDS:.0f} s"
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                raise SandboxError(f"the local AWS {what}; the end of {log}:\n{tail}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the emulator and everything that it started; remove a temporary folder."""
        if self._validator:
            self._validator.close()
            self._validator = None
        while self._clients:
            self._clients.popitem()[1].close()
        for end in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.pid, end)
            except ProcessLookupError:
                break
            if self._ended(10.0):
                break
        (self.directory / "state.json").unlink(missing_ok=True)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            child = self._started.get(self.pid)
            if child and child.poll() is not None:
                del self._started[self.pid]
                return True
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- usage ---

    @property
    def variables(self) -> dict[str, str]:
        """Variables with which the AWS CLI, boto3 and the CDK use this AWS."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": self.region,
            "CDK_HOME": str(self.directory / "cdk-home"),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    @property
    def env(self) -> dict[str, str]:
        """The complete environment of a subprocess: this process's, without real credentials, plus `variables`."""
        path = os.pathsep.join([str(paths.BIN), str(CDK.parent), os.environ.get("PATH", os.defpath)])
        return {**plain_environment(), **self.variables, "PATH": path, "CI": "true", "NO_COLOR": "1"}

    def client(self, service: str, region: str | None = None) -> Any:
        """A boto3 client of this AWS (cached, because creating one takes much longer than a request)."""
        import boto3

        key = (service, region or self.region)
        if key not in self._clients:
            make: Any = boto3.client  # its stubs accept only literal service names
            self._clients[key] = make(
                service,
                region_name=key[1],
                endpoint_url=self.endpoint,
                aws_access_key_id="test",
                aws_secret_access_key="test",  # noqa: S106 - the emulator takes any
            )
        return self._clients[key]

    def cdk(
        self, *arguments: str, cwd: str | Path, timeout: float = 600, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the CDK command line in `cwd`; standard error is part of the output.

        timeout: seconds. With `check`, a failure raises SandboxError with the end of the output.
        """
        done = subprocess.run(
            [str(CDK), *arguments, "--no-notices"],
            cwd=cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise SandboxError(f"cdk {' '.join(arguments)} failed ({done.returncode}):\n{done.stdout[-4000:]}")
        return done

    def bootstrap(self, region: str | None = None) -> None:
        """`cdk bootstrap` of a region (default: this AWS's region); its resources do not count as leftovers."""
        place, known = region or self.region, self._baseline()
        account_wide = place != self.region and self.region in known
        before = self._inventory(self.region) if account_wide else {}
        self.cdk("bootstrap", f"aws://{ACCOUNT}/{place}", cwd=self.directory)
        if place in known:
            return
        known[place] = self._inventory(place)
        if account_wide:  # roles and bucket of `place` are listed in every region
            for kind, names in leftovers.beyond(self._inventory(self.region), before).items():
                known[self.region][kind] = [*known[self.region].get(kind, []), *names]
        (self.directory / "baseline.json").write_text(json.dumps(known) + "\n")

    def _baseline(self) -> dict[str, dict[str, list[str]]]:
        """Region -> resources that existed when it was bootstrapped."""
        path = self.directory / "baseline.json"
        found: dict[str, dict[str, list[str]]] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _inventory(self, region: str) -> dict[str, list[str]]:
        return leftovers.inventory(lambda service: self.client(service, region), regional_only=region != self.region)

    def leftovers(self) -> dict[str, list[str]]:
        """All resources beyond those right after `bootstrap`: kind -> names. Empty: nothing is left.

        Checks this AWS's region and every other bootstrapped region, whose kinds have the region's name.
        """
        known = {self.region: {}, **self._baseline()}
        toolkits: set[str] = set()
        for region in self._bootstrapped() - known.keys():  # bootstrapped without this class
            known[region] = known[self.region]  # each region has the same default network
            found = self.client("cloudformation", region).describe_stack_resources(StackName="CDKToolkit")
            toolkits |= {"CDKToolkit", *(resource["PhysicalResourceId"] for resource in found["StackResources"])}
        more: dict[str, list[str]] = {}
        for region, before in known.items():
            mark = "" if region == self.region else f" in {region}"
            for kind, names in leftovers.beyond(self._inventory(region), before).items():
                if left := [name for name in names if name not in toolkits]:
                    more[kind + mark] = left
        return more

    def _bootstrapped(self) -> set[str]:
        """The regions with the CDK's bucket."""
        mark = f"cdk-hnb659fds-assets-{ACCOUNT}-"
        names = [bucket["Name"] for bucket in self.client("s3").list_buckets()["Buckets"]]
        return {name.removeprefix(mark) for name in names if name.startswith(mark)}

    @property
    def pcluster_validator(self) -> PclusterValidator:
        """pcluster's validators for this AWS. Started at first use, stopped by `stop`."""
        if self._validator is None:
            self._validator = PclusterValidator(self.env)
        return self._validator

    def set_compute_fleet(self, cluster: str, *, running: bool) -> None:
        """Set whether a cluster's compute fleet is running, as `pcluster update-compute-fleet` does.

        pcluster rejects many changes while the fleet is running. Raises SandboxError for an unknown cluster.
        """
        path = self.directory / "clusters" / cluster / "cluster.json"
        if not path.is_file():
            raise SandboxError(f"there is no cluster {cluster!r} in {self.directory}")
        record = json.loads(path.read_text())
        record["computeFleetStatus"] = "RUNNING" if running else "STOPPED"
        self._replace(path, json.dumps(record, indent=2) + "\n")

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        """Write atomically: a reader sees the old text or the new text."""
        partial = path.with_name(f".{path.name}.new")
        partial.write_text(text)
        partial.replace(path)

    def set_answers(self, name: str, data: Any) -> None:
        """Change the emulator's responses from now on: quotas, reservations, block-offerings, regions, spot, eks-versions,
        run-command.

        data: see the emulator's module with that name. None restores the default responses.
        """
        path = self.directory / f"{name}.json"
        if data is None and name == "eks-versions":
            data = catalogue.kubernetes()
        if data is None:
            path.unlink(missing_ok=True)
        else:
            self._replace(path, json.dumps(data))

    def set_faults(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Failures to inject into CloudFormation from now on (see `sandbox.emulator.cfn.faults`); [] removes all."""
        stamped = [
            {**fault, "set": uuid.uuid4().hex} for fault in faults
        ]  # a fault that is set again starts counting `times` again
        self._replace(self.directory / "faults.json", json.dumps(stamped))
