"""Whether a job's Neuron runtime goes with the driver of its nodes, by the catalogue's rule; and what AWS says of the versions. Pure."""

from __future__ import annotations

from trainium_cdk.catalog import Catalog, Stack, judge
from trainium_cdk.catalog.stack import FrameworkChoice
from trainium_cdk.jobs.errors import JobError
from trainium_cdk.outputs import Cluster, Fleet

_FRAMEWORKS: dict[str, FrameworkChoice] = {"torch-xla": "torch-xla", "torch-native": "torch-native"}
_DEPLOYED = "deployed"


def notes(image: str | None, cluster: Cluster, fleet: Fleet, catalog: Catalog | None = None) -> list[str]:
    """What a user should know of the versions that a job would meet; empty where there is nothing.

    An image, a release or a driver that the catalogue does not know is not judged.

    Args:
        image: the container image that the job names, if any.

    Raises:
        JobError: the runtime in the image does not go with the nodes' driver.
    """
    known = catalog or Catalog.load()
    release = known.releases.get(cluster.neuron_release)
    if release is None:
        return []
    used = (image or cluster.image) if cluster.engine == "eks" else None
    runtime = known.runtime_of(used) if used else release.runtime
    if runtime and cluster.neuron_driver:
        verdict = judge(known, _stack(cluster, fleet, "none", runtime))
        if verdict.part == "ami" and not verdict:
            raise JobError(
                f"{f'image is {used}' if used else f'Neuron is {release.version}'}, but {verdict.reason}. Use an image with another runtime, or deploy "
                f"{cluster.stack} with another `eks: {{ami_release: ...}}`"
            )
    if image or cluster.framework not in _FRAMEWORKS:
        return []  # the image brings a framework of its own
    verdict = judge(known, _stack(cluster, fleet, _FRAMEWORKS[cluster.framework], runtime or release.runtime))
    if verdict.words is None:
        return []
    what = "AWS does not support this" if verdict.level == "unsupported" else "AWS advises against this"
    return [f"Neuron {cluster.neuron_release} with {cluster.framework}: {what}: {verdict.words}"]


def _stack(cluster: Cluster, fleet: Fleet, framework: FrameworkChoice, runtime: str) -> Stack:
    return Stack(
        cluster.engine,
        (fleet.family,),
        cluster.neuron_release,
        framework,
        cluster.os if cluster.engine == "slurm" else "",
        cluster.neuron_driver or None,
        runtime,
        ami=_DEPLOYED,
    )
