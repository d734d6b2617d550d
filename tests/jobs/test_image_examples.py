"""The example images: found without a clone, pinned, the same versions as the catalogue, and without secrets or root."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sandbox.paths import HOME as ROOT
from tests.bootstrap.test_scripts import FOLDER as BOOTSTRAP
from trainium_cdk import outputs, settings
from trainium_cdk.client.jobs import images
from trainium_cdk.client.jobs.images import EXAMPLES, find_example
from trainium_cdk.client.jobs.kinds import finetune
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description.catalog import Catalog, driver_fits
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs import Finetune, JobError, Script

CATALOG = Catalog.load()
TORCHNEURON = ROOT / "examples/torchneuron"
INSTRUCTIONS = {"ARG", "FROM", "SHELL", "RUN", "COPY", "ENV", "USER", "WORKDIR", "HEALTHCHECK"}


def instructions(folder: Path) -> list[tuple[str, str]]:
    """A Dockerfile's instructions, with continued lines joined, as Docker reads it: a comment may stand among them."""
    lines = [line for line in (folder / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def arguments(folder: Path) -> dict[str, str]:
    return dict(rest.split("=", 1) for word, rest in instructions(folder) if word == "ARG")


def requirements(folder: Path) -> list[str]:
    lines = (folder / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_pinned_and_is_not_run_as_root(name: str) -> None:
    folder = ROOT / "examples" / name
    found, given = instructions(folder), arguments(folder)
    assert {word for word, _ in found} <= INSTRUCTIONS
    [base] = [rest for word, rest in found if word == "FROM"]
    image = re.sub(r"\$\{(\w+)\}", lambda each: given[each[1]], base)
    assert re.fullmatch(r"[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", image) or image in CATALOG.images
    for line in requirements(folder):
        [pin] = Requirement(line).specifier
        assert pin.operator == "==", line
    assert not [rest for word, rest in found if re.search(r"(?i)secret|password|token|_KEY_ID", rest)]
    [user] = [rest for word, rest in found if word == "USER"]
    assert user == "10001:10001"
    assert found[-1] == ("HEALTHCHECK", "NONE")


def test_torchneuron_has_the_versions_of_its_release() -> None:
    [release] = [r for r in CATALOG.releases.values() if any(f.image_example for f in r.frameworks.values())]
    framework, given = release.frameworks["torch-native"], arguments(TORCHNEURON)
    assert framework.image_example == TORCHNEURON.name
    assert (given["RUNTIME"], given["COLLECTIVES"], given["TOOLS"]) == (
        release.runtime, release.collectives, release.tools,
    )  # fmt: skip
    repositories = CATALOG.repositories
    assert given["NEURON_APT"] == str(repositories.apt).rstrip("/")
    assert given["NEURON_KEY"] == str(repositories.key)
    assert given["NEURON_PIP"] == str(repositories.pip).rstrip("/")
    assert (given["EFA_URL"], given["EFA_INSTALLER"]) == (str(repositories.efa).rstrip("/"), CATALOG.efa_installer)
    settings = (BOOTSTRAP / "lib/settings.sh").read_text()
    assert f"[TRN_NEURON_KEY_FINGERPRINT]={given['NEURON_FINGERPRINT']}\n" in settings
    assert f"[TRN_EFA_KEY_FINGERPRINT]={given['EFA_FINGERPRINT']}\n" in settings
    assert "3.14" in framework.pythons  # of Ubuntu 26.04
    lines = requirements(TORCHNEURON)
    own = [f"{framework.package}=={framework.version}.*", f"neuronx-cc=={release.compiler}.*", *framework.requires]
    torch = "torch==" + ".".join([*framework.version.split(".")[:2], "0"])
    assert lines == [torch, *own, *finetune.PACKAGES.pins]


def test_jax_stays_at_the_version_of_the_plug_in_in_its_image() -> None:
    folder = ROOT / "examples/jax"
    image = arguments(folder)["RELEASE"]
    release = CATALOG.release(CATALOG.sdk_of(image))
    assert CATALOG.container(release, "jax") == image
    pins = release.frameworks["jax"].requires
    assert [line for line in requirements(folder) if line.startswith("jax==")] == [
        p for p in pins if p.startswith("jax==")
    ]
    [newer] = [r for r in CATALOG.releases.values() if "jax" in r.frameworks and r.frameworks["jax"].image_example]
    assert newer.frameworks["jax"].image_example == folder.name
    assert driver_fits(CATALOG, newer.dkms, release.version)


def test_every_package_of_aws_has_its_version() -> None:
    runs = " ".join(rest for word, rest in instructions(TORCHNEURON) if word == "RUN")
    assert set(re.findall(r"aws-neuronx-[a-z-]+", runs)) == {
        *re.findall(r'"(aws-neuronx-[a-z-]+)=\$\{[A-Z]+\}\*"', runs)
    }
    assert re.findall(r"pip install (?:--no-cache-dir --no-input )(\S+ ?\S*)", runs) == [
        "--requirement /opt/requirements.txt", '"awscli==${AWSCLI}" ',
    ]  # fmt: skip
    assert "signed-by=" in runs
    assert not re.search(r"trusted=yes|allow-unauthenticated|--insecure|curl -k|--no-check", runs)


@pytest.mark.parametrize("name", ["torchneuron", "examples/torchneuron", "examples/bert-large", "examples/jax"])
def test_an_example_is_found_from_anywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find_example(Path(name))
    assert found == ROOT / "examples" / Path(name).name
    assert images.pack(found).files == 3
    own = tmp_path / name
    own.mkdir(parents=True)
    assert find_example(Path(name)) == Path(name)


@pytest.mark.parametrize("name", ["torch", "other/torchneuron", "/torchneuron"])
def test_what_is_no_folder_and_no_example_is_refused(name: str) -> None:
    with pytest.raises(TrnError, match=r"is not a folder\. Name the one with the Dockerfile, or an example: torchn"):
        find_example(Path(name))


OWN = "111122223333.dkr.ecr.us-east-2.amazonaws.com/trn@sha256:" + "0" * 64
"""As `trn image build` prints it."""


def cluster(framework: str) -> EksCluster:
    """The cluster that an environment describes, before it is deployed."""
    text = f"region: us-east-2\nbootstrap: {{framework: {framework}}}\neks: {{node_groups: [{{instance_type: trn2.48xlarge}}]}}"
    exported = outputs.eks_outputs(settings.parse(text), bucket="not-deployed")
    made = outputs.parse("TrnEksStack", "us-east-2", {key: value for key, (value, _) in exported.items()})
    assert isinstance(made, EksCluster)
    return made


def test_what_the_message_says_to_build_is_accepted() -> None:
    native = cluster("torch-native")
    assert native.neuron_driver == CATALOG.release("2.33.0").dkms
    with pytest.raises(JobError, match=r"\(trn image build torchneuron\), and give the name that it prints as --image"):
        plan(Finetune(), native)
    for job in (Finetune(image=OWN), Finetune(image=OWN.replace("@sha256:" + "0" * 64, ":src-0123456789abcdef"))):
        assert plan(job, native).job.image == job.image


def test_jobs_of_jax_have_the_image_of_aws_and_a_release_without_one_has_the_example() -> None:
    jax = cluster("jax")
    assert (jax.neuron_release, jax.image) == ("2.32.0", CATALOG.container(CATALOG.release("2.32.0"), "jax"))
    assert plan(Script(filename="train.py", content=b"import jax"), jax).framework == "jax"
    with pytest.raises(JobError, match="finetune needs framework torch-native, but the nodes of TrnEksStack have jax"):
        plan(Finetune(), jax)
    with pytest.raises(JobError, match=r"which has jax, but finetune needs torch-native"):
        plan(Finetune(image=jax.image), cluster("torch-native"))
    with pytest.raises(JobError, match=r"2\.33\.0 for training. Build one \(trn image build jax\)"):
        plan(Script(filename="train.py", content=b"import jax"), cluster("jax, neuron_release: 2.33.0"))


def test_an_image_with_torchneuron_does_not_run_on_nodes_for_torch_xla() -> None:
    xla = cluster("torch-xla")
    assert xla.neuron_driver != CATALOG.release("2.33.0").dkms
    with pytest.raises(
        JobError, match=r"finetune runs with Neuron SDK 2\.33\.0, whose runtime .* is for driver 2\.31\.7\.0, but"
    ):
        plan(Finetune(image=OWN), xla)
