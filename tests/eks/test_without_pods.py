"""What Kueue has admitted, and what gets no pod, keeps no nodes; and `trn` says why. Whatever has pods is left alone."""

from __future__ import annotations

import datetime as dt
import functools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox.kubernetes.api import Object
from tests.eks.conftest import Open
from tests.eks.scenes import FAILS, JOB_SETS, NAMESPACE, SLACK, TRN1, Scene, job, jobset, pod, token_of_member
from tests.support import until
from trainium_cdk import outputs, settings
from trainium_cdk.cdk.eks.scaler import aside
from trainium_cdk.cdk.eks.scaler.labels import ASIDE
from trainium_cdk.client.cli import follow
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, look, nodes
from trainium_cdk.client.jobs.kubernetes.access import Endpoint, Token
from trainium_cdk.client.jobs.kubernetes.api import Api
from trainium_cdk.client.operations import why_kubernetes

NOW, LIMIT = 1_800_000_000.0, 600
OWNER = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "own", "uid": "u"}
REQUEST = {"metadata": {"name": "w-1", "namespace": "speech", "ownerReferences": [{"name": "w"}]}}
REFUSED = 'Error creating: pods "own-train-0-0-" is forbidden: exceeded quota: small'


class Cluster:
    """A Workload, and the pods and events of its namespace."""

    def __init__(self, true: list[str], pods: list[Object], events: list[Object]) -> None:
        conditions = [{"type": kind, "status": "True"} for kind in true]
        metadata = {"name": "w", "namespace": "speech", "uid": "x", "resourceVersion": "1", "ownerReferences": [OWNER]}
        workload = {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}
        self._lists = {"workloads": [workload] if true else [], "pods": pods, "events": events}
        self.sent: list[tuple[str, Any]] = []

    def list(self, path: str, select: str = "") -> Any:
        return iter(self._lists[path.rpartition("/")[2]])

    def patch(self, path: str, body: Any) -> None:
        self.sent.append((path, body))

    create = patch


def a_pod(labels: Object | None = None, **notes: str) -> Object:
    marks = {key.replace("_", "/").replace("kueue", "kueue.x-k8s.io"): value for key, value in notes.items()}
    return {"metadata": {"name": "p", "labels": labels or {}, "annotations": marks}, "status": {"phase": "Pending"}}


def warning(message: str, kind: str = "Job", name: str = "own-train-0", **more: Any) -> Object:
    about = {"kind": kind, "name": name}
    return {"involvedObject": about, "message": message, "reason": "FailedCreate", "lastTimestamp": "2027-01-15T07:59:00Z", **more}  # fmt: skip


@pytest.mark.parametrize(
    ("what", "true", "pods", "since", "then"),
    [
        ("first seen", ["Admitted"], [], 0, NOW),
        ("for a while", ["Admitted"], [], NOW - 599, NOW - 599),
        ("ten minutes", ["Admitted"], [], NOW - 600, "aside"),
        ("not admitted: another check waits", ["QuotaReserved"], [], NOW - 9000, 0),
        ("evicted", ["Admitted", "Evicted"], [], NOW - 9000, 0),
        ("finished", ["Admitted", "Finished"], [], NOW - 9000, 0),
        ("gone", [], [], NOW - 9000, 0),
        ("a pod that waits for a node", ["Admitted"], [a_pod(kueue_workload="w")], NOW - 9000, 0),
        ("a pod of its first part", ["Admitted"], [a_pod({"jobset.sigs.k8s.io/jobset-name": "own"})], NOW - 9000, 0),
        ("a pod of a Job", ["Admitted"], [a_pod({"batch.kubernetes.io/job-name": "own"})], NOW - 9000, 0),
        ("a pod of another one", ["Admitted"], [a_pod(kueue_workload="v")], NOW - 600, "aside"),
        ("a part with its name", ["Admitted"], [a_pod({"jobset.sigs.k8s.io/replicatedjob-name": "own"})], NOW - 600, "aside"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)  # fmt: skip
def test_only_what_never_gets_a_pod_is_set_aside(
    what: str, true: list[str], pods: list[Object], since: float, then: Any
) -> None:
    api = Cluster(true, pods, [warning(REFUSED)])
    found = aside.without_pods(api, REQUEST, since, NOW, LIMIT, functools.partial(aside.inside, api))
    if then != "aside":
        assert (found, api.sent) == (then, []), what
        return
    [(_, change), (_, event)] = api.sent
    assert change["spec"] == {"active": False}
    why = change["metadata"]["annotations"][ASIDE]
    assert why.startswith('its nodes were there for 10 minutes, and it got no pod: pods "own-train-0-0-" is forbidden')
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "own")
    assert why in event["message"]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], ""),
        ([warning(REFUSED)], ': pods "own-train-0-0-" is forbidden: exceeded quota: small'),
        ([warning(f"(combined from similar events): {REFUSED}")], ': pods "own-train-0-0-" is forbidden: exceeded quota: small'),
        ([warning("set to\nparallelism", "JobSet", "own", lastTimestamp=None, eventTime="2027-01-15T07:00:00Z")], ": set to parallelism"),
        ([warning("old", lastTimestamp="2027-01-15T06:00:00Z"), warning("new")], ": new"),
        ([warning("x", "JobSet", "other"), warning("x", "Pod", "own-train-0-0-abcde"), warning("x", reason="SetAside")], ""),
        ([warning("x" * 9000)], ": " + "x" * 500),
    ],
)  # fmt: skip
def test_the_reason_is_the_newest_warning_about_it(events: list[Object], said: str) -> None:
    api = Cluster(["Admitted"], [], events)
    aside.without_pods(api, REQUEST, NOW - 600, NOW, LIMIT, functools.partial(aside.inside, api))
    why = api.sent[0][1]["metadata"]["annotations"][ASIDE]
    assert why == f"its nodes were there for 10 minutes, and it got no pod{said}"


def test_it_is_tried_again_after_a_day() -> None:
    """Each try has its nodes for ten minutes and more."""
    api = Cluster(["Admitted"], [], [])
    aside.without_pods(api, REQUEST, NOW - 600, NOW, LIMIT, functools.partial(aside.inside, api))
    notes = api.sent[0][1]["metadata"]["annotations"]
    assert [aside._again(notes, NOW + hours * 3600, "other") for hours in (1, 23, 24)] == [False, False, True]


def test_trn_list_says_why_what_was_admitted_gets_no_pod() -> None:
    """By the name of the JobSet, also where the warning is about a Job of it; another's is not taken for it."""
    now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    about = {"own-train-0": "j1", "own-b-train-0": "j2"}
    events = [
        warning("must be set", "JobSet", "own", reason="JobCreationFailed", lastTimestamp=None, eventTime=now),
        warning(REFUSED, name="own-b-train-0", lastTimestamp=now),
        warning("no", "Pod", "p", reason="FailedScheduling", lastTimestamp=now),
        warning("old", "JobSet", "past", lastTimestamp="2020-01-15T07:59:00Z"),
    ]
    for event in events:
        event["involvedObject"]["uid"] = about.get(event["involvedObject"]["name"], "x")
    jobs = [
        {"metadata": {"uid": uid, "name": name, "labels": {"jobset.sigs.k8s.io/jobset-name": name.removesuffix("-train-0")}}}
        for name, uid in about.items()
    ]  # fmt: skip
    api = cast("Any", SimpleNamespace(list=lambda *_, **__: events, table=lambda *_, **__: jobs))
    assert look.refusals(api) == {
        "own": "its pods cannot be created: must be set",
        "own-b": 'its pods cannot be created: pods "own-train-0-0-" is forbidden: exceeded quota: small',
    }
    jobs[0]["metadata"]["creationTimestamp"] = now  # Kueue's webhook did not know the new JobSet for a moment
    assert list(look.refusals(api)) == ["own-b"]
    del jobs[0]["metadata"]["creationTimestamp"]
    columns = {"Queue": "trn", "Admitted": "True"}
    row = {"metadata": {"name": "w", "ownerReferences": [OWNER]}, "columns": columns}
    [found] = nodes.list_others(
        cast("Any", SimpleNamespace(list=api.list, table=lambda kind, **_: [] if kind == "VolcanoJob" else jobs)),
        cast("Any", SimpleNamespace(without=[], holders=[row])), {}, [],
    )  # fmt: skip
    assert (found.name, found.state, found.reason) == ("own", "RUNNING", "its pods cannot be created: must be set")


def client(scene: Scene) -> KubernetesBackend:
    """What `trn` is for somebody who may only edit jobs."""
    until_then, token = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), token_of_member(scene)
    identity = SimpleNamespace(token=lambda _: Token(token, until_then))
    authority = (scene.kubernetes._authority).read_text()
    api = Api(Endpoint(scene.kubernetes.endpoint, authority), cast("Any", identity), NAMESPACE)
    exported = outputs.eks_outputs(settings.load(), bucket="trn-bucket")
    found = outputs.parse("S", "us-east-1", {key: value for key, (value, _) in exported.items()})
    return KubernetesBackend(cast("outputs.EksCluster", found), api)


def listed(backend: KubernetesBackend, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The last column of `trn list`, by name."""
    patch.setattr(follow, "backend", lambda *_: backend)
    capsys.readouterr()
    app(["list"], standalone_mode=False)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    return {row[0]: row[-1] for row in rows}


def broken(how: str) -> Object:
    made = jobset(how, {"train": job(1, pod(TRN1.neuron_devices))})
    [part] = made["spec"]["replicatedJobs"]
    spec = part["template"]["spec"]
    if how == "completions":  # JobSet makes it Indexed, and a Job then wants them
        spec["parallelism"] = 2
        del spec["completions"], spec["completionMode"]
    if how == "policy":  # a Job takes that with restartPolicy Never alone
        spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]}
        del spec["template"]["spec"]["restartPolicy"]
    if how == "account":
        spec["template"]["spec"]["serviceAccountName"] = "nobody"
    return made


WHY = {"completions": "completions", "policy": "restartPolicy", "account": 'serviceaccount "nobody" not found'}


def test_nodes_of_what_gets_no_pod_end_and_trn_says_why(
    opened: Open, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of each kind, beside one whose pod waits for a processor that no node has, and one that runs."""
    scene = opened("podless", 8)
    for how in WHY:
        scene.create(broken(how))
    pends = jobset("pends", {"train": job(1, pod(TRN1.neuron_devices))})
    pends["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"][
        "requests"
    ]["cpu"] = "9000"
    scene.create(pends)
    scene.submit("runs", 1)
    for name in (*WHY, "pends", "runs"):
        scene.asks(name)
    scene.minutes(2)
    assert until(lambda: all(scene.is_(name, "Admitted") for name in (*WHY, "pends", "runs")))
    [runs] = scene.running("runs", 1)
    assert until(lambda: scene.phases("pends") == ["Pending"])
    backend = client(scene)

    def told() -> dict[str, str]:
        rows = listed(backend, monkeypatch, capsys)
        return {how: rows[how] for how in WHY if WHY[how] in rows.get(how, "")}

    assert until(lambda: len(told()) == len(WHY)), listed(backend, monkeypatch, capsys)
    assert all("its pods cannot be created" in reason for reason in told().values())
    assert all("cannot be created" not in listed(backend, monkeypatch, capsys)[name] for name in ("pends", "runs"))
    assert scene.minutes(9)
    assert [how for how in WHY if ASIDE in (scene.workload(how) or {})["metadata"].get("annotations", {})] == []
    before = scene.now
    assert until(
        lambda: all((scene.workload(how) or {})["spec"].get("active") is False for how in WHY) or not scene.minute()
    )
    assert scene.now - before <= 240
    assert until(lambda: not any(scene.is_(how, "Admitted") for how in WHY))
    while len(scene.nodes) > 2:
        scene.minute()
    assert scene.now - before <= LIMIT + SLACK
    assert scene.running_on("runs") == {runs}
    assert scene.phases("pends") == ["Pending"]
    assert all(scene.is_(name, "Admitted") for name in ("pends", "runs"))

    rows = listed(backend, monkeypatch, capsys)
    for how, words in WHY.items():
        assert "set aside, as it can never start: its nodes were there for 10 minutes, and it got no pod" in rows[how]
        assert words in rows[how]
        evidence = why_kubernetes.waits(scene.workload(how) or {}, {"trn": 16})
        assert words in evidence.text
    with pytest.raises(Exception, match=r"completions is not a job of trn: .* It waits: set aside"):
        backend.status("completions")
    backend.api.close()


def test_what_starts_in_parts_or_again_is_left_alone(opened: Open) -> None:
    """The launcher runs first, for half an hour; later the workers fail, and the JobSet makes their pods again."""
    scene = opened("parts", 4)
    first, then = job(1, pod(0)), job(2, pod(TRN1.neuron_devices))
    made = jobset("parts", {"launcher": first, "workers": then})
    made["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "launcher", "status": "Complete"}]
    scene.create(made)
    assert until(lambda: scene.workload("parts"))
    scene.asks("parts")
    scene.minutes(2)
    assert until(lambda: scene.phases("parts") == ["Running"])
    scene.minutes(30)
    assert scene.phases("parts") == ["Running"], "the launcher alone"
    assert scene.is_("parts", "Admitted")
    scene.end_pod(scene.pods("parts")[0])
    assert until(lambda: scene.phases("parts") == ["Running", "Running", "Succeeded"]), scene.phases("parts")
    for each in scene.pods("parts"):
        if each["status"]["phase"] == "Running":
            scene.end_pod(each, FAILS)
            break
    assert until(lambda: scene.api.get(f"{JOB_SETS}/parts").get("status", {}).get("restarts") == 1)
    scene.minutes(15)
    assert scene.is_("parts", "Admitted")
