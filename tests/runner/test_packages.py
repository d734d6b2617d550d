"""Environments of kinds' packages, made for real: git, pip and virtual environments are the real ones; what they fetch is small and of this
machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from sandbox import head_node
from sandbox.processes import wait_until
from tests.jobs.conftest import fleet
from tests.jobs.conftest import make_cluster as make_slurm
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.jobs.vendor import MEGATRON, NEMO, Site
from tests.runner.preparing import Cluster
from tests.support import ROOT, completed, swept
from trainium_cdk.client.jobs import fetching
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.sources import SourceTree, sources
from trainium_cdk.description.outputs import ClusterOutputs
from trainium_cdk.jobs import BertLarge, Finetune, Gpt, Job, TorchTitan
from trainium_cdk.runner import layer
from trainium_cdk.runner.prepare import activate
from trainium_cdk.runner.spec import PrepareStep

IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/training:1"
ENGINES = ["slurm", "eks"]
SENT = {"nxd_training.py": (ROOT / "constructs/trainium_cdk/client/jobs/sent/nxd_training.py").read_bytes()}
JOBS: dict[str, Job] = {
    job.kind: job for job in (BertLarge(), Gpt(), TorchTitan(ref="0" * 40, preset="qwen3-8b"), Finetune())
}


def on(engine: str, kind: str = "bert-large") -> ClusterOutputs:
    native = kind in ("finetune", "torchtitan")
    release = Catalog.load().release("2.33.0" if native else "2.28.1")
    facts = {
        "neuron_release": release.version,
        "neuron_driver": release.dkms,
        "framework": "torch-native" if native else "torch-xla",
    }
    nodes = fleet("trn2.48xlarge" if native else "trn1.32xlarge")
    if engine == "eks":
        return make_eks(nodes.model_copy(update={"queue": "trn"}), image=release.container or IMAGE, **facts)
    return make_slurm(nodes, os="ubuntu2404", **facts)


def steps(job: Job, cluster: ClusterOutputs, variables: Mapping[str, str] | None = None) -> tuple[PrepareStep, ...]:
    """The packages of a kind, as the kinds ask for them."""
    packages = job.PACKAGES
    assert packages
    versions = packages.requirements(job, cluster)
    given = (job.kind, packages, versions, cluster, job.image)
    if isinstance(job, Gpt):
        trees = sources().repositories
        made = [fetching.source(n, trees[n], {}, ("apex", "megatron", "nemo")) for n in ("containers", "apex")]
        tools = fetching.tools(("g++", "make", "python3-config"), "Install it, or use an image that has it")
        found = fetching.packages(*given, program="nxd_training.py", words=[one.place for one in made])
        return (*tools, *(step for one in made for step in one.steps), *found)
    if isinstance(job, TorchTitan):
        tree = SourceTree("https://github.com/aws-neuron/torchtitan-neuron.git", str(job.ref), "TRN_TORCHTITAN_REF")
        source = fetching.source("torchtitan", tree, {})
        more = ("-r", (*source.place, "/requirements.txt"), "-e", source.place)
        return (*source.steps, *fetching.packages(*given, *more))
    return fetching.packages(*given)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site.make(tmp_path)


@pytest.mark.parametrize(
    ("kind", "engine"),
    swept(product(JOBS, ENGINES), *((kind, ENGINES[at % 2]) for at, kind in enumerate(JOBS)), ("gpt-6.7b", "eks")),
)
def test_every_kind_gets_its_packages_on_every_engine(kind: str, engine: str, site: Site) -> None:
    job, cluster, facts = JOBS[kind], Cluster.of(site, engine), on(engine, kind)
    folder = cluster.write(steps(job, facts), files=SENT)
    assert cluster.prepare(folder, "check")[0] == 3
    code, output = cluster.prepare(folder)
    assert code == 0, output
    there = site.versions(cluster.environment(folder))
    assert job.PACKAGES
    wanted = [pin.split("==") for pin in job.PACKAGES.requirements(job, facts) if "==" in pin]
    assert {name.partition("[")[0]: version for name, version in wanted}.items() <= there.items()
    assert there["torch"] == "2.9.0"
    assert ("nemo-toolkit" in there, "apex" in there) == (kind == "gpt-6.7b",) * 2
    assert there.get("pangu") == ("4.0.6.1" if kind == "gpt-6.7b" else None)  # NeMo does not import with the newest
    assert ("torchtitan" in there) == kind.startswith("torchtitan")
    # what is there is found, and nothing is fetched again
    again = cluster.write(steps(job, facts), "run-2", files=SENT)
    code, output = cluster.prepare(again, "check")
    assert (code, "fetching" in output) == (0, False), output
    assert cluster.environment(again) == cluster.environment(folder)


def test_kinds_keep_their_own_packages(site: Site) -> None:
    """In turn on one cluster, whose own environment has another version of one of them."""
    cluster, facts = Cluster.of(site, "slurm"), on("slurm")
    site.install("transformers==4.52.3")
    before = site.versions(site.base)
    own = PrepareStep(
        "packages",
        {"kind": "own", "base": "", "index": "", "words": ("transformers==5.23.0", "huggingface-hub==1.33.0")},
    )
    bert = steps(JOBS["bert-large"], facts)
    folders = [cluster.write(given, f"run-{n}") for n, given in enumerate((bert, (own,), bert))]
    for folder in folders:
        code, output = cluster.prepare(folder)
        assert code == 0, output
    first, other, again = map(cluster.environment, folders)
    assert (again, len(site.environments)) == (first, 2)
    found = [site.versions(e) for e in (first, other)]
    assert [(v["transformers"], v["huggingface-hub"]) for v in found] == [("4.44.0", "0.24.5"), ("5.23.0", "1.33.0")]
    assert "neuronx-distributed" not in found[0]
    assert site.versions(site.base) == before


def test_a_changed_cluster_or_image_gives_another_environment(site: Site) -> None:
    cluster, given = Cluster.of(site, "slurm"), steps(JOBS["bert-large"], on("slurm"))
    first = cluster.write(given)
    assert cluster.prepare(first)[0] == 0
    made = cluster.environment(first)
    before = sorted((p, p.stat().st_mtime_ns) for p in made.resolve().rglob("*"))
    site.install("neuronx-cc==2.23")
    second = cluster.write(given, "run-2")
    assert cluster.prepare(second)[0] == 0
    assert cluster.environment(second) != made
    assert cluster.environment(first) == made  # a restart of the first job
    assert sorted((p, p.stat().st_mtime_ns) for p in made.resolve().rglob("*")) == before


def test_two_jobs_at_the_same_time_make_one_environment(site: Site) -> None:
    cluster, given = Cluster.of(site, "slurm"), steps(JOBS["bert-large"], on("slurm"))
    folders = [cluster.write(given, f"run-{n}") for n in range(3)]
    running = [cluster.start(folder) for folder in folders]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], outputs
    assert sum("installing packages as" in output for output in outputs) == 1
    assert len(set(map(cluster.environment, folders))) == 1


def test_an_interrupted_one_is_made_again(site: Site) -> None:
    cluster, given = Cluster.of(site, "eks"), steps(JOBS["bert-large"], on("eks"))
    place = site.trn / "environments"
    with cluster.start(cluster.write(given)) as process:
        wait_until(lambda: any(place.glob(".*/constraints.txt")), 60)
        os.killpg(process.pid, signal.SIGKILL)
    assert site.environments == []
    again = cluster.write(given, "run-2")
    assert cluster.prepare(again, "check")[0] == 3
    code, output = cluster.prepare(again)
    assert code == 0, output
    assert len(site.environments) == 1
    assert len([*place.glob(".*.*")]) == 1  # nothing is left of the first attempt
    assert site.versions(cluster.environment(again))["transformers"] == "4.44.0"


LAUNCHER = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, sys.argv[-1]]))\n"


def test_workers_see_the_packages_and_programs_of_both(site: Site) -> None:
    """As in PyTorch, the launcher starts the workers with the Python that it runs in itself."""
    launcher = {"torch/__init__.py": "", "torch/distributed/__init__.py": "", "torch/distributed/run.py": LAUNCHER}
    site.install("torch==2.9.0", launcher)
    for place, text in ((site.base, "below"), (site.root / "elsewhere", "not this one")):
        (place / "bin").mkdir(parents=True, exist_ok=True)
        (place / "bin/neuron_parallel_compile").write_text(f"#!/bin/sh\necho {text}\n")
        (place / "bin/neuron_parallel_compile").chmod(0o755)
    cluster = Cluster.of(site, "slurm")
    folder = cluster.write(steps(JOBS["bert-large"], on("slurm")))
    assert cluster.prepare(folder)[0] == 0
    (site.root / "train.py").write_text("import torch, transformers, huggingface_hub\nprint('both')\n")
    given = site.variables("slurm")
    variables = activate(cluster.environment(folder), {**given, "PATH": f"{given['PATH']}:{site.root}/elsewhere/bin"})
    for words, said in (
        (["python3", "-m", "torch.distributed.run", str(site.root / "train.py")], "both\n"),
        (["neuron_parallel_compile"], "below\n"),
        (["pip", "--version"], "pip "),
    ):
        done = completed(["env", *words], env=variables)  # found by the variables' PATH
        assert (done.returncode, done.stdout[: len(said)]) == (0, said), done.stderr


def test_time_and_size_are_shown(site: Site) -> None:
    cluster = Cluster.of(site, "slurm")
    _, output = cluster.prepare(cluster.write(steps(JOBS["bert-large"], on("slurm"))))
    assert f"for bert-large, on {site.base.resolve()}: h5py==3.15.1 huggingface-hub==0.24.5" in output
    [ready] = [line for line in output.splitlines() if "are ready: " in line]
    assert [word for word in ready.split() if word in ("MB", "s")] == ["MB", "s"]


def test_the_framework_is_never_replaced(site: Site) -> None:
    head_node.wheel(site.root / "wheels", "tensorboard", "2.21.0", {}, ["torch==2.14.1"])
    head_node.wheel(site.root / "wheels", "torch", "2.14.1", {})
    cluster = Cluster.of(site, "eks")
    code, output = cluster.prepare(cluster.write(steps(JOBS["bert-large"], on("eks"))))
    assert code == 75
    assert "The user requested (constraint) torch==2.9.0" in output
    assert "trn: the packages of bert-large could not be installed: see what pip says above\n" in output
    assert site.environments == []


def test_in_a_vendors_image_only_the_helper_is_compiled(site: Site) -> None:
    """The image has NeMo where pods may not write; its copy in the environment is the one that is imported."""
    for pin in (
        "apex==0.1",
        "megatron==0.10.0",
        "neuronx-distributed==0.17.26814",
        "neuronx-distributed-training==1.7.0",
    ):
        site.install(pin)
    site.install("nemo-toolkit==2.1.0", NEMO)
    cluster = Cluster.of(site, "eks")
    folder = cluster.write(steps(JOBS["gpt-6.7b"], on("eks")), files=SENT)
    code, output = cluster.prepare(folder)
    assert code == 0, output
    assert "deep-learning-containers" not in output
    packages = site.packages(cluster.environment(folder).resolve())
    assert (packages / MEGATRON / "helpers.so").exists()
    assert not (site.packages(site.base) / MEGATRON / "helpers.so").exists()
    where = f'import nemo, subprocess as s; print(nemo.__file__); s.run(["make", "-q", "-C", nemo.__path__[0] + "/../{MEGATRON}"], check=True)'
    done = completed(
        ["env", "python3", "-c", where], env=activate(packages.parents[2], site.variables("eks")), check=True
    )
    assert done.stdout == f"{packages}/nemo/__init__.py\n"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            "image",
            "has no neuronx_distributed neuronx_distributed_training. Use an image or a Neuron release that has it",
        ),
        ("tools", "there is no g++ here. Install it, or use an image that has it"),
    ],
)
def test_what_is_missing_is_refused_before_anything_is_installed(made: str, message: str, site: Site) -> None:
    job = JOBS["gpt-6.7b"].model_copy(update={"image": IMAGE})
    if made == "tools":
        (site.root / "bin/g++").unlink()
    cluster = Cluster.of(site, "eks")
    path = f"{site.base}/bin:{site.root}/bin:{os.pathsep.join(str(Path(p).parent) for p in ('/usr/bin/git',))}"
    cluster.variables = {**cluster.variables, "PATH": path} if made == "image" else _only(site, path)
    for mode in ("check", "fetch"):
        code, output = cluster.prepare(cluster.write(steps(job, on("eks")), files=SENT), mode)
        if mode == "check" and made == "image":
            continue  # the sources come first
        assert (code, "installing packages as" in output) == (64, False), output
        assert message in output


def _only(site: Site, path: str) -> dict[str, str]:
    """Variables of a node on which no other folder has programs."""
    return {**site.variables("eks"), "PATH": path.rpartition(":")[0]}


def test_a_mirror_of_the_cluster_is_used(site: Site) -> None:
    """pip.conf of the cluster's environment, as the bootstrap writes it, or of the image."""
    (site.base / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {site.root}/mirror\n")
    (site.root / "wheels").rename(site.root / "mirror")
    cluster = Cluster.of(site, "eks")
    folder = cluster.write(steps(JOBS["bert-large"], on("eks")))
    cluster.variables = {**cluster.variables, "PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "folder": "x", "words": "y"}
    code, output = cluster.prepare(folder)
    assert code == 0, output


def test_a_node_still_boots_after_a_job(site: Site) -> None:
    """With bootstrap.pip_packages: a node that starts compares them with what is in the shared environment."""
    site.install("transformers==4.52.3")
    boots = f'. "{ROOT}/bootstrap/lib/framework.sh"; as_user() {{ "$@"; }}; framework_complete "$@"'
    command = ["bash", "-c", boots, "node", str(site.base), "torch==2.9.0", "transformers==4.52.3"]
    cluster = Cluster.of(site, "slurm")
    subprocess.run(command, check=True)
    assert cluster.prepare(cluster.write(steps(JOBS["bert-large"], on("slurm"))))[0] == 0
    subprocess.run(command, check=True)


def test_a_cluster_without_its_environment_says_so(site: Site) -> None:
    cluster = Cluster.of(site, "slurm")
    cluster.venv = "/no/such/venv"
    code, output = cluster.prepare(cluster.write(steps(JOBS["bert-large"], on("slurm"))))
    assert (code, output.count("\n")) == (64, 1)
    assert "there is no /no/such/venv/bin/python3: the head node's bootstrap has not finished, or failed" in output


def test_an_environment_on_debians_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own scheme for packages is not that of the virtual environments that it makes."""
    schemes: dict[str, dict[str, str]] = vars(sysconfig)["_INSTALL_SCHEMES"]
    local = schemes["posix_prefix"] | {"purelib": "{base}/local/lib/python{py_version_short}/dist-packages"}
    monkeypatch.setitem(schemes, "posix_local", local)
    monkeypatch.setattr(sysconfig.get_path, "__defaults__", ("posix_local", None, True))
    venv.create(tmp_path)
    layer.lay(str(tmp_path), "https://example.com")
    subprocess.run([tmp_path / "bin/python", "-c", "import pydantic"], check=True)  # of the Python below
