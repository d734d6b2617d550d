"""`prepare` as rendered, run for real on Slurm: git, pip and virtual environments are the real ones, what they fetch is small
and of this machine."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from sandbox import head_node
from tests.jobs.conftest import fleet
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import make_cluster as eks
from tests.jobs.vendor import Site
from tests.support import swept
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import ClusterOutputs
from trainium_cdk.jobs import BertLarge, Finetune, Gpt, Job, TorchTitan

REF = "0123456789abcdef0123456789abcdef01234567"
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/training:1"
BERT = BertLarge(data="/efs/shards", nodes=2)
GPT = Gpt(data="/efs/corpus", nodes=2)
JOBS: dict[str, Job] = {
    job.kind: job
    for job in (
        BERT,
        GPT,
        TorchTitan(nodes=2, ref=REF, preset="qwen3-8b"),
        Finetune(nodes=2),
    )
}
RELEASES = {"finetune": "2.33.0", "torchtitan": "2.33.0"}
ENGINES = ["slurm"]


def cluster(engine: str, kind: str = "bert-large") -> ClusterOutputs:
    """One that the kind runs on."""
    release = Catalog.load().release(RELEASES.get(kind, "2.28.1"))
    native = release.version == "2.33.0"
    facts = {
        "neuron_release": release.version,
        "neuron_driver": release.dkms,
        "framework": "torch-native" if native else "torch-xla",
    }
    nodes = fleet("trn2.48xlarge" if native else "trn1.32xlarge")
    if engine == "eks":
        return eks(nodes.model_copy(update={"queue": "trn"}), image=release.container or IMAGE, **facts)
    return slurm(nodes, os="ubuntu2404", **facts)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site.make(tmp_path)


def recorded(site: Site, job: Job, on: ClusterOutputs, run: str = "t") -> Path:
    """The environment that the job's nodes activate."""
    name = (site.directory(site.submission(job, on, run)) / "environment").read_text().strip()
    return site.trn / "environments" / name


@pytest.mark.parametrize(
    ("kind", "engine"),
    swept(product(JOBS, ENGINES), *product(JOBS, ENGINES)),
)
def test_every_kind_gets_its_packages_on_every_engine(kind: str, engine: str, site: Site) -> None:
    job, on = JOBS[kind], cluster(engine, kind)
    code, output = site.prepare(job, on)
    assert code == 0, output
    there = site.versions(recorded(site, job, on))
    assert job.PACKAGES
    wanted = [pin.split("==") for pin in job.PACKAGES.requirements(job, on) if "==" in pin]
    assert {name.partition("[")[0]: version for name, version in wanted}.items() <= there.items()
    assert there["torch"] == "2.9.0"
    assert ("nemo-toolkit" in there, "apex" in there) == (kind == "gpt-6.7b",) * 2
    assert there.get("pangu") == ("4.0.6.1" if kind == "gpt-6.7b" else None)  # NeMo does not import with the newest
    assert ("torchtitan" in there) == kind.startswith("torchtitan")
    # what is there is found, and nothing is fetched again
    code, output = site.prepare(job, on, "u", mode="check")
    assert (code, "fetching" in output) == (0, False), output
    assert recorded(site, job, on, "u") == recorded(site, job, on)


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_a_model_is_fetched_although_training_is_offline(engine: str, site: Site) -> None:
    on = cluster(engine)
    code, output = site.prepare(BERT, on)
    assert code == 0, output
    assert sorted(f.name for f in site.trn.glob("hf_cache/hub/*/snapshots/*/*")) == ["config.json", "pytorch_model.bin"]


HUB = """import os
def snapshot_download(*_, **__):
    os.makedirs(os.environ["HF_HOME"] + "/hub/models--bert-large-uncased")
    raise SystemExit(len(os.environ.get("HF_TOKEN", "")) != 14)
"""


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_variables_of_the_job_reach_prepare_and_are_not_shown(engine: str, site: Site) -> None:
    """A fake of the hub that takes gated models from those who have the token."""
    head_node.wheel(site.root / "wheels", "huggingface-hub", "0.24.5", {"huggingface_hub.py": HUB})
    job = BERT.model_copy(update={"env": {"HF_TOKEN": "hf_s3cret it's", "HTTPS_PROXY": "http://proxy:3128"}})
    code, output = site.prepare(job, cluster(engine))
    assert code == 0, output
    assert "s3cret" not in output
    shown = {f.name for f in site.trn.rglob("*") if f.is_file() and b"s3cret" in f.read_bytes()}
    assert shown <= {"env.json"}
