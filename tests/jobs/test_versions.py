"""The versions that a job would meet: a runtime that the driver refuses is refused before anything is sent; AWS's statements are passed on."""

from __future__ import annotations

import pytest

from tests.jobs.conftest import fleet
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import make_cluster as eks
from trainium_cdk.client.jobs.plan import plan, version_notes
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import Cluster
from trainium_cdk.jobs import BertLarge, JobError

TRN1 = fleet()
IMAGES = {v: r.container for v, r in Catalog.load().releases.items() if r.container}
OTHER_232 = "public.ecr.aws/neuron/pytorch-training-neuronx:2.9.0-neuronx-py313-sdk2.32.0-ubuntu24.04"


@pytest.mark.parametrize(
    ("driver", "image", "message"),
    [
        ("2.29.0.0", None, r"driver 2.29.0.0 and runtime 2.30.51.0 are not compatible.*2026-07-07.*eks: \{ami_release"),
        ("2.29.0.0", IMAGES["2.30.0"], r"image is public.*sdk2.30.0.*requires Neuron Runtime Library 2.33 or later"),
        ("2.26.10.0", IMAGES["2.30.0"], r"not backward-compatible with Neuron Driver 2.26 or earlier.*2026-05-21"),
        ("2.26.10.0", OTHER_232, r"driver 2.26.10.0 and runtime 2.34.10.0"),
    ],
)
def test_a_runtime_that_the_driver_refuses(driver: str, image: str | None, message: str) -> None:
    cluster = eks().model_copy(update={"neuron_driver": driver})
    with pytest.raises(JobError, match=message):
        plan(BertLarge(image=image), cluster)


@pytest.mark.parametrize(
    ("cluster", "image"),
    [
        (eks(), None),  # the default: the node image is pinned to a driver that is compatible with the training image
        (eks(), IMAGES["2.30.0"]),
        (eks().model_copy(update={"neuron_driver": "2.29.0.0"}), OTHER_232),
        (eks().model_copy(update={"neuron_driver": "2.29.0.0"}), "111122223333.dkr.ecr.us-east-1.amazonaws.com/own:1"),
        (eks().model_copy(update={"neuron_driver": ""}), None),
        (slurm(), None),
        (slurm(neuron_release="9.9.9"), None),
    ],
)
def test_no_notice(cluster: Cluster, image: str | None) -> None:
    assert version_notes(image, cluster, TRN1) == []


def test_the_default_clusters_output_their_driver() -> None:
    assert slurm().neuron_driver == Catalog.load().release("2.28.1").dkms
    assert eks().neuron_driver == "2.28.0.0"


@pytest.mark.parametrize(
    ("release", "expected"), [("2.30.0", "does not support this"), ("2.29.1", "advises against this")]
)
def test_the_message_of_aws_is_in_the_plan(release: str, expected: str) -> None:
    known = Catalog.load().release(release)
    found = plan(BertLarge(), slurm(neuron_release=release, neuron_driver=known.dkms)).describe()
    [note] = [line for line in found if "AWS" in line]
    assert expected in note
    assert "2026-0" in note
