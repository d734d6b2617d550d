"""What outlives a cluster, on a real Slurm: a training is killed, and another cluster goes on from its checkpoint and its compiled graphs in S3. By S3 alone:
tests/runner/test_keep.py. With the clusters' stacks in two regions: tests/sandbox/test_outlives.py."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.datasets import seed_datasets
from sandbox.slurm import LocalSlurm
from sandbox.training.fakes import compile_cache
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.support import need_slurm, until
from trainium_cdk.jobs import AnyJob, BertLarge, JobStatus, LocalTransport, Script, SlurmBackend
from trainium_cdk.runner.spec import HealthRules

BUCKET = "outlives"
KEEP, CACHE = f"s3://{BUCKET}/runs", f"s3://{BUCKET}/compiled"
JOB = BertLarge(nodes=2, steps=30, name="kept", env={"TRN_SANDBOX_STEP_SECONDS": "0.01"})
HELD = JOB.model_copy(update={"env": {**JOB.env, "TRN_SANDBOX_HOLD": "25:/efs/go-on"}})
"""It stops before step 25: its last checkpoint is that of step 20."""
GRAPHS, COMPILER = 6, compile_cache.COMPILER.partition("-")[2]
OWN = Script(
    filename="own.sh",
    precompile=False,
    content=b"""
shopt -s nullglob
there=("$TRN_CHECKPOINTS"/step-*)
echo "begins after ${there[*]##*/}"
new=$TRN_CHECKPOINTS/step-$((${#there[@]} + 1))
mkdir -p "$new" && echo weights > "$new/weights" && touch "$new/COMPLETE"
[ "${there[*]}" ] || exec sleep 600
""",
)
"""It waits after its first checkpoint."""


@dataclasses.dataclass
class Site:
    """A cluster.

    Attributes:
        shared: its /efs.
    """

    backend: Any
    shared: Path

    def submit(self, job: AnyJob, token: str) -> str:
        """Send a job, whose checkpoints are looked at often."""
        made = self.backend.render(job, token)
        spec = dataclasses.replace(made.spec, health=HealthRules(every=0.4))
        [sent] = self.backend.send(dataclasses.replace(made, spec=spec))
        return str(sent.id)

    def log(self, id: str, stage: str = "train") -> str:
        return b"".join(chunk.data for chunk in self.backend.logs(id, stage=stage)).decode()

    def wait(self, id: str) -> JobStatus:
        done: JobStatus = self.backend.wait(id, 600)
        assert done.ok, (done, self.log(id))
        return done

    def graphs(self, cache: str) -> tuple[int, int]:
        """How many compiled graphs all nodes of a cache have, and how many of these are files that were read from S3: a compiler replaces a file."""
        place = self.shared / "trn/neuron_cache"
        read = {file.stat().st_ino for file in (place / ".s3").rglob("*.neff")}
        there = [file.stat().st_ino in read for file in (place / cache).rglob("*.neff")]
        return len(there), sum(there)

    def checkpoint(self, id: str, step: int) -> bytes:
        return (self.shared / "trn/jobs" / id / f"output/ckpt_{step}.pt").read_bytes()


def killed(site: Site, kill: Callable[[str], Any]) -> tuple[dict[str, str], bytes]:
    """Kill a training of each kind, whose checkpoint is in S3. Returns their addresses there, and what BERT-Large ends with if nobody disturbs it."""
    addresses = {}
    for name, job in {"ckpt_20.pt": HELD, "step-1": OWN}.items():
        id = site.submit(job, "killed")
        assert until(lambda: f"kept: {name} in" in site.log(id)), (site.backend.status(id), site.log(id))  # noqa: B023
        kept = site.backend.status(id, progress=True).kept
        assert kept == f"{name} in {KEEP}/{id}"
        kill(id)
        assert until(lambda: site.backend.status(id).done)  # noqa: B023
        assert site.backend.status(id).state == "CANCELLED"
        addresses[name] = f"{KEEP}/{id}"
    assert site.graphs(JOB.cache_set) == (2 * GRAPHS, 0)
    undisturbed = site.submit(JOB.model_copy(update={"keep": "no", "precompile": False}), "undisturbed")
    site.wait(undisturbed)
    assert "kept:" not in site.log(undisturbed)
    return addresses, site.checkpoint(undisturbed, 30)


def resumed(site: Site, addresses: dict[str, str], expected: bytes) -> None:
    """Another cluster, which has nothing but what is in S3, continues from there, and compiles nothing: neither before the training nor in it."""
    address = addresses["ckpt_20.pt"]
    job = JOB.model_copy(update={"resume_from": address})
    changes: tuple[dict[str, Any], ...] = ({"cache": "before"}, {"cache": "in-it", "precompile": False})
    own = site.submit(OWN.model_copy(update={"resume_from": addresses["step-1"]}), "resumed")
    for id in [site.submit(job.model_copy(update=each), each["cache"]) for each in changes]:
        site.wait(id)
        log, prepare = site.log(id), site.log(id, "prepare")
        assert re.search(rf"fetching {address}/\w+/ckpt_20\.pt", prepare), prepare
        assert f"{GRAPHS} compiled graphs in {CACHE}/torch-xla/trn1.32xlarge/neuronx-cc-{COMPILER}" in prepare
        assert "/ckpt_20.pt at step 20" in log
        assert "Call compiler" not in log
        assert log.count("Using a cached neff") >= GRAPHS
        assert site.checkpoint(id, 30) == expected
        assert f"kept: ckpt_30.pt in {KEEP}/{id}" in log
    for each in changes:
        assert site.graphs(each["cache"]) == (2 * GRAPHS, 2 * GRAPHS)
    site.wait(own)
    assert "begins after step-1\n" in site.log(own)
    assert f"kept: step-2 in {KEEP}/{own}" in site.log(own)


@pytest.fixture(scope="module")
def s3(local_aws: LocalAws) -> Iterator[None]:
    """The bucket, empty before and gone after: the scene on Kubernetes has the same one, maybe in the same local AWS."""
    client = local_aws.client("s3")
    seed_datasets(client)
    client.create_bucket(Bucket=BUCKET)
    yield
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        client.delete_objects(
            Bucket=BUCKET, Delete={"Objects": [{"Key": each["Key"]} for each in page.get("Contents", ())]}
        )
    client.delete_bucket(Bucket=BUCKET)


def site_of(slurm: LocalSlurm) -> Site:
    cluster = make_cluster(fleet(nodes=4), keep=KEEP, cache=CACHE)
    backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))
    return Site(backend, Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs")


@pytest.mark.usefixtures("s3")
def test_a_killed_training_continues_on_another_cluster(local_aws: LocalAws, tmp_path: Path) -> None:
    need_slurm()

    def kill(id: str) -> None:
        slurm.run(["scancel", "--full", "--signal=KILL", site.backend.status(id).current.number])

    with LocalSlurm.start(tmp_path / "one", CONFIGURATION, environment=local_aws.variables) as slurm:
        site = site_of(slurm)
        left = killed(site, kill)
    with LocalSlurm.start(tmp_path / "other", CONFIGURATION, environment=local_aws.variables) as slurm:
        resumed(site_of(slurm), *left)
