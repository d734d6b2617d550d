"""Jobs as JSON, and the words of their programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainium_cdk.runner import spec
from trainium_cdk.runner.layout import UnknownPlace, resolve
from trainium_cdk.runner.spec import JobSpec, Only, Place, Program, SpecError, StageSpec, Word, from_json, to_json

JOB = Place("job")
JOBS = [
    JobSpec("run-1", "script", (StageSpec("train", 2, Program(("python3", (JOB, "/a b")), (JOB, "/work"))),)),
    JobSpec(
        "run-2",
        "script",
        (StageSpec("train", program=Program(("x",), "/", ("--resume", (Place("checkpoint"),)), {"A": "$B", "C": (JOB,)}), seconds=60),),
        files={"run.sh": b"\x00\xff"},
        variables={"QUOTES": "'\"\n$(x)"},
        checkpoints=spec.Checkpoints("output", pattern="ckpt_*.pt", last="zip", same={"phase": "1"}),
        slurm=spec.Slurm("compute1", "cpu", "i-1", restarts=3),
        prepare=(spec.PrepareStep("source", {"name": "x", "deep": [1, {"a": None}]}),),
        environment=spec.NodeEnvironment(rules=(spec.Rule(("1", ""), ("2", "3"), "words"),)),
    ),
]  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.id)
def test_a_job_returns_from_json(job: JobSpec) -> None:
    assert from_json(JobSpec, json.loads(json.dumps(to_json(job)))) == job


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"id": "a", "kind": "k", "stages": [], "new": 1}, "JobSpec has no field 'new' in version 1 of the runner"),
        ({"id": "a", "kind": "k"}, "JobSpec is not complete"),
        ({"id": 1, "kind": "k", "stages": []}, "JobSpec.id is '1', and not of type str"),
        (
            {"id": "a", "kind": "k", "stages": [{"name": "train", "nodes": True}]},
            r"JobSpec.stages\[0\].nodes is 'True'",
        ),
        (
            {"id": "a", "kind": "k", "stages": [{"name": "t", "program": {"words": [{}], "folder": ""}}]},
            "is not a word",
        ),
        ({"id": "a", "kind": "k", "stages": [], "files": {"x": "%"}}, "JobSpec.files.x is not base64"),
        ([], "JobSpec is not an object"),
    ],
)
def test_what_is_no_job(value: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_json(JobSpec, value)


def test_an_older_version_reads_a_newer_record() -> None:
    assert from_json(
        JobSpec, {"id": "a", "kind": "k", "stages": [{"name": "t", "new": 1}], "more": {}}, strict=False
    ) == JobSpec("a", "k", (StageSpec("t"),))


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("{job} ${HOME} $(x)", "{job} ${HOME} $(x)"),
        (("[1.0,", Place("job"), "]"), "[1.0,/efs/j]"),
    ],
)
def test_a_word(word: Word, text: str) -> None:
    assert resolve(word, {"job": "/efs/j"}) == text


def test_the_only_folder(tmp_path: Path) -> None:
    def only() -> str:
        return resolve((Only((Place("job"),)),), {"job": str(tmp_path)})

    assert only() == str(tmp_path)
    (tmp_path / "file").touch()
    assert only() == str(tmp_path)
    (tmp_path / "file").unlink()
    (tmp_path / "inside").mkdir()
    assert only() == str(tmp_path / "inside")
    (tmp_path / "other").mkdir()
    assert only() == str(tmp_path)


def test_a_place_that_there_is_not() -> None:
    with pytest.raises(UnknownPlace, match="nothing"):
        resolve((Place("nothing"),), {})
