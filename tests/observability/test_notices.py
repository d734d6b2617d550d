"""A message when a job has ended: what each scheduler tells, what is sent, and who may send. On a real Slurm: tests/jobs/test_notices.py."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.observability.node_script import metrics
from tests.stacks import synthesis
from trainium_cdk import settings
from trainium_cdk.cdk.eks.scaler import lines as of_log
from trainium_cdk.cdk.observability.notice import function

TOPIC = "arn:aws:sns:us-east-1:111122223333:jobs"
WITH = {"observability": {"job_topic": TOPIC}}
MARK = "m4rk"


def row(number: int, name: str, state: str, at: int = 50, reason: str = "None", comment: str = "", **other: str) -> str:
    end = f"2026-11-27T09:00:{at:02d}" if state not in ("RUNNING", "PENDING") else "Unknown"
    user = other.get("user", "ada")
    comment = comment or f"trn:{name.rpartition(':')[0]}"
    words = (str(number), state, reason, "2026-11-27T08:30:00", end, "2", user, "compute1", comment, name)
    return MARK + "\x1f".join(words) + "\n"


def of_slurm(*rows: str, since: int = 0, until: int = 59) -> list[dict[str, Any]]:
    begin = metrics.seconds("2026-11-27T09:00:00")
    return metrics.ended("".join(rows), MARK, begin + since, begin + until)  # type: ignore[no-any-return]


ROWS: list[tuple[str, list[str], str]] = [
    ("completed", [row(7, "a-1:train", "COMPLETED")], "COMPLETED"),
    ("killed by signal 9", [row(7, "a-1:train", "FAILED", reason="NonZeroExitCode")], "FAILED"),
    ("lost its node", [row(7, "a-1:train", "NODE_FAIL", reason="NodeDown")], "NODE_FAIL"),
    ("runs", [row(7, "a-1:train", "RUNNING")], ""),
    ("fetches still", [row(6, "a-1:prepare", "COMPLETED"), row(7, "a-1:train", "PENDING")], ""),
    (
        "could not fetch",
        [row(6, "a-1:prepare", "FAILED"), row(7, "a-1:train", "CANCELLED", reason="DependencyNeverSatisfied")],
        "FAILED",
    ),
    ("fetched, and its training waits for a moment", [row(6, "a-1:prepare", "COMPLETED")], ""),
    ("was submitted again", [row(5, "a-1:train", "FAILED", 40), row(9, "a-1:train", "COMPLETED")], "COMPLETED"),
    ("an array", [row(7, "a-1:train", "COMPLETED", 41), row(7, "a-1:train", "FAILED")], "1 COMPLETED, 1 FAILED"),
    ("an array of which one runs", [row(7, "a-1:train", "COMPLETED"), row(7, "a-1:train", "RUNNING")], ""),
    ("another client's", [row(7, "a-1:train", "FAILED", comment="mine")], ""),
    ("a name that imitates a row", [row(7, "a-1:train", "RUNNING"), row(8, "x\n7\x1fFAILED:train", "FAILED")], ""),
]


@pytest.mark.parametrize(("what", "rows", "state"), ROWS, ids=[what for what, *_ in ROWS])
def test_what_slurm_tells(what: str, rows: list[str], state: str) -> None:
    assert [one["State"] for one in of_slurm(*rows)] == [state] * bool(state)


def test_an_end_is_told_once() -> None:
    ends = row(7, "a-1:train", "COMPLETED", 30)
    for since, until, times in ((0, 29, 0), (29, 30, 1), (30, 59, 0), (0, 59, 1)):
        assert len(of_slurm(ends, since=since, until=until)) == times
    [one] = of_slurm(ends)
    assert one == {"JobEnded": "a-1", "State": "COMPLETED", "User": "ada", "Queue": "compute1", "Nodes": "2", "Seconds": 1830}  # fmt: skip


class Sets:
    """The API of a cluster with these JobSets: (name, array, condition, its reason, second of its end)."""

    def __init__(self, *sets: tuple[str, str, str, str, int]) -> None:
        self._sets = sets

    def list(self, path: str, select: str) -> Iterator[Any]:
        assert (path, select) == (
            "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
            "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dtrn",
        )
        for name, array, kind, reason, at in self._sets:
            end = {"type": kind, "status": "True", "reason": reason, "message": f"it is {reason}"}
            yield {
                "metadata": {
                    "name": name,
                    "uid": f"uid-{name}",
                    "namespace": "training",
                    "creationTimestamp": "2026-11-27T08:00:00Z",
                    "labels": {"trainium-cdk/array": array} if array else {},
                    "annotations": {"trainium-cdk/queue": "trn", "trainium-cdk/description": '{"user": "ada"}'},
                },
                "status": {"conditions": [{**end, "lastTransitionTime": f"2026-11-27T09:00:{at:02d}Z"}]},
            }


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ([("a-1", "", "Completed", "AllJobsCompleted", 30)], ["a-1 COMPLETED"]),
        ([("a-1", "", "Failed", "FailedJobs", 30)], ["a-1 FAILED"]),
        ([("a-1", "", "Failed", "Cancelled", 30)], ["a-1 CANCELLED"]),
        ([("a-1", "", "Suspended", "", 30)], []),
        ([("a-1", "", "Completed", "", 5)], []),  # told by the run before
        ([("a-1", "", "Completed", "", 59)], []),  # that second is not over: told by the next run
        ([("s-0", "s", "Completed", "", 20), ("s-1", "s", "Failed", "x", 30)], ["s 1 COMPLETED, 1 FAILED"]),
        ([("s-0", "s", "Completed", "", 20), ("s-1", "s", "Suspended", "", 30)], []),
    ],
)
def test_what_kubernetes_tells(sets: list[tuple[str, str, str, str, int]], told: list[str]) -> None:
    begin = metrics.seconds("2026-11-27T09:00:00")
    found = [json.loads(line) for line in of_log.ended(Sets(*sets), "trn-eks", begin + 10.4, begin + 59.9)]
    assert [f"{one['JobEnded']} {one['State']}" for one in found] == told


def train_pod(job: str, at: str, *, began: str = "08:30:00", ready: bool = False, **changes: Any) -> dict[str, Any]:
    """A pod that trains for a job, whose readiness has changed last at this time."""
    state = {"running": {"startedAt": f"2026-11-27T{began}Z"}} if began else {"waiting": {"reason": "PodInitializing"}}
    ready_now = {"type": "ContainersReady", "status": str(ready), "lastTransitionTime": f"2026-11-27T{at}Z"}
    status = {
        "phase": "Running" if began else "Pending",
        "containerStatuses": [{"name": changes.pop("container", "train"), "ready": ready, "state": state}],
        "conditions": [{**ready_now, "type": "Ready", "status": "False"}, ready_now],
        **changes.pop("status", {}),
    }
    return {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-uid": f"uid-{job}"}, **changes}, "status": status}


RUNS = ("Suspended", "", 0)
DELETED = {"deletionTimestamp": "2026-11-27T08:59:00Z"}


@pytest.mark.parametrize(
    ("what", "sets", "pods", "told"),
    [
        ("is not ready for two minutes", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:30")], ["a-1"]),
        ("is told at once", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:09")], []),
        ("is told by the next run", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:59")], []),
        ("has lost its node: the container is ready", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:30", ready=True)], []),
        ("begins", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:30", began="08:58:40")], []),
        ("compiles", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:30", began="")], []),
        ("is being deleted", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:30", **DELETED)], []),
        ("has failed", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:30", status={"phase": "Failed"})], []),
        ("has ended", [("a-1", "", "Completed", "", 59)], [train_pod("a-1", "08:58:30")], []),
        ("is another's", [("a-1", "", *RUNS)], [train_pod("b-1", "08:58:30")], []),
        ("is another container", [("a-1", "", *RUNS)], [train_pod("a-1", "08:58:30", container="web")], []),
        ("is of nobody", [("a-1", "", *RUNS)], [{}, {"metadata": {}, "status": {"phase": "Running", "containerStatuses": [{}]}}], []),
        ("an array, once", [("s-0", "s", *RUNS), ("s-1", "s", *RUNS)], [train_pod("s-0", "08:58:30"), train_pod("s-1", "08:58:20")], ["s"]),
        ("an array that was told", [("s-0", "s", *RUNS), ("s-1", "s", *RUNS)], [train_pod("s-0", "08:58:30"), train_pod("s-1", "08:50:00")], []),
    ],
)  # fmt: skip
def test_what_pods_tell_of_a_job_that_does_not_go_on(
    what: str, sets: list[tuple[str, str, str, str, int]], pods: list[Any], told: list[str]
) -> None:
    begin, unready = metrics.seconds("2026-11-27T09:00:00"), dict[str, float]()
    assert list(of_log.noting(pods, unready)) == pods
    found = [json.loads(line) for line in of_log.ended(Sets(*sets), "trn-eks", begin + 10.4, begin + 59.9, unready)]
    assert [one["JobFound"] for one in found if "JobFound" in one] == told, what
    for one in found:
        assert (one["User"], one["Queue"], one["Cluster"]) == ("ada", "trn", "trn-eks")
    if told == ["a-1"]:
        assert function.notice(found[0]) == (
            "a-1: needs attention (RUNNING) on trn-eks",
            "a-1 on trn-eks: needs attention (RUNNING)\nuser: ada\nqueue: trn\n"
            "reason: it hangs, its loss is not a number, or most of its budget is used\nMore: trn status a-1\n",
        )


def test_the_function_sends_each_end_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, list[str]]] = []

    class Sns(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(
                b"<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>"
            )

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Sns)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL_SNS": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TOPIC": TOPIC,
    }.items():
        monkeypatch.setenv(name, value)
    [one] = of_slurm(row(7, "a-1:train", "NODE_FAIL", reason="NodeDown"))
    lines = [json.dumps({**one, "Cluster": "trn-slurm"}) + "\n"]
    event = {"messageType": "DATA_MESSAGE", "logEvents": [{"message": line} for line in lines]}
    try:
        for given in (event, {**event, "messageType": "CONTROL_MESSAGE"}):
            data = base64.b64encode(gzip.compress(json.dumps(given).encode())).decode()
            function.handler({"awslogs": {"data": data}}, None)
    finally:
        server.shutdown()
        server.server_close()
    [message] = sent
    assert (message["TopicArn"], message["Subject"]) == ([TOPIC], ["a-1: NODE_FAIL on trn-slurm"])
    assert message["Message"] == [
        "a-1 on trn-slurm: NODE_FAIL\nuser: ada\nqueue: compute1\nnodes: 2\nreason: NodeDown\ntime: 0 h 30 min 50 s\nMore: trn status a-1\n"
    ]


def test_a_hostile_name_stays_in_its_line() -> None:
    subject, text = function.notice({"JobEnded": "a" * 300, "State": "FAILED", "Cluster": "c", "User": "x\nfrom: root", "Reason": "é\x1b"})  # fmt: skip
    assert (len(subject), subject.isascii()) == (100, True)
    assert "user: x from: root\n" in text


@pytest.mark.parametrize("engine", ["SLURM", "PCS", "EKS"])
def test_only_a_function_may_send(engine: str) -> None:
    document = getattr(synthesis, engine).template_of(settings.validate(WITH)).to_json()["Resources"]
    [subscription] = [r for r in document.values() if r["Type"] == "AWS::Logs::SubscriptionFilter"]
    assert subscription["Properties"]["FilterPattern"] == '{ ($.JobEnded = "*") || ($.JobFound = "*") }'
    [policy] = [
        id for id, r in document.items() if r["Type"].startswith("AWS::IAM::") and "sns:Publish" in json.dumps(r)
    ]
    statements = document[policy]["Properties"]["PolicyDocument"]["Statement"]
    [publish] = [one for one in statements if one["Action"] == "sns:Publish"]
    assert publish["Resource"] == TOPIC
    assert [r for r in document.values() if r["Type"] == "AWS::Lambda::Function" and "TOPIC" in json.dumps(r)]
