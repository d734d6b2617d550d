"""Copies of checkpoints in S3, by the AWS CLI and the S3 of the local AWS: what is kept, what is called complete, and what a job continues from."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests.runner.preparing import PYTHON, Cluster
from tests.runner.test_resume import MADE, SCRIPT, content, write
from tests.support import need
from trainium_cdk.jobs.pyz import pyz
from trainium_cdk.runner import kept
from trainium_cdk.runner.prepare import checkpoints
from trainium_cdk.runner.spec import Checkpoints, JobSpec, NodeEnvironment, to_json
from trainium_cdk.runner.work.keep import Keeper

BUCKET = "kept"


@pytest.fixture(scope="module")
def s3(local_aws: LocalAws) -> Any:
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    client = local_aws.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def place(s3: Any, request: pytest.FixtureRequest) -> str:
    """An address of this test alone."""
    return f"s3://{BUCKET}/{request.node.name.partition('[')[0]}-{time.time_ns()}"


@pytest.fixture
def cluster(tmp_path: Path, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    variables = {"PATH": os.environ["PATH"], **local_aws.variables}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Cluster(tmp_path, variables)


def objects(s3: Any, place: str) -> dict[str, bytes]:
    bucket, _, key = place.removeprefix("s3://").partition("/")
    found = s3.list_objects_v2(Bucket=bucket, Prefix=f"{key}/").get("Contents", [])
    return {
        one["Key"].removeprefix(f"{key}/"): s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found
    }


class Kept:
    """A job, and what keeps its checkpoints."""

    def __init__(self, cluster: Cluster, made: Checkpoints, place: str, kind: str = "script", id: str = "run-1", index: str = "") -> None:
        self.made = replace(made, keep=f"{place}/{id}")
        self.root = cluster.write(id=id, kind=kind, checkpoints=self.made, array="0-1" if index else "")
        self.own = self.root / index
        (self.own / "state").mkdir(parents=True, exist_ok=True)
        self.folder = self.own / made.folder / made.place
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lines: list[str] = []
        self.index = index
        self.keeper = self.again()

    def again(self) -> Keeper:
        job = JobSpec(self.root.name, json.loads((self.root / "job.json").read_text())["kind"], (), checkpoints=self.made)
        return Keeper(job, self.root, self.index, self.lines.append)

    def look(self) -> list[str]:
        self.lines.clear()
        self.keeper.look()
        return self.lines


def whole(s3: Any, place: str) -> dict[str, dict[str, bytes]]:
    """The checkpoints that are called complete, each with its files; all of them are there."""
    there, found = objects(s3, place), {}
    for name in [one.removesuffix(kept.SUFFIX) for one in there if one.endswith(kept.SUFFIX)]:
        sizes = json.loads(there[name + kept.SUFFIX])["files"]
        files = {rest.removeprefix("/"): there[name + rest] for rest in sizes}
        assert {rest: len(there[name + rest]) for rest in sizes} == sizes
        found[name.rpartition("/")[2]] = files
    return found


def of(checkpoint: Path) -> dict[str, bytes]:
    return {"": checkpoint.read_bytes()} if checkpoint.is_file() else content(checkpoint)


@pytest.mark.parametrize("kind", MADE)
def test_the_newest_complete_checkpoint_is_kept_and_another_cluster_continues_from_it(
    kind: str, cluster: Cluster, s3: Any, place: str, tmp_path: Path
) -> None:
    made, make = MADE[kind]
    job = Kept(cluster, replace(made, same={"kind": kind, "workers": "64"}), place, kind)
    name = make(job.folder)
    [line] = job.look()
    assert line.startswith(f"kept: {name} in {place}/run-1/")
    assert whole(s3, place) == {name: of(job.folder / name)}
    assert job.look() == [], "there is nothing new"

    other = Cluster(tmp_path / "other", cluster.variables)
    for source in (place, f"{place}/run-1/", line.rpartition(" ")[2] + f"/{name}"):
        id = f"next-{len(source)}"
        folder = other.write(id=id, kind=kind, checkpoints=replace(made, source=source, same={"kind": kind, "workers": "64"}))
        assert other.prepare(folder, "check")[0] == 3
        code, output = other.prepare(folder)
        assert code == 0, output
        assert of(folder / made.folder / made.place / name) == of(job.folder / name)
        assert checkpoints.newest(made, folder / made.folder / made.place) == folder / made.folder / made.place / name
        assert not (folder / "resumed.s3").exists()
