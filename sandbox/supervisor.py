"""Runs a Slurm for each ParallelCluster cluster of a local AWS, or a Kubernetes API for each EKS cluster.

`launch` starts a supervisor of a kind in the background, `end` stops it and everything that it started. It also ends when the
local AWS has ended. `sandbox.attach` has the emulator's requests.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from ruamel.yaml import YAML

from sandbox import attach, kubernetes, paths, processes, slurm
from sandbox.attach import Kind
from sandbox.kubernetes import eks, image, kueue
from sandbox.kubernetes.build import VOLCANO
from sandbox.local_aws import LocalAws, SandboxError, plain_environment
from sandbox.slurm_config import MAX_NODES, BadClusterConfiguration
from sandbox.slurm_instances import Instances
from sandbox.slurm_layout import SlurmFailed
from sandbox.slurm_plan import plan

_PAUSE = 0.3
_STOP_SECONDS = 120.0


class Attached(Protocol):
    """The Slurm or Kubernetes of one cluster."""

    def changed(self) -> None:
        """The cluster was requested again, with another configuration."""

    def refresh(self) -> None:
        """Apply changes of the cluster; called about three times a second."""

    def stop(self) -> None:
        """Stop it and remove its state."""


class AttachedSlurm:
    """A Slurm for a cluster of ParallelCluster or PCS. ParallelCluster's is restarted by changed nodes: its jobs end, its files are kept."""

    def __init__(self, aws: LocalAws, name: str, region: str) -> None:
        self._cluster = aws.directory / "clusters" / name
        self._place = aws.directory / "slurm" / name
        self._environment = {**aws.variables, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}
        self._client: Callable[[str], Any] = lambda service: aws.client(service, region)
        self._start()

    def _start(self) -> None:
        config = YAML(typ="safe", pure=True).load(self._cluster / "config.yaml")
        self._plan = plan(config, MAX_NODES)
        environment = {**self._environment, **_neuron((self._cluster / "config.yaml").read_text(), self._client("s3"))}
        self._slurm = slurm.LocalSlurm.start(self._place, config, environment=environment)
        self._slurm.attach(self._cluster)
        self._instances = Instances(self._client, self._cluster.name, config, self._plan)
        for notice in self._slurm.notices:
            print(notice, flush=True)

    def changed(self) -> None:
        config = YAML(typ="safe", pure=True).load(self._cluster / "config.yaml")
        if (wanted := plan(config, MAX_NODES)) == self._plan:
            return
        if wanted.idle_seconds:
            self._slurm.update(config)
            self._plan = wanted
            self._instances = Instances(self._client, self._cluster.name, config, self._plan)
        else:
            self._slurm.stop()
            self._start()

    def refresh(self) -> None:
        self._instances.refresh(self._slurm)

    def stop(self) -> None:
        self._instances.end()
        (self._cluster / "node.json").unlink(missing_ok=True)
        self._slurm.stop(wipe=True)


def _neuron(config: str, s3: Any) -> dict[str, str]:
    """The versions of Neuron that the nodes of a cluster install, from the scripts that its configuration names; empty where it names none."""
    found = re.search(r"s3://([a-z0-9.-]+)/([\w./-]+\.zip)", config)
    if not found:
        return {}
    scripts = io.BytesIO(s3.get_object(Bucket=found[1], Key=found[2])["Body"].read())
    settings = dict(re.findall(r"^(\w+)=(.*)$", zipfile.ZipFile(scripts).read("node.env").decode(), re.MULTILINE))
    names = {"TRN_SANDBOX_DRIVER": "TRN_NEURON_DKMS", "TRN_SANDBOX_RUNTIME": "TRN_NEURON_RUNTIME"}
    return {name: settings[key] for name, key in names.items() if key in settings}


class AttachedKubernetes:
    """A Kubernetes API for an EKS cluster, with a virtual node for each instance of its node groups."""

    def __init__(self, aws: LocalAws, name: str, region: str) -> None:
        self._aws, self._region = aws, region
        secret = eks.new_secret()
        variables = {**aws.variables, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}
        self._running = kubernetes.LocalKubernetes.start(
            aws.directory / "kubernetes" / name,
            name=name,
            token_webhook=eks.webhook_url(aws.endpoint, name, secret, region=region),
            run_jobs=True,
            job_environment=image.environment(variables),
            kueue_configuration=kueue.of_both_forms(),
            volcano=VOLCANO.built,  # any environment is deployed here
        )
        image.make(self._running.directory)
        eks.attach(aws.directory, self._running, secret)

    def changed(self) -> None:
        """Nothing to do: deployments change objects through the API."""

    def refresh(self) -> None:
        eks.sync_nodes(self._running, lambda service: self._aws.client(service, self._region))

    def stop(self) -> None:
        eks.detach(self._aws.directory, self._running.name)
        self._running.stop(wipe=True)


_MAKE: dict[Kind, Callable[[LocalAws, str, str], Attached]] = {"slurm": AttachedSlurm, "kubernetes": AttachedKubernetes}
_AVAILABLE: dict[Kind, Callable[[], str | None]] = {"slurm": slurm.available, "kubernetes": kubernetes.available}
_TROUBLE = (
    SlurmFailed, BadClusterConfiguration, kubernetes.KubernetesFailed, OSError, RuntimeError, ValueError, KeyError,
)  # fmt: skip


_children: dict[Path, list[subprocess.Popen[bytes]]] = {}
"""Supervisors that this process launched, by the sandbox's folder; `end` waits for them."""


def launch(aws: LocalAws, kind: Kind) -> None:
    """Start a supervisor in the background, unless one is already running for this local AWS.

    Raises:
        SandboxError: this machine cannot run such clusters, or the supervisor does not start.
    """
    if attach.supervisor(aws.directory, kind):
        return
    if reason := _AVAILABLE[kind]():
        raise SandboxError(f"--{kind} is not available on this machine: {reason}")
    (aws.directory / "attach").mkdir(exist_ok=True)
    log = aws.directory / "attach" / f"{kind}.log"
    environment = {**plain_environment(), "PYTHONPATH": paths.python_path(), "SANDBOX_DIR": str(aws.directory)}
    child = processes.start([sys.executable, "-m", "sandbox.supervisor", str(aws.directory), kind], log, environment)
    _children.setdefault(aws.directory, []).append(child)
    processes.wait_until(
        lambda: child.poll() is not None or attach.supervisor(aws.directory, kind) is not None, _STOP_SECONDS, 0.1
    )
    if child.poll() is not None or attach.supervisor(aws.directory, kind) is None:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
        raise SandboxError(f"the supervisor for {kind} did not start; the end of {log}:\n{end}")


def end(directory: Path) -> None:
    """Stop the supervisors of a sandbox and everything that they started, even if one of them was killed."""
    directory = directory.resolve()
    for kind in attach.KINDS:
        if found := attach.supervisor(directory, kind):
            processes.stop_all([found], patience=_STOP_SECONDS)
        (directory / "attach" / f"{kind}.json").unlink(missing_ok=True)
        _stop_left(directory, kind)
    processes.reap(_children.pop(directory, []))


def _stop_left(directory: Path, kind: Kind) -> None:
    opened: Any = slurm.LocalSlurm.open if kind == "slurm" else kubernetes.LocalKubernetes.open
    for place in (directory / kind).glob("*/"):
        try:
            opened(place).stop(wipe=True)
        except (SlurmFailed, kubernetes.KubernetesFailed, FileNotFoundError):  # it was stopped, or is being stopped
            shutil.rmtree(place, ignore_errors=True)


def supervise(aws: LocalAws, kind: Kind) -> None:
    """Process requests until the local AWS has ended, or SystemExit is raised; then stop everything."""
    attached: dict[str, tuple[str, Attached]] = {}
    emulator = processes.Started(aws.pid, processes.began(aws.pid) or -1)
    try:
        while emulator.alive:
            wanted = attach.requests(aws.directory, kind)
            for name in attached.keys() - wanted.keys():
                attached.pop(name)[1].stop()
                print(f"{name}: stopped", flush=True)
            for name, request in wanted.items():
                _serve(aws, kind, name, request, attached)
            for name, (_, running) in attached.items():
                for problem in _tried(running.refresh):
                    print(f"{name}: {problem}", flush=True)
            time.sleep(_PAUSE)
    finally:
        for _, running in attached.values():
            running.stop()


def _serve(
    aws: LocalAws, kind: Kind, name: str, request: dict[str, Any], attached: dict[str, tuple[str, Attached]]
) -> None:
    """Attach a new or changed cluster, and write the response."""
    answered = attach.read(attach.folder(aws.directory, kind) / f"{name}.done.json").get("id")
    if answered == request["id"]:
        return

    def do() -> None:
        if name in attached:
            attached[name][1].changed()
            attached[name] = (request["id"], attached[name][1])
        else:
            attached[name] = (request["id"], _MAKE[kind](aws, name, request["region"]))

    problems = list(_tried(do))
    attach.respond(aws.directory, kind, name, request["id"], "; ".join(problems))
    print(f"{name}: {'; '.join(problems) or 'attached'}", flush=True)


def _tried(do: Callable[[], None]) -> Iterator[str]:
    """The error message; empty if there was no error."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        do()
    except (*_TROUBLE, BotoCoreError, ClientError) as problem:
        yield f"{type(problem).__name__}: {problem}"


def main(arguments: list[str] | None = None) -> int:
    """Run a supervisor in the foreground; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.supervisor", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("kind", choices=attach.KINDS)
    options = parser.parse_args(arguments)
    aws = LocalAws.attach(options.directory)
    if aws is None:
        print(f"no local AWS is running in {options.directory}", file=sys.stderr)
        return 2

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    file = aws.directory / "attach" / f"{options.kind}.json"
    attach.write(file, {"pid": os.getpid(), "began": processes.began(os.getpid())})
    try:
        supervise(aws, options.kind)
    finally:
        file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
