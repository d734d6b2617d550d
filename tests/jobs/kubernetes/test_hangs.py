"""Trainings on a real API server, with Kueue and JobSet, that hang, lose their loss, or cost too much. Seconds stand for minutes."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest

from sandbox.kubernetes import supplier
from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import Running, text
from tests.runner.training import TRAINS
from tests.support import until
from trainium_cdk.cdk.eks.scaler import lines as of_log
from trainium_cdk.cdk.eks.scaler.labels import unready
from trainium_cdk.cdk.observability.notice.function import notice
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, parts, status
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.client.jobs.kubernetes.submit import Submitter
from trainium_cdk.client.jobs.report.page import figures
from trainium_cdk.client.jobs.report.run import Live
from trainium_cdk.client.jobs.status import JobStatus
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.jobs import Script
from trainium_cdk.runner.spec import Budget, HealthRules

pytestmark = pytest.mark.usefixtures("nothing_left")


def train(backend: KubernetesBackend, token: str, env: dict[str, str], **fields: Any) -> str:
    """A job of two nodes, whose times are shorter."""
    job = Script(filename="train.py", content=TRAINS.encode(), nodes=2, cache=token, env=env)
    made = backend.render(job, token)
    made = dataclasses.replace(made, spec=dataclasses.replace(made.spec, **fields))
    sent = objects(made, backend.cluster)
    for one in sent.jobs:
        [container] = one["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
        container["readinessProbe"]["periodSeconds"] = 1
    Submitter(backend.cluster, backend.api, made, sent).send()
    return made.id


def begun(running: Running, id: str) -> list[tuple[str, str]]:
    lines = (running.shared / "trn/jobs" / id / "begun").read_text().splitlines()
    return sorted((line.split()[0], line.split()[1]) for line in lines)


def test_a_node_that_hangs_is_told_and_the_training_begins_again(backend: KubernetesBackend, running: Running) -> None:
    """JobSet starts all pods again, once: no step runs twice at a time. The stacks are in the log of each node."""
    rules = HealthRules("restart", every=0.4, least=4.0)
    id = train(backend, "hang", {"FAULT": "hang", "UNTIL": "1"}, health=rules)
    done = backend.wait(id, 300)
    assert done.ok, (done, text(backend.logs(id)))
    assert backend.seen(id).job["status"]["restarts"] == 1
    assert begun(running, id) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    logs = running.shared / "trn/jobs" / id / "logs"
    for node in (0, 1):
        kept = (logs / f"train.{node}.log").read_text()
        assert "trn: restart: it hangs: no step for" in kept
        assert "begins after step 20" in kept
    assert "stuck_in_a_collective" in (logs / "train.1.log").read_text()
    assert "node 1 at step 23, last line: waits for a device" in (logs / "train.0.log").read_text()


def test_a_hang_is_a_state_of_its_own(backend: KubernetesBackend, running: Running) -> None:
    """Where nothing is done about it. Its first pod is not ready meanwhile, which the list and the node scaler's function read."""
    kubernetes, shared = supplier.Kubernetes(running.kubernetes.api()), running.shared / "trn/jobs"
    id = train(backend, "told", {"FAULT": "hang", "STEPS": "400"}, health=HealthRules(every=0.4, least=3.0))

    def pod() -> dict[str, Any]:
        return next((one for one in backend.seen(id).pods if status.index(one) == 0), {})

    def lines(now: float) -> list[dict[str, Any]]:
        """Those of the minute before."""
        unready = dict[str, float]()
        list(of_log.noting(kubernetes.list("/api/v1/pods"), unready))
        found = of_log.ended(kubernetes, "trn-eks", now - 60, now, unready)
        return [one for one in map(json.loads, found) if id in one.values()]

    def hangs() -> JobStatus | None:
        now = backend.status(id, progress=True)
        return now if now.findings else None

    assert until(lambda: parts.condition(pod(), "ContainersReady"), 60), "it trains"
    assert (unready(pod()), backend.status(id).current.reason) == (0, "")
    now = until(hangs, 120)
    assert now, text(backend.logs(id))
    assert now.state == "RUNNING"
    assert [one.kind for one in now.findings] == ["hang"]
    assert now.current.reason.startswith("hangs since 20")
    assert "node 1 at step 23, last line: waits for a device" in now.current.reason
    stepped = now.stages[-1].stepped
    assert stepped is not None, "the node's runtime has the time of each line"
    assert abs(stepped - now.findings[0].at) < 30
    assert now.stages[-1].last_step(stepped + 700) == "last step 11 min ago"
    live = Live(backend, [id], Catalog.load())
    live.look()
    [run] = live.runs
    run.now = stepped + 700
    assert ("last step", "11 min ago", "") in figures(run)
    assert ("time left", "not known", "") in figures(run)

    since = until(lambda: unready(pod()), 30)
    assert [unready(one) for one in backend.seen(id).pods if status.index(one)] == [0]
    [listed] = [one for one in backend.list() if one.id == id]
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(since))
    assert (listed.state, listed.current.reason) == ("RUNNING", f"needs attention since {at}: see trn status {id}")
    known = backend.status(id, progress=True).current.reason
    assert known.startswith("hangs since 20")
    assert "attention" not in known
    events = running.kubernetes.api().get(path_of("v1", "Event", namespace="training"))["items"]
    mine = [one for one in events if one["involvedObject"].get("uid") == pod()["metadata"]["uid"]]
    [message] = {one["message"] for one in mine if one["reason"] == "Unhealthy"}
    assert message.startswith("Readiness probe failed: hangs since 20")
    assert [len(lines(since + after)) for after in (60, 119, 150, 210)] == [0, 0, 1, 0]
    [line] = lines(since + 150)
    assert notice(line)[0] == f"{id}: needs attention (RUNNING) on trn-eks"

    (shared / id / "go-on").touch()
    assert until(lambda: parts.condition(pod(), "ContainersReady"), 60)
    assert (lines(since + 150), backend.status(id).current.reason) == ([], "")
    assert backend.cancel(id).state == "CANCELLED"
    over = parts.seconds(parts.condition(backend.seen(id).job, "Failed")["lastTransitionTime"])  # type: ignore[index]
    assert over
    assert [one["State"] for one in lines(over + 5)] == ["CANCELLED"]


@pytest.mark.sweep
def test_a_loss_that_is_no_number_stops_the_training_where_that_is_said(backend: KubernetesBackend) -> None:
    rules = HealthRules(nan="stop", every=0.4, least=4.0)
    done = backend.wait(train(backend, "nan", {"FAULT": "nan", "AT": "12", "STEPS": "600"}, health=rules), 300)
    assert (done.state, backend.seen(done.id).job["status"].get("restarts", 0)) == ("FAILED", 0)
    assert done.why.startswith("the loss is not a number since step 12, in ")


@pytest.mark.sweep
def test_a_job_that_may_cost_no_more_saves_and_stops(backend: KubernetesBackend, running: Running) -> None:
    rules = HealthRules(every=0.4, least=4.0)
    id = train(backend, "usd", {"STEPS": "600"}, health=rules, budget=Budget(50.0, 16.0))
    done = backend.wait(id, 300)
    assert (done.state, backend.seen(id).job["status"].get("restarts", 0)) == ("FAILED", 0)
    assert done.why.endswith("of at most 50.00 USD (--max-usd): it saves and stops")
    assert (running.shared / "trn/jobs" / id / "saved").exists()
