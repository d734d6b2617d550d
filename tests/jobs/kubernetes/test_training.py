"""BERT-Large from a submission to its checkpoints, on virtual nodes: data fetched, graphs compiled, parameters trained."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from sandbox import LocalAws
from sandbox.datasets import seed_datasets
from tests.jobs.kubernetes.conftest import Running, text
from tests.support import until
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, status
from trainium_cdk.jobs import BertLarge, JobLog, JobStatus, SubmitError, job_log

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module", autouse=True)
def data(local_aws: LocalAws) -> None:
    seed_datasets(local_aws.client("s3"))


def figures(backend: KubernetesBackend, id: str, stage: str) -> JobLog:
    reader = job_log()
    for chunk in backend.logs(id, stage=stage):
        reader.feed(stage, chunk.data)
    reader.close()
    return reader


def test_bert_large_from_scratch(backend: KubernetesBackend, running: Running) -> None:
    """prepare on the system node, then the gang of two: precompile, then train."""
    job = BertLarge(nodes=2, steps=6, name="bert")
    sent = backend.submit(job, "first")
    assert list(sent.stages) == ["prepare", "precompile", "train"]
    seen: list[JobStatus] = []
    done = backend.wait(sent.id, 600, seen.append)
    assert done.ok, (done, text(backend.logs(sent.id)))
    for now in seen:  # it is not in its queue before all has been fetched
        if now.stages[0].state != "COMPLETED":
            assert (now.stages[2].state, now.stages[2].nodes) == ("PENDING", "")
    prepare, _, train = done.stages
    assert len(train.nodes.split(",")) == 2
    assert prepare.nodes not in train.nodes.split(",")
    compiled = figures(backend, sent.id, "precompile").compiled
    assert compiled["failed"] == 0
    assert compiled["graphs"] > 0
    trained = figures(backend, sent.id, "train")
    assert trained.last is not None
    assert trained.last.step == 6
    assert trained.first_loss is not None
    assert trained.last.loss is not None
    assert trained.last.loss < trained.first_loss
    home = running.shared / "trn"
    assert (home / "jobs" / sent.id / "output" / "ckpt_6.pt").exists()
    caches = sorted(c.name for c in (home / "neuron_cache" / "bert-large").iterdir())
    assert caches == ["node-0", "node-1"]

    # the same again finds data, code, packages and graphs where they are
    again = backend.wait(backend.submit(job, "second").id, 600)
    assert again.ok, again
    assert "everything is already fetched" in text(backend.logs(again.id, stage="prepare"))
    # another job goes on from its checkpoint, as of a folder that was copied to this cluster; no other kind does
    assert again.checkpoints == f"/efs/trn/jobs/{again.id}/output"
    shutil.copytree(home / "jobs" / again.id / "output", running.shared / "run7")
    more = job.model_copy(update={"steps": 9, "precompile": False, "resume_from": "/efs/run7"})
    other = backend.wait(backend.submit(more, "third").id, 600)
    assert other.ok, text(backend.logs(other.id))
    assert "/ckpt_6.pt at step 6" in text(backend.logs(other.id, stage="train"))
    assert (home / "jobs" / other.id / "output" / "ckpt_9.pt").exists()
    assert not (running.shared / "run7/ckpt_9.pt").exists()
    for fields, why in (
        ({"optimizer": "adamw"}, "a job with optimizer lamb, and this job has optimizer adamw"),
        ({"phase": 2, "checkpoint": "/efs/ckpt_6.pt"}, "a job with phase 1, and this job has phase 2"),
    ):
        wrong = BertLarge(nodes=2, resume_from=again.id, **fields)
        with pytest.raises(SubmitError, match=f"was not submitted to .*: {again.id} has checkpoints of {why}"):
            backend.submit(wrong, "fourth")
    [environment] = (link for link in (home / "environments").iterdir() if link.is_symlink())
    assert json.loads((environment / "trn-environment.json").read_text())["kind"] == "bert-large"


@pytest.mark.sweep
def test_a_failed_gang_resumes_from_its_checkpoint(backend: KubernetesBackend, running: Running) -> None:
    go_on = running.shared / "go-on"  # a pod has a /tmp of its own
    job = BertLarge(nodes=2, steps=40, name="resume", env={"TRN_SANDBOX_HOLD": "30:/efs/go-on"}, precompile=False)
    sent = backend.submit(job, "r")
    output = running.shared / "trn/jobs" / sent.id / "output"
    assert until(lambda: list(output.glob("ckpt_*.pt")))
    victim = next(p["metadata"] for p in backend.seen(sent.id).pods if status.index(p) == 1)
    backend.api.delete("Pod", victim["name"], uid=victim["uid"])
    assert until(lambda: backend.seen(sent.id).job["status"]["restarts"])
    go_on.touch()
    done = backend.wait(sent.id, 600)
    assert done.ok, done
    assert backend.seen(sent.id).job["status"]["restarts"] >= 1
    kept = (running.shared / "trn/jobs" / sent.id / "logs/train.0.log").read_text()
    resumed = [int(step) for step in re.findall(r"resuming from checkpoint \S*/ckpt_\d+\.pt at step (\d+)", kept)]
    last = figures(backend, sent.id, "train").last
    assert last is not None
    assert len(resumed) == 1
    assert 0 < resumed[0] < last.step == 40


@pytest.mark.sweep
def test_a_failed_compilation_stops_the_job(backend: KubernetesBackend) -> None:
    job = BertLarge(nodes=2, steps=6, name="graph", cache="graph", env={"TRN_SANDBOX_FAIL": "precompile"})
    done = backend.wait(backend.submit(job, "g").id, 600)
    assert [s.state for s in done.stages] == ["COMPLETED", "FAILED", "CANCELLED"]
    assert done.stages[1].reason == "did not compile: see its log"
    assert backend.seen(done.id).job["status"]["restarts"] == 0
