"""Single requests to the Kubernetes API, without one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.jobs.kubernetes.conftest import make_cluster
from trainium_cdk import settings
from trainium_cdk.cdk.eks import manifests
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.eks.scaler.labels import LEAVING
from trainium_cdk.client.jobs import kubernetes
from trainium_cdk.client.jobs.kubernetes import ApiError, inside, logs, nodes, reader
from trainium_cdk.client.jobs.kubernetes.api import _PATHS, _read, _without
from trainium_cdk.client.jobs.kubernetes.parts import DESCRIPTION, JOB_LABEL, TASK_LABEL
from trainium_cdk.description.outputs import GROUP_LABEL
from trainium_cdk.jobs import JobError


class Api:
    """An API with one pod, which has ended and has this log in these pieces."""

    client, namespace = None, "training"

    def __init__(self, *pieces: bytes) -> None:
        self.pieces, self.made, self.deleted, self.read = pieces, list[dict[str, Any]](), list[str](), 0

    def create(self, kind: str, wanted: dict[str, Any]) -> None:
        assert kind == "Pod"
        self.made.append(wanted)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """The pod belongs to a Job, and that to the JobSet of uid u."""
        owner = {"Pod": "j", "BatchJob": "u"}[kind]
        uid = {"Pod": "p", "BatchJob": "j"}[kind]
        return {
            "metadata": {"name": name, "uid": uid, "ownerReferences": [{"uid": owner}]},
            "status": {"phase": "Succeeded"},
        }

    find = get

    def list(self, kind: str, *, labels: str) -> Any:
        return [self.get(kind, "run-train-0-0-abcde")]

    def log(self, pod: str, container: str) -> Any:
        if container == "precompile":
            raise ApiError(400, "BadRequest", "no such container")
        for piece in self.pieces:
            self.read += 1
            yield piece

    def delete(self, kind: str, name: str) -> None:
        self.deleted.append(name)


def test_a_kept_log_is_read_by_a_pod_that_is_deleted(tmp_path: Path) -> None:
    api, cluster = Api(b"a", b"b"), make_cluster()
    assert reader.kept_log(cast("Any", api), cluster, "job-1", "train", 2) == b"ab"
    [made] = api.made
    assert api.deleted == [made["metadata"]["name"]]
    assert made["spec"]["activeDeadlineSeconds"] == 1200
    [container] = made["spec"]["containers"]
    *program, text, file = container["command"]
    assert (program, file) == (["python3", "-I", "-c"], f"{cluster.shared_dir}/trn/jobs/job-1/logs/train.2.log")
    there = tmp_path / file.removeprefix("/")
    there.parent.mkdir(parents=True)
    env = {"TRN_SHARED_ROOT": str(tmp_path)}
    for content in (b"", b"\xff\x00 a\n"):
        assert subprocess.check_output([sys.executable, "-I", "-c", text, file], env=env) == content
        there.write_bytes(b"\xff\x00 a\n")


@pytest.mark.parametrize(
    ("rank", "pieces", "read"), [(3, [b"x" * 4096, b"x", b"x"], 2), (0, [b"1\n2\n3\n", b"4\n", b"5\n"], 2)]
)
def test_only_the_begin_of_a_log_tells_its_ranks(rank: int, pieces: list[bytes], read: int) -> None:
    api = Api(*pieces)
    description = json.dumps({"nodes": 1, "ranks_per_node": 4, "stages": ["train"]})
    job = {"metadata": {"name": "run", "uid": "u", "annotations": {DESCRIPTION: description}}}
    backend = cast("Any", SimpleNamespace(api=api, seen=lambda _: SimpleNamespace(job=job)))
    with pytest.raises(JobError, match=f"no node of run has reported rank {rank} yet"):
        logs.node_of_rank(backend, "run", rank)
    assert api.read == read
    for none in (4, -1):
        with pytest.raises(JobError, match=f"run has ranks 0 to 3, not {none}"):
            logs.node_of_rank(backend, "run", none)


def test_nodes_are_described_with_what_is_wrong_with_them() -> None:
    def node(name: str, conditions: dict[str, str], group: str = "", **spec: Any) -> dict[str, Any]:
        labels = {GROUP_LABEL: group, "node.kubernetes.io/instance-type": "trn1.32xlarge"} if group else {}
        metadata = {"name": name, "creationTimestamp": "2026-11-20T08:00:00Z", "labels": labels}
        known = [{"type": kind, "status": is_so, "message": f"{kind}?"} for kind, is_so in conditions.items()]
        addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": f"ip-of-{name}"}]
        return {"metadata": metadata, "spec": spec, "status": {"conditions": known, "addresses": addresses}}

    well = {"Ready": "True", "DiskPressure": "False", "KernelDeadlock": "True"}
    taint = {"key": "gone", "effect": "NoExecute"}
    there = [
        node("system", well),
        node("b", {"Ready": "True", "DiskPressure": "True"}, "trn", unschedulable=True, providerID="aws:///z/i-0"),
        node("a", well, "trn", taints=[taint, {"key": "only", "effect": "NoSchedule"}]),
        node("c", {"Ready": "Unknown", "MemoryPressure": "Unknown"}, "trn"),
        node("new", {}, "trn"),
        node("d", well, "trn", unschedulable=True),
        node("e", {"Ready": "Unknown"}, "trn", unschedulable=True),
    ]
    for leaving in there[-2:]:  # as the scaler's function marks what it ends, and as it is while its instance ends
        leaving["metadata"]["annotations"] = {LEAVING: "true"}
    labels = {"b": {JOB_LABEL: "j-1", TASK_LABEL: "train"}}
    pods = [
        {
            "metadata": {"name": f"of-{name}", "labels": labels.get(name)},
            "spec": {"nodeName": name},
            "status": {"phase": "Running"},
        }
        for name in ("a", "b", "system")
    ]
    asked = []

    def listed(kind: str, **how: str) -> list[dict[str, Any]]:
        asked.append((kind, how))
        return there if kind == "Node" else pods

    found = nodes.list_nodes(cast("Any", SimpleNamespace(list=listed)), make_cluster())
    assert asked == [("Pod", {"fields": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}), ("Node", {})]
    assert [n.job for n in found] == [
        "pod of-a",
        "j-1:train",
        "",
        "",
        "",
        "",
        "",
    ]  # what runs on a system node is no job
    assert [(n.name, n.queue, n.state, n.reason) for n in found] == [
        ("a", "trn", "ready", "taint gone"),
        ("b", "trn", "ready+cordoned", "DiskPressure?"),
        ("c", "trn", "notready", "Ready?"),
        ("d", "trn", "ready+leaving", "no job has used it for a while: it is ended"),
        ("e", "trn", "notready+leaving", "no job has used it for a while: it is ended; Ready?"),
        ("new", "trn", "notready", "has not reported yet"),
        ("system", "", "ready", ""),
    ]
    assert [(n.address, n.instance, n.instance_type) for n in (found[1], found[-1])] == [
        ("ip-of-b", "i-0", "trn1.32xlarge"),
        ("ip-of-system", "", ""),
    ]


_ASKED = re.compile(r'api\.(get|find|list|table|create|patch|delete)\(\s*"(\w+)"')
_VERBS = {"find": "get", "table": "list"}


def test_those_who_submit_may_do_what_is_requested_for_them() -> None:
    sources = [file.read_text("utf-8") for file in Path(kubernetes.__file__).parent.glob("*.py")]
    asked = {(_VERBS.get(verb, verb), kind) for text in sources for verb, kind in _ASKED.findall(text)}
    assert len(asked) > 20
    with_claims = settings.parse("eks: {plugins: {devices: claims}}")
    rules = [
        rule
        for thing in manifests.access(Installation.of(with_claims))
        if thing["metadata"]["name"] in ("trn-edit", "trn-read")
        for rule in thing.get("rules", [])
    ]
    allowed = {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    needed = set()
    for verb, kind in asked:
        _, root, group, *_, resource = _PATHS[kind].split("/")
        group = "" if root == "api" else group
        if group not in ("", "batch") or resource == "nodes":  # EKS's own policy for editors has the others
            needed.add((verb, group, resource))
    assert len(needed) > 8
    assert needed - allowed == set()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_has_one_stream_of_output(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("kubernetes.stream.stream", lambda *_, **options: asked.update(options))
    inside._exec(cast("Any", Api()), "pod", "train", ("bash",), terminal)
    assert (asked["stdin"], asked["stdout"], asked["stderr"], asked["tty"]) == (True, True, not terminal, terminal)
    assert (asked["container"], asked["command"]) == ("train", ["bash"])


@pytest.mark.parametrize(("seconds", "expected"), [(None, 60.0), (5.0, 5.0)])
def test_a_log_is_waited_for(seconds: float | None, expected: float) -> None:
    asked: list[Any] = []
    pieces = [b"a", b""]
    reply = SimpleNamespace(read1=lambda _: pieces.pop(0), close=lambda: None, release_conn=lambda: None)

    def send(*request: str, **options: Any) -> Any:
        asked.append((*request, options))
        return reply

    api = cast("Any", SimpleNamespace(_path=lambda kind: f"/{kind}", _send=send))
    assert list(kubernetes.Api.log(api, "p", "train", follow=True, seconds=seconds)) == [b"a"]
    options = {"query": {"container": "train", "follow": "true"}, "raw": True, "timeout": (10.0, expected)}
    assert asked == [("GET", "/Pod/p/log", options)]


def answering(text: bytes, size: int = 1 << 20) -> Any:
    """A response of urllib3, in pieces."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return SimpleNamespace(status=200, reason="OK", read=lambda *_, **__: pieces.pop(0) if pieces else b"")


@pytest.mark.parametrize("size", [1, 7, 30, 1 << 20])
def test_who_has_set_a_field_is_left_out(size: int) -> None:
    """And nothing that only looks like it."""
    fields = [{"fieldsV1": {'k:{"a":"]}["}': {}, "f:\\": {}}, "manager": 'x"]'}]
    kept = {"name": "a", "note": ',"managedFields":[{"x":1}]', "labels": {"managedFields": "mine"}}
    rows = [
        {"metadata": {**kept, "managedFields": fields, "uid": "u"}},
        {"metadata": {"uid": "v", "managedFields": []}},
    ]
    text = json.dumps({"items": rows}, separators=(",", ":")).encode()
    found = json.loads(_read(answering(text, size)))
    assert found == {"items": [{"metadata": {**kept, "uid": "u"}}, {"metadata": {"uid": "v"}}]}


def test_a_key_is_left_out() -> None:
    kept = {"active": True, "note": ',"podSets":[{'}
    rows = [{"spec": {**kept, "podSets": [{"a": {"x": 1, "podSets": "mine"}}], "queue": "q"}}, {"spec": kept}]
    text = json.dumps({"items": rows}, separators=(",", ":"))
    assert json.loads(_without(text, "podSets")) == {"items": [{"spec": {**kept, "queue": "q"}}, {"spec": kept}]}


@pytest.mark.parametrize(("how", "expected"), [({}, (10.0, 60.0)), ({"timeout": (10.0, 300.0)}, (10.0, 300.0))])
def test_a_large_answer_has_its_time(how: dict[str, Any], expected: tuple[float, float]) -> None:
    """Of 2,000 jobs it may take longer than a connection."""
    asked = []

    def request(*_: object, timeout: Any, **__: object) -> Any:
        asked.append((timeout.connect_timeout, timeout.read_timeout))
        return answering(b"{}")

    api = SimpleNamespace(
        _endpoint=SimpleNamespace(url="https://x"), _bearer=str, _connections=SimpleNamespace(request=request)
    )
    kubernetes.Api._send(cast("Any", api), "GET", "/x", **how)
    assert asked == [expected]


def test_the_last_line_of_a_node_is_not_glued_to_the_next_node() -> None:
    parts = [*logs._chunks("train", b"a\nends", 0), *logs._chunks("train", b"b\n", 1)]
    assert b"".join(part.data for part in parts) == b"0: a\n0: ends\n1: b\n"
    assert [part.data for part in logs._chunks("train", b"ends", None)] == [b"ends"]
