"""`prepare` as rendered, run for real on Slurm: git, pip and virtual environments are the real ones, what they fetch is small
and of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from itertools import product
from pathlib import Path

import pytest

from sandbox import head_node
from sandbox.processes import wait_until
from tests.jobs.conftest import fleet
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import make_cluster as eks
from tests.jobs.vendor import Site
from tests.support import ROOT, completed, swept
from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs import BertLarge, Finetune, Gpt, Job, Script, TorchTitan
from trainium_cdk.outputs import ClusterOutputs

REF = "0123456789abcdef0123456789abcdef01234567"
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/training:1"
BERT = BertLarge(data="/efs/shards", nodes=2)
GPT = Gpt(data="/efs/corpus", nodes=2)
OWN = Script(
    filename="a.sh", content=b"true", nodes=2, requirements=("transformers==5.23.0", "huggingface-hub==1.33.0")
)
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
def test_kinds_keep_their_own_packages(engine: str, site: Site) -> None:
    """In turn on one cluster, whose own environment has another version of one of them."""
    on = cluster(engine)
    site.install("transformers==4.52.3")
    before = site.versions(site.base)
    for token, job in (("t", BERT), ("t", OWN), ("u", BERT)):
        code, output = site.prepare(job, on, token)
        assert code == 0, output
    bert, own, again = (recorded(site, j, on, t) for j, t in ((BERT, "t"), (OWN, "t"), (BERT, "u")))
    assert (again, len(site.environments)) == (bert, 2)
    found = [site.versions(e) for e in (bert, own)]
    assert [(v["transformers"], v["huggingface-hub"]) for v in found] == [("4.44.0", "0.24.5"), ("5.23.0", "1.33.0")]
    assert "neuronx-distributed" not in found[0]
    assert site.versions(site.base) == before


def test_a_node_still_boots_after_a_job(site: Site) -> None:
    """With bootstrap.pip_packages: a node that starts compares them with what is in the shared environment."""
    site.install("transformers==4.52.3")
    boots = f'. "{ROOT}/bootstrap/lib/framework.sh"; as_user() {{ "$@"; }}; framework_complete "$@"'
    command = ["bash", "-c", boots, "node", str(site.base), "torch==2.9.0", "transformers==4.52.3"]
    for _ in range(2):
        subprocess.run(command, check=True)
        assert site.prepare(BERT, cluster("slurm"))[0] == 0


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_a_changed_cluster_or_image_gives_another_environment(engine: str, site: Site) -> None:
    on = cluster(engine)
    assert site.prepare(BERT, on)[0] == 0
    first = recorded(site, BERT, on)
    before = sorted((p, p.stat().st_mtime_ns) for p in first.resolve().rglob("*"))
    site.install("neuronx-cc==2.23")
    assert site.prepare(BERT, on, "u")[0] == 0
    assert recorded(site, BERT, on, "u") != first
    assert recorded(site, BERT, on) == first  # a restart of the first job
    assert sorted((p, p.stat().st_mtime_ns) for p in first.resolve().rglob("*")) == before


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_two_jobs_at_the_same_time_make_one_environment(engine: str, site: Site) -> None:
    on = cluster(engine)
    running = [site.start(BERT, on, token) for token in ("t", "u", "v")]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], outputs
    assert sum("making environment" in output for output in outputs) == 1
    assert len({recorded(site, BERT, on, token) for token in ("t", "u", "v")}) == 1


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_an_interrupted_one_is_made_again(engine: str, site: Site) -> None:
    on = cluster(engine)
    place = site.trn / "environments"
    with site.start(BERT, on) as process:
        wait_until(lambda: any(place.glob(".*/constraints.txt")), 60)
        os.killpg(process.pid, signal.SIGKILL)
    assert site.environments == []
    if engine == "slurm":
        assert site.prepare(BERT, on, mode="check")[0] == 3
    code, output = site.prepare(BERT, on, "u")
    assert code == 0, output
    assert len(site.environments) == 1
    assert len([*place.glob(".*.????????")]) == 1  # nothing is left of the first attempt
    assert site.versions(recorded(site, BERT, on, "u"))["transformers"] == "4.44.0"


LAUNCHER = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, sys.argv[-1]]))\n"


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_workers_see_the_packages_of_both(engine: str, site: Site) -> None:
    """As in PyTorch, the launcher starts the workers with the Python that it runs in itself."""
    launcher = {"torch/__init__.py": "", "torch/distributed/__init__.py": "", "torch/distributed/run.py": LAUNCHER}
    site.install("torch==2.9.0", launcher)
    on = cluster(engine)
    assert site.prepare(BERT, on)[0] == 0
    (site.root / "train.py").write_text("import torch, transformers, huggingface_hub\nprint('both')\n")
    command = f'. "{recorded(site, BERT, on)}/bin/activate"; python3 -m torch.distributed.run "$0"'
    run = ["bash", "-c", command, str(site.root / "train.py")]
    done = completed(run, env=site.variables(engine))
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_time_and_size_are_shown(engine: str, site: Site) -> None:
    _, output = site.prepare(BERT, cluster(engine))
    assert "of bert-large, on " in output
    assert "h5py==3.15.1 huggingface-hub==0.24.5" in output
    [ready] = [line for line in output.splitlines() if "is ready: " in line]
    assert [word for word in ready.split() if word in ("MB", "s")] == ["MB", "s"]


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_the_framework_is_never_replaced(engine: str, site: Site) -> None:
    head_node.wheel(site.root / "wheels", "tensorboard", "2.21.0", {}, ["torch==2.14.1"])
    head_node.wheel(site.root / "wheels", "torch", "2.14.1", {})
    code, output = site.prepare(BERT, cluster(engine))
    assert code != 0
    assert "The user requested (constraint) torch==2.9.0" in output
    assert site.environments == []


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_a_mirror_of_the_cluster_is_used(engine: str, site: Site) -> None:
    """pip.conf of the cluster's environment, as the bootstrap writes it, or of the image."""
    (site.base / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {site.root}/mirror\n")
    (site.root / "wheels").rename(site.root / "mirror")
    on = cluster(engine)
    code, output = site.prepare(BERT, on, PIP_NO_INDEX="", PIP_FIND_LINKS="")
    assert code == 0, output


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
    assert shown <= {"node.sh", "prepare.sh", "env.json"}
