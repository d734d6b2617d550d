"""The compile cache in S3, by the AWS CLI and the S3 of the local AWS: what is written and read, in the layouts of both frameworks."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests.runner.preparing import Cluster
from tests.runner.test_keep import BUCKET, objects, s3
from tests.runner.test_resume import content, write
from trainium_cdk.runner.prepare import compiled
from trainium_cdk.runner.spec import PrepareStep

__all__ = ["s3"]
XLA, NATIVE = "neuronxcc-2.21.1+abc/MODULE_{}+0a", "ab/cd/abcd{}.neff"


@pytest.fixture
def cluster(tmp_path: Path, local_aws: LocalAws) -> Cluster:
    """Its python3 has version 2.21.1 of the compiler."""
    write(
        tmp_path / "site/neuronx_cc-2.21.1.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: neuronx-cc\nVersion: 2.21.1\n",
    )
    return Cluster(tmp_path, {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "site"), **local_aws.variables})


def module(cache: Path, name: int, *, done: bool = True) -> Path:
    folder = cache / XLA.format(name)
    for file in ("model.neff", "model.hlo_module.pb", "compile_flags.json"):
        write(folder / file, f"{file} of {name}")
    return write(folder / "model.done", "").parent if done else folder


def prepared(cluster: Cluster, uri: str, id: str = "next") -> tuple[Path, str]:
    folder = cluster.write([PrepareStep("compiled", {"uri": uri})], id=id)
    for stamp in cluster.trn.glob("neuron_cache/.s3/*/.trn-read"):
        os.utime(stamp, (0, 0))  # it was read long ago
    assert cluster.prepare(folder, "check")[0] == 3
    code, output = cluster.prepare(folder)
    if "could not be read" not in output:
        assert cluster.prepare(folder, "check") == (0, ""), "another job takes what this one has read"
    assert code == 0, output
    return folder, output


def test_what_one_cluster_compiled_another_one_finds(cluster: Cluster, s3: Any, tmp_path: Path) -> None:
    uri, version = f"s3://{BUCKET}/{time.time_ns()}/torch-xla/trn2.48xlarge", "neuronx-cc-2.21.1"
    assert compiled.compiler("python3", cluster.variables) == version
    caches = tmp_path / "neuron_cache/bert"
    for node in (0, 1):
        module(caches / f"node-{node}", 1)  # both have compiled it
        module(caches / f"node-{node}", 2 + node)
    module(caches / "node-0", 7, done=False)
    write(caches / "node-1" / NATIVE.format(5), "neff")
    write(caches / "node-1/ab/cd/.abcd6.tmp", "half of one")
    sent: set[str] = set()
    compiled.send(caches, f"{uri}/{version}", cluster.variables, sent)
    units = {XLA.format(1), XLA.format(2), XLA.format(3), NATIVE.format(5)}
    assert sent == units
    assert {name.rpartition("/")[0] for name in objects(s3, uri) if "MODULE" in name} == {
        f"{version}/{XLA.format(n)}" for n in (1, 2, 3)
    }
    there = objects(s3, uri)
    module(caches / "node-0", 4)
    compiled.send(caches, f"{uri}/{version}", cluster.variables, sent)
    assert len(objects(s3, uri)) == len(there) + 4

    other = Cluster(tmp_path / "other", cluster.variables)
    folder, output = prepared(other, uri)
    assert f"trn: 5 compiled graphs in {uri}/{version}\n" in output
    cache = other.trn / "neuron_cache/bert/node-9"
    own = module(cache, 1)
    (own / "model.neff").write_text("this node's own")
    module(cache, 2, done=False)
    compiled.seed(folder, cache)
    assert {str(one.relative_to(cache)) for one in compiled.units(cache)} == {*units, XLA.format(4)} - {
        XLA.format(2)
    }, "which another job may compile"
    assert (own / "model.neff").read_text() == "this node's own"
    assert content(cache / XLA.format(3)) == content(caches / "node-1" / XLA.format(3))
    assert [one.name for one in cache.rglob(".trn-*")] == [".trn-read"]


def test_another_compiler_finds_nothing_and_touches_nothing(cluster: Cluster, s3: Any, tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/{time.time_ns()}/torch-xla/trn2.48xlarge"
    module(tmp_path / "c/node", 1)
    compiled.send(tmp_path / "c", f"{uri}/neuronx-cc-2.20.0", cluster.variables, set())
    folder, output = prepared(cluster, uri)
    assert f"trn: 0 compiled graphs in {uri}/neuronx-cc-2.21.1\n" in output
    compiled.seed(folder, tmp_path / "cache")
    assert list(compiled.units(tmp_path / "cache")) == []


def test_a_bucket_that_refuses_stops_no_job(cluster: Cluster, tmp_path: Path) -> None:
    folder, output = prepared(cluster, "s3://no-such-bucket-2/x")
    assert "compiled graphs of s3://no-such-bucket-2/x could not be read, so the job compiles: " in output
    compiled.seed(folder, tmp_path / "cache")


def test_a_graph_without_its_last_file_is_not_used(cluster: Cluster, s3: Any, tmp_path: Path) -> None:
    """Its writer was killed, or writes just now."""
    uri = f"s3://{BUCKET}/{time.time_ns()}"
    key = uri.removeprefix(f"s3://{BUCKET}/") + f"/neuronx-cc-2.21.1/{XLA.format(1)}"
    s3.put_object(Bucket=BUCKET, Key=f"{key}/model.neff", Body=b"half")
    folder, _ = prepared(cluster, uri)
    assert list(compiled.units(folder / compiled.LINK)) == []
    s3.put_object(Bucket=BUCKET, Key=f"{key}/model.done", Body=b"")
    again, _ = prepared(cluster, uri, "again")
    assert len(list(compiled.units(again / compiled.LINK))) == 1


def test_jobs_at_once_write_and_read_the_same_address(cluster: Cluster, s3: Any, tmp_path: Path) -> None:
    """Three writers, each with graphs of its own and with common ones, and two readers meanwhile: each graph that is used is whole."""
    uri, version = f"s3://{BUCKET}/{time.time_ns()}", "neuronx-cc-2.21.1"
    wrong: list[str] = []

    def write_all(job: int) -> None:
        for number in (0, 1, 2, 10 * job):
            module(tmp_path / f"{job}/node", number)
        compiled.send(tmp_path / str(job), f"{uri}/{version}", cluster.variables, set())

    def read_all(job: int) -> None:
        folder, _ = prepared(cluster, uri, f"reader-{job}")
        for one in compiled.units(folder / compiled.LINK):
            number = int(one.name.removeprefix("MODULE_").partition("+")[0])
            if (one / "model.neff").read_text() != f"model.neff of {number}":
                wrong.append(str(one))

    threads = [threading.Thread(target=write_all, args=(job,)) for job in (1, 2, 3)]
    threads += [threading.Thread(target=read_all, args=(job,)) for job in (1, 2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    _, output = prepared(cluster, uri, "last")
    assert f"trn: 6 compiled graphs in {uri}/{version}\n" in output
