"""The runner as the program that a client asks: one request, one answer, whatever is in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runner.world import CLUSTER, World
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.runner import head, requests
from trainium_cdk.runner.head import answers
from trainium_cdk.runner.requests import (
    Cluster,
    JobSettings,
    ListJobs,
    ListNodes,
    write_request,
)


def asked(given: Any, cluster: Cluster = CLUSTER) -> Any:
    return head.answer(json.dumps(write_request(cluster, given)))


@pytest.mark.parametrize("given", [ListJobs(7, True), requests.ReadLog("a", tail=3)])
def test_a_request_returns_from_json(given: Any) -> None:
    function, cluster, again = requests.read_request(json.loads(json.dumps(write_request(CLUSTER, given))))
    assert (cluster, again) == (CLUSTER, given)
    assert function.count(".") == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "the request is of version 99, and this runner of version 1"),
        ({"op": "reboot"}, "there is no operation 'reboot'"),
        ({"op": []}, "there is no operation"),
        ({"more": 1}, "and nothing else"),
        ({"given": {"limit": 5, "new": 1}}, "ListJobs has no field 'new' in version 1 of the runner"),
        ({"given": {"limit": "5"}}, "ListJobs.limit is '5', and not of type int"),
        ({"cluster": {}}, "Cluster is not complete"),
    ],
)
def test_a_request_of_another_kind_is_refused(change: dict[str, Any], message: str) -> None:
    told = head.answer(json.dumps({**write_request(CLUSTER, ListJobs()), **change}))
    assert told["error"]["kind"] == "refused"
    assert message in told["error"]["message"]


@given(
    st.text(max_size=50)
    | st.just("[" * 100_000)
    | st.just('{"version": 1, "op": "list", "cluster": null, "given": null}')
)
def test_any_text_has_an_answer(text: str) -> None:
    assert head.answer(text)["error"]["kind"] == "refused"


def test_what_is_wrong_here_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(tmp_path, monkeypatch)
    monkeypatch.setattr(world, "run", None)
    monkeypatch.setattr("trainium_cdk.runner.slurm.run", None)
    told = asked(ListNodes())["error"]
    assert told["kind"] == "broken"
    assert told["message"].startswith(
        "the runner failed on this request, which is a fault of it: TypeError in runner/slurm.py:"
    )


def test_jobs_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to root, who would make files among theirs."""
    if os.getuid():
        pytest.skip("only root gives folders away")
    jobs = World(tmp_path, monkeypatch).jobs
    os.chown(jobs, 1, 1)
    told = asked(ListJobs())["error"]
    assert told["kind"] == "theirs"
    assert (
        "belong to daemon, and you are root. Run this as daemon (sudo -Hu daemon trn ...), or give --ssm"
        in told["message"]
    )


@pytest.mark.parametrize("there", ["nothing", "folder", "link", "file", "another's", "no place"])
def test_a_users_folder_is_its_own(there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    World(tmp_path, monkeypatch)
    place = tmp_path / "efs/trn-users"
    alice = Cluster("/efs", "trn-users/alice", "i", "n", multi_user=True)
    if there != "no place":
        place.mkdir()
    if there == "folder":
        alice.trn.mkdir()
    if there == "link":
        alice.trn.symlink_to("/tmp")
    if there == "file":
        alice.trn.touch()
    if there == "another's":
        alice.trn.mkdir()
        if os.getuid():
            pytest.skip("only root gives folders away")
        os.chown(alice.trn, 1, 1)
    told = asked(ListJobs(), alice)
    message = {
        "link": "is not a folder of .*, but a symbolic link of",
        "file": "but a regular file of",
        "another's": "but a directory of daemon. An administrator can remove it",
        "no place": "the head node's bootstrap makes it for each user of the cluster, and has not finished",
    }.get(there)
    if message is None:
        assert told == {"answer": []}
        assert alice.trn.stat().st_mode & 0o777 == 0o700 or there == "folder"
    else:
        import re

        assert told["error"]["kind"] == "theirs"
        assert re.search(message, told["error"]["message"])


def test_it_runs_as_one_file_with_a_clean_environment(tmp_path: Path) -> None:
    file = tmp_path / "runner.pyz"
    file.write_bytes(pyz().content)
    (tmp_path / "efs").mkdir()
    text = json.dumps(write_request(CLUSTER, JobSettings("a-1")))
    done = subprocess.run(
        [sys.executable, "-I", file, "ask"],
        input=text,
        capture_output=True,
        text=True,
        env={"TRN_SHARED_ROOT": str(tmp_path)},
    )
    assert (json.loads(done.stdout), done.stderr) == ({"answer": {}}, "")


def test_nodes_and_others_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch).tell(
        "active bob|q|2|5|RUNNING|None|q-dy-trn-[1-2]|2026-11-20T10:00:00|N/A|mine\x1b|note\n"
        "active bob|q|1|6|PENDING|Resources||2026-11-20T10:00:00|N/A|x:train|trn:x"
    )
    world.nodes = (
        "NodeName=q-dy-trn-1 Arch=x86_64 NodeAddr=10.0.0.1 State=MIXED+CLOUD Partitions=q,all BootTime=2026-11-20T09:00:00 \n"
        "NodeName=q-dy-trn-2 NodeAddr=q-dy-trn-2 State=ALLOCATED+CLOUD+DRAIN+POWER_DOWN Partitions=q Reason=POWER_DOWN_ASAP [root@2026-11-24T08:00:00]\n"
        "NodeName=q-dy-trn-3 State=DOWN*+POWERED_DOWN Partitions=q BootTime=None Reason=no capacity [root@2026-11-20T09:00:00]\n"
    )
    assert asked(requests.ListNodes())["answer"] == [
        {"name": "q-dy-trn-1", "queue": "q", "instance_type": "", "state": "mixed+cloud", "job": "mine ", "address": "10.0.0.1", "booted": 1795165200},
        {"name": "q-dy-trn-2", "queue": "q", "instance_type": "", "state": "allocated+cloud+drain+power_down", "job": "mine ", "reason": "POWER_DOWN_ASAP", "address": "q-dy-trn-2"},
        {"name": "q-dy-trn-3", "queue": "q", "instance_type": "", "state": "down*+powered_down", "reason": "no capacity", "on": False},
    ]  # fmt: skip
    assert asked(requests.Others())["answer"] == [
        {"name": "5", "kind": "sbatch", "state": "RUNNING", "queue": "q", "submitted": 1795165200, "user": "bob", "started": 1795168800, "nodes": 2}
    ]  # fmt: skip
    assert [job["id"] for job in asked(requests.Active())["answer"]] == ["x"]
    assert len([words for words in world.calls if words[0] == "squeue"]) == 3


@pytest.mark.parametrize(
    ("given", "id", "error"),
    [
        ("a-1", "a-1", ""),
        ("a", "", "2 jobs begin with a: a-10, a-1. Give more of the id"),
        ("a-10", "a-10", ""),
        ("b-2", "b-20261127-000000", ""),
        ("b/3", "b-20261127-000000/3", ""),
        ("latest", "a-10", ""),
        ("latest/2", "a-10/2", ""),
        ("b-20261127-000001", "", "there is no job b-20261127-000001"),
        ("c", "", "there is no job c"),
        ("frist", "", "there is no job frist"),
    ],
)
def test_a_job_is_named_by_its_beginning_or_as_the_latest(
    given: str, id: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the request that is about it."""
    monkeypatch.setenv("TRN_SHARED_ROOT", str(tmp_path))
    monkeypatch.setattr(answers, "job_status", lambda *_: None)
    jobs = CLUSTER.jobs
    for age, name in enumerate(("a-10", "b-20261127-000000", "a-1", "first-20261127-000000", "first-20261126-000000")):
        folder = jobs / name
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(json.dumps({"settings": {"name": name}}))
        (folder / "submitted.json").touch()
        os.utime(folder / "submitted.json", (1e9 - age, 1e9 - age))
    told = asked(JobSettings(given))
    if id:
        assert told == {"answer": {"name": id.partition("/")[0]}, **({"id": id} if id != given else {})}
    elif "begin" in error:
        assert told == {"error": {"kind": "refused", "message": error}}
    else:
        told = asked(requests.Status(given))
        similar = {"b-20261127-000001": ["b-20261127-000000"], "frist": ["first-20261127-000000"]}.get(given, [])
        more = {"similar": similar} if similar else {}
        assert told == {"error": {"kind": "unknown", "message": error, **more}}


def test_the_latest_of_no_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRN_SHARED_ROOT", str(tmp_path))
    told = asked(requests.Status("latest"))
    assert told == {"error": {"kind": "unknown", "message": "there are no jobs on this cluster"}}
