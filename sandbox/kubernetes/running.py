"""A pod's containers as processes of this machine, and the pod's status."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sandbox import paths
from sandbox.kubernetes import claims, pod_spec, probes
from sandbox.kubernetes import container as view
from sandbox.kubernetes.api import Api, ApiError, Object, path_of, retry
from sandbox.kubernetes.logs import LogWriter
from trainium_cdk.description.outputs.eks import JOB_USER

_RESTART_PAUSE = 1.0
_MEMORY_PAUSE = 0.3
_NOT_STARTED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init"
)
_NEVER = "1970-01-01T00:00:00Z"
"""When such a container was started, by containerd."""
SHARED = "shared"
"""In a pod's folder: its persistent volumes at the places that it mounts them."""
_ACCESS_POINT = "::fsap-"
"""In the handle of a volume that is an access point of EFS."""


def cannot_run() -> str | None:
    """Why this user cannot run containers on this machine, or None."""
    try:
        done = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "pods need the `unshare` command of util-linux"
    if done.returncode == 0:
        return None
    reason = done.stderr.strip().partition("\n")[0]
    return f"pods need namespaces, which this machine does not allow user id {os.geteuid()}: {reason}"


def _unshare() -> list[str]:
    """The command that starts another in a mount namespace, with a user namespace unless the user is root."""
    return ["unshare", "--mount", "--uts", *(["--user", "--map-root-user"] if os.geteuid() else [])]


_AS_FIRST = ("--pid",)
"""Options of `unshare` with which the first child of the command is the first process of its own namespace, as in a container."""


@functools.cache
def strict() -> str:
    """Why containers here are not confined as their pods say (user, read-only root, first process); empty if they are."""
    if os.geteuid():
        return "only root may give a container another user, and a root that is read-only"
    done = subprocess.run(
        [*_unshare(), *_AS_FIRST, "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    return done.stderr.strip() if done.returncode else ""


class Running:
    """A running pod. It starts immediately; `end` ends it. Its status is written to the API server."""

    def __init__(self, directory: Path, api: Api, pod: Object, hosts: Path) -> None:
        self._directory, self._api, self._pod, self._hosts = directory, api, pod, hosts
        self._metadata, self._spec = pod["metadata"], pod["spec"]
        self._path = path_of("v1", "Pod", self._metadata["name"], self._metadata["namespace"])
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._ending = threading.Event()
        self._full: set[str] = set()
        self._statuses: dict[str, Object] = {}
        self._since = _now()
        self._changed: dict[str, tuple[str, str]] = {}
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def end(self, grace: float) -> None:
        """SIGTERM to all processes, SIGKILL after `grace` seconds; returns when all have ended."""
        self._ending.set()
        with self._lock:
            running = [process for process in self._processes if process.poll() is None]
        for how, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            for process in running:
                if process.poll() is None:
                    _kill(process, how)
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=wait)

    def join(self, seconds: float) -> None:
        """Wait until the final status is written."""
        self._thread.join(seconds)

    def _live(self) -> None:
        self._given = claims.until_prepared(self._api, self._pod, self._ending, self._tell_creating)
        for container in self._spec.get("initContainers", []):
            self._tell("Pending")
            if self._run(container) != 0:
                self._tell("Failed")
                return
        threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in self._spec["containers"]]
        for container in self._spec["containers"]:
            self._note(container["name"], {"running": {"startedAt": _now()}}, 0)
        self._tell("Running")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        states = [self._statuses[one["name"]]["state"] for one in self._spec["containers"]]
        self._tell("Succeeded" if all(state["terminated"]["exitCode"] == 0 for state in states) else "Failed")

    def _tell_creating(self) -> None:
        reason = "PodInitializing" if self._spec.get("initContainers") else "ContainerCreating"
        for container in [*self._spec.get("initContainers", []), *self._spec["containers"]]:
            self._note(container["name"], {"waiting": {"reason": reason}}, 0)
        self._tell("Pending")

    def _run(self, container: Object) -> int:
        """Run a container until it ends, and restart it according to the restart policy; returns the last exit code."""
        policy, restarts = self._spec.get("restartPolicy", "Always"), 0
        while True:
            began = _now()
            self._note(container["name"], {"running": {"startedAt": began}}, restarts)
            code = self._once(container)
            file = self._termination_message(container)
            message = file.read_text(errors="replace")[:4096] if file.exists() else ""
            reason = "OOMKilled" if container["name"] in self._full else "Completed" if code == 0 else "Error"
            if problem := self._problem(container):
                message, reason, began = f"{_NOT_STARTED}: {problem}: unknown", "StartError", _NEVER
            ended = {
                "exitCode": code,
                **({"message": message} if message else {}),
                "reason": reason,
                "startedAt": began,
                "finishedAt": _now(),
            }
            self._note(container["name"], {"terminated": ended}, restarts)
            again = policy == "Always" or (policy == "OnFailure" and code != 0)
            if not again or self._ending.wait(_RESTART_PAUSE):
                return code
            restarts += 1
            self._tell("Running")

    def _once(self, container: Object) -> int:
        env = pod_spec.environment(self._pod, container, self._lookup)
        command = pod_spec.command(container, env)
        name = container["name"]
        log = LogWriter(self._folder / f"{name}.log")
        try:
            if not command:
                log.write(f"the pod has no command, and the image {container['image']} is not pulled here", "stderr")
                self._ending.wait()
                return 0
            spec = self._describe(container, command, env)
            file = self._folder / f"{name}.json"
            file.touch(mode=0o600)
            file.write_text(json.dumps(spec))
            process = self._start(file, spec["env"])
            readers = [
                threading.Thread(target=_copy, args=(stream, log, kind), daemon=True)
                for stream, kind in ((process.stdout, "stdout"), (process.stderr, "stderr"))
            ]
            for reader in readers:
                reader.start()
            threading.Thread(target=self._limit, args=(container, process), daemon=True).start()
            over = threading.Event()
            prober = threading.Thread(target=self._probe, args=(container, process, spec, over), daemon=True)
            prober.start()
            code = process.wait()
            over.set()
            if strict():  # elsewhere a container ends with its first process
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            for reader in readers:
                reader.join(timeout=20)
            prober.join()
            return code if code >= 0 else 128 - code
        except OSError as problem:
            log.write(f"container did not start: {problem}", "stderr")
            return 128
        finally:
            log.close()

    def _limit(self, container: Object, process: subprocess.Popen[str]) -> None:
        """Kill a container that uses more memory than its limit, all of its programs at once, as the kernel does (kubelet since 1.28)."""
        if not (most := pod_spec.memory_limit(container)):
            return
        while process.poll() is None:
            if memory_of(process.pid) > most:
                self._full.add(container["name"])
                _kill(process, signal.SIGKILL)
                return
            time.sleep(_MEMORY_PAUSE)

    def _probe(
        self, container: Object, process: subprocess.Popen[str], spec: dict[str, Any], over: threading.Event
    ) -> None:
        """Tell by its probe whether a container is ready, until it has ended."""
        if not (probe := probes.Probe.of(container)):
            return
        while not (first := _first(process)) or view.__file__.encode() in _words(first):  # its program has not begun
            if over.wait(0.05):
                return
        words = probes.entering(first, spec["directory"], spec.get("user"), spec.get("group"))

        def changed() -> None:
            with self._lock:
                self._statuses[container["name"]]["ready"] = worker.ready
            self._tell_ready()

        def tell(text: str) -> None:
            if not (over.is_set() or self._ending.is_set()):
                probes.report(self._api, self._pod, container["name"], text)

        worker = probes.Worker(probe, lambda one: probes.execute(one, words, spec["env"]), changed, tell)
        worker.work(over.wait)

    def _termination_message(self, container: Object) -> Path:
        """The file for the container's termination message."""
        return self._folder / f"{container['name']}.message"

    def _of_image(self, container: Object) -> dict[str, str]:
        """The variables of its image, where a test has given it some: in `images.json` of the cluster's folder."""
        file = self._directory / "images.json"
        known: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.exists() else {}
        return known.get(container["image"], {})

    def _problem(self, container: Object) -> str:
        """Why its program was not started; empty if it was."""
        file = self._folder / f"{container['name']}.problem"
        return file.read_text(errors="replace").strip() if file.exists() else ""

    def _describe(self, container: Object, command: list[str], env: dict[str, str]) -> dict[str, Any]:
        mounts = [{"source": str(self._hosts), "place": "/etc/hosts", "read_only": True}]
        file = self._termination_message(container)
        file.write_text("")
        file.chmod(0o666)
        problem = self._folder / f"{container['name']}.problem"
        problem.write_text("")
        rights = pod_spec.Rights.of(self._pod, container)
        place = container.get("terminationMessagePath", "/dev/termination-log")
        mounts.append({"source": str(file), "place": place, "read_only": False})
        for extra in sorted((self._directory / "image").glob("*")):
            shared = bool(extra.stat().st_mode & stat.S_ISVTX)  # by all containers, as nothing in an image is
            mounts.append({"source": str(extra), "place": f"/{extra.name}", "read_only": not shared})
        for volume in pod_spec.mounts(self._pod, container, self._directory, self._lookup):
            if volume.files is not None and volume.source.name in volume.files:
                volume.source.parent.mkdir(parents=True, exist_ok=True)
                _put(volume.source, volume.files[volume.source.name], volume.mode)
            else:
                if volume.source.is_relative_to(volumes := self._directory / "volumes"):
                    self._make_volume(volumes / volume.source.relative_to(volumes).parts[0])
                volume.source.mkdir(parents=True, exist_ok=True)
                if volume.source.is_relative_to(self._folder):
                    volume.source.chmod(0o777)  # as the kubelet makes the folders of a pod
                for name, content in (volume.files or {}).items():
                    _put(volume.source / name, content, volume.mode)
            mounts.append({"source": str(volume.source), "place": volume.place, "read_only": volume.read_only})
            if volume.source.is_relative_to(self._directory / "volumes"):
                outside = self._folder / SHARED / volume.place.lstrip("/")
                outside.parent.mkdir(parents=True, exist_ok=True)
                if not outside.is_symlink():
                    outside.symlink_to(volume.source)
        others = rights.user and not strict()  # they may not enter each folder above
        for folder in {*paths.seen_by_pods(), *([Path(sys.base_prefix).resolve()] if others else [])}:
            if others or any(folder.is_relative_to(str(mount["place"])) for mount in mounts):
                closed = bool(others and rights.read_only_root)
                mounts.append({"source": str(folder), "place": str(folder), "read_only": closed})
        root = self._folder / "root" / container["name"]
        root.mkdir(parents=True, exist_ok=True)
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        inherited = {key: os.environ[key] for key in os.environ if key not in ("PYTHONPATH", "HOME")}
        own = {  # a pod's server listens on the pod's loopback address, which the port-forward uses
            "HOME": str(home),
            "TRN_SANDBOX_POD": self._metadata["name"],
            "TRN_TENSORBOARD_HOST": pod_spec.address(self._metadata["namespace"], self._metadata["name"]),
            **pod_spec.devices(self._pod, container, self._given),
        }
        return {
            "root": str(root),
            "mounts": mounts,
            "command": command,
            "directory": container.get("workingDir", ""),
            "hostname": pod_spec.hostname(self._pod),
            "problems": str(problem),
            **({} if strict() else vars(rights)),
            "env": {**inherited, **self._of_image(container), **own, **env},
        }

    def _start(self, spec: Path, env: dict[str, str]) -> subprocess.Popen[str]:
        """The container's process in its own namespaces. Its environment identifies it as ours even before exec."""
        with self._lock:
            if self._ending.is_set():
                raise OSError("the pod is being deleted")
            process = subprocess.Popen(
                # the file, not the module: importing its packages takes 0.3 s of processor time
                [*_unshare(), *(() if strict() else _AS_FIRST), sys.executable, "-I", "-S", view.__file__, str(spec)],
                env={**env, "PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._processes.append(process)
        return process

    def _make_volume(self, folder: Path) -> None:
        """An access point of EFS makes its folder as the stack says: for the one user whom it stands for."""
        if folder.exists():
            return
        made = self._found("PersistentVolume", folder.name, path_of("v1", "PersistentVolume", folder.name))
        source = made["spec"].get("csi", {}).get("volumeHandle", "") if made else ""
        folder.mkdir(parents=True, exist_ok=True)
        if _ACCESS_POINT in source and os.geteuid() == 0:
            folder.chmod(0o700)
            os.chown(folder, JOB_USER, JOB_USER)

    @property
    def _folder(self) -> Path:
        return self._directory / "pods" / str(self._metadata["namespace"]) / str(self._metadata["name"])

    def _lookup(self, kind: str, name: str) -> Object | None:
        return self._found(kind, name, path_of("v1", kind, name, self._metadata["namespace"]))

    def _found(self, kind: str, name: str, path: str) -> Object | None:
        try:
            found: Object = retry(lambda: self._api.get(path))
        except ApiError as error:
            if error.status != 404:
                raise OSError(f"{kind} {name}: {error}") from None
            return None
        return {**found, "kind": kind}

    def _note(self, name: str, state: Object, restarts: int) -> None:
        going = "running" in state
        spec = next(
            one for one in [*self._spec.get("initContainers", []), *self._spec["containers"]] if one["name"] == name
        )
        with self._lock:
            self._statuses[name] = {
                "name": name,
                "image": spec["image"],
                "imageID": "",
                "ready": going and "readinessProbe" not in spec,  # else `_probe` tells
                "started": going,
                "restartCount": restarts,
                "state": state,
            }

    def _of_containers(self, phase: str) -> list[Object]:
        """The conditions that tell whether its containers are ready, with the time of their last change."""
        names = [one["name"] for one in self._spec["containers"]]
        unready = [one for one in names if not self._statuses.get(one, {}).get("ready")]
        if phase in ("Succeeded", "Failed"):
            why = {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
        else:
            message = f"containers with unready status: [{' '.join(unready)}]"
            why = {"reason": "ContainersNotReady", "message": message} if unready else {}
        found: list[Object] = []
        for kind in ("Ready", "ContainersReady"):
            status = "False" if why else "True"
            if self._changed.get(kind, ("", ""))[0] != status:
                self._changed[kind] = (status, _now())
            found.append({"type": kind, "status": status, "lastTransitionTime": self._changed[kind][1], **why})
        return found

    def _tell_ready(self) -> None:
        """Write whether its containers are ready, unless another has written meanwhile that it does not run: that it was evicted, for example."""
        with contextlib.suppress(ApiError, OSError):
            while not self._ending.is_set():
                pod = retry(lambda: self._api.get(self._path))
                if pod["status"].get("phase") != "Running":
                    return
                with self._lock:
                    own = self._of_containers("Running")
                    known = [dict(self._statuses[one["name"]]) for one in self._spec["containers"]]
                status = {"conditions": [*_of_others(pod, own), *own], "containerStatuses": known}
                try:
                    version = pod["metadata"]["resourceVersion"]
                    self._api.patch_status(self._path, self._metadata["uid"], status, version)
                    return
                except ApiError as error:
                    if error.status != 409:
                        raise

    def _tell(self, phase: str) -> None:
        """Write the pod's status; a deleted pod is not an error."""
        where = pod_spec.shown_address(self._metadata["namespace"], self._metadata["name"])
        status: Object = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": where,
            "podIPs": [{"ip": where}],
            "startTime": self._since,
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._since},
                {
                    "type": "Initialized",
                    "status": "False" if phase == "Pending" else "True",
                    "lastTransitionTime": self._since,
                },
            ],
        }
        with self._lock:
            for key, containers in (("initContainerStatuses", "initContainers"), ("containerStatuses", "containers")):
                known = [
                    self._statuses[one["name"]]
                    for one in self._spec.get(containers, [])
                    if one["name"] in self._statuses
                ]
                if known:
                    status[key] = [dict(one) for one in known]
            status["conditions"] += self._of_containers(phase)
        if self._ending.is_set():
            if phase == "Running":
                return
            with contextlib.suppress(ApiError, OSError):
                status["conditions"] += _of_others(self._api.get(self._path), status["conditions"])
        with contextlib.suppress(ApiError, OSError):
            retry(lambda: self._api.patch_status(self._path, self._metadata["uid"], status))
        if phase in ("Succeeded", "Failed"):
            shutil.rmtree(self._folder / "root", ignore_errors=True)


def _kill(process: subprocess.Popen[str], how: signal.Signals) -> None:
    """Signal a container's first process, as Kubernetes does; where it is none, all of its processes."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        if strict():
            os.killpg(process.pid, how)
        elif first := _first(process):
            os.kill(first, how)
        else:  # it begins
            process.kill()


def _of_others(pod: Object, own: list[Object]) -> list[Object]:
    """Conditions that the kubelet does not write, such as that the pod was disrupted: it keeps them."""
    mine = {one["type"] for one in own}
    return [one for one in pod["status"].get("conditions", []) if one["type"] not in mine]


def _first(process: subprocess.Popen[str]) -> int:
    """The first process of a container; 0 if there is none yet."""
    if strict():
        return process.pid
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        children = Path("/proc", str(process.pid), "task", str(process.pid), "children")
        return int(next(iter(children.read_text().split()), 0))
    return 0


def _words(process: int) -> bytes:
    """The words by which a process was started; none if it has ended."""
    with contextlib.suppress(OSError):
        return Path("/proc", str(process), "cmdline").read_bytes()
    return b""


def _put(file: Path, content: bytes, mode: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(mode)


def memory_of(process: int) -> int:
    """Bytes of memory that a process and its descendants use, without files that they map."""
    try:
        proc = Path("/proc", str(process))
        _, resident, shared, *_ = map(int, (proc / "statm").read_text().split())
        children = (proc / "task" / str(process) / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGESIZE") + sum(memory_of(int(child)) for child in children)


def _copy(stream: Any, log: LogWriter, kind: str) -> None:
    with stream:
        for line in stream:
            with contextlib.suppress(ValueError):  # closed: a grandchild is still running after the container
                log.write(line, kind)


def _now() -> str:
    return f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
