"""Submissions to the real API: in few requests, once, and completely or not at all, wherever the client ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.jobs.kubernetes.conftest import Running
from tests.jobs.kubernetes.test_objects import ALL, SECRET, described
from tests.support import until
from trainium_cdk.client.jobs.kubernetes import Api, kubernetes_api, submit
from trainium_cdk.client.jobs.kubernetes import parts as names
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.client.jobs.kubernetes.submit import Submitter, kind_of
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.errors import SubmitError
from trainium_cdk.jobs import Script

KINDS = ("JobSet", "Secret", "ConfigMap", "NetworkPolicy", "BatchJob")


@pytest.fixture
def api(running: Running) -> Iterator[Api]:
    """Of a user who may submit jobs. What a test has submitted is deleted."""
    made = kubernetes_api(running.cluster)
    yield made
    for job in made.list("JobSet", labels=f"app.kubernetes.io/managed-by={names.MANAGED_BY}"):
        made.delete("JobSet", job["metadata"]["name"])
    assert until(lambda: not [one for one in parts(made) if one[0] != "JobSet"], 60)
    made.close()


@pytest.fixture
def sender(running: Running, api: Api) -> Callable[..., Submitter]:
    def make(name: str, *stages: str, **fields: Any) -> Submitter:
        script = Script(**{"filename": "run.sh", "content": b"true", "nodes": 2, "cache": name, **fields})
        rendered = replace(plan(script, running.cluster), spec=described(name, script, *(stages or ALL)))
        return Submitter(running.cluster, api, rendered, objects(rendered, running.cluster), lambda _: None)

    return make


def parts(api: Api) -> list[tuple[str, str]]:
    """What there is of jobs: kind and name. The runner belongs to none."""
    ours = f"app.kubernetes.io/managed-by={names.MANAGED_BY}"
    return [
        (kind, one["metadata"]["name"])
        for kind in KINDS
        for one in api.list(kind, labels=ours)
        if not one["metadata"]["name"].startswith("trn-runner-")
    ]


def settles(api: Api, wanted: set[tuple[str, str]]) -> bool:
    """Whether soon there is no more than that: what belonged to a deleted JobSet is deleted a moment later."""
    return bool(until(lambda: set(parts(api)) == wanted, 60))


def of(sender: Submitter) -> list[tuple[str, str]]:
    return sorted((kind_of(one), one["metadata"]["name"]) for one in sender.objects.all)


class Requests:
    """Those of an API; from one on, before or after it is carried out, the client is gone."""

    def __init__(self, api: Api, stop: int = 1000, *, after: bool = False) -> None:
        self.api, self.stop, self.after, self.sent = api, stop, after, list[str]()
        self._send = api._send

    def __enter__(self) -> list[str]:
        self.api._send = self._ask  # type: ignore[method-assign]
        return self.sent

    def __exit__(self, *_: object) -> None:
        self.api._send = self._send  # type: ignore[method-assign]

    def _ask(self, method: str, path: str, *rest: Any, **named: Any) -> Any:
        if len(self.sent) > self.stop or (len(self.sent) == self.stop and not self.after):
            raise Gone
        self.sent.append(f"{method} {path.rpartition('/namespaces/')[2]}")
        found = self._send(method, path, *rest, **named)
        if len(self.sent) > self.stop:
            raise Gone
        return found


class Gone(Exception):
    """The client's process was killed."""


@pytest.mark.parametrize(
    ("stages", "fields", "most"),
    [(("train",), {}, 7), (("precompile", "train"), {"env": SECRET}, 7), (ALL, {"env": SECRET}, 8)],
)
def test_a_submission_has_few_requests(
    sender: Callable[..., Submitter], api: Api, stages: tuple[str, ...], fields: dict[str, Any], most: int
) -> None:
    name = f"few-{len(stages)}-{most}"
    sender("first", "train").send()  # the runner is there
    one = sender(name, *stages, **fields)
    with Requests(api) as sent:
        assert one.send() is False
    assert len(sent) == most, sent
    assert sent[-1].startswith("PATCH")
    with Requests(api) as again:
        assert one.send() is True
    assert len(again) == 3


def test_a_client_that_ends_leaves_nothing_that_costs_and_what_is_missing_is_added(
    sender: Callable[..., Submitter], api: Api
) -> None:
    """Before and after each of its requests."""
    sender("first", "train").send()
    for number in range(16):
        one = sender(f"cut-{number}", env=SECRET)
        with Requests(api, number // 2, after=bool(number % 2)) as sent, pytest.raises(Gone):
            one.send()
        job = api.find("JobSet", one.name)
        assert not [name for _, name in parts(api) if name.startswith(f"{one.name}-") and job is None]
        complete = bool(sent) and sent[-1].startswith("PATCH")
        if job:
            labels = job["metadata"]["labels"]
            assert (names.AFTER_LABEL in labels, names.QUEUE_LABEL in labels) == (complete, False)
            assert job["spec"]["suspend"] is True
            for kind, name in parts(api):
                thing = api.find(kind, name)
                if thing and kind != "JobSet" and thing["metadata"]["labels"].get(names.JOB_LABEL) == one.name:
                    assert names.owners(thing) == [job["metadata"]["uid"]]
        assert one.send() is complete
        assert set(of(one)) <= set(parts(api))
        api.delete("JobSet", one.name)


@pytest.mark.sweep
@pytest.mark.parametrize("after", [False, True])
def test_after_a_ctrl_c_the_job_is_there_or_nothing_of_it(
    sender: Callable[..., Submitter], api: Api, after: bool
) -> None:
    for at in range(8):
        one, count = sender(f"stop-{at}", env=SECRET), [0]
        send_one = api._send

        def stopped(*given: Any, at: int = at, count: list[int] = count, send_one: Any = send_one, **named: Any) -> Any:
            count[0] += 1
            if count[0] - 1 != at:
                return send_one(*given, **named)
            if after:
                send_one(*given, **named)
            raise KeyboardInterrupt

        api._send = stopped  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            one.send()
        api._send = send_one  # type: ignore[method-assign]
        mine = set(of(one))
        there = mine & set(parts(api)) if after and at == 7 else None
        if there is None:
            assert settles(api, set(parts(api)) - mine)
        else:
            assert there == mine


def test_another_job_of_the_name_is_left_alone(sender: Callable[..., Submitter], api: Api) -> None:
    sender("twice", "train").send()
    before = parts(api)
    for fields in ({"content": b"false"}, {"env": {"A": "1"}}, {"nodes": 1}):
        with pytest.raises(SubmitError, match=r"twice already exists as another job. Use a new token"):
            sender("twice", "train", **fields).send()
    assert parts(api) == before


def test_a_secret_of_somebody_else_is_not_taken(sender: Callable[..., Submitter], api: Api) -> None:
    api.create("Secret", {"metadata": {"name": "theirs"}, "stringData": {"job.json": "{}"}})
    with pytest.raises(
        SubmitError, match=r"a Secret named theirs already exists, not created by trn. Use another token"
    ):
        sender("theirs", "train").send()
    assert api.get("Secret", "theirs")["data"] == {"job.json": "e30="}
    assert api.find("JobSet", "theirs") is None
    api.delete("Secret", "theirs")


def test_what_a_deleted_job_has_left_is_replaced(sender: Callable[..., Submitter], api: Api) -> None:
    first = sender("left", "train")
    first.send()
    old = api.get("JobSet", "left")["metadata"]["uid"]
    api.delete("JobSet", "left")
    assert sender("left", "train", env=SECRET).send() is False
    found = [api.get(kind, name) for kind, name in of(sender("left", "train", env=SECRET)) if kind != "JobSet"]
    assert len(found) == 3
    assert old not in [uid for one in found for uid in names.owners(one)]


def test_one_compile_cache_is_of_one_job(
    sender: Callable[..., Submitter], api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender("holds", "train", cache="shared").send()
    with pytest.raises(SubmitError, match=r"job holds uses the compile cache shared.*trn status --wait holds.*--cache"):
        sender("wants", "train", cache="shared").send()
    assert until(lambda: not [name for _, name in parts(api) if name == "wants"], 60)
    api.delete("JobSet", "holds")
    assert sender("wants", "train", cache="shared").send() is False
    with Requests(api, 4, after=True), pytest.raises(Gone):
        sender("half", "train", cache="other").send()
    guard = sender("half", "train", cache="other").objects.parts[-1]
    uid = api.get("JobSet", "half")["metadata"]["uid"]
    owner = {"apiVersion": names.JOBSET, "kind": "JobSet", "name": "half", "uid": uid}
    api.create("ConfigMap", {**guard, "metadata": {**guard["metadata"], "ownerReferences": [owner]}})
    with pytest.raises(SubmitError, match="job half uses the compile cache other"):
        sender("next", "train", cache="other").send()
    monkeypatch.setattr(submit, "_SUBMITTING_SECONDS", 0)  # it was broken off
    assert sender("next", "train", cache="other").send() is False


def test_a_runner_that_somebody_has_changed_runs_nothing(sender: Callable[..., Submitter], api: Api) -> None:
    sender("first", "train").send()
    name = names.runner(pyz().name)
    theirs = {"metadata": {"name": name}, "immutable": True, "binaryData": {"runner.pyz": "UEsDBA=="}}
    api.delete("ConfigMap", name)
    api.create("ConfigMap", theirs)
    try:
        with pytest.raises(
            SubmitError, match=f"the ConfigMap {name} is not the runner of this version of trn. Delete it"
        ):
            sender("other", "train").send()
        assert api.find("JobSet", "other") is None
    finally:
        api.delete("ConfigMap", name)
    assert sender("other", "train").send() is False


def test_a_runner_that_no_job_names_is_removed_with_the_next_version(
    sender: Callable[..., Submitter], api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender("first", "train").send()
    mine, used, other = names.runner(pyz().name), names.runner("a" * 64), names.runner("b" * 64)
    labels = {"app.kubernetes.io/managed-by": names.MANAGED_BY}
    for name in (used, other):
        api.create("ConfigMap", {"metadata": {"name": name, "labels": labels}})
    api.patch("JobSet", "first", {"metadata": {"annotations": {names.RUNNER: used}}})
    for seconds, left in (
        (60, {mine, used, other}),
        (-1, {mine, used}),
    ):  # it may be of a submission that has just begun
        monkeypatch.setattr(submit, "_UNUSED_SECONDS", seconds)
        api.delete("ConfigMap", mine)
        assert sender(f"next-{seconds + 2}", "train").send() is False
        there = {one["metadata"]["name"] for one in api.list("ConfigMap", labels="app.kubernetes.io/managed-by=trn")}
        assert {name for name in there if name.startswith("trn-runner-")} == left
    api.delete("ConfigMap", used)


def test_of_an_array_each_member_owns_what_they_share(sender: Callable[..., Submitter], api: Api) -> None:
    one = sender("many", array="0-3", env=SECRET)
    with Requests(api, 8), pytest.raises(Gone):
        one.send()
    assert one.send() is False
    members = api.list("JobSet", labels=f"{names.ARRAY_LABEL}=many")
    assert len(members) == 4
    assert all(names.submitted(member) for member in members)
    uids = {member["metadata"]["uid"] for member in members}
    shared = [api.get(kind_of(part), part["metadata"]["name"]) for part in one.objects.parts]
    assert [set(names.owners(part)) for part in shared] == [uids] * 4
    assert one.send() is True


def test_an_array_and_a_job_of_one_id_are_two(sender: Callable[..., Submitter], api: Api) -> None:
    for name, first, second in (("many", {"array": "0-1"}, {}), ("single", {}, {"array": "0-1"})):
        sender(name, "train", **first).send()
        before = set(parts(api))
        for cache in (name, "other"):
            with pytest.raises(SubmitError, match=f"{name} already exists as another job"):
                sender(name, "train", **{**second, "cache": cache}).send()
            assert settles(api, before)
