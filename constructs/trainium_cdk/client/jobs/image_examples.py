"""Folders with a Dockerfile that this package brings, for `trn image build NAME`. Pure but for the look at the folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import ClusterOutputs

EXAMPLES = ("torchneuron", "bert-large", "jax")
"""TorchNeuron with the packages of `finetune`; Neuron's training containers with the packages of `bert-large`, and with Optax and Orbax."""


def how_to_build(cluster: ClusterOutputs) -> str:
    """The command that builds a training image for a cluster."""
    from trainium_cdk.description.catalog import Catalog

    return f"trn image build {Catalog.load().image_example(cluster.neuron_release, cluster.framework)}"


def find(folder: Path) -> Path:
    """A folder to build: the one given or, where there is none, the example of this name, for example torchneuron or
    examples/torchneuron. In a wheel the examples are in this file's folder, in a source tree in examples/.

    Raises:
        TrnError: it is neither a folder nor an example.
    """
    if folder.is_dir():
        return folder
    here = Path(__file__).resolve()
    if folder.name in EXAMPLES and str(folder.parent) in (".", "examples"):
        for place in (here.parent / "examples", here.parents[3] / "examples"):
            if (place / folder.name).is_dir():
                return place / folder.name
    raise TrnError(f"{folder} is not a folder. Name the one with the Dockerfile, or an example: {', '.join(EXAMPLES)}")
