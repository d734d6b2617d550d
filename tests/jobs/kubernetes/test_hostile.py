"""What members of a namespace may write on objects, on a real API server: every command of others ends with a result or a message."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import Running, script
from tests.support import until
from trainium_cdk.client.cli import copy as copy_command
from trainium_cdk.client.cli import follow
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, look, parts, reasons, status
from trainium_cdk.client.jobs.report.run import collect_all
from trainium_cdk.client.jobs.runner import settings_in
from trainium_cdk.client.jobs.status import Stage
from trainium_cdk.errors import TrnError
from trainium_cdk.runner.spec import MAX_MEMBERS

VICTIM = "run-victim"
ESCAPE = "\x1b]52;c;Zm9v\x07\ud800"
BIG = 10**300


def description(**changes: Any) -> str:
    return json.dumps(
        {"kind": "script", "nodes": 1, "directory": "/efs/trn/jobs/victim", "stages": ["train"], **changes}
    )


DESCRIPTIONS: dict[str, str] = {
    "empty": "",
    "no JSON": "{",
    "a list": "[1]",
    "deep": '{"values": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep and readable": '{"values": {"a": ' + "[" * 200 + "]" * 200 + "}}",
    "NaN": '{"nodes": NaN, "global_batch_size": Infinity, "ranks_per_node": -Infinity}',
    "a large number": '{"nodes": 1e999, "global_batch_size": ' + "9" * 4000 + "}",
    "numbers": description(nodes=BIG, ranks_per_node=BIG, global_batch_size=BIG),
    "negative": description(nodes=-BIG, ranks_per_node=-5, global_batch_size=-1),
    "types": description(kind=[1], queue={}, instance_type=7, directory={"a": 1}, user=[[]], checkpoints=7, stages="train", values=[1]),
    "stages": description(stages=[{}, [], "train", "train", ESCAPE, "prepare", None]),
    "escapes": description(kind=ESCAPE, instance_type=ESCAPE, directory=ESCAPE, user=ESCAPE, values={ESCAPE: ESCAPE}),
    "long": description(kind="k" * 60_000, directory="/" + "d" * 60_000, user="u" * 60_000),
    "another place": description(directory="../../../etc", checkpoints="../../x"),
    "options": description(directory="--help", kind="-x", user="--all"),
    "settings": description(job={"array": [1], "steps": BIG, "_fields_set": 1, "epochs": "x", "self": 1}),
    "an array": description(job={"array": "0-999999999999"}),
    "settings of a kind": description(kind="bert-large", job={"steps": "x" * 9, "nodes": BIG, "micro_batch": 0, "model": ESCAPE}),
    "settings as text": description(job="x"),
}  # fmt: skip
NOTES: dict[str, dict[str, Any]] = {
    "a queue": {parts.QUEUE: ESCAPE[:-1]},
    "after itself": {parts.AFTER: VICTIM},
    "after nothing": {parts.AFTER: "a,b) or (c"},
    "no digest": {parts.DIGEST: None, parts.RUNNER: "../x", parts.QUEUE: None},
}
LABELS: dict[str, dict[str, Any]] = {
    "a member of nothing": {parts.ARRAY_LABEL: "arr"},
    "a member without a number": {parts.ARRAY_LABEL: "arr", parts.MEMBER_LABEL: "x"},
    "a member with a long number": {parts.ARRAY_LABEL: "arr", parts.MEMBER_LABEL: "9" * 63},
    "a member of many": {parts.ARRAY_LABEL: "arr", parts.MEMBER_LABEL: "0"},
    "an array of its own name": {parts.ARRAY_LABEL: VICTIM, parts.MEMBER_LABEL: "0"},
    "waits for what is none": {parts.AFTER_LABEL: "Not_a.Name"},
    "another job": {parts.JOB_LABEL: "other"},
    "no labels": {parts.JOB_LABEL: None, "app.kubernetes.io/managed-by": None, parts.KIND_LABEL: None},
}


@pytest.fixture
def victim(backend: KubernetesBackend) -> Iterator[Callable[..., None]]:
    """A job that runs, whose metadata the function changes; what it was before comes back first."""
    assert backend.submit(script(b"echo begun; sleep 3600", nodes=1), "victim").id == VICTIM
    assert until(lambda: backend.status(VICTIM).state == "RUNNING")
    first = backend.api.get("JobSet", VICTIM)["metadata"]

    def change(**metadata: Any) -> None:
        now = backend.api.get("JobSet", VICTIM)["metadata"]
        body = {
            part: {**dict.fromkeys(now.get(part, {})), **first.get(part, {}), **metadata.get(part, {})}
            for part in ("labels", "annotations")
        }
        backend.api.patch("JobSet", VICTIM, {"metadata": body})

    yield change
    change()
    backend.api.delete("JobSet", VICTIM)
    assert until(lambda: not backend.api.find("JobSet", VICTIM))


def variants() -> dict[str, dict[str, Any]]:
    made = {name: {"annotations": {parts.DESCRIPTION: text}} for name, text in DESCRIPTIONS.items()}
    made |= {name: {"annotations": notes} for name, notes in NOTES.items()}
    made |= {name: {"labels": labels} for name, labels in LABELS.items()}
    array = {parts.DESCRIPTION: DESCRIPTIONS["an array"]}
    return {**made, "an array without end": {"labels": LABELS["a member of many"], "annotations": array}}


def verbs(backend: KubernetesBackend) -> dict[str, Callable[[], Any]]:
    def forwarded() -> None:
        with backend.forward(VICTIM):
            """An offer that is there."""

    def of(id: str) -> Callable[[], Any]:
        return lambda: backend.status(id, progress=True)

    return {
        "list": backend.list,
        "listed": backend.listed,
        "active": backend.active,
        "ids": lambda: backend.ids(9),
        "nodes": backend.nodes,
        **{f"status {id}": of(id) for id in (VICTIM, "arr", "arr/0", "bare")},
        "settings": lambda: backend.settings(VICTIM),
        "logs": lambda: list(backend.logs(VICTIM)),
        "logs of a node": lambda: list(backend.logs(VICTIM, node=0)),
        "rank": lambda: list(backend.logs(VICTIM, rank=0)),
        "report": lambda: collect_all(backend, [VICTIM]),
        "shell": lambda: backend.on_nodes(VICTIM, ["true"]),
        "forward": forwarded,
        "tensorboard": lambda: backend.tensorboard("bare").__enter__(),
    }


def assert_told(backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Each command ends with a result, or with a message."""
    said: dict[str, str] = {}
    for name, verb in verbs(backend).items():
        try:
            verb()
        except TrnError as e:
            said[name] = str(e)
        except Exception as e:
            raise AssertionError(f"{what}: {name}: {type(e).__name__}: {e}") from e
    assert all(map(str.isprintable, said.values())), (what, said)
    monkeypatch.setattr(follow, "backend", lambda *_: backend)
    for words in (["list"], ["list", "--json"], ["status", VICTIM], ["status", VICTIM, "--json"]):
        with contextlib.suppress(TrnError, SystemExit):
            app(words, standalone_mode=False)


@pytest.mark.parametrize("text", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_a_description_is_short_printable_lines(text: str) -> None:
    job = {"metadata": {"name": "run", "annotations": {parts.DESCRIPTION: text}}, "spec": {}}
    found = status.of(job, [Stage("train", "", "RUNNING")])
    for one in (found.kind, found.queue, found.instance_type, found.directory, found.user, found.checkpoints):
        assert one.isprintable()
        assert len(one) <= 2000
    assert found.directory.startswith("/") or not found.directory
    assert ".." not in found.directory + found.checkpoints
    assert 0 <= found.nodes <= 10_000
    assert set(status.described(job)["stages"]) <= {"prepare", "precompile", "train"}
    assert isinstance(settings_in(text), dict)
    row = {**job, "columns": {"TerminalState": "Failed", "Suspended": False}}
    row["metadata"] = {**job["metadata"], "labels": LABELS["a member of many"]}
    assert len(look.array_status([row], []).members) <= MAX_MEMBERS
    json.dumps(asdict(found), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("48 more needed", "it lacks 3 nodes of trn"),
        ("1M more needed", "it lacks 62500 nodes of trn"),
        ("1Mi more needed", "it lacks 65536 nodes of trn"),
        ("9E more needed", "it lacks 562500000000000000 nodes of trn"),
        (f"{'9' * 5000} more needed", "insufficient unused quota"),
        ("1500m more needed", "insufficient unused quota"),
        ("x more needed", "insufficient unused quota"),
    ],
)
def test_an_amount_that_somebody_asks_for(message: str, told: str) -> None:
    text = f"insufficient unused quota for aws.amazon.com/neuron in flavor trn, {message}"
    assert reasons.in_nodes(text, {"trn": 16}).startswith(told)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "x", None, {}]
)
def test_a_time_that_no_job_can_have(text: Any) -> None:
    assert parts.seconds(text) in (None, 253_402_300_799)


def bare(name: str) -> Any:
    metadata = {"name": name, "namespace": "training", "labels": parts.labels(name, "script")}
    return {
        "apiVersion": parts.JOBSET,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"suspend": True, "replicatedJobs": []},
    }


def greedy(amount: str) -> Any:
    limits = {"limits": {"aws.amazon.com/neuron": amount}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": limits}]}
    metadata = {"name": "greedy", "namespace": "training", "labels": {parts.QUEUE_LABEL: "trn"}}
    spec = {"suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def warning(name: str, text: str) -> Any:
    metadata = {"name": f"hostile-{name}", "namespace": "training"}
    about = {"kind": "Job", "name": parts.train_job(name), "namespace": "training"}
    times = dict.fromkeys(("firstTimestamp", "lastTimestamp"), "9999-12-31T23:59:59Z")
    body = {"type": "Warning", "reason": text, "message": text, "involvedObject": about, **times}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, **body}


def test_what_a_member_creates_stops_no_command_of_others(
    backend: KubernetesBackend,
    running: Running,
    victim: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = running.kubernetes.api()
    made = [bare("bare"), greedy("1M"), warning(VICTIM, ESCAPE[:-1] * 100)]
    for one in made:
        api.create(one)
    try:
        assert until(
            lambda: [one for one in backend.others() if one.name == "greedy" and "62500 nodes" in one.reason]
        ), backend.others()
        state = {"terminalState": ESCAPE[:-1], "restarts": 2**31 - 1}
        backend.api.patch("JobSet", "bare", {"status": state}, part="/status")
        for name in ("escapes", "types", "an array without end"):
            victim(**variants()[name])
            assert_told(backend, monkeypatch, name)
        victim(**variants()["another place"])
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(copy_command, "backend", lambda *_: backend)
        with pytest.raises(TrnError, match="is not"):
            app(["cp", f"{VICTIM}:x", "there"], standalone_mode=False)
        assert not list(tmp_path.iterdir())
        victim(**variants()["escapes"])
        assert backend.cancel(VICTIM).state == "CANCELLED"
    finally:
        for one in made:
            api.delete(path_of(one["apiVersion"], one["kind"], one["metadata"]["name"], "training"))
        capsys.readouterr()


@pytest.mark.sweep
def test_whatever_stands_on_a_job_each_command_ends_with_a_message(
    backend: KubernetesBackend,
    victim: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, metadata in variants().items():
        victim(**metadata)
        assert_told(backend, monkeypatch, name)
    capsys.readouterr()
