"""Jobs on a real Kubernetes with a real Kueue and JobSet: queued, placed, followed, cancelled, restarted, refused."""

from __future__ import annotations

import copy
import json
import time

import pytest

from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import RANKS, Running, fleet, let_it_prepare, script, text
from tests.support import until
from trainium_cdk.client.jobs.kubernetes import ApiError, KubernetesBackend, logs, status
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.client.jobs.kubernetes.parts import INDEX_LABEL, JOB_LABEL
from trainium_cdk.jobs import JobError, JobStatus, SubmitError, UnknownJob


def test_a_gang_is_placed_and_its_nodes_find_each_other(backend: KubernetesBackend, running: Running) -> None:
    content = RANKS + b'getent hosts "$MASTER_ADDR" > /dev/null && echo found && touch /efs/trn/seen-$NODE_RANK\n'
    sent = backend.submit(script(content), "gang")
    assert (sent.id, sent.existing, sent.stages) == ("run-gang", False, {"train": "run-gang/train"})
    done = backend.wait(sent.id, 600)
    assert done.ok, done
    train = done.stages[0]
    assert (train.state, train.exit_code) == ("COMPLETED", 0)
    assert len(set(train.nodes.split(","))) == 2
    assert train.started is not None
    assert train.ended is not None
    output = text(backend.logs(sent.id))
    for node in (0, 1):
        assert f"{node}: node {node} of 2 at run-gang-train-0-0.run-gang\n{node}: found\n" in output
        assert (running.shared / f"trn/seen-{node}").exists()
    assert "1: " not in text(backend.logs(sent.id, node=0))
    kept = (running.shared / "trn/jobs/run-gang/logs/train.1.log").read_text()
    assert "found" in kept


@pytest.mark.sweep
def test_a_rank_is_found_on_its_own_node(backend: KubernetesBackend, running: Running) -> None:
    sent = backend.submit(script(b"sleep 3600"), "ranks")
    assert until(lambda: text(backend.logs(sent.id)).count(", ranks ") == 2)
    [policy] = [o for o in (backend.api.find("NetworkPolicy", "run-ranks"),) if o]
    mine = {"labelSelector": ",".join("=".join(pair) for pair in policy["spec"]["podSelector"]["matchLabels"].items())}
    chosen = running.kubernetes.api().get(path_of("v1", "Pod", namespace="training"), **mine)["items"]
    assert {p["metadata"]["name"] for p in chosen} == {p["metadata"]["name"] for p in backend.seen(sent.id).pods}
    assert [logs.node_of_rank(backend, sent.id, rank) for rank in (0, 31, 32, 63)] == [0, 0, 1, 1]
    with pytest.raises(JobError, match=r"ranks 0 to 63, not 64"):
        logs.node_of_rank(backend, sent.id, 64)


def test_a_job_larger_than_the_fleet_waits_and_reports_why(backend: KubernetesBackend) -> None:
    backend.cluster = backend.cluster.model_copy(update={"fleets": (fleet(nodes=4),)})
    sent = backend.submit(script(nodes=3), "large")

    def reason() -> str:
        now = backend.status(sent.id)
        assert now.state == "PENDING"
        return now.stages[0].reason

    assert until(lambda: "set aside" in reason()), reason()
    assert reason().startswith(
        "set aside, as it can never start: it asks for 3 nodes of trn, and its queue has at most 2 nodes."
    )
    cancelled = backend.cancel(sent.id)
    assert (cancelled.state, cancelled.done, cancelled.ok) == ("CANCELLED", True, False)


@pytest.mark.sweep
def test_the_list_shows_the_order_of_the_queue(backend: KubernetesBackend, running: Running) -> None:
    """A later small job does not overtake; one of a higher priority does, and preempts what runs with a lower one."""
    first = backend.submit(script(b"sleep 3600", cache="first", nodes=1), "first").id
    large = backend.submit(script(b"sleep 3600", cache="large"), "second").id
    assert until(lambda: shown(backend, large)[0][2].startswith("position 1"))
    time.sleep(1.1)  # times of creation are whole seconds: Kueue may take two jobs of one second in either order
    small = backend.submit(script(b"true", cache="small", nodes=1), "third").id
    assert until(lambda: backend.status(first).state == "RUNNING")
    rows = until(lambda: (now := shown(backend, first, large, small)) and now[-1][2].startswith("position 2") and now)
    assert [row[:2] for row in rows] == [(first, "RUNNING"), (large, "PENDING"), (small, "PENDING")]
    assert rows[1][2].startswith("position 1 in its queue: it lacks 1 node of trn; nodes of trn in use: ")
    urgent = backend.submit(script(b"sleep 3600", cache="urgent", priority="high"), "fourth").id
    assert until(lambda: backend.status(urgent).state == "RUNNING")
    rows = until(
        lambda: (now := shown(backend, first, large, small, urgent)) and now[1][2].startswith("position 1") and now
    )
    assert [row[0] for row in rows] == [urgent, first, large, small]
    assert f"nodes of trn in use: {urgent} 2" in rows[1][2]
    assert rows[1][2].endswith(", which has a higher priority")
    assert {job.id for job in backend.active()} >= {urgent, first, large, small}
    for id in (urgent, large):
        assert backend.cancel(id).state == "CANCELLED"
    assert until(lambda: backend.status(first).state == "RUNNING")  # from its last checkpoint
    assert backend.wait(small, 600).ok


def shown(backend: KubernetesBackend, *ids: str) -> list[tuple[str, str, str]]:
    return [(j.id, j.state, j.current.reason) for j in backend.list() if j.id in ids]


def test_a_job_is_not_in_its_queue_before_prepare_has_completed(
    backend: KubernetesBackend, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_it_prepare(monkeypatch)
    good = backend.submit(script(b"echo trains", nodes=1, cache="good"), "good").id
    bad = backend.submit(script(b"echo trains", nodes=1, cache="bad", env={"NEEDS": "no-such-program"}), "bad").id
    assert until(lambda: backend.status(bad).done)
    prepare, train = backend.status(bad).stages
    assert (prepare.state, prepare.exit_code, train.state) == ("FAILED", 64, "CANCELLED")
    assert until(lambda: status.ended(backend.seen(bad).job))  # the function ends it: its files are deleted in time
    assert backend.submit(script(b"true", nodes=1, cache="bad"), "again").existing is False
    assert backend.wait(good, 600).ok
    assert [s.state for s in backend.status(good).stages] == ["COMPLETED", "COMPLETED"]
    assert "trains" in text(backend.logs(good))


def test_a_log_is_followed_line_by_line_to_its_end(backend: KubernetesBackend, running: Running) -> None:
    content = b"""for i in $(seq 1 8); do
  echo "step $i on $NODE_RANK"
  if [ $i = 4 ]; then until [ -e /efs/follow ]; do sleep 0.1; done; fi
done
printf 'no end of line'"""
    sent = backend.submit(script(content), "follow")
    seen: list[JobStatus] = []
    pieces, ends = [], list[int]()

    def changed(job: JobStatus) -> None:
        seen.append(job)
        if job.done:
            ends.append(len(pieces))

    for piece in backend.logs(sent.id, follow=True, changed=changed):
        pieces.append(piece)
        (running.shared / "follow").touch()
    output = text(pieces)
    for node in (0, 1):
        mine = [line for line in output.splitlines() if line.startswith(f"{node}: step")]
        assert mine == [f"{node}: step {i} on {node}" for i in range(1, 9)]
    assert len(pieces) > 2
    assert seen[-1].ok
    assert ends == [len(pieces)]
    [listed] = [job for job in backend.list() if job.id == sent.id]  # reads no pods of completed jobs
    began, there = listed.stages[-1].started, seen[-1].stages[-1].started
    assert began is not None
    assert there is not None
    assert began <= there
    assert output.count("no end of line") == 2
    assert [p.offset for p in pieces][1:] == [p.next_offset for p in pieces][:-1]
    again = list(backend.logs(sent.id, node=1))
    told: list[JobStatus] = []
    assert text(again) == text(backend.logs(sent.id, node=1, follow=True, changed=told.append))
    assert [job.ok for job in told] == [True]  # the state that it begins with, too
    assert text(backend.logs(sent.id, node=1, offset=len(text(again)) - 4)) == text(again)[-4:]
    [end] = backend.logs(sent.id, node=1, offset=len(text(again)) + 1)
    assert (end.offset, end.data) == (len(text(again)), b"")
    with pytest.raises(JobError, match=r"offset needs a node"):
        list(backend.logs(sent.id, offset=4))


def test_the_same_token_twice_is_one_job(backend: KubernetesBackend) -> None:
    first = backend.submit(script(), "twice")
    second = backend.submit(script(), "twice")
    assert (first.existing, second.existing, second.id) == (False, True, first.id)
    with pytest.raises(SubmitError, match=r"run-twice already exists as another job. Use a new token"):
        backend.submit(script(b"echo other"), "twice")
    assert len([j for j in backend.list() if j.id == first.id]) == 1
    assert backend.wait(first.id, 600).ok


@pytest.mark.sweep
def test_two_running_jobs_do_not_share_a_compile_cache(backend: KubernetesBackend) -> None:
    first = backend.submit(script(b"sleep 3600", nodes=1, cache="shared"), "one")
    others = [script(b"true", nodes=1, cache="Shared"), script(b"sleep 1", nodes=1, cache="shared")]
    with pytest.raises(
        SubmitError, match=r"job run-one uses the compile cache shared.*trn status --wait run-one.*--cache"
    ) as some:
        backend.submit_many(others, "many")
    assert [one.id for one in some.value.submitted] == ["run-many-0"]
    assert str(some.value).startswith("1 of 2 jobs were refused")
    with pytest.raises(UnknownJob):
        backend.status("run-many-1")
    assert until(lambda: backend.api.find("Secret", "run-many-1") is None)
    assert backend.wait("run-many-0", 600).ok  # another cache set
    backend.cancel(first.id)
    assert backend.submit(script(b"true", nodes=1, cache="shared"), "two").existing is False
    assert backend.wait("run-two", 600).ok


def test_cancelling_ends_the_processes_and_keeps_the_log(backend: KubernetesBackend, running: Running) -> None:
    sent = backend.submit(
        script(b"trap 'sleep 2; echo has saved; exit 1' TERM; echo began; sleep 3600 & wait"), "cancel"
    )
    assert until(lambda: text(backend.logs(sent.id)).count("began") == 2)  # on both nodes
    cancelled = backend.cancel(sent.id)
    assert (cancelled.state, cancelled.done) == ("CANCELLED", True)
    assert until(lambda: not backend.seen(sent.id).pods) is True
    assert backend.cancel(sent.id).state == "CANCELLED"
    [stage], [listed] = backend.status(sent.id).stages, [job for job in backend.list() if job.id == sent.id]
    assert stage.started is not None
    assert listed.stages == (stage,)
    kept = text(backend.logs(sent.id, node=1))  # read on a system node: its pod is deleted
    assert "began" in kept
    assert "has saved" in kept  # pods have a minute for that
    assert kept == (running.shared / "trn/jobs/run-cancel/logs/train.1.log").read_text()


def test_a_script_that_fails_is_not_started_again(backend: KubernetesBackend) -> None:
    sent = backend.submit(script(b'[ "$NODE_RANK" = 0 ] || { echo to no avail >&2; exit 7; }; sleep 3600'), "fails")
    done = backend.wait(sent.id, 600)
    assert (done.state, done.ok) == ("FAILED", False)
    assert (done.current.exit_code, done.current.reason, done.current.failed_node) == (7, "exit code 7", 1)
    assert "to no avail" in text(backend.logs(sent.id, node=1))
    assert done.why == "node 1: the last line of its log: to no avail"


def test_an_image_without_python_ends_the_job_at_once(backend: KubernetesBackend, running: Running) -> None:
    images = running.kubernetes.directory / "images.json"
    images.write_text(json.dumps({"own/image:1": {"PATH": "/nowhere"}}))
    try:
        sent = backend.submit(script(nodes=1, image="own/image:1", cache="bare"), "bare")
        done = backend.wait(sent.id, 600)
    finally:
        images.unlink()
    assert (done.state, done.current.reason.partition(".")[0]) == (
        "FAILED",
        "image own/image:1 has no python3 on its PATH, which starts each job",
    )
    assert not backend.seen(sent.id).job["status"].get("restarts")


@pytest.mark.sweep
def test_a_time_limit_ends_the_training(backend: KubernetesBackend) -> None:
    # not validated again: a user's limit is at least a minute
    job = script(b"sleep 3600", nodes=1).model_copy(update={"time_limit": "0:02"})
    done = backend.wait(backend.submit(job, "limit").id, 600)
    assert (done.state, done.current.reason) == ("TIMEOUT", "reached its time limit")


def test_a_lost_node_starts_the_job_again(backend: KubernetesBackend, running: Running) -> None:
    content = b'echo "attempt"; if [ -e /efs/lost ]; then exit 0; fi; sleep 3600'
    sent = backend.submit(script(content, restarts=1), "lost")
    assert until(lambda: text(backend.logs(sent.id)).count(": attempt\n") == 2)
    (running.shared / "lost").touch()
    victim = backend.seen(sent.id).pods[0]["metadata"]
    backend.api.delete("Pod", victim["name"], uid=victim["uid"])
    done = backend.wait(sent.id, 600)
    assert done.ok, done
    assert backend.seen(sent.id).job["status"]["restarts"] == 1
    assert "attempt 1, " in text(backend.logs(sent.id, node=0))
    kept = (running.shared / "trn/jobs/run-lost/logs/train.0.log").read_text()
    assert kept.count("attempt") == 2


@pytest.mark.sweep
def test_without_restarts_a_lost_node_ends_the_job(backend: KubernetesBackend) -> None:
    sent = backend.submit(script(b"echo step 3 loss 2.5; echo trains; sleep 3600", restarts=0), "once")
    assert until(lambda: text(backend.logs(sent.id)).count(": trains\n") == 2)
    assert backend.status(sent.id, progress=True).progress == "step 3: loss 2.5"
    victim = backend.seen(sent.id).pods[0]["metadata"]
    backend.api.delete("Pod", victim["name"], uid=victim["uid"])
    done = backend.wait(sent.id, 600)
    assert (done.state, done.current.reason) == ("FAILED", "failed in its only attempt: see its log")


@pytest.mark.sweep
def test_graphs_that_do_not_compile_never_become_a_training(backend: KubernetesBackend, running: Running) -> None:
    """Its nodes are in use while it compiles, although Kubernetes calls such a pod Pending."""
    hold = b"echo compiling; until [ -e /efs/compiled ]; do sleep 0.1; done; exit 3"
    content = b'if [ -n "${NEURON_EXTRACT_GRAPHS_ONLY:-}" ]; then ' + hold + b"; fi; echo training"
    sent = backend.submit(script(content, precompile=True), "graphs")
    used = [f"{sent.id}:train"] * 2
    try:
        assert until(lambda: [node.job for node in backend.nodes() if node.queue] == used)
    finally:
        (running.shared / "compiled").touch()
    done = backend.wait(sent.id, 600)
    assert [(s.name, s.state) for s in done.stages] == [("precompile", "FAILED"), ("train", "CANCELLED")]
    assert done.stages[1].reason == "did not run: precompile did not complete"
    assert "training" not in text(backend.logs(sent.id, stage="train")).replace("training does not start", "")


@pytest.mark.sweep
def test_copies_of_a_script_have_ranks(backend: KubernetesBackend) -> None:
    content = b'#!/bin/bash\necho "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK"\n'
    done = backend.wait(backend.submit(script(content, tasks_per_node=3), "copies").id, 600)
    assert done.ok, done
    output = sorted(line.partition(": ")[2] for line in text(backend.logs(done.id)).splitlines() if ": rank" in line)
    assert output == [f"rank {n} of 6, local {n % 3}" for n in range(6)]
    assert logs.node_of_rank(backend, done.id, 4) == 1


@pytest.mark.sweep
def test_a_job_that_the_cluster_refuses_leaves_nothing(backend: KubernetesBackend) -> None:
    closed = backend.cluster.fleets[0].model_copy(update={"queue": "nobodys"})
    backend.cluster = backend.cluster.model_copy(update={"fleets": (closed,)})
    with pytest.raises(
        SubmitError, match=r"run-refused was not submitted to jobs-test: the namespace training has no queue nobodys"
    ) as refused:
        backend.submit(script(cache="refused"), "refused")
    assert "\n" not in str(refused.value)
    for kind, name in (("Secret", "run-refused"), ("ConfigMap", "trn-cache-refused")):
        assert until(lambda kind=kind, name=name: backend.api.find(kind, name) is None)


@pytest.mark.sweep
def test_resources_deleted_with_a_job(backend: KubernetesBackend, running: Running) -> None:
    sent = backend.submit(script(b"sleep 3600", cache="goes"), "goes")
    backend.api.delete("JobSet", sent.id)

    def left() -> list[str]:
        found = []
        for kind, name in (
            ("JobSet", sent.id),
            ("BatchJob", f"{sent.id}-train-0"),
            ("Secret", sent.id),
            ("NetworkPolicy", sent.id),
            ("ConfigMap", "trn-cache-goes"),
        ):
            try:
                backend.api.get(kind, name)
                found.append(kind)
            except ApiError as e:
                assert e.status == 404  # noqa: PT017
        return found

    assert until(lambda: left() == [])
    assert (running.shared / "trn").is_dir()


@pytest.mark.parametrize("id", ["no-such-job", "", "../x", "A" * 80])
def test_unknown_jobs(backend: KubernetesBackend, id: str) -> None:
    for verb in (backend.status, backend.cancel, lambda i: list(backend.logs(i))):
        with pytest.raises(UnknownJob, match=r"there is no job"):
            verb(id)


def test_jobs_of_other_clients_are_ignored(backend: KubernetesBackend) -> None:
    """Also if its label claims it, under the name of another one."""
    plain = copy.deepcopy(objects(backend.render(script(b"sleep 3600", nodes=1), "stranger"), backend.cluster).jobs[0])
    name = plain["metadata"]["name"]
    for labels in ({}, {"app.kubernetes.io/managed-by": "trn", JOB_LABEL: "another"}):
        plain["metadata"]["labels"] = labels
        backend.api.create("JobSet", plain)
        try:
            for ask in (backend.status, backend.cancel, lambda id: list(backend.logs(id))):
                with pytest.raises(JobError, match=f"{name} is not a job of trn: it is a jobset of another client"):
                    ask(name)
            assert name not in {job.id for job in (*backend.list(), *backend.active())}
            assert not status.ended(backend.api.get("JobSet", name))
        finally:
            backend.api.delete("JobSet", name)
            assert until(lambda: name not in {j["metadata"]["name"] for j in backend.api.list("JobSet")})


@pytest.mark.sweep
def test_pods_that_only_resemble_a_jobs_are_ignored(backend: KubernetesBackend) -> None:
    """Any client can write a label; the owner of a pod is known by its uid."""
    sent = backend.submit(script(b"sleep 3600", nodes=1), "honest")
    assert until(lambda: backend.status(sent.id).state == "RUNNING")
    before = backend.status(sent.id)
    (pod,) = backend.api.list("Pod", labels=f"{JOB_LABEL}={sent.id}")
    forged = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "forged", "labels": {**pod["metadata"]["labels"], INDEX_LABEL: "1"}},
        "spec": {"containers": [{"name": "train", "image": "none"}], "schedulerName": "none"},
    }
    backend.api.create("Pod", forged)
    try:
        assert backend.status(sent.id) == before
        assert next(job for job in backend.list() if job.id == sent.id) == before
    finally:
        backend.api.delete("Pod", "forged")


@pytest.mark.sweep
def test_another_clients_secret_is_not_changed(backend: KubernetesBackend) -> None:
    submission = backend.render(script(), "theirs")
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": submission.id}, "stringData": {"key": "value"}}
    made = backend.api.create("Secret", theirs)
    try:
        with pytest.raises(SubmitError, match=r"a Secret named run-theirs already exists, not created by trn"):
            backend.send(submission)
        assert backend.api.get("Secret", submission.id)["metadata"]["uid"] == made["metadata"]["uid"]
    finally:
        backend.api.delete("Secret", submission.id)
    assert backend.submit(script(), "theirs").existing is False  # its lock on the compile cache is not left behind
