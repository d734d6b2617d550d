"""Numbers that others choose cost the object that has them, and no other: neither memory nor time of the function that starts nodes, nor a node."""

from __future__ import annotations

import contextlib
import json
import resource
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.kubernetes.api import Api, ApiError, Object, path_of
from tests.eks.conftest import Open
from tests.eks.scenes import NAMESPACE, NEURON, job, jobset, member_of, pod
from tests.support import until
from trainium_cdk import settings
from trainium_cdk.cdk.eks.boundaries import boundaries
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.eks.scaler import function, kubernetes, lines, observe
from trainium_cdk.cdk.eks.scaler.conditions import answer
from trainium_cdk.cdk.eks.scaler.model import Answer, Group, Limits, ScalingPlan
from trainium_cdk.cdk.eks.scaler.supply import decide

NOW, MOST = 1_800_000_000.0, 2**31 - 1
GROUP = Group("trn", (16, 8), 0, 4, 0)


@contextlib.contextmanager
def little_memory(mib: int = 300) -> Iterator[None]:
    """Not more than this above what the process has now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (mib << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def template(name: str, amounts: Any, **spec: Any) -> Object:
    containers = [{"name": "c", "resources": {"limits": amounts}}]
    return {"metadata": {"name": name, "namespace": "speech"}, "template": {"spec": {"containers": containers, **spec}}}


def request(name: str, **counts: int) -> Object:
    sets = [{"podTemplateRef": {"name": part}, "count": count} for part, count in counts.items()]
    return {
        "kind": "ProvisioningRequest",
        "metadata": {"name": name, "namespace": "speech", "creationTimestamp": "2027-01-15T07:59:00Z"},
        "spec": {"provisioningClassName": observe.CLASS, "podSets": sets},
    }


def decided(templates: list[Object], *asked: Object) -> tuple[ScalingPlan, dict[str, Answer], list[str]]:
    cluster = observe.ObservedCluster((NEURON, "vpc.amazonaws.com/efa"), {"trn": {}}, [], [], templates, asked, NOW)
    plan = decide([GROUP], cluster.requests, NOW, Limits())
    told = {r.key: answer(r, plan, {"trn": GROUP}, {}, NOW, Limits()) for r in cluster.requests}
    return plan, told, cluster.unreadable


HONEST = template("honest", {NEURON: "16"})


@pytest.mark.parametrize(
    ("amount", "count", "reason"),
    [
        ("0", MOST, "NoDevices"),
        ("0", 1, "NoDevices"),
        ("0Ki", MOST, "NoDevices"),
        ("16", MOST, "TooLarge"),
        ("1", 10_000_000, "TooLarge"),
        ("1", 65, "TooLarge"),
        ("1E", MOST, "TooLarge"),
        ("1e18", MOST, "TooLarge"),
        ("-1", MOST, "NoDevices"),
        ("1e999999999", 1, "unreadable"),
        ("9" * 5000, 1, "unreadable"),
        ("Infinity", 1, "unreadable"),
        ("nan", 1, "unreadable"),
        ("²", 1, "unreadable"),
    ],
)
def test_a_request_of_any_size_takes_no_node_and_keeps_no_other_waiting(amount: str, count: int, reason: str) -> None:
    hostile = template("hostile", {NEURON: amount})
    with little_memory():
        plan, told, unreadable = decided([hostile, HONEST], request("a", hostile=count), request("b", honest=2))
    assert {name: change.desired for name, change in plan.changes.items()} == {"trn": 2}
    assert told["speech/b"].reason == "WaitingForNodes"
    assert (told["speech/a"].reason if "speech/a" in told else "unreadable") == reason
    assert bool(unreadable) == (reason == "unreadable")


def test_pods_without_devices_share_the_nodes_of_the_others() -> None:
    launcher = template("launcher", {NEURON: "0"})
    plan, told, _ = decided([launcher, HONEST], request("a", launcher=4, honest=2))
    assert plan.changes["trn"].desired == 2
    assert told["speech/a"].reason == "WaitingForNodes"
    only_efa = template("efa", {NEURON: "0", "vpc.amazonaws.com/efa": "8"})
    assert decided([only_efa], request("a", efa=3))[1]["speech/a"].reason == "NoDevices"


def test_a_long_list_of_rules_costs_one_object() -> None:
    """Each is compared with each node group."""
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 20_000
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    hostile = template("hostile", {NEURON: "16"}, affinity={"nodeAffinity": node})
    plan, told, unreadable = decided([hostile, HONEST], request("a", hostile=1), request("b", honest=2))
    assert (plan.changes["trn"].desired, [*told]) == (2, ["speech/b"])
    assert ["more than 65,536 characters" in each for each in unreadable] == [True]


def test_any_error_of_one_object_costs_that_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(error: type[Exception]) -> Any:
        raise error("x" * 100_000)

    made = function.Supplier.__new__(function.Supplier)
    made._failed = []
    for error in (MemoryError, RecursionError, ZeroDivisionError, OSError):
        assert made._try("it", raises, error) is None
    assert len(made._failed) == 4
    assert all(len(each) < 2000 for each in made._failed)
    read = observe.template

    def reads(found: Object, *names: Any) -> Any:
        return read(found, *names) if found["metadata"]["name"] == "honest" else raises(MemoryError)

    monkeypatch.setattr(observe, "template", reads)
    plan, _, unreadable = decided([template("hostile", {}), HONEST], request("a", hostile=1), request("b", honest=2))
    assert plan.changes["trn"].desired == 2
    assert [len(each) < 1000 for each in unreadable] == [True]


def test_a_node_with_a_wrong_annotation_stays_and_stops_no_other() -> None:
    notes = {observe.IDLE_SINCE: "soon"}
    metadata = {"name": "n0", "annotations": notes, "creationTimestamp": "2026-11-01T00:00:00Z"}
    node = {"metadata": metadata, "spec": {"providerID": "aws:///a/i-0"}, "status": {}}
    instances = [{"InstanceId": "i-0", "LifecycleState": "InService"}]
    scaling = {"MinSize": 0, "MaxSize": 4, "DesiredCapacity": 1, "AvailabilityZones": ["a"], "Instances": instances}
    kind = observe.GroupSettings("trn", "trn", "trn1.32xlarge", (16,))
    cluster = observe.ObservedCluster((NEURON,), {"trn": {}}, [node], [], [HONEST], [request("b", honest=2)], NOW)
    found = cluster.group(observe.DescribedGroup(kind, {"status": "ACTIVE"}, scaling, {}, None), {}, [], atomic=False)
    change = decide([found], cluster.requests, NOW, Limits()).changes["trn"]
    assert (change.desired, change.terminate, change.cordon) == (3, (), ())
    assert [each.partition(" cannot")[0] for each in cluster.unreadable] == ["node i-0"]


def test_a_job_with_a_wrong_time_or_description_keeps_no_other_from_being_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def one(name: str, at: str, description: str = "{}") -> Object:
        how = {"type": "Completed", "status": "True", "lastTransitionTime": at}
        metadata = {"name": name, "namespace": "speech", "uid": name, "creationTimestamp": "2027-01-15T07:00:00Z"}
        return {
            "metadata": metadata | {"annotations": {"trainium-cdk/description": description}},
            "status": {"conditions": [how]},
        }

    at, since = "2027-01-15T08:00:00Z", observe.seconds("2027-01-15T07:59:30Z")
    sets = [one("odd", "never"), one("deep", at, "[" * 200_000), one("good", at)]
    api = SimpleNamespace(list=lambda *_: iter(sets))
    told = [json.loads(line)["JobEnded"] for line in lines.ended(api, "c", since, since + 60)]
    assert told == ["deep", "good"]
    assert "JobSet speech/odd cannot be read" in capsys.readouterr().out


class Pages(BaseHTTPRequestHandler):
    """A list of 40 objects of 100 kB."""

    asked: list[int] = []  # noqa: RUF012

    def do_GET(self) -> None:
        query = dict(part.split("=") for part in self.path.partition("?")[2].split("&"))
        first, count = int(query.get("continue", 0)), int(query["limit"])
        self.asked.append(count)
        items = [{"n": n, "text": "x" * 100_000} for n in range(40)][first : first + count]
        rest = {"continue": str(first + count)} if first + count < 40 else {}
        body = json.dumps({"items": items, "metadata": rest}).encode()
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_large_objects_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may create objects decides how large they are."""
    server = HTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        api = kubernetes.Kubernetes.__new__(kubernetes.Kubernetes)
        api._endpoint, api._token = f"http://127.0.0.1:{server.server_port}", "t"
        api._opener = kubernetes.urllib.request.build_opener(kubernetes.urllib.request.ProxyHandler({}))
        monkeypatch.setattr(kubernetes, "_PAGE_BYTES", 1 << 20)
        assert [one["n"] for one in api.list("/things")] == [*range(40)]
        assert Pages.asked[:3] == [250, 62, 15]
        assert set(Pages.asked[3:]) == {3}
        monkeypatch.setattr(kubernetes, "_PAGE_BYTES", 1000)
        assert [one["n"] for one in api.list("/things")] == [*range(40)], "one at a time, whatever its size"
    finally:
        server.shutdown()
        server.server_close()


HUGE = {**job(MOST, pod(0)), "backoffLimit": 0}
NOTHING = {NEURON: "0", "cpu": "0", "memory": "0"}
HUGE["template"]["spec"]["containers"][0]["resources"] = {"limits": NOTHING, "requests": NOTHING}


def test_a_jobset_of_two_billion_pods_without_devices_stops_no_other_team(opened: Open) -> None:
    """A member of the namespace is refused it. Where the policies are not installed, the function sets it aside."""
    scene = opened("huge", 4)
    hostile, mallory = jobset("hostile", {"train": HUGE}), member_of(scene)
    hostile["spec"]["suspend"] = True
    policies = boundaries(Installation.of(settings.load()))[:2]
    file = scene.kubernetes.directory / "policies.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": policies}))
    assert scene.kubernetes.kubectl("apply", "-f", str(file)).returncode == 0
    try:
        assert until(lambda: "0 Trainium devices" in refusal(mallory, hostile)), refusal(mallory, hostile)
    finally:
        scene.kubernetes.kubectl("delete", "-f", str(file))
    scene.create(hostile)
    assert until(lambda: scene.workload("hostile"))
    scene.submit("honest", 2)
    scene.asks("hostile")
    scene.asks("honest")
    with little_memory():
        scene.minutes(2)
    assert len(scene.running("honest", 2)) == 2
    assert (scene.desired, scene.pods("hostile")) == (2, [])
    assert "its pods ask for 0 devices" in scene.why("hostile")
    scene.end("honest")
    assert scene.until_gone() <= scene.settings.limits.idle + 180
    assert scene.pods("hostile") == []


def refusal(api: Api, body: Object) -> str:
    """Why the API server does not create an object; empty if it would."""
    try:
        path = path_of(body["apiVersion"], body["kind"], namespace=NAMESPACE)
        api.call("POST", path, replace_name(body), query={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


def replace_name(body: Object) -> Object:
    return {**body, "metadata": {**body["metadata"], "name": f"{body['metadata']['name']}-try"}}
