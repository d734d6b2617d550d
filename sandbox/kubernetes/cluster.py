"""A real Kubernetes on this machine: API server, controllers, schedulers, JobSet, Kueue, Volcano, and virtual nodes by kwok.

Everything listens on 127.0.0.1 only, and keeps its state in one directory; the caller stops it::

    with LocalKubernetes.start(Path("state/kubernetes")) as cluster:
        cluster.add_nodes(Catalog.load().instance("trn1.32xlarge"), 2)
        cluster.kubectl("get", "nodes")
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sandbox import guard, paths, processes
from sandbox.kubernetes import build, claims, daemons, kueue, kwok_config, nodes, volcano
from sandbox.kubernetes.api import Api, ApiError, Object, load_all, path_of
from sandbox.kubernetes.daemons import Places
from sandbox.kubernetes.readiness import node_ready, served
from sandbox.processes import Started
from trainium_cdk.cdk.eks import provisioning_requests
from trainium_cdk.cdk.eks.charts import SCHEDULER, Release
from trainium_cdk.description.catalog import InstanceType

_STATE = "local-kubernetes.json"
_USERS = ("admin", "controller-manager", "scheduler", "kwok", "volcano")
_FIRST_HOST = 16


class KubernetesFailed(RuntimeError):
    """A local Kubernetes did not start, or is not running. The message has the end of its log."""


class LocalKubernetes:
    """A running local Kubernetes. Created with `start` (new) or `open` (started earlier, by any process).

    Attributes:
        directory: state, logs and certificates; `pods/` has the output of pods.
    """

    def __init__(self, directory: Path, state: Mapping[str, Any]) -> None:
        self.directory = directory
        self._state = dict(state)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        name: str = "local",
        token_webhook: str | None = None,
        run_jobs: bool = False,
        job_environment: Mapping[str, str] | None = None,
        volcano: bool = False,
        admission: bool = True,
        kueue_configuration: Mapping[str, Any] | None = None,
        timeout: float = 300.0,
    ) -> Self:
        """Start a cluster without nodes and wait until its API, its controllers and Volcano's admission respond.

        A cluster left over in `directory` is stopped and removed first.

        Args:
            name: the name of the EKS cluster.
            token_webhook: URL that verifies bearer tokens (`sandbox.kubernetes.eks.webhook_url`); None: no EKS tokens.
            run_jobs: whether pods of Volcano's scheduler run their commands here for real (see `pods.py`); if not,
                they run until their annotations end them (see `kwok_config.py`).
            job_environment: additional variables of commands in pods (`PATH`, ...).
            volcano: whether Volcano runs, which jobs of TorchX need. It must be built: `build.VOLCANO.built`.
            admission: whether Volcano's registered admission webhooks are also served. If not, `start_admission` starts them
                later.
            kueue_configuration: of Kueue's controller, where it is not the one of a stack without node groups.
            timeout: seconds until all must respond.

        Raises:
            KubernetesFailed: it is not built, or a program ended; the message has the end of its log.
        """
        if (reason := build.available(volcano=volcano)) is not None:
            raise KubernetesFailed(f"a local Kubernetes cannot run here: {reason}")
        directory = directory.resolve()
        if (directory / _STATE).exists():
            cls.open(directory).stop()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        ports = dict(zip(daemons.PORTS, processes.free_ports(len(daemons.PORTS)), strict=True))
        cluster = cls(directory, {"name": name, "ports": ports, "daemons": {}, "hosts": 0, "run_jobs": run_jobs})
        guard.watch("kubernetes", directory)
        try:
            cluster._lay_out(token_webhook)
            cluster._launch(
                token_webhook is not None,
                dict(job_environment or {}),
                timeout,
                with_volcano=volcano,
                admission=admission,
                kueue_configuration=kueue_configuration,
            )
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @classmethod
    def open(cls, directory: Path) -> Self:
        """The cluster started in `directory`, by this or another process.

        Raises:
            KubernetesFailed: none was started there, or it was stopped.
        """
        directory = directory.resolve()
        try:
            return cls(directory, json.loads((directory / _STATE).read_text()))
        except FileNotFoundError:
            raise KubernetesFailed(
                f"no local Kubernetes is running in {directory}; start it with `python -m sandbox.kubernetes up {directory}`"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- properties ---

    @property
    def name(self) -> str:
        return str(self._state["name"])

    @property
    def endpoint(self) -> str:
        """As https://127.0.0.1:6443."""
        return self._places.endpoint

    @property
    def ca_data(self) -> str:
        """The certificate of its authority, base64, as in EKS's DescribeCluster."""
        return base64.b64encode(self._authority.read_bytes()).decode()

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of the administrator (group system:masters, by certificate)."""
        return Path(self._places.kubeconfig("admin"))

    @property
    def processes(self) -> dict[str, Started]:
        """Its daemons, by name."""
        return {name: Started(*who) for name, who in self._state["daemons"].items()}

    def api(self, token: str | None = None) -> Api:
        """A client: the administrator's, or the bearer token's."""
        return self._admin if token is None else Api(self.endpoint, self._authority, token=token)

    @functools.cached_property
    def _admin(self) -> Api:
        """One for all, as it keeps its connections."""
        at = self._places
        return Api(self.endpoint, self._authority, certificate=(Path(at.certificate("admin")), Path(at.key("admin"))))

    @property
    def _authority(self) -> Path:
        return Path(self._places.certificate("ca"))

    def kubectl(self, *arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; returns output as text, without a check of the exit code."""
        return subprocess.run(
            [str(build.program("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    # --- nodes ---

    def add_nodes(
        self,
        instance: InstanceType,
        count: int,
        *,
        zone: str = "us-east-1a",
        zone_id: str = "",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Object] = (nodes.NEURON_TAINT,),
        instances: Sequence[str] = (),
        devices: bool = True,
        timeout: float = 180.0,
    ) -> list[str]:
        """Add virtual nodes of a catalogue type, Ready on return; returns their names.

        Args:
            instances: their EC2 instance ids. Default: invented.
            devices: whether to announce their devices. If not, call `announce_devices` later.

        Raises:
            KubernetesFailed: they did not become Ready in time.
        """
        made = [
            nodes.node(
                instance,
                name,
                zone=zone,
                zone_id=zone_id,
                labels=labels,
                taints=taints,
                devices=devices,
                instance_id=id,
            )
            for name, id in zip(self._host_names(count), instances or [""] * count, strict=True)
        ]
        names = self._join(made, timeout)
        if devices:
            self._publish(instance, names)
        return names

    def announce_devices(self, instance: InstanceType, names: Sequence[str]) -> None:
        """Announce the devices of all nodes of this type, as device plug-ins and drivers do once they have started."""
        for name in names:
            path = path_of("v1", "Node", name)
            there = self.api().get(path)
            full = nodes.node(instance, name, zone="", labels=there["metadata"]["labels"])["status"]
            self.api().patch_status(path, there["metadata"]["uid"], full)
        self._publish(instance, names)

    def _publish(self, instance: InstanceType, names: Sequence[str]) -> None:
        """The slices of nodes whose devices are given by claims."""
        for name in names:
            node = self.api().get(path_of("v1", "Node", name))
            if claims.published(node["metadata"]["labels"]):
                self.api().apply(claims.resource_slice(instance, node))

    def add_system_nodes(
        self,
        count: int = 1,
        *,
        zone: str = "us-east-1a",
        instance_type: str = nodes.SYSTEM_TYPE,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Object] = (),
        instances: Sequence[str] = (),
        timeout: float = 180.0,
    ) -> list[str]:
        """Add virtual nodes without devices, for plug-ins and controllers; returns their names."""
        made = [
            nodes.system_node(
                name, zone=zone, instance_type=instance_type, labels=labels, taints=taints, instance_id=id
            )
            for name, id in zip(self._host_names(count), instances or [""] * count, strict=True)
        ]
        return self._join(made, timeout)

    def remove_node(self, name: str) -> None:
        """Remove a node, as when its instance is terminated: its pods end with it, and are failed and deleted as by the collector of such pods."""
        api = self.api()
        api.delete(path_of("storage.k8s.io/v1", "CSINode", name))
        api.delete(path_of("v1", "Node", name))
        claims.withdraw(api, name)
        gone = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        }
        for pod in api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]:
            path = path_of("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
            with contextlib.suppress(ApiError):  # the collector itself was faster
                if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                    others = [one for one in pod["status"].get("conditions", []) if one["type"] != gone["type"]]
                    api.patch_status(path, pod["metadata"]["uid"], {"phase": "Failed", "conditions": [*others, gone]})
                api.delete(path, gracePeriodSeconds=0)

    def start_trainer(self) -> None:
        """Install Kubeflow Trainer, as a user does, and wait until it responds.

        Raises:
            KubernetesFailed: it does not respond in time.
        """
        self._start_controller(self.api(), kueue.trainer())
        self._controller_ready("trainer", 300)

    def upgrade_kueue(self, before: Mapping[str, Any], configuration: Mapping[str, Any]) -> bool:
        """Give Kueue another configuration, as Helm's upgrade does. Returns whether its pod started again, without which Kueue keeps the one before."""
        old, new = (kueue.releases(one)[-1] for one in (before, configuration))
        if again := kueue.upgrade(self.api(), old, new, self._places):
            processes.stop_all([self.processes["kueue"]])
            processes.reap([self._children.pop("kueue")])
            self._daemon("kueue", *again)
            self._controller_ready("kueue", 300)
        return again is not None

    def start_admission(self, timeout: float) -> None:
        """Start Volcano's admission webhooks, and wait until they respond.

        Raises:
            KubernetesFailed: they do not respond in time.
        """
        self._daemon("vc-webhook-manager", daemons.volcano_admission(self._places))
        api, jobs = self.api(), path_of("batch.volcano.sh/v1alpha1", "Job", namespace="default")
        dry = {"dryRun": "All"}
        self._wait("vc-webhook-manager", lambda: bool(api.call("POST", jobs, volcano.PROBE, query=dry)), timeout)

    # --- output of pods ---

    def log_file(self, namespace: str, pod: str, container: str) -> Path:
        """The file for `kubectl logs`, in the kubelet's format; `pods.LogWriter` writes it."""
        return self.directory / "pods" / namespace / pod / f"{container}.log"

    # --- lifecycle ---

    def stop(self, wipe: bool = False) -> None:
        """Stop all its processes, including pods'. Safe to call twice.

        Args:
            wipe: also remove the directory.
        """
        if (self.directory / _STATE).exists():
            everyone = self.processes
            first = [everyone.pop(name) for name in ("pods", "kwok") if name in everyone]
            processes.stop_all(first)
            last = [everyone.pop(name) for name in ("etcd",) if name in everyone]
            processes.stop_all(everyone.values(), patience=3.0)
            processes.stop_all(last, patience=3.0)
            processes.stop_all(self._left_in_pods(), patience=1.0)
            (self.directory / _STATE).unlink()
        processes.reap(self._children.values())
        if wipe:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _places(self) -> Places:
        return Places(self.directory, self._state["ports"])

    def _left_in_pods(self) -> list[Started]:
        def mine(env: Mapping[str, str]) -> bool:
            return env.get("TRN_SANDBOX_KUBERNETES") == str(self.directory) and "TRN_SANDBOX_POD" in env

        found = processes.with_environment(mine)
        return [process for process, _, _ in found]

    def _host_names(self, count: int) -> Iterator[str]:
        first = int(self._state["hosts"]) + _FIRST_HOST
        self._state["hosts"] += count
        self._save()
        for number in range(first, first + count):
            yield f"ip-10-0-{number // 256}-{number % 256}.ec2.internal"

    def _join(self, made: list[Object], timeout: float) -> list[str]:
        api = self.api()
        for node in made:
            api.create(node)
            api.create(nodes.csi_node(node))
        names = [node["metadata"]["name"] for node in made]

        def ready() -> bool:
            return all(node_ready(api.get(path_of("v1", "Node", name))) for name in names)

        if not processes.wait_until(ready, timeout, pause=0.1):
            raise KubernetesFailed(
                f"not all of {len(names)} nodes were Ready within {timeout:.0f} s: {self._log_end('kwok')}"
            )
        return names

    def _lay_out(self, token_webhook: str | None) -> None:
        at = self._places
        for folder in ("pki", "kubeconfigs", "log", "pods", "home"):
            (self.directory / folder).mkdir(mode=0o700)
        subprocess.run(
            [str(build.program("certificates")), str(self.directory / "pki"), daemons.SERVICE_IP], check=True
        )
        for user in _USERS:
            file = Path(at.kubeconfig(user))
            file.touch(mode=0o600)
            who = {"client-certificate": at.certificate(user), "client-key": at.key(user)}
            file.write_text(daemons.kubeconfig(at.endpoint, self.ca_data, who))
        (self.directory / "kwok.yaml").write_text(kwok_config.render(run_jobs=self._state["run_jobs"]))
        (self.directory / "volcano-scheduler.conf").write_text(SCHEDULER)
        if token_webhook is not None:
            file = self.directory / "token-webhook.json"
            file.touch(mode=0o600)  # the URL holds a secret
            file.write_text(daemons.token_webhook(token_webhook))

    def _launch(
        self,
        token_webhook: bool,
        job_environment: dict[str, str],
        timeout: float,
        *,
        with_volcano: bool,
        admission: bool,
        kueue_configuration: Mapping[str, Any] | None,
    ) -> None:
        at = self._places
        self._daemon("etcd", daemons.etcd(at))
        self._daemon("kube-apiserver", daemons.apiserver(at, token_webhook=token_webhook))
        api = self.api()
        self._wait("kube-apiserver", lambda: api.call("GET", "/readyz", timeout=5) == "ok", timeout)
        for definition in load_all(build.crds("kwok")):
            api.create(definition)
        api.create(provisioning_requests.definition())
        self._daemon("kube-controller-manager", daemons.controller_manager(at))
        self._daemon("kube-scheduler", daemons.scheduler(at))
        if with_volcano:
            self._install_volcano(api)
        self._wait("kube-apiserver", lambda: served(api, volcano=with_volcano), timeout)
        self._daemon("kwok", daemons.kwok(at))
        for release in kueue.releases(kueue_configuration):
            self._start_controller(api, release)
        if with_volcano:
            self._daemon("vc-controller-manager", daemons.volcano_controllers(at))
            self._daemon("vc-scheduler", daemons.volcano_scheduler(at))
        self._daemon("pods", self._pods_command(), job_environment)
        account = path_of("v1", "ServiceAccount", "default", "default")
        self._wait("kube-controller-manager", lambda: api.get(account) is not None, timeout)
        for name in kueue.NAMES:
            self._controller_ready(name, timeout)
        if with_volcano:
            queue = path_of("scheduling.volcano.sh/v1beta1", "Queue", "default")
            self._wait("vc-scheduler", lambda: api.get(queue)["status"]["state"] == "Open", timeout)
            if admission:
                self.start_admission(timeout)

    def _install_volcano(self, api: Api) -> None:
        for definition in load_all(build.crds("volcano")):
            api.create(definition)
        api.create(volcano.namespace())
        for registration in volcano.webhook_configurations(self._places.ports["admission"], self.ca_data):
            api.create(registration)

    def _start_controller(self, api: Api, release: Release) -> None:
        self._daemon(release.name, *kueue.install(api, release, self._places, self.ca_data))

    def _controller_ready(self, name: str, timeout: float) -> None:
        url = f"http://127.0.0.1:{self._places.ports[f'{name}-health']}/readyz"
        self._wait(name, functools.partial(kueue.ready, url), timeout)

    def _pods_command(self) -> list[str]:
        run = ["--run"] if self._state["run_jobs"] else []
        return [sys.executable, "-m", "sandbox.kubernetes.pods", str(self.directory), *run]

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.directory / "home"),  # hides the user's configuration from programs
            "DEBUG_SOCKET_DIR": str(self.directory / "run"),  # Volcano's; default: a folder in /tmp
            "TRN_SANDBOX_KUBERNETES": str(self.directory),
            # Go's threads and garbage collector otherwise take a sixth more processor time than the programs need.
            "GOMAXPROCS": "1",
            "GOGC": "200",
        }

    def _daemon(self, name: str, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        env = {**self._environment(), **(environment or {})}
        if name == "pods":
            env["PYTHONPATH"] = paths.python_path()
        child = processes.start(command, self.directory / "log" / f"{name}.log", env)
        self._children[name] = child
        self._state["daemons"][name] = [*vars(processes.identity(child)).values()]
        self._save()

    def _wait(self, name: str, done: Any, timeout: float) -> None:
        """Wait until `done` is true; refused connections count as not yet."""

        def tried() -> bool:
            for known, child in self._children.items():
                if child.poll() is not None:
                    raise KubernetesFailed(f"{known} ended (exit code {child.returncode}): {self._log_end(known)}")
            try:
                return bool(done())
            except (ApiError, OSError, KeyError):
                return False

        if not processes.wait_until(tried, timeout, pause=0.1):
            raise KubernetesFailed(f"{name} was not ready within {timeout:.0f} s: {self._log_end(name)}")

    def _log_end(self, name: str) -> str:
        file = self.directory / "log" / f"{name}.log"
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        return " | ".join(line for line in lines[-6:] if line.strip()) or f"{file} is empty"

    def _save(self) -> None:
        part = self.directory / (_STATE + ".part")
        part.write_text(json.dumps(self._state, indent=1))
        part.replace(self.directory / _STATE)
