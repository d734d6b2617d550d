"""Every kind on every engine is started up to its program, and shows what `prepare` fetches: readable golden files of both."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import cases
from conformance.launched import Launched, described, launched
from tests.support import golden
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.jobs import BertLarge, Script, TorchTitan
from trainium_cdk.runner.spec import to_json

GOLDEN = Path(__file__).parent / "golden"
DOCUMENTED = {
    "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "NPROC_PER_NODE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "NEURON_LOGICAL_NC_CONFIG",
    "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "TORCH_NEURONX_NEFF_CACHE_DIR", "NEURON_CC_FLAGS",
}  # fmt: skip
"""Variables that a script may rely on."""
CHECKPOINT = "/efs/trn/jobs/bert-large-t/output/ckpt_10.pt"


def lines(start: Launched) -> list[str]:
    """An option with its values on each line."""
    launcher = ["-m torch.distributed.run", *options(start.launcher)] if start.launcher else []
    command = [f"cd {start.folder}", " ".join(["python3", *launcher[:1]]), *launcher[1:]]
    environment = [f"{name}={value}" for name, value in sorted(start.environment.items())]
    corrected = [f"corrected: {start.corrections}"] if start.corrections else []
    return [*command, *corrected, start.program, *options(start.arguments), *environment]


def options(words: tuple[str, ...]) -> list[str]:
    return [f"  {line}" for line in re.split(r" (?=--[a-z])", shlex.join(words)) if line]


def text(kind: str, engine: str) -> str:
    job = cases.JOBS[kind]
    fetched, train = cases.prepare(engine, job), lines(cases.start(engine, job))
    parts = [*(["# prepare", *fetched, ""] if fetched else []), "# train", *train]
    if job.precompile:
        changed = difflib.unified_diff(train, lines(cases.start(engine, job, "precompile")), n=0)
        parts += ["", "# precompile", *(line for line in changed if not line.startswith(("---", "+++", "@@")))]
    return "\n".join([*parts, ""])


def test_every_kind_has_a_case() -> None:
    assert set(cases.JOBS) == set(kinds())


@pytest.mark.parametrize("engine", cases.ENGINES)
@pytest.mark.parametrize("kind", cases.JOBS)
def test_golden(kind: str, engine: str) -> None:
    found = text(kind, engine)
    assert found == golden(GOLDEN / f"{kind}.{engine}.txt", found)


@pytest.mark.parametrize("engine", cases.ENGINES)
def test_a_restarted_job_starts_from_its_newest_checkpoint(engine: str) -> None:
    first = cases.start(engine, BertLarge(nodes=2))
    again = cases.start(engine, BertLarge(nodes=2), "train", CHECKPOINT)
    assert again.arguments == (*first.arguments, "--resume_ckpt", "--resume_ckpt_path", CHECKPOINT)


@pytest.mark.parametrize("engine", cases.ENGINES)
def test_a_script_has_the_documented_variables(engine: str) -> None:
    """What a program finds on PyTorch/XLA with several tasks, and on TorchNeuron with a launcher and an LNC. Ranks are then the launcher's."""
    several = cases.start(engine, Script(filename="run.sh", content=b"python3 train.py", nodes=2, tasks_per_node=2))
    launched_by = Script(filename="train.py", content=b"1", nodes=2, launcher="torchrun", lnc=1)
    native = cases.cluster(engine, TorchTitan(lnc=1)).model_copy(
        update={"image": cases.IMAGE} if engine == "kubernetes" else {}
    )
    one = launched(launched_by, native)
    assert several.environment.keys() | one.environment.keys() >= DOCUMENTED
    assert several.environment["WORLD_SIZE"] == "4"
    assert (one.environment["NPROC_PER_NODE"], one.environment["NEURON_LOGICAL_NC_CONFIG"]) == ("128", "1")
    assert "--cache_dir=" in several.environment["NEURON_CC_FLAGS"]


def test_a_script_that_fails_is_reported() -> None:
    job = BertLarge(phase=2, checkpoint="/efs/ckpt_1.pt")
    on = cases.cluster("kubernetes", job)
    with pytest.raises(
        RuntimeError,
        match=r"(?s)train of bert-large-t did not run to its end: exit code .*there is no /efs/ckpt_1.pt on the cluster",
    ):
        launched(job, on)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start it as another user")


@as_root
@pytest.mark.parametrize("kind", cases.JOBS)
def test_as_the_pods_user_with_a_root_that_is_read_only(kind: str) -> None:
    """Every kind's containers run up to the program, although the instance metadata service does not answer; where they write, the pod has a
    volume."""
    job = cases.JOBS[kind]
    for stage in ("precompile", "train") if job.precompile else ("train",):
        assert cases.start("kubernetes", job, stage, confined=True) == cases.start("kubernetes", job, stage)


@pytest.mark.parametrize("engine", cases.ENGINES)
@pytest.mark.parametrize("kind", cases.JOBS)
def test_nothing_that_is_sent_asks_the_metadata_service(kind: str, engine: str) -> None:
    """Its address is only in the correction that limits the time for which a vendor's program does."""
    job = cases.JOBS[kind]
    made = described(job, cases.cluster(engine, job)).spec
    sent = {**made.files, "job": json.dumps(to_json(replace(made, files={}))).encode()}
    found = {name for name, content in sent.items() if b"169.254." in content or b"fd00:ec2" in content}
    assert found == ({"limit_metadata.py"} if kind in ("bert-large", "gpt-6.7b") else set())
