"""What `prepare` fetches, small and of this machine: the vendors' repositories, and a cluster's files to run it on."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox import head_node
from sandbox.slurm_packages import SYSTEM_PATH
from tests.support import completed
from trainium_cdk.client.jobs.job_spec import render
from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.description.catalog.sources import sources
from trainium_cdk.description.outputs import ClusterOutputs, SlurmCluster
from trainium_cdk.jobs import Job
from trainium_cdk.runner import layout

MEGATRON = "nemo/collections/nlp/data/language_modeling/megatron"
NEMO = {
    "nemo/__init__.py": "",
    f"{MEGATRON}/Makefile": "default: helpers.so\n\n%.so: %.cpp\n\tcp $< $@\n",
    f"{MEGATRON}/helpers.cpp": "",
}
_BACKEND = '''"""A build back end without dependencies: a wheel with one module, `{name}`."""
import zipfile

def build_wheel(folder, settings=None, metadata=None):
    name = "{name}-0.1-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as archive:
        archive.writestr("{name}.py", "")
        archive.writestr("{name}-0.1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 0.1\\n")
        archive.writestr("{name}-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("{name}-0.1.dist-info/RECORD", "{name}.py,,\\n")
    return name

build_editable = build_wheel
'''
_PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_SETUP = """set -e
packages=$(pip show nemo_toolkit | sed -n 's/^Location: //p')
echo 'patched = True' >> "$packages/nemo/__init__.py"
mkdir "$packages/megatron" && touch "$packages/megatron/__init__.py"
"""
REPOSITORIES: Mapping[str, Mapping[str, str]] = {
    "aws-neuron/aws-neuron-samples": {"README": ""},
    "aws-neuron/neuronx-distributed-training": {"README": ""},
    "aws-neuron/torchtitan-neuron": {
        "requirements.txt": "datasets\n",
        "pyproject.toml": _PROJECT,
        "backend.py": _BACKEND.format(name="torchtitan"),
    },
    "NVIDIA/apex": {"pyproject.toml": _PROJECT, "backend.py": _BACKEND.format(name="apex"), "setup.py": "raise 1"},
    "aws-neuron/deep-learning-containers": {
        "common/apex_setup.py": "",
        "common/nxdt_requirements.txt": "nemo_toolkit==2.1.0\nhuggingface_hub>=0.27.1\npangu\nrequests==2.32.4\n",
        "common/nxdt_install_setup.sh": _SETUP,
    },
}
"""Files of each repository. Of the vendor's scripts they have what they do to an environment."""


CHECK = """import json, sys
sys.path.append(sys.argv[1])
from pathlib import Path
from runner.prepare import main as prepare
from runner import spec
folder, addresses = Path(sys.argv[2]), json.loads(sys.argv[3])
job = spec.from_json(spec.JobSpec, json.loads((folder / "job.json").read_text()))
try:
    prepare.check(folder, job, json.loads((folder / "env.json").read_text()), addresses)
except prepare.NotFetched:
    sys.exit(3)
except prepare.Refused as e:
    print(f"trn: {e}", file=sys.stderr)
    sys.exit(64)
"""
"""What a head node does before `prepare` costs a node."""


@dataclass(frozen=True)
class Site:
    """A cluster's shared file system, the environment of its head node or its image, and what stands for the network.

    Attributes:
        root: a folder of the test's own.
    """

    root: Path

    @classmethod
    def make(cls, root: Path) -> Site:
        root.chmod(0o755)  # pytest's own folders are closed to others
        (root / "bin").mkdir()
        for tool in ("aws", "g++", "python3-config"):
            program = root / "bin" / tool
            program.write_text("#!/bin/sh\nexit 1\n")
            program.chmod(0o755)
        lines = ["[safe]", "\tdirectory = *"]
        for name, files in REPOSITORIES.items():
            for path, text in files.items():
                file = root / "repositories" / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            head_node.make_repository(root / "repositories" / name)
            lines += [f'[url "file://{root}/repositories/{name}"]', f"\tinsteadOf = https://github.com/{name}.git"]
        (root / ".gitconfig").write_text("\n".join([*lines, ""]))
        wheels = head_node.wheels(root / "wheels")
        head_node.wheel(wheels, "nemo-toolkit", "2.1.0", NEMO)
        for name, version in (("pangu", "4.0.6.1"), ("pangu", "6.1.0"), ("requests", "2.32.4")):
            head_node.wheel(wheels, name, version, {})
        head_node.wheel(
            wheels, "huggingface-hub", "0.36.2", {"huggingface_hub.py": head_node.MODULES["huggingface-hub"]}
        )
        for number in range(64):
            shard = root / f"shared/efs/shards/part_training_{number}.hdf5"
            shard.parent.mkdir(parents=True, exist_ok=True)
            shard.touch()
        for folder in ("tokens", "corpus", "llama"):
            (root / "shared/efs" / folder).mkdir()
        made = cls(root)
        venv.EnvBuilder(symlinks=True, with_pip=False).create(made.base)
        (made.packages(made.base) / "pip.pth").write_text(f"{head_node.pip()}\n")
        made.install("torch==2.9.0")
        return made

    @property
    def base(self) -> Path:
        """The environment of the head node; of an image, its Python."""
        return self.root / "home" / head_node.VENV

    @property
    def trn(self) -> Path:
        return self.root / "shared/efs/trn"

    @property
    def environments(self) -> list[str]:
        """Names of the environments on the shared file system."""
        return sorted(p.name for p in (self.trn / "environments").iterdir() if not p.name.startswith("."))

    @staticmethod
    def packages(environment: Path) -> Path:
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)}))

    def install(self, pin: str, files: Mapping[str, str] | None = None) -> None:
        """Install a package into the environment of the head node, or the image."""
        name, _, version = pin.partition("==")
        head_node.wheel(self.root / "wheels", name, version, files or {f"{name.replace('-', '_')}.py": ""})
        with zipfile.ZipFile(self.root / "wheels" / f"{name.replace('-', '_')}-{version}-py3-none-any.whl") as wheel:
            wheel.extractall(self.packages(self.base))

    def submission(self, job: Job, cluster: SlurmCluster, run: str = "t") -> Plan:
        return render(job, cluster, run)

    def start(self, job: Job, cluster: ClusterOutputs, run: str = "t", mode: str = "fetch", **variables: str) -> subprocess.Popen[str]:  # fmt: skip
        """Start `prepare` of a job as its batch script does."""
        sent = self.submission(job, cluster, run)
        directory = self.directory(sent)
        layout.lay_out(directory, sent.spec)
        runner = self.root / "runner.pyz"
        if not runner.exists():  # another one may be reading it
            runner.write_bytes(pyz().content)
        words = [runner, "prepare", directory, directory / "env.json"]
        if mode == "check":
            words = ["-c", CHECK, runner, directory, "{}"]
        command = [sys.executable, "-I", *map(str, words)]
        return subprocess.Popen(
            command, cwd=directory, env={**self.variables(cluster.engine), **variables}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def prepare(self, job: Job, cluster: ClusterOutputs, run: str = "t", mode: str = "fetch", **variables: str) -> tuple[int, str]:  # fmt: skip
        """Exit code and output of `prepare`."""
        with self.start(job, cluster, run, mode, **variables) as process:
            output, _ = process.communicate()
            return process.returncode, output

    def directory(self, sent: Plan) -> Path:
        """The job's directory on the shared file system."""
        return self.root / "shared" / sent.directory.strip("/")

    def versions(self, environment: Path) -> dict[str, str]:
        """The packages that a program sees in an activated environment."""
        show = "from importlib.metadata import distributions as d\nfor x in reversed([*d()]): print(x.metadata['Name'].lower(), x.version)"
        command = f'. "{environment}/bin/activate" && python3 -c "$SHOW"'
        done = completed(["bash", "-c", command], env={**self.variables("slurm"), "SHOW": show}, check=True)
        return dict(line.split() for line in done.stdout.splitlines())

    def variables(self, engine: str) -> dict[str, str]:
        image = f"{self.base}/bin:" if engine == "eks" else ""
        refs = {tree.ref_variable: head_node.REF for tree in sources().repositories.values()}
        return {
            **refs,
            "TRN_TORCHTITAN_REF": head_node.REF,
            "HOME": str(self.root / "home"),
            "PATH": f"{image}{self.root}/bin:{SYSTEM_PATH}",
            "LC_ALL": "C.UTF-8",
            "TRN_SHARED_ROOT": str(self.root / "shared"),
            "GIT_CONFIG_GLOBAL": str(self.root / ".gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.root / "wheels"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
        }
