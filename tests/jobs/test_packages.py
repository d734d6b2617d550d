"""What a kind's programs import, against what a cluster or an image has: refused before anything is submitted, or said before it runs."""

from __future__ import annotations

import pytest

from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.kubernetes import conftest as eks
from trainium_cdk.client.jobs import packages
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description.outputs import ClusterOutputs
from trainium_cdk.jobs import BertLarge, Finetune, Gpt, Job, JobError

IMAGES = "public.ecr.aws/neuron/pytorch-training-neuronx"
NEW = f"{IMAGES}:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04"
OLD = f"{IMAGES}:2.8.0-neuronx-py311-sdk2.26.1-ubuntu22.04"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Gpt(image=NEW), r"gpt-6\.7b runs with Neuron SDK releases .* before 2\.29\.0, but image .* has 2\.30\.0\. Use another image"),
        (BertLarge(image=OLD), r"bert-large runs with .* from 2\.28\.0, but image .* has 2\.26\.1\. Use another image"),
    ],
)  # fmt: skip
def test_an_image_of_another_release_is_refused(job: Job, message: str) -> None:
    with pytest.raises(JobError, match=message):
        plan(job, eks.make_cluster())


@pytest.mark.parametrize(
    "image", [OLD.replace("2.26.1", "2.28.7"), "111122223333.dkr.ecr.us-east-1.amazonaws.com/own:2.30.0"]
)
def test_an_image_that_fits_or_is_not_known_is_taken(image: str) -> None:
    assert plan(Gpt(image=image), eks.make_cluster()).job.image == image


@pytest.mark.parametrize(
    ("on", "where", "fix"),
    [
        (make_cluster(), "TrnPclusterStack", "Deploy with `bootstrap: {framework: torch-xla, neuron_release: 2.28.1}`"),
        (eks.make_cluster(), "the image public.ecr.aws/neuron/", "Use another image"),
    ],
)
def test_packages_without_wheels_for_the_python_are_refused(
    on: ClusterOutputs, where: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.check(BertLarge(), on)
    monkeypatch.setattr(packages, "python_on", lambda *_: "3.13")
    with pytest.raises(JobError) as raised:
        packages.check(BertLarge(), on)
    assert f"the packages of bert-large have wheels for Python 3.10, 3.11 and 3.12, and {where}" in str(raised.value)
    assert str(raised.value).endswith(f"has Python 3.13. {fix}")


@pytest.mark.parametrize(
    ("release", "os", "python"),
    [("2.28.1", "ubuntu2404", "3.12"), ("2.28.1", "ubuntu2204", "3.10"), ("2.26.1", "ubuntu2404", ""), ("9.0.0", "ubuntu2404", "")],
)  # fmt: skip
def test_the_python_of_a_cluster(release: str, os: str, python: str) -> None:
    assert packages.python_on(None, make_cluster(neuron_release=release, os=os)) == python
    assert packages.python_on(OLD, eks.make_cluster()) == "3.11"
    assert packages.python_on("own:1", eks.make_cluster()) == ""


def test_a_release_without_the_libraries_is_refused() -> None:
    with pytest.raises(
        JobError,
        match=r"needs neuronx_distributed_training, which Neuron SDK 2\.30\.0 .* Deploy with `bootstrap: {framework: torch-xla, neuron_release: 2\.28\.1}`$",
    ):
        packages.check(Gpt(), make_cluster(neuron_release="2.30.0"))


def test_the_plan_says_what_is_installed_on_what_and_how_much() -> None:
    native = {"neuron_release": "2.33.0", "neuron_driver": "2.31.7.0", "framework": "torch-native"}
    lines = plan(Finetune(), make_cluster(fleet("trn2.48xlarge"), **native)).describe()
    [line] = [line for line in lines if line.startswith("own packages")]
    assert line.startswith(
        "own packages, on top of Neuron SDK 2.33.0 with Python 3.12: accelerate==1.15.0, datasets==4.7.0, "
    )
    assert line.endswith("(installed once in /efs, about 420 MB)")
    [line] = [line for line in plan(Gpt(), eks.make_cluster()).describe() if line.startswith("own packages")]
    assert line.startswith("own packages, on top of the image with Python 3.12: neuronx_distributed==0.17.26814, ")
    assert (
        "NeMo 2.1.0, Apex 25.07 and what the vendor's training image has with them (installed once in /efs, about 1,200 MB"
        in line
    )
