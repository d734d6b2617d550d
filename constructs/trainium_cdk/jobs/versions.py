"""Whether a job's Neuron runtime is compatible with the driver of its nodes, by the catalogue's rule, before submission and on each
node; and what AWS publishes about the versions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk.errors import JobError
from trainium_cdk.runner.spec import Rule

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog, Stack
    from trainium_cdk.catalog.models import Range
    from trainium_cdk.catalog.stack import FrameworkChoice
    from trainium_cdk.outputs import Cluster, Fleet

_FRAMEWORKS: dict[str, FrameworkChoice] = {"torch-xla": "torch-xla", "torch-native": "torch-native"}
_DEPLOYED = "deployed"


def notes(image: str | None, cluster: Cluster, fleet: Fleet) -> list[str]:
    """Notes for the user on the versions that a job would run with; may be empty.

    An image, a release or a driver that the catalogue does not have is not checked.

    Args:
        image: the container image that the job names, if any.

    Raises:
        JobError: the runtime in the image is not compatible with the nodes' driver.
    """
    from trainium_cdk.catalog import Catalog, evaluate

    known = Catalog.load()
    release = known.releases.get(cluster.neuron_release)
    if release is None:
        return []
    used = (image or cluster.image) if cluster.containers else None
    runtime = known.runtime_of(used) if used else release.runtime
    if runtime and cluster.neuron_driver:
        verdict = evaluate(known, _stack(cluster, fleet, "none", runtime))
        if verdict.part == "ami" and not verdict:
            raise JobError(
                f"{f'image is {used}' if used else f'Neuron is {release.version}'}, but {verdict.reason}. Use an image with another runtime, or deploy "
                f"{cluster.stack} with another `eks: {{ami_release: ...}}`"
            )
    if image or cluster.framework not in _FRAMEWORKS:
        return []  # the image has its own framework
    verdict = evaluate(known, _stack(cluster, fleet, _FRAMEWORKS[cluster.framework], runtime or release.runtime))
    if verdict.statement is None:
        return []
    what = "AWS does not support this" if verdict.level == "unsupported" else "AWS advises against this"
    return [f"Neuron {cluster.neuron_release} with {cluster.framework}: {what}: {verdict.statement}"]


def _stack(cluster: Cluster, fleet: Fleet, framework: FrameworkChoice, runtime: str) -> Stack:
    from trainium_cdk.catalog.stack import NODE_SYSTEM, Stack

    return Stack(
        cluster.engine,
        (fleet.family,),
        cluster.neuron_release,
        framework,
        cluster.os or NODE_SYSTEM,
        cluster.neuron_driver or None,
        runtime,
        ami=_DEPLOYED,
    )


def rules(cluster: Cluster, catalog: Catalog | None = None) -> tuple[Rule, ...]:
    """Drivers and runtimes that do not work together, as a node compares its own with them."""
    from trainium_cdk.catalog import Catalog

    return tuple(
        Rule(_range(rule.driver), _range(rule.runtime), f"{rule}. {cluster.version_fix}")
        for rule in (catalog or Catalog.load()).incompatible
    )


def _range(versions: Range) -> tuple[str, str]:
    return versions.first or "", versions.before or ""
