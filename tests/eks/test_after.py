"""JobSets that enter their queue after a Job. Pure; on a real Kueue in jobs/kubernetes/test_backend.py."""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from trainium_cdk.cdk.eks.scaler import after
from trainium_cdk.cdk.eks.scaler.kubernetes import Kubernetes

PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets/run"
DIGEST = {"trainium-cdk/digest": "d"}


class Cluster:
    """One JobSet that waits for the Job `run-prepare`, and that Job in some state."""

    def __init__(self, ended: str, digest: dict[str, str], of_set: str = "") -> None:
        self.sent: list[tuple[str, Any]] = []
        conditions = [{"type": ended, "status": "True", "message": "why"}] if ended else []
        self.job: Any = {
            "metadata": {"name": "run-prepare", "annotations": digest},
            "status": {"conditions": conditions},
        }
        labels = {"trainium-cdk/after-job": "run-prepare", "trainium-cdk/job": "run"}
        metadata = {"name": "run", "namespace": "training", "uid": "u", "resourceVersion": "7", "labels": labels}
        known = {"type": of_set or "Suspended", "status": "True"}
        self.set: Any = {
            "metadata": {**metadata, "annotations": {**DIGEST, "trainium-cdk/queue": "trn"}},
            "status": {"conditions": [known]},
        }

        self.other: list[dict[str, Any]] = []
        self.array = False

    def list(self, path: str, select: str) -> Any:
        if path == PATH.removesuffix("/run"):
            assert select in ("fieldSelector=metadata.name%3Dother", "labelSelector=trainium-cdk/array%3Dother")
            return iter([] if select.startswith("field") and self.array else self.other)
        if path == "/apis/jobset.x-k8s.io/v1alpha2/jobsets":
            assert select == "labelSelector=trainium-cdk/after-job"
            return iter([self.set])
        assert (path, select) == (
            "/apis/batch/v1/namespaces/training/jobs",
            "fieldSelector=metadata.name%3Drun-prepare",
        )
        return iter([self.job] if self.job else [])

    def patch(self, path: str, body: Any) -> None:
        assert {body["metadata"].pop(key) for key in ("uid", "resourceVersion")} == {"u", "7"}
        self.sent.append((path, body))


def test_a_jobset_enters_its_queue_once_its_job_has_completed() -> None:
    cluster = Cluster("Complete", DIGEST)
    assert after.release(cluster, 0) == {"training/run": "enters its queue"}
    labels = {"trainium-cdk/after-job": None, "kueue.x-k8s.io/queue-name": "trn"}
    assert cluster.sent == [(PATH, {"metadata": {"labels": labels}})]


def test_a_jobset_fails_with_its_job() -> None:
    cluster = Cluster("Failed", DIGEST)
    after.release(cluster, 0)
    [(path, body)] = cluster.sent
    assert (path, body["status"]["terminalState"]) == (f"{PATH}/status", "Failed")
    kept, failed = body["status"]["conditions"]
    assert kept["type"] == "Suspended"
    assert (failed["type"], failed["reason"], failed["message"]) == (
        "Failed",
        "PrepareFailed",
        "run-prepare did not complete: why",
    )
    assert failed["lastTransitionTime"] == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("ended", "digest", "of_set"),
    [("", DIGEST, ""), ("Complete", {}, ""), ("Complete", {"trainium-cdk/digest": "another"}, ""), ("Failed", DIGEST, "Failed")],
    ids=["it runs", "another client's", "of another submission", "cancelled"],
)  # fmt: skip
def test_otherwise_nothing_is_done(ended: str, digest: dict[str, str], of_set: str) -> None:
    cluster = Cluster(ended, digest, of_set)
    assert after.release(cluster, 0) == {}
    assert cluster.sent == []


def test_a_jobset_fails_whose_job_was_deleted() -> None:
    cluster = Cluster("Complete", DIGEST)
    cluster.job = None
    assert after.release(cluster, 0) == {"training/run": "run-prepare did not complete: it was deleted"}


def test_one_jobset_keeps_no_other_one_waiting() -> None:
    cluster, refused = Cluster("Complete", DIGEST), list[str]()
    notes = cluster.set["metadata"]["annotations"]
    odd = {"of-no-queue": DIGEST, "refused": notes}
    before = [
        {**cluster.set, "metadata": {**cluster.set["metadata"], "name": n, "annotations": a}} for n, a in odd.items()
    ]
    listed, sent = cluster.list, cluster.patch

    def several(path: str, select: str) -> Any:
        return [*before, cluster.set] if path == f"{after.SETS}/jobsets" else listed(path, select)

    def patch(path: str, body: Any) -> None:
        if path.endswith("refused"):
            raise OSError("a webhook refuses it")
        sent(path, body)

    def attempt(what: str, call: Any, *given: Any) -> Any:
        try:
            return call(*given)
        except OSError as error:
            refused.append(f"{what}: {error}")

    cluster.list, cluster.patch = several, patch  # type: ignore[method-assign]
    assert after.release(cluster, 0, attempt) == {"training/run": "enters its queue"}
    assert refused == ["JobSet training/refused: a webhook refuses it"]


@pytest.mark.parametrize(
    ("other", "job", "then"),
    [
        ("Completed", "Complete", "enters its queue"),
        ("Completed", "", ""),
        ("Suspended", "Complete", ""),
        ("Failed", "", "other did not complete: trn cancel"),
        ("", "Complete", "other did not complete: it was deleted"),
    ],
)
def test_a_jobset_waits_for_another_one_too(other: str, job: str, then: str) -> None:
    cluster = Cluster(job, DIGEST)
    cluster.set["metadata"]["annotations"]["trainium-cdk/after"] = "other"
    if other:
        ended = {"type": other, "status": "True", "message": "trn cancel"}
        cluster.other = [{"metadata": {"name": "other"}, "status": {"conditions": [ended]}}]
    assert after.release(cluster, 0) == ({"training/run": then} if then else {})
    if "not" in then:
        [(path, body)] = cluster.sent
        assert (path, body["status"]["conditions"][-1]["reason"]) == (f"{PATH}/status", "DependencyNeverSatisfied")


def test_a_jobset_waits_for_another_one_alone() -> None:
    cluster = Cluster("", {})
    cluster.set["metadata"]["annotations"]["trainium-cdk/after"] = cluster.set["metadata"]["labels"][
        "trainium-cdk/after-job"
    ] = "other"
    cluster.other = [
        {"metadata": {"name": "other"}, "status": {"conditions": [{"type": "Completed", "status": "True"}]}}
    ]
    assert after.release(cluster, 0) == {"training/run": "enters its queue"}


@pytest.mark.parametrize(
    ("ended", "then"),
    [(["Completed", "Completed"], "enters its queue"), (["Completed", "Suspended"], ""), (["Completed", "Failed"], "other did not complete: why")],
)  # fmt: skip
def test_a_jobset_waits_for_all_members_of_an_array(ended: list[str], then: str) -> None:
    cluster = Cluster("", {})
    cluster.array = True
    labels, notes = cluster.set["metadata"]["labels"], cluster.set["metadata"]["annotations"]
    labels["trainium-cdk/after-job"] = notes["trainium-cdk/after"] = "other"
    cluster.other = [{"status": {"conditions": [{"type": kind, "status": "True", "message": "why"}]}} for kind in ended]
    assert after.release(cluster, 0) == ({"training/run": then} if then else {})


class CutOff(BaseHTTPRequestHandler):
    """An API server that is restarted in the middle of its response."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"items": [')

    def log_message(self, *_: Any) -> None:
        pass


def test_a_response_that_is_cut_off_is_a_failed_request() -> None:
    with HTTPServer(("127.0.0.1", 0), CutOff) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = Kubernetes.__new__(Kubernetes)  # without TLS
        api._endpoint, api._opener, api._token = (
            f"http://127.0.0.1:{server.server_port}",
            urllib.request.build_opener(),
            "",
        )
        with pytest.raises(OSError, match=r"GET /api/v1/nodes.*: JSONDecodeError"):
            list(api.list("/api/v1/nodes"))
        server.shutdown()
