"""Arrays on a real Kueue and JobSet: as on Slurm (tests/jobs/test_array.py), with a JobSet for each member."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jobs.kubernetes.conftest import Running, let_it_prepare, make_cluster, script, text
from tests.support import until
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, look, parts, render
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.errors import ApiError, JobError, SubmitError, UnknownJob
from trainium_cdk.jobs import Script

BODY = b"""until [ -e /efs/%s ]; do sleep 0.1; done
echo "I am $TRN_ARRAY_INDEX of $TRN_ARRAY_COUNT"
[ "$TRN_ARRAY_INDEX" != 4 ]
"""


def array(go: str, called: str, **fields: Any) -> Script:
    given = {"nodes": 1, "array": "0-2,4", "restarts": 0, "cache": called, "name": called, **fields}
    return script(BODY % go.encode(), **given)


@pytest.fixture
def gone(running: Running) -> Iterator[None]:
    yield
    for file in running.shared.glob("array-*"):
        file.unlink()


@pytest.mark.usefixtures("gone")
def test_members_have_ids_states_and_logs_and_are_prepared_once(
    backend: KubernetesBackend, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as prepares:
        let_it_prepare(prepares)
        sent = backend.submit(array("array-go", "sweep"), "a1")
        assert backend.submit(array("array-go", "sweep"), "a1").existing
    id = sent.id
    assert list(sent.stages) == ["prepare", "train"]
    with pytest.raises(SubmitError, match=f"job {id} uses the compile cache sweep"):
        backend.submit(array("array-go", "other", cache="sweep"), "a2")
    after_all = backend.submit(script(b"true", nodes=1, cache="all", name="all", after=id), "a3").id
    assert until(lambda: [m.state for m in backend.status(id).members].count("RUNNING") == 2)  # of two nodes
    now = backend.status(id)
    assert ([s.name for s in now.stages], now.stages[0].state, now.state) == (
        ["prepare", "train"],
        "COMPLETED",
        "RUNNING",
    )
    assert now.current.reason.startswith("2 running, 2 pending")
    assert [job.id for job in backend.list() if job.id.startswith("sweep")] == [id]
    assert [job.state for job in backend.active() if job.id == id] == ["RUNNING"]
    assert id in backend.ids(50)
    runs, stopped = (
        next(m.name for m in now.members if m.state == s and m.name != "4") for s in ("RUNNING", "PENDING")
    )
    after_one = backend.submit(script(b"true", nodes=1, cache="one", name="one", after=f"{id}/{runs}"), "a4").id
    for waiting, reason in ((after_all, f"waits for {id}"), (after_one, f"waits for {id}/{runs}")):
        assert backend.status(waiting).current.reason == reason
    assert backend.cancel(f"{id}/{stopped}").state == "CANCELLED"
    (running.shared / "array-go").touch()
    ended = backend.wait(id, 600)
    others = {"0", "1", "2"} - {stopped}
    assert {m.name: m.state for m in ended.members} == {
        **dict.fromkeys(others, "COMPLETED"),
        stopped: "CANCELLED",
        "4": "FAILED",
    }
    assert (ended.done, ended.ok, ended.state) == (True, False, "FAILED")
    assert [job.state for job in backend.list() if job.id == id] == [ended.state]
    for index in others:
        assert f"I am {index} of 4" in text(backend.logs(f"{id}/{index}"))
        assert (running.shared / "trn/jobs" / id / index / "logs/train.0.log").exists()
    one = backend.status(f"{id}/4")
    assert (one.id, one.current.exit_code, one.directory) == (f"{id}/4", 1, f"{ended.directory}/4")
    assert next(m for m in ended.members if m.name == stopped).started is None
    assert backend.wait(after_one, 600).ok
    never = backend.wait(after_all, 600)
    assert never.state == "CANCELLED"
    assert never.current.reason.startswith(f"did not run: {id} did not complete")
    assert backend.settings(id)["array"] == "0-2,4"
    for wrong, node, error, message in (
        (f"{id}/3", None, UnknownJob, "there is no job"),
        (id, 0, JobError, f"is an array of 4, and a node belongs to one member.*{id}/0"),
    ):
        with pytest.raises(error, match=message):
            text(backend.logs(wrong, node=node))
    for follow in (False, True):
        joined = {chunk.member: chunk.data for chunk in backend.logs(id, follow=follow)}
        assert {index: b"I am %s of 4" % index.encode() in data for index, data in joined.items()} == dict.fromkeys(
            sorted({*others, "4"}), True
        )
    task = f"{parts.TASK_LABEL}={parts.PREPARE},{parts.ARRAY_LABEL}={id}"
    assert len(backend.api.list("Pod", labels=task)) == 1
    uids = {backend.api.get("JobSet", f"{id}-{n}")["metadata"]["uid"] for n in (0, 1, 2, 4)}
    assert set(parts.owners(backend.api.get("BatchJob", f"{id}-prepare"))) == uids
    assert backend.api.find("Secret", id) is None, "it has ended, and its variables may be secret"


@pytest.mark.usefixtures("gone")
@pytest.mark.sweep
def test_the_whole_array_is_cancelled(backend: KubernetesBackend) -> None:
    id = backend.submit(array("array-never", "stops"), "b1").id
    assert until(lambda: any(m.state == "RUNNING" for m in backend.status(id).members))
    ended = backend.cancel(id)
    assert {m.state for m in ended.members} == {"CANCELLED"}
    assert ended.done
    assert backend.cancel(id).state == "CANCELLED"


@pytest.mark.sweep
def test_it_is_submitted_whole_or_not_at_all(backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    create, refusals = (
        backend.api.create,
        [ApiError(503, "Unavailable", "killed here"), ApiError(403, "Forbidden", "over quota")],
    )

    def refused(kind: str, body: Any) -> Any:
        if body["metadata"]["name"].endswith("-2") and refusals:
            raise refusals.pop()
        return create(kind, body)

    made = array("array-never", "whole")
    monkeypatch.setattr(backend.api, "create", refused)
    monkeypatch.setattr("trainium_cdk.client.jobs.kubernetes.submit.ONE_QUESTION", 0.0)
    with pytest.raises(SubmitError, match=r"over quota\. Nothing of it is left there"):
        backend.submit(made, "c1")
    with pytest.raises(UnknownJob):
        backend.status("whole-c1")
    assert until(lambda: backend.api.find("Secret", "whole-c1") is None)
    with pytest.raises(ApiError, match="killed here"):
        backend.submit(made, "c1")
    begun = backend.api.get("JobSet", "whole-c1-1")["metadata"]["uid"]
    assert not backend.submit(made, "c1").existing, "the rest is created"
    assert backend.api.get("JobSet", "whole-c1-1")["metadata"]["uid"] == begun
    assert len(backend.status("whole-c1").members) == 4
    with pytest.raises(SubmitError, match="already exists as another job"):
        backend.submit(script(b"true", nodes=1, cache="whole-too", name="whole"), "c1")
    for index in (4, 0):
        backend.api.delete("JobSet", f"whole-c1-{index}")
        assert until(lambda index=index: backend.api.find("JobSet", f"whole-c1-{index}") is None)
        assert backend.submit(made, "c1").existing, "a member that was deleted is not run again"
        assert next(m for m in backend.status("whole-c1").members if m.name == str(index)).state == "UNKNOWN"
    backend.cancel("whole-c1")


def test_what_is_refused_before_it_is_sent() -> None:
    with pytest.raises(
        JobError, match=r"limits the nodes of a queue.*Write 0-9; .*max_nodes of a team \(eks\.queues\) .* to 6"
    ):
        render(array("x", "x", array="0-9%3", nodes=2, image="x:1"), make_cluster(), "t")
    with pytest.raises(JobError, match="characters; at most 44"):
        render(array("x", "x", name="a" * 40, array="0-999", image="x:1"), make_cluster(), "t")


def test_members_differ_in_their_names_and_index_alone() -> None:
    cluster = make_cluster()
    sent = objects(render(array("x", "x", array="0,11", image="x:1"), cluster, "t"), cluster)
    jobs = sent.jobs
    jobs[0]["metadata"]["labels"] |= sent.release  # its own come last
    first, second = (json.dumps(job).replace(f"x-t-{n}", "x-t-N").replace(f'"{n}"', '"N"').replace(f"x-t/{n}", "x-t/N").replace(f"member-{n}-", "member-N-") for n, job in zip((0, 11), jobs, strict=True))  # fmt: skip
    assert first == second


def test_each_member_of_a_sweep_has_its_values() -> None:
    """In its own JobSet alone: those of all may be more than an object's annotations hold."""
    sweep = {"lr": [1, 2], "seed": [3]}
    job = Script(filename="train.py", content=b"pass", nodes=1, name="x", image="x:1", sweep=sweep)
    cluster = make_cluster()
    sent = objects(render(job, cluster, "t"), cluster)
    notes = [json.loads(one["metadata"]["annotations"][parts.DESCRIPTION]) for one in sent.jobs]
    assert [note["values"] for note in notes] == [{"lr": "1", "seed": "3"}, {"lr": "2", "seed": "3"}]
    assert "sweep" not in notes[0]["job"]
    rows = [{**one, "columns": {"TerminalState": "", "Suspended": "false"}} for one in sent.jobs]
    for row in rows:
        row["metadata"]["creationTimestamp"] = "2026-11-27T08:00:00Z"
    found = look.array_status(rows, [])
    assert [dict(m.values) for m in found.members] == [{"lr": "1", "seed": "3"}, {"lr": "2", "seed": "3"}]
    assert found.current.reason == "2 running"
    rows[0]["metadata"]["annotations"][parts.DESCRIPTION] = json.dumps({"values": {"a": ["\x1b"], "b": {}}})
    assert dict(look.array_status(rows, []).members[0].values) == {"a": "['\\x1b']", "b": "{}"}


def test_an_array_of_which_a_member_was_cancelled_while_it_waited_has_ended() -> None:
    """That member's JobSet keeps the label of what it waited for."""
    job = Script(
        filename="train.py", content=b"pass", nodes=1, name="x", image="x:1", array="0-1", requirements=["a==1"]
    )
    cluster = make_cluster()
    sent = objects(render(job, cluster, "t"), cluster)
    rows = [{**one, "columns": {"TerminalState": state, "Suspended": "false"}} for one, state in zip(sent.jobs, ("Completed", "Failed"), strict=True)]  # fmt: skip
    for row in rows:
        row["metadata"]["creationTimestamp"] = "2026-11-27T08:00:00Z"
    prepare = parts.prepare_job(parts.array(rows[0]))
    rows[1]["metadata"]["labels"][parts.AFTER_LABEL] = prepare
    found = look.array_status(rows, [])
    assert ([stage.name for stage in found.stages], found.done, found.state) == (["prepare", "train"], True, "FAILED")
    rows[1]["columns"] = {"TerminalState": "", "Suspended": "true"}
    assert (look.array_status(rows, []).done, look.array_status(rows, []).stages[0].state) == (False, "PENDING")


def test_an_edited_index_label_is_member_0() -> None:
    """People can edit labels, and a list of jobs still shows the others."""
    job = Script(filename="t.py", content=b"pass", nodes=1, image="x:1", array="0-0")
    sent = objects(render(job, make_cluster(), "t"), make_cluster())
    [row] = [{**one, "columns": {"TerminalState": "", "Suspended": "true"}} for one in sent.jobs]
    row["metadata"]["creationTimestamp"] = "2026-11-27T08:00:00Z"
    row["metadata"]["labels"][parts.MEMBER_LABEL] = "first"
    assert [one.name for one in look.array_status([row], []).members] == ["0"]
