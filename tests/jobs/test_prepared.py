"""Environments that are listed and removed, by the runner."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.jobs.conftest import make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from trainium_cdk import outputs
from trainium_cdk.errors import TransportError
from trainium_cdk.jobs import JobError, prepared
from trainium_cdk.jobs.backend import read_answer
from trainium_cdk.runner import slurm
from trainium_cdk.runner.head.ask import answer
from trainium_cdk.runner.requests import Cluster, write_request

NAMES = [f"{n:012x}" for n in range(3)]


class Here:
    """A backend whose shared file system is a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.running = root, ["bert-2"]
        self.cluster: Any = make_cluster()

    def active(self) -> list[Any]:
        return [SimpleNamespace(id=id) for id in self.running]

    def ask(self, given: object) -> Any:
        cluster = Cluster(f"{self.root}/efs", "trn", "", "local")
        return read_answer(answer(json.dumps(write_request(cluster, given))), "", self.cluster)


def record(name: str, /, **changes: Any) -> str:
    facts = {
        "kind": "bert-large", "base": "image:1", "python": "3.12", "requirements": ["a==1"], "megabytes": 7, "seconds": 3,
        "made": f"2026-11-2{NAMES.index(name)}T00:00:00+00:00",
    }  # fmt: skip
    return json.dumps({"name": name, **facts, **changes})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    trn = tmp_path / "efs/trn"
    for name in NAMES:
        folder = trn / "environments" / f".{name}.abcdef"
        folder.mkdir(parents=True)
        (folder / "trn-environment.json").write_text(record(name) + "\n")
        (trn / "environments" / name).symlink_to(folder.name)
    for job, name in (("bert-1", NAMES[0]), ("bert-2", NAMES[1])):
        (trn / "jobs" / job).mkdir(parents=True)
        (trn / "jobs" / job / "environment").write_text(f"{name}\n")
    made = Here(tmp_path)
    monkeypatch.setattr(slurm, "rows", lambda **_: [SimpleNamespace(id=id) for id in ("", *made.running)])
    return made


def test_they_are_listed_with_the_jobs_that_use_them(here: Any) -> None:
    found = prepared.prepared(here)
    assert [(one.name, one.jobs) for one in found] == [(NAMES[0], ()), (NAMES[1], ("bert-2",)), (NAMES[2], ())]
    assert (found[0].megabytes, found[0].seconds, found[0].requirements) == (7, 3, ("a==1",))


def test_they_are_removed(here: Any) -> None:
    prepared.remove(here, [NAMES[0], NAMES[2]])
    place = here.root / "efs/trn/environments"
    assert sorted(p.name for p in place.iterdir()) == [f".{NAMES[1]}.abcdef", NAMES[1]]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([NAMES[0], NAMES[1]], f"environment {NAMES[1]} is used by bert-2.*trn cancel bert-2"),
        (["../jobs"], r"TrnPclusterStack has no environment '\.\./jobs'\. It has 0000"),
    ],
)
def test_what_is_used_or_unknown_is_refused(here: Any, names: list[str], message: str) -> None:
    with pytest.raises(JobError, match=message):
        prepared.remove(here, names)
    assert len(prepared.prepared(here)) == 3


@pytest.mark.parametrize(
    ("seen_as", "of_the_team", "message"),
    [
        ("own", [], ""),
        ("", ["bert-1"], f"environment {NAMES[0]} is used by bert-1"),
        ("", TransportError("forbidden"), "those of all teams, and jobs of team speech could not be listed: forbidden"),
        ("vision", [], "those of all teams, and team vision sees its own jobs alone"),
        ("", [], ""),
    ],
)
def test_jobs_of_all_teams_keep_theirs(
    seen_as: str, of_the_team: Any, message: str, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teams of an EKS cluster have one file system, unless each has a folder of its own."""

    def connect(*, cluster: Any) -> Any:
        assert cluster.namespace == "speech"
        if isinstance(of_the_team, Exception):
            raise of_the_team
        return SimpleNamespace(active=lambda: [SimpleNamespace(id=id) for id in of_the_team])

    monkeypatch.setattr(prepared, "connect", connect)
    claims = ("efs-team-x" if seen_as == "own" else "fsx-x",)
    teams = () if seen_as else (outputs.eks.Team(namespace="speech"),)
    here.cluster = make_eks(teams=teams, team=seen_as, claims=claims)
    if message:
        with pytest.raises(JobError, match=message):
            prepared.remove(here, [NAMES[0]])
    else:
        prepared.remove(here, [NAMES[0]])
    assert len(prepared.prepared(here)) == (3 if message else 2)


def test_a_cluster_without_any(here: Any) -> None:
    shutil.rmtree(here.root / "efs/trn")
    assert prepared.prepared(here) == ()
    with pytest.raises(JobError, match="It has none"):
        prepared.remove(here, ["a" * 12])


def test_all_that_no_job_uses_are_removed(here: Any) -> None:
    assert [one.name for one in prepared.remove(here, ["unused"])] == [NAMES[0], NAMES[2]]
    assert [one.name for one in prepared.prepared(here)] == [NAMES[1]]


def test_what_a_job_writes_there_is_not_trusted(here: Any) -> None:
    place = here.root / "efs/trn/environments"
    for name, text in ((NAMES[0], "{"), (NAMES[1], record(NAMES[1], name="../../..")), (NAMES[2], "\n" * 3)):
        (place / name / "trn-environment.json").write_text(text)
    (place / "0 x").mkdir()
    (place / "0 x/trn-environment.json").write_text(record(NAMES[0]))
    assert [one.name for one in prepared.prepared(here)] == [NAMES[1]]
