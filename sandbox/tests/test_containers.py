"""Containers here are as strict as real ones: the pod's user, a root that is only read, and no other process before the first one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.kubernetes import pod_spec, running
from sandbox.kubernetes.api import ApiError
from sandbox.kubernetes.running import Running, cannot_run, strict
from sandbox.testing import need, until

Object = dict[str, Any]
OBJECTS = {
    ("ConfigMap", "program"): {"binaryData": {"a.bin": "AP8="}, "data": {"b": "text"}},
    ("Secret", "keys"): {"data": {"key": "c2VjcmV0"}},
}
SHOW = "import os, sys; print(os.getuid(), os.getgid(), os.getpid(), os.getgroups())"


class Api:
    """Has these objects and one pod, and keeps the pod's status."""

    def __init__(self) -> None:
        self.status: Object = {}
        self.events: dict[str, Object] = {}

    @property
    def ready(self) -> tuple[bool, set[str]]:
        """Whether its first container is ready, and what its conditions say of it."""
        [container, *_] = self.status["containerStatuses"]
        said = {c["status"] for c in self.status["conditions"] if c["type"] in ("Ready", "ContainersReady")}
        return container["ready"], said

    def get(self, path: str) -> Object:
        *_, plural, name = path.split("/")
        if plural == "pods":
            return {"metadata": {"resourceVersion": "7"}, "status": self.status}
        if plural == "events":
            if name not in self.events:
                raise ApiError(404, "NotFound", "")
            return self.events[name]
        return next(
            thing for (kind, called), thing in OBJECTS.items() if (f"{kind.lower()}s", called) == (plural, name)
        )

    def apply(self, event: Object) -> None:
        self.events[event["metadata"]["name"]] = event

    def patch_status(self, _path: str, _uid: str, status: Object, _version: str = "") -> None:
        self.status = {**self.status, **status}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., tuple[Object, str]]]:
    need(cannot_run() is None, str(cannot_run()))
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    made: list[Running] = []

    def start(
        *command: str, wait: bool = True, volumes: Object | None = None, probe: Object | None = None, **security: Any
    ) -> Any:
        uses = [{"name": str(i), "mountPath": place} for i, place in enumerate(volumes or {})]
        container = {
            "name": "main",
            "image": "x/y:1",
            "command": [*command],
            "volumeMounts": uses,
            "securityContext": security,
            **({"readinessProbe": probe} if probe else {}),
        }
        kept = [{"name": str(i), **source} for i, source in enumerate((volumes or {}).values())]
        spec = {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": kept,
            "securityContext": {"runAsUser": 10001, "runAsGroup": 10001},
        }
        pod = {"metadata": {"name": f"pod-{len(made)}", "namespace": "n", "uid": "u"}, "spec": spec}
        api = Api()
        one = Running(tmp_path, api, pod, hosts)  # type: ignore[arg-type]
        made.append(one)
        log = tmp_path / "pods/n" / pod["metadata"]["name"] / "main.log"  # type: ignore[index]
        if not wait:
            return one, api, log
        one.join(60)
        [found] = api.status["containerStatuses"]
        return found["state"]["terminated"], "\n".join(line.split(" ", 3)[3] for line in log.read_text().splitlines())

    yield start
    for one in made:
        one.end(0.1)


def confined() -> None:
    need(not strict(), strict())


PYTHON = "/usr/bin/python3"


def test_a_container_has_the_user_and_the_group_of_its_pod_and_is_the_first_process(run: Any) -> None:
    confined()
    _, told = run(PYTHON, "-c", SHOW)
    assert told == "10001 10001 1 []"
    _, told = run(PYTHON, "-c", SHOW, runAsUser=0, runAsGroup=0)
    assert told == "0 0 1 []"


def test_a_container_has_no_capabilities(run: Any) -> None:
    confined()
    for user in (0, 10001):
        _, told = run("sh", "-c", "grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs)' /proc/self/status", runAsUser=user)
        assert [line.split()[1].strip("0") for line in told.splitlines()] == ["", "", "", "1"]


def test_only_volumes_can_be_written_where_the_root_is_read_only(run: Any) -> None:
    confined()
    volumes = {"/tmp": {"emptyDir": {}}, "/home/trn": {"emptyDir": {}}}
    text = 'for d in /tmp /home/trn /dev/shm /etc /usr /var/tmp /; do (: > $d/x) 2> /dev/null && echo "$d"; done; echo read > /dev/termination-log'
    ended, told = run("sh", "-c", text, volumes=volumes, readOnlyRootFilesystem=True, runAsUser=0)
    assert told.split() == ["/tmp", "/home/trn", "/dev/shm"]
    assert ended["message"] == "read\n"
    assert not Path("/etc/x").exists()


def test_files_of_a_secret_and_a_configmap(run: Any, tmp_path: Path) -> None:
    volumes = {
        "/trn/runner": {"configMap": {"name": "program"}},
        "/trn/job": {"secret": {"secretName": "keys", "defaultMode": 0o400}},
        "/trn/open": {"secret": {"secretName": "keys", "defaultMode": 0o444}},
    }
    ended, told = run(
        "sh",
        "-c",
        "od -An -tx1 /trn/runner/a.bin; cat /trn/runner/b /trn/open/key; echo; cat /trn/job/key 2>&1",
        volumes=volumes,
    )
    text = told.split()
    assert text[:3] == ["00", "ff", "textsecret"]
    if not strict():  # root's own: another user cannot read it
        assert (ended["exitCode"], "Permission denied" in told) == (1, True)


def test_a_program_that_the_image_does_not_have(run: Any) -> None:
    ended, told = run("python4", "-V")
    assert (ended["exitCode"], ended["reason"], told) == (128, "StartError", "")
    assert ended["message"].endswith('exec: "python4": executable file not found in $PATH: unknown')
    assert ended["startedAt"] == "1970-01-01T00:00:00Z"
    ended, _ = run("sh", "-c", "exit 128")
    assert (ended["exitCode"], ended["reason"], "message" in ended) == (128, "Error", False)


def test_files_that_come_and_go_beside_a_volume(run: Any, tmp_path: Path) -> None:
    """The other programs of this machine work on, while a container's view is made."""
    busy, over = tmp_path / "busy", threading.Event()
    busy.mkdir()

    def work() -> None:
        while not over.is_set():
            for name in "abcdefgh":
                (busy / name).touch()
                (busy / f"link-{name}").symlink_to(name)
            for one in busy.iterdir():
                one.unlink()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(8):
            assert run("echo", "here", volumes={f"{busy}/volume": {"emptyDir": {}}})[1] == "here"
    finally:
        over.set()
        worker.join()


def test_only_the_first_process_is_told_to_end_and_all_end_with_it(run: Any, tmp_path: Path) -> None:
    confined()
    marker = f"9{os.getpid()}"
    script = f"setsid sleep {marker} & trap 'echo told; exit 143' TERM; echo began; while :; do sleep 0.1; done"
    one, api, log = run("sh", "-c", script, wait=False)

    def there() -> str:
        return subprocess.run(["pgrep", "-f", f"sleep {marker}$"], capture_output=True, text=True, check=False).stdout

    assert until(lambda: log.exists() and "began" in log.read_text() and there())
    one.end(10)
    assert until(lambda: not there())
    one.join(10)
    assert "told" in log.read_text()
    assert api.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_a_first_process_without_a_handler_is_ended_after_the_grace(run: Any) -> None:
    """The kernel gives the first process of a namespace no default handlers."""
    confined()
    one, api, log = run(PYTHON, "-c", "import time; print('began', flush=True); time.sleep(600)", wait=False)
    assert until(lambda: log.exists() and "began" in log.read_text())
    began = time.monotonic()
    one.end(1)
    one.join(10)
    assert 1 <= time.monotonic() - began < 9
    assert api.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 128 + signal.SIGKILL


def test_a_readiness_probe_runs_in_the_container_as_its_user(run: Any) -> None:
    """It sees the files of the pod and its processes. A container is ready after the first success, and no longer after so many failures."""
    confined()
    script = "echo began; touch /tmp/well; while :; do sleep 0.1; done"
    look = "id -u; cat /proc/1/cmdline | tr '\\0' ' '; echo; pwd; test ! -e /tmp/ill"
    probe = {"exec": {"command": ["sh", "-c", look]}, "periodSeconds": 1, "failureThreshold": 2}
    _, api, log = run("sh", "-c", script, wait=False, volumes={"/tmp": {"emptyDir": {}}}, probe=probe)
    assert until(lambda: "containerStatuses" in api.status and api.ready == (True, {"True"}))
    since = {c["type"]: c["lastTransitionTime"] for c in api.status["conditions"]}
    assert not api.events
    assert until(lambda: [*log.parent.rglob("well")])
    next(log.parent.rglob("well")).with_name("ill").touch()
    assert until(lambda: api.events)
    assert until(lambda: api.ready == (False, {"False"}))
    [event] = api.events.values()
    assert event["count"] >= 2, "one failure alone changes nothing"
    assert (event["reason"], event["involvedObject"]["name"]) == ("Unhealthy", "pod-0")
    first, second, where, *_ = event["message"].removeprefix("Readiness probe failed: ").split("\n")
    assert (first, second.split()[:2], where) == ("10001", ["sh", "-c"], "/")
    assert {c["type"]: c["lastTransitionTime"] for c in api.status["conditions"]} != since


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ({"exec": {"command": ["sleep", "60"]}}, "Readiness probe failed: command timed out after 1s"),
        ({"exec": {"command": ["python4"]}}, "Readiness probe errored: nsenter: failed to execute python4: "),
        ({"exec": {"command": ["true"]}, "initialDelaySeconds": 60}, ""),
        ({"httpGet": {"port": 1}}, ""),
    ],
)
def test_a_container_whose_probe_never_succeeds_is_never_ready(run: Any, probe: Object, said: str) -> None:
    confined()
    one, api, log = run("sh", "-c", "echo began; while :; do sleep 0.1; done", wait=False, probe=probe)
    assert until(lambda: log.exists() and "began" in log.read_text())
    assert until(lambda: api.events) if said else not until(lambda: api.events, 2)
    assert [event["message"].startswith(said) for event in api.events.values()] == [True] * bool(said)
    assert api.ready == (False, {"False"})
    one.end(0.1)
    one.join(10)
    assert api.status["phase"] == "Failed"


def test_without_root_containers_are_not_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    running.strict.cache_clear()
    assert running.strict().startswith("only root may give a container another user")
    monkeypatch.undo()
    running.strict.cache_clear()


@pytest.mark.parametrize(
    ("pod", "container", "rights"),
    [
        ({}, {}, (0, 0, False)),
        ({"runAsUser": 10001, "runAsGroup": 10001}, {"readOnlyRootFilesystem": True}, (10001, 10001, True)),
        ({"runAsUser": 10001, "runAsGroup": 7}, {"runAsUser": 0}, (0, 7, False)),
    ],
)
def test_rights(pod: Object, container: Object, rights: tuple[int, int, bool]) -> None:
    found = pod_spec.Rights.of({"spec": {"securityContext": pod}}, {"securityContext": container})
    assert (found.user, found.group, found.read_only_root) == rights
    assert json.loads(json.dumps(vars(found)))
