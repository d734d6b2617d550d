"""Single requests to the Kubernetes API, without one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.jobs.kubernetes.conftest import make_cluster
from trainium_cdk.jobs import JobError, kubernetes
from trainium_cdk.jobs.kubernetes import ApiError, inside, logs, reader
from trainium_cdk.jobs.kubernetes.names import DESCRIPTION


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


def test_a_kept_log_is_read_by_a_pod_that_is_deleted() -> None:
    api, cluster = Api(b"a", b"b"), make_cluster()
    assert reader.kept_log(cast("Any", api), cluster, "job-1", "train", 2) == b"ab"
    [made] = api.made
    assert api.deleted == [made["metadata"]["name"]]
    assert made["spec"]["activeDeadlineSeconds"] == 3600
    [container] = made["spec"]["containers"]
    program, option, script, name, file = container["command"]
    assert (program, option, name, file) == (
        "bash",
        "-c",
        "read",
        f"{cluster.shared_dir}/trn/jobs/job-1/logs/train.2.log",
    )
    assert "cat" in script


@pytest.mark.parametrize(
    ("rank", "pieces", "read"), [(3, [b"x" * 4096, b"x", b"x"], 2), (3, [b"1\n2\n3\n", b"4\n", b"5\n"], 2)]
)
def test_only_the_begin_of_a_log_tells_its_ranks(rank: int, pieces: list[bytes], read: int) -> None:
    api = Api(*pieces)
    description = json.dumps({"nodes": 1, "ranks_per_node": 4, "stages": ["train"]})
    job = {"metadata": {"name": "run", "uid": "u", "annotations": {DESCRIPTION: description}}}
    backend = cast("Any", SimpleNamespace(api=api, seen=lambda _: SimpleNamespace(job=job)))
    with pytest.raises(JobError, match="no node of run has reported rank 3 yet"):
        logs.node_of_rank(backend, "run", rank)
    assert api.read == read
    with pytest.raises(JobError, match="run has ranks 0 to 3, not 4"):
        logs.node_of_rank(backend, "run", 4)


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
