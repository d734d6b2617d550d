"""The vendor's own BERT script at the pinned commit, as `trn submit bert-large` runs it: prepare, precompile, train, a restart after a
checkpoint, and phase 2 from the checkpoint of phase 1, on a real Slurm and a real Kubernetes with two nodes of one worker each.

On the CPU, PyTorch/XLA does not join processes into one world: each worker trains alone, as rank 0 of 1, on the same shards.
The rendezvous of the nodes is real; sums over workers are not checked here.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from conformance import pods, vendor
from conformance.hub import hub
from conformance.upstream import NotAvailable, Tree, find
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.kubernetes import status
from trainium_cdk.description.catalog.sources import sources
from trainium_cdk.jobs import Backend, BertLarge, LocalTransport, SlurmBackend, Submitted, read_log
from trainium_cdk.runner.readers import Step

TREE = sources().repositories["samples"]
REPOSITORY = "aws-neuron/aws-neuron-samples"
FOLDER = str(PurePosixPath(BertLarge.UPSTREAM.path).parent) if BertLarge.UPSTREAM else ""
ORIGINAL = f"{REPOSITORY} {TREE.commit[:12]}"
WORKERS = 2
CONFIGURATION = {
    "Scheduling": {
        "Scheduler": "slurm",
        "SlurmQueues": [
            {
                "Name": "compute1",
                "JobExclusiveAllocation": True,
                "ComputeResources": [{"Name": "trn", "InstanceType": "trn1.32xlarge", "MinCount": 0, "MaxCount": 2}],
            }
        ],
    },
    "SharedStorage": [{"Name": "efs", "StorageType": "Efs", "MountDir": "/efs"}],
}

HANGS = 1800
"""Seconds: only a hang takes this long."""


@dataclass(frozen=True)
class Site:
    """Two nodes of an engine, with one worker each.

    Attributes:
        shared: the folder that is /efs there.
        interrupt: ends a running `train` as a lost node does, so that it starts again.
        stages: of a job whose files `prepare` has already fetched.
    """

    backend: Backend[Any]
    shared: Path
    interrupt: Callable[[Submitted], object]
    stages: list[str]

    def log(self, id: str, stage: str = "train") -> str:
        return b"".join(chunk.data for chunk in self.backend.logs(id, stage=stage)).decode()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, f"not in {HANGS} s"
        time.sleep(0.2)


@contextmanager
def on_slurm(folder: Path, samples: Tree, hub: str) -> Iterator[Site]:
    if (reason := available()) is not None:
        raise NotAvailable(reason)
    vendor.repositories(folder, {TREE.url: (samples, FOLDER)})
    environment = vendor.variables(folder / "gitconfig", hub)
    with LocalSlurm.start(folder / "slurm", CONFIGURATION, environment=environment) as slurm:
        vendor.install(Path(slurm.node_env()["HOME"]))
        cluster = make_cluster(fleet("trn1.32xlarge", nodes=2, devices=1, cores=1), neuron_release="2.28.1")
        yield Site(
            SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.5)),
            Path(slurm.node_env()["TRN_SHARED_ROOT"], "efs"),
            lambda job: slurm.run(["scontrol", "requeue", job.stages["train"]]),
            ["precompile", "train"],
        )


@contextmanager
def on_kubernetes(folder: Path, samples: Tree, hub: str) -> Iterator[Site]:
    with pods.started(folder / "kubernetes", {TREE.url: (samples, FOLDER)}, hub) as (backend, shared):

        def interrupt(job: Submitted) -> None:
            victim = next(pod["metadata"] for pod in backend.seen(job.id).pods if status.index(pod) == 1)
            backend.api.delete("Pod", victim["name"], uid=victim["uid"])

        yield Site(backend, shared, interrupt, ["prepare", "precompile", "train"])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(on, marks=pytest.mark.original(f"bert-large on {name}, 2 nodes", ORIGINAL))
        for name, on in (("slurm", on_slurm), ("kubernetes", on_kubernetes))
    ],
)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    samples = find(REPOSITORY, TREE.commit)
    vendor.need()
    with socket.socket() as probe:  # the port of the rendezvous is the job's own
        if probe.connect_ex(("127.0.0.1", 2022)) == 0:
            raise NotAvailable("port 2022 is in use on this machine")
    folder = tmp_path_factory.mktemp("vendor")
    vendor.run(Path(__file__).with_name("tiny_bert.py"), str(folder))
    with hub(folder / "models") as address, request.param(folder, samples, address) as running:
        for name in ("shards128", "shards512"):
            shutil.copytree(folder / name, running.shared / name)
        yield running


def job(**fields: Any) -> BertLarge:
    """Nine steps; three in each shard, which has a checkpoint at its end."""
    return BertLarge(
        nodes=2, batch_size=4, accumulation=4, steps=20, run_steps=9, warmup_steps=2, data="/efs/shards128",
        precompile=False, **fields,
    )  # fmt: skip


def interrupted(site: Site, job: BertLarge, end: Callable[[Submitted], object]) -> Submitted:
    """A job whose training is ended after its first checkpoint, in the third shard."""
    files = sorted((site.shared / "shards128").iterdir())
    random.Random(0).shuffle(files)  # noqa: S311  the script's own order
    held, aside = files[2], site.shared / "aside"
    held.rename(aside)
    os.mkfifo(held)  # reading it blocks
    first = site.backend.submit(job)

    def checkpoints_written() -> bool:
        status = site.backend.status(first.id)
        assert not status.done, "\n".join(site.log(first.id, s.name)[-6000:] for s in status.stages)
        return status.state == "RUNNING" and site.log(first.id).count("Checkpointing done") >= WORKERS

    logs = site.shared / "trn/jobs" / first.id / "logs"

    def starts() -> int:
        return sum(file.read_text().count("trn: Neuron driver") for file in logs.glob("train*.log"))

    until(checkpoints_written)
    before = starts()
    end(first)
    # its programs have time to save their state, in which they could finish these few steps
    until(lambda: starts() > before or site.backend.status(first.id).done)
    held.unlink()
    aside.rename(held)
    return first


def steps(text: str) -> dict[int, tuple[float | None, float | None]]:
    """Loss and learning rate of each step, as last logged."""
    records = [record for record in read_log(text.encode()) if isinstance(record, Step)]
    return {record.step or 0: (record.loss, record.learning_rate) for record in records}


@pytest.mark.timeout(3 * HANGS)
@pytest.mark.shown("three stages, a restart, phase 2")
def test_the_script_trains_and_goes_on_from_its_checkpoints(site: Site) -> None:
    backend, shared = site.backend, site.shared
    first = interrupted(site, job(), site.interrupt)
    assert list(first.stages) == ["prepare", "train"]
    ended = backend.wait(first.id, HANGS)
    text = "".join(file.read_text() for file in sorted((shared / "trn/jobs" / first.id / "logs").glob("train.*.log")))
    assert ended.ok, text[-6000:]
    resumed = {int(step) for step in re.findall(r"resuming from checkpoint \S+/ckpt_(\d+)\.pt at step \1\b", text)}
    assert len(resumed) == 1
    (at,) = resumed
    assert 3 <= at < 9
    output = shared / "trn" / "jobs" / first.id / "output"
    assert (output / "ckpt_9.pt").exists()
    assert list(output.glob("neuron_tblogs_*/events.out.tfevents.*"))
    assert_metrics(text, 1, 9)
    assert_metrics(text.rpartition("resuming from checkpoint")[2], at + 1, 9)
    cache = shared / "trn/hf_cache/hub/models--bert-large-uncased/snapshots"
    assert sorted(file.name for file in cache.glob("*/*")) == ["config.json", "pytorch_model.bin"]

    second = BertLarge(
        nodes=2, phase=2, checkpoint=first.id, batch_size=2, accumulation=4, steps=20, run_steps=3, warmup_steps=2,
        data="/efs/shards512",
    )  # fmt: skip
    second_id = backend.submit(second).id
    ended = backend.wait(second_id, HANGS)
    assert ended.ok, site.log(second_id, "precompile")[-3000:] + site.log(second_id)[-6000:]
    assert [stage.name for stage in ended.stages] == site.stages
    text = site.log(second_id)
    assert len(re.findall(r"resuming from checkpoint \S+/ckpt_9\.pt at step 9\b", text)) == WORKERS
    assert_metrics(text, 1, 3)
    assert "step_loss" not in site.log(second_id, "precompile")
    assert (shared / "trn" / "jobs" / second_id / "output" / "ckpt_12.pt").exists()


@pytest.mark.timeout(3 * HANGS)
@pytest.mark.shown("jobs that go on from another job's checkpoints, in both phases")
def test_another_job_goes_on_from_its_checkpoints(site: Site) -> None:
    """The first one is cancelled; its other steps are those of one that was not. In phase 2, which is compiled first, those after its checkpoint."""
    backend, shared = site.backend, site.shared

    def run(job: BertLarge) -> tuple[str, str]:
        id = backend.submit(job).id
        ended = backend.wait(id, HANGS)
        assert ended.ok, "\n".join(site.log(id, s.name)[-6000:] for s in ended.stages)
        return id, site.log(id)

    first = interrupted(site, job(), lambda sent: backend.cancel(sent.id)).id
    until(lambda: backend.status(first).done)
    shutil.copytree(shared / "shards128", shared / "of-this-cluster/shards128")
    here = {"data": "/efs/of-this-cluster/shards128"}
    whole, log = run(job(cache="whole").model_copy(update=here))
    id, text = run(job(resume_from=first, cache="other").model_copy(update=here))
    read = re.findall(r"working on shard (\S+)", text)
    assert read
    assert all("/of-this-cluster/shards128/" in shard for shard in read)
    begin = re.findall(r"resuming from checkpoint \S+/ckpt_(\d+)\.pt at step \1\b", text)
    assert len(begin) == WORKERS
    assert steps(text) == {step: found for step, found in steps(log).items() if step > int(begin[0])}
    ends = [str(shared / "trn/jobs" / one / "output/ckpt_9.pt") for one in (whole, id)]
    vendor.run(Path(__file__).with_name("same_checkpoint.py"), *ends)
    assert not (shared / "trn/jobs" / first / "output/ckpt_9.pt").exists()

    def phase_2(run_steps: int, **fields: Any) -> BertLarge:
        return BertLarge(
            nodes=2, phase=2, batch_size=2, accumulation=4, steps=20, run_steps=run_steps, warmup_steps=2, data="/efs/shards512", **fields
        )  # fmt: skip

    earlier, _ = run(phase_2(3, checkpoint=whole))
    shutil.copytree(shared / "trn/jobs" / earlier / "output", shared / "run7")
    id, text = run(phase_2(5, checkpoint="/efs/of-another-cluster/ckpt_9.pt", resume_from="/efs/run7"))
    assert len(re.findall(r"resuming from checkpoint \S+/ckpt_12\.pt at step 12\b", text)) == WORKERS
    assert_metrics(text, 4, 5)
    assert "at step 12" in site.log(id, "precompile")  # which begins there with step 0, and takes steps
    assert (shared / "trn/jobs" / id / "output/ckpt_14.pt").exists()


@pytest.mark.timeout(3 * HANGS)
@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(name, marks=pytest.mark.shown(f"a restart with {name} equals no restart"))
        for name in ("lamb", "adamw")
    ],
)
def test_a_restart_equals_a_training_that_was_not_interrupted(site: Site, optimizer: Any) -> None:
    """To the last bit: weights, the optimizer's state and its types, learning rate, loss of each step, and the place in the data."""
    first = interrupted(site, job(optimizer=optimizer), site.interrupt)
    whole = site.backend.submit(job(optimizer=optimizer, cache=f"whole-{optimizer}"))  # one job at a time uses a cache
    logs = []
    for id in (first.id, whole.id):
        assert site.backend.wait(id, HANGS).ok, site.log(id)[-6000:]
        files = sorted((site.shared / "trn/jobs" / id / "logs").glob("train.*.log"))
        logs.append("".join(file.read_text() for file in files))
    assert len(re.findall("resuming from checkpoint", logs[0])) == WORKERS
    assert "resuming from checkpoint" not in logs[1]
    assert steps(logs[0]) == steps(logs[1])
    ends = [str(site.shared / "trn/jobs" / id / "output/ckpt_9.pt") for id in (first.id, whole.id)]
    vendor.run(Path(__file__).with_name("same_checkpoint.py"), *ends)


def assert_metrics(text: str, first: int, last: int) -> None:
    """Each step is logged once by each worker, with its metrics."""
    records = [record for record in read_log(text.encode()) if isinstance(record, Step)]
    assert {record.step for record in records} == set(range(first, last + 1))
    for record in records:
        assert record.loss is not None
        assert math.isfinite(record.loss)
        assert record.throughput
        assert record.learning_rate is not None
