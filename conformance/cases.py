"""A job of each kind, on a cluster of each engine that runs it: 4 nodes, as the recorded launch scripts of the vendors have them."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.launched import Cluster, Launched, launched, prepared
from tests.jobs import conftest as slurm
from tests.jobs.kubernetes import conftest as kubernetes
from trainium_cdk.description.catalog import Catalog, NeuronRelease
from trainium_cdk.jobs import AnyJob, BertLarge, Finetune, Gpt, Nccom, Script, TorchTitan

NODES = 4
REF = "0123456789abcdef0123456789abcdef01234567"
ENGINES = ("slurm", "kubernetes")

JOBS: Mapping[str, AnyJob] = {
    "bert-large": BertLarge(nodes=NODES),
    "finetune": Finetune(nodes=2),
    "gpt-6.7b": Gpt(nodes=NODES),
    "nccom": Nccom(nodes=2),
    "script": Script(
        filename="run.sh", content=b'#!/bin/bash\npython3 train.py "$@"\n', nodes=2, args=("--name", "a b")
    ),
    "torchtitan": TorchTitan(nodes=2, ref=REF, preset="qwen3-8b"),
}
"""By kind: what the golden files show."""

MORE: Mapping[str, AnyJob] = {
    "bert-large, AdamW": BertLarge(nodes=NODES, optimizer="adamw"),
    "bert-large, phase 2": BertLarge(nodes=NODES, phase=2, checkpoint="/efs/ckpt_7032.pt"),
    "bert-large, phase 2, AdamW": BertLarge(nodes=NODES, phase=2, checkpoint="/efs/ckpt_28125.pt", optimizer="adamw"),
    "finetune, full": Finetune(nodes=2, method="full", data="/efs/chats", weights="/efs/model", override=("packing",)),
    "torchtitan, llama3.1-8b": TorchTitan(
        nodes=2, ref=REF, preset="llama3.1-8b", assets="/efs/llama", data="/efs/text"
    ),
    "torchtitan, deepseek-v3-16b": TorchTitan(
        nodes=2, ref=REF, preset="deepseek-v3-16b", override=("training.seq_len=4096",)
    ),
    "torchtitan, gpt-oss-20b": TorchTitan(nodes=2, ref=REF, preset="gpt-oss-20b", lnc=1),
    "torchtitan, qwen3-8b-sft": TorchTitan(nodes=2, ref=REF, preset="qwen3-8b-sft", data="/efs/chats"),
}


_SDK = {"finetune": "2.33.0", "torchtitan": "2.33.0"}
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1"


def release(kind: str) -> NeuronRelease:
    """The release of the Neuron SDK on which the kind runs here."""
    return Catalog.load().release(_SDK.get(kind, "2.28.1"))


def cluster(engine: str, job: AnyJob) -> Cluster:
    """16 nodes on which the job runs: trn2.48xlarge for TorchNeuron, else trn1.32xlarge."""
    neuron = release(job.kind)
    instance, changes = "trn1.32xlarge", {"neuron_release": neuron.version, "neuron_driver": neuron.dkms}
    if native := neuron.version == "2.33.0":
        instance, changes = "trn2.48xlarge", {**changes, "framework": "torch-native"}
    if engine == "slurm":
        return slurm.make_cluster(slurm.fleet(instance), **changes)
    image = IMAGE if native else neuron.container
    cores = Catalog.load().instance(instance).logical_cores(job.lnc)
    return kubernetes.make_cluster(kubernetes.fleet(instance, 16, cores=cores), **changes, image=image)


def start(engine: str, job: AnyJob, stage: str = "train", *checkpoints: str, confined: bool = False) -> Launched:
    """The program that the job starts on such a cluster, on which the files that it names exist."""
    return launched(job, cluster(engine, job), stage=stage, files=[*_named(job), *checkpoints], confined=confined)


def prepare(engine: str, job: AnyJob) -> list[str]:
    """What the job fetches on such a cluster: see `prepared`."""
    return prepared(job, cluster(engine, job))


def _named(job: AnyJob) -> list[str]:
    return [value for _, value in job if isinstance(value, str) and value.startswith("/")]
