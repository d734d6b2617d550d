"""`prepare` as rendered, run for real on both engines: git, pip and virtual environments are the real ones, what they fetch is small
and of this machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox import head_node
from sandbox.slurm_packages import SYSTEM_PATH
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import make_cluster as eks
from trainium_cdk.jobs import BertLarge, Job, render
from trainium_cdk.jobs.kubernetes import render as render_for_kubernetes

ENGINES = ["slurm", "eks"]
BERT = BertLarge(data="/efs/shards", nodes=2)


@dataclass(frozen=True)
class Site:
    """A cluster's shared file system, the environment of its head node or image, and what stands for the network."""

    root: Path

    @property
    def trn(self) -> Path:
        return self.root / "shared/efs/trn"

    def files(self, engine: str, job: Job, token: str) -> dict[str, bytes]:
        if engine == "slurm":
            return dict(render(job, slurm(neuron_release="2.28.1"), token).files)
        cluster = eks(neuron_release="2.28.1")
        return dict(render_for_kubernetes(job, cluster, token).files)

    def prepare(self, engine: str, job: Job, token: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `prepare` of a job, as its batch script or its pod does."""
        name = f"{job.label}-{token}"
        here = self.trn / "jobs" / name if engine == "slurm" else self.root / "files" / name
        (self.trn / "jobs" / name / "state").mkdir(parents=True, exist_ok=True)
        here.mkdir(parents=True, exist_ok=True)
        for path, content in self.files(engine, job, token).items():
            (here / path).parent.mkdir(exist_ok=True)
            (here / path).write_bytes(content.replace(b"files=/trn/job\n", f"files={here}\n".encode()))
        command = ["prepare.sh", str(here), "fetch"] if engine == "slurm" else ["node.sh", "prepare"]
        return subprocess.run(
            ["bash", *command], cwd=here, env={**self.variables(engine), **variables}, capture_output=True, text=True, check=False
        )  # fmt: skip

    def variables(self, engine: str) -> dict[str, str]:
        image = f"{self.root}/home/{head_node.VENV}/bin:" if engine == "eks" else ""
        return {
            "HOME": str(self.root / "home"),
            "PATH": f"{image}{self.root}/bin:{SYSTEM_PATH}",
            "LC_ALL": "C.UTF-8",
            "TRN_SHARED_ROOT": str(self.root / "shared"),
            "TRN_SAMPLES_REF": head_node.REF,
            "GIT_CONFIG_GLOBAL": str(self.root / ".gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.root / "wheels"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "bin").mkdir()
    aws = tmp_path / "bin/aws"
    aws.write_text("#!/bin/sh\nexit 1\n")
    aws.chmod(0o755)
    head_node.virtual_environment(tmp_path / "home" / head_node.VENV)
    head_node.git_config(tmp_path, head_node.repositories(tmp_path / "repositories"))
    head_node.wheels(tmp_path / "wheels")
    shards = tmp_path / "shared/efs/shards"
    shards.mkdir(parents=True)
    for number in range(64):
        (shards / f"part_training_{number}.hdf5").touch()
    return Site(tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_is_fetched_although_training_is_offline(engine: str, site: Site) -> None:
    done = site.prepare(engine, BERT, "t")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(f.name for f in site.trn.glob("hf_cache/hub/*/snapshots/*/*")) == ["config.json", "pytorch_model.bin"]
    node = site.files(engine, BERT, "t")["node.sh"].decode()
    assert "export HF_HUB_OFFLINE=1\n" in node


@pytest.mark.parametrize("engine", ENGINES)
def test_variables_of_the_job_reach_prepare_and_are_not_shown(engine: str, site: Site) -> None:
    """A fake of the hub that takes gated models from those who have the token."""
    hub = next((site.root / "wheels").glob("huggingface_hub-*.whl"))
    head_node.wheel(hub, "import os, sys\ndef snapshot_download(*_, **__):\n    os.makedirs(os.environ['HF_HOME'] + '/hub/models--bert-large-uncased')\n    raise SystemExit(len(os.environ.get('HF_TOKEN', '')) != 14)\n")  # fmt: skip
    job = BERT.model_copy(update={"env": {"HF_TOKEN": "hf_s3cret it's", "HTTPS_PROXY": "http://proxy:3128"}})
    done = site.prepare(engine, job, "t")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    shown = [f for f in site.trn.rglob("*") if f.is_file() and b"s3cret" in f.read_bytes()]
    assert {f.name for f in shown} <= {"node.sh", "prepare.sh"}
