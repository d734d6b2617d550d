"""The parts of a kubelet that kwok lacks: `python -m sandbox.kubernetes.pods DIRECTORY [--run]`.

For every pod on a node: a file for each container's output, and the objects (Logs, Exec, PortForward of
kwok.x-k8s.io) with which kwok serves `kubectl logs`, `exec` and `port-forward`. kwok's limits: it reads
files in the kubelet's format (`logs.LogWriter`); commands run on this machine, outside the container's view of the
file system, with the container's environment, and TRN_SHARED_ROOT/efs for its /efs; ports are on the pod's loopback address
if the pod names them, else `kwok_config.OPEN_PORTS` of this machine.

With `--run`, the containers of Volcano's pods, and of pods with `kwok_config.RUN_LABEL`, run as processes of this
machine, with their volumes mounted (see `container.py`), and the pod's phase reports their result.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sandbox.kubernetes import claims, installed, pod_spec
from sandbox.kubernetes.api import ApiError, Object, path_of, retry
from sandbox.kubernetes.cluster import LocalKubernetes
from sandbox.kubernetes.kwok_config import RUN_BY_US, RUN_LABEL
from sandbox.kubernetes.running import SHARED, Running

_KWOK = "kwok.x-k8s.io/v1alpha1"


class Pods:
    """Follows all pods of one cluster."""

    def __init__(self, cluster: LocalKubernetes, run: bool) -> None:
        self._cluster, self._run = cluster, run
        self._api = cluster.api()
        self._known: set[str] = set()
        self._running: dict[str, Running] = {}
        self._gone: dict[str, threading.Event] = {}
        """Set when a pod with claims, which kwok runs, is gone."""

    def follow(self) -> None:
        """Run until SIGTERM."""
        while True:
            with contextlib.suppress(ApiError, OSError, ValueError):
                for what, pod in self._api.watch("/api/v1/pods"):
                    self._take(what, pod)
            time.sleep(0.5)

    def stop(self) -> None:
        for running in self._running.values():
            running.end(0.5)

    def _take(self, what: str, pod: Object) -> None:
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        if metadata["namespace"] in (installed.NAMESPACE, claims.NAMESPACE):
            return  # they do nothing, and their logs are not read
        if what == "DELETED":
            self._forget(uid, metadata)
            return
        hosts = self._hosts_file(pod) if self._ours(pod) else None  # its peers may start before it has a node
        if not pod["spec"].get("nodeName"):
            return
        if uid not in self._known and "deletionTimestamp" not in metadata:
            self._serve(pod)
            if hosts:
                self._running[uid] = Running(self._cluster.directory, self._cluster.api(), pod, hosts)
            elif pod["spec"].get("resourceClaims"):
                self._gone[uid] = threading.Event()
                threading.Thread(target=claims.mark, args=(self._api, pod, self._gone[uid]), daemon=True).start()
            self._known.add(uid)
        if "deletionTimestamp" in metadata and hosts:
            grace = float(metadata.get("deletionGracePeriodSeconds", 0))
            threading.Thread(target=self._end, args=(uid, metadata, grace), daemon=True).start()

    def _ours(self, pod: Object) -> bool:
        named = RUN_LABEL in pod["metadata"].get("labels", {})
        return self._run and (named or pod["spec"].get("schedulerName") == RUN_BY_US)

    def _end(self, uid: str, metadata: Object, grace: float) -> None:
        running = self._running.get(uid)
        if running is not None:
            running.end(grace)
            running.join(60.0)
        with contextlib.suppress(ApiError, OSError):
            path = path_of("v1", "Pod", metadata["name"], metadata["namespace"])
            retry(lambda: self._api.delete(path, gracePeriodSeconds=0, preconditions={"uid": uid}))

    def _forget(self, uid: str, metadata: Object) -> None:
        self._known.discard(uid)
        if uid in self._gone:
            self._gone.pop(uid).set()
        running = self._running.pop(uid, None)
        if running is not None:
            running.end(0.5)
        for kind in ("Logs", "Exec", "PortForward"):
            with contextlib.suppress(ApiError):
                self._api.delete(path_of(_KWOK, kind, metadata["name"], metadata["namespace"]))

    def _serve(self, pod: Object) -> None:
        for thing in served(pod, self._cluster.directory):
            with contextlib.suppress(ApiError):  # a namespace that is being deleted rejects new objects
                retry(partial(self._api.apply, thing))

    def _hosts_file(self, pod: Object) -> Path:
        """The /etc/hosts of the namespace's pods: a single file, so that earlier pods see later ones."""
        namespace = str(pod["metadata"]["namespace"])
        file = self._cluster.directory / "pods" / namespace / "hosts"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("127.0.0.1 localhost\n")
        line = pod_spec.hosts_lines(pod)
        if line not in file.read_text():
            with file.open("a") as out:
                out.write(line)
        return file


def served(pod: Object, directory: Path) -> list[Object]:
    """The objects with which kwok serves a pod; creates the files that they refer to."""
    metadata = pod["metadata"]
    folder = directory / "pods" / metadata["namespace"] / metadata["name"]
    folder.mkdir(parents=True, exist_ok=True)
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    outside = {"TRN_SHARED_ROOT": str(folder / SHARED)}  # kwok runs commands outside of the pod's view of files
    logs, execs = [], []
    for container in containers:
        name = container["name"]
        file = folder / f"{name}.log"
        earlier = folder / f"{name}.previous.log"
        if file.exists() and file.stat().st_size:
            file.replace(earlier)
        file.touch()
        earlier.touch()
        logs.append({"containers": [name], "logsFile": str(file), "previousLogsFile": str(earlier)})
        env = pod_spec.environment(pod, container, lambda _kind, _name: None)
        known = [{"name": key, "value": value} for key, value in {**env, **outside, "PATH": os.environ["PATH"]}.items()]
        execs.append({"containers": [name], "local": {"workDir": str(folder), "envs": known}})
    target = {"address": pod_spec.address(metadata["namespace"], metadata["name"]), "port": 0}
    ports = sorted({port["containerPort"] for container in containers for port in container.get("ports", [])})
    forwards = [{"ports": [port], "target": {**target, "port": port}} for port in ports]
    specs = {"Logs": {"logs": logs}, "Exec": {"execs": execs}, "PortForward": {"forwards": forwards}}
    return [
        {
            "apiVersion": _KWOK,
            "kind": kind,
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "spec": spec,
        }
        for kind, spec in specs.items()
        if kind != "PortForward" or forwards
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.kubernetes.pods", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--run", action="store_true", help="run the containers of Volcano's pods")
    args = parser.parse_args(arguments)
    pods = Pods(LocalKubernetes.open(args.directory), args.run)

    def leave(*_: object) -> None:
        pods.stop()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    pods.follow()
    return 0


if __name__ == "__main__":
    sys.exit(main())
