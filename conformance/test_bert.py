"""The vendor's own BERT script at the pinned commit, as `trn submit bert-large` runs it: prepare, precompile, train, a requeue after a
checkpoint, and phase 2 from the checkpoint of phase 1, on a real Slurm with two nodes of one worker each.

On the CPU, PyTorch/XLA does not join processes into one world: each worker trains alone, as rank 0 of 1, on the same shards.
The rendezvous of the nodes is real; sums over workers are not checked here.
"""

from __future__ import annotations

import math
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from conformance import vendor
from conformance.hub import hub
from conformance.upstream import NotAvailable, Tree, find
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.catalog.sources import sources
from trainium_cdk.jobs import BertLarge, Follower, LocalTransport, SlurmBackend
from trainium_cdk.jobs.records import Step

TREE = sources().repositories["samples"]
REPOSITORY = "aws-neuron/aws-neuron-samples"
FOLDER = str(PurePosixPath(BertLarge.UPSTREAM.path).parent) if BertLarge.UPSTREAM else ""
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


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, f"not in {HANGS} s"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def samples() -> Tree:
    tree = find(REPOSITORY, TREE.commit)
    vendor.need()
    with socket.socket() as probe:  # the port of the rendezvous is the job's own
        if probe.connect_ex(("127.0.0.1", 2022)) == 0:
            raise NotAvailable("port 2022 is in use on this machine")
    return tree


@pytest.fixture(scope="module")
def slurm(samples: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    folder = tmp_path_factory.mktemp("vendor")
    vendor.run(Path(__file__).with_name("tiny_bert.py"), str(folder))
    with hub(folder / "models") as address:
        environment = vendor.environment(folder, {TREE.url: (samples, FOLDER)}, address)
        with LocalSlurm.start(folder / "slurm", CONFIGURATION, environment=environment) as running:
            vendor.install(Path(running.node_env()["HOME"]))
            for name in ("shards128", "shards512"):
                (folder / name).rename(Path(running.node_env()["TRN_SHARED_ROOT"], "efs", name))
            yield running


@pytest.fixture(scope="module")
def backend(slurm: LocalSlurm) -> SlurmBackend:
    cluster = make_cluster(fleet("trn1.32xlarge", nodes=2, devices=1, cores=1), neuron_release="2.28.1")
    return SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.5))


def log(backend: SlurmBackend, id: str, stage: str = "train") -> str:
    return b"".join(chunk.data for chunk in backend.logs(id, stage=stage)).decode()


@pytest.mark.timeout(3 * HANGS)
@pytest.mark.original("bert-large on 2 nodes: three stages, requeue, phase 2", f"{REPOSITORY} {TREE.commit[:12]}")
def test_the_script_trains_and_goes_on_from_its_checkpoints(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    shared = Path(slurm.node_env()["TRN_SHARED_ROOT"], "efs")
    files = sorted((shared / "shards128").iterdir())
    random.Random(0).shuffle(files)  # noqa: S311  the script's own order
    held, aside = files[2], shared / "aside"
    held.rename(aside)
    os.mkfifo(held)  # reading it blocks: training stops after the first checkpoint
    job = BertLarge(
        nodes=2, batch_size=4, accumulation=4, steps=20, run_steps=9, warmup_steps=2, data="/efs/shards128",
        precompile=False,
    )  # fmt: skip
    first = backend.submit(job)
    assert list(first.stages) == ["prepare", "train"]

    def checkpoints_written() -> bool:
        status = backend.status(first.id)
        assert not status.done, "\n".join(log(backend, first.id, s.name)[-6000:] for s in status.stages)
        return status.state == "RUNNING" and log(backend, first.id).count("Checkpointing done") >= WORKERS

    until(checkpoints_written)
    held.unlink()
    aside.rename(held)
    slurm.run(["scontrol", "requeue", first.stages["train"]])
    ended = backend.wait(first.id, HANGS)
    text = log(backend, first.id)
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

    second = BertLarge(
        nodes=2, phase=2, checkpoint=first.id, batch_size=2, accumulation=4, steps=20, run_steps=3, warmup_steps=2,
        data="/efs/shards512",
    )  # fmt: skip
    second_id = backend.submit(second).id
    ended = backend.wait(second_id, HANGS)
    assert ended.ok, log(backend, second_id, "precompile")[-3000:] + log(backend, second_id)[-6000:]
    assert [stage.name for stage in ended.stages] == ["precompile", "train"]
    text = log(backend, second_id)
    assert len(re.findall(r"resuming from checkpoint \S+/ckpt_9\.pt at step 9\b", text)) == WORKERS
    assert_metrics(text, 1, 3)
    assert "step_loss" not in log(backend, second_id, "precompile")
    assert (shared / "trn" / "jobs" / second_id / "output" / "ckpt_12.pt").exists()


def assert_metrics(text: str, first: int, last: int) -> None:
    """Each step is logged once by each worker, with its metrics."""
    records = [record for record in Follower().feed(text.encode()) if isinstance(record, Step)]
    assert {record.step for record in records} == set(range(first, last + 1))
    for record in records:
        assert record.loss is not None
        assert math.isfinite(record.loss)
        assert record.throughput
        assert record.learning_rate is not None


@pytest.mark.original("bert-large: Hugging Face files that prepare downloads", f"{REPOSITORY} {TREE.commit[:12]}")
def test_only_the_named_files_of_the_model_are_fetched(slurm: LocalSlurm, backend: SlurmBackend) -> None:
    cache = Path(slurm.node_env()["TRN_SHARED_ROOT"], "efs/trn/hf_cache/hub/models--bert-large-uncased/snapshots")
    assert sorted(file.name for file in cache.glob("*/*")) == ["config.json", "pytorch_model.bin"]
