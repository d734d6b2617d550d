"""The resources and variables of pods that train, for other clients than `trn`, such as TorchX. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainium_cdk.client.jobs.job_spec import launch_environment
from trainium_cdk.client.jobs.kinds.script import Script
from trainium_cdk.client.jobs.kubernetes.pods import devices
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.errors import JobError

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import Cluster, Fleet


def pods(cluster: Cluster) -> dict[str, Any]:
    """Return by instance type: `resources` of a pod that fills a node, and `env`, the launch variables of its training."""
    fleets = {fleet.instance_type: fleet for fleet in reversed(cluster.fleets)}
    return {name: {"resources": devices(fleet), "env": _environment(cluster, fleet)} for name, fleet in fleets.items()}


def _environment(cluster: Cluster, fleet: Fleet) -> dict[str, str]:
    """Return the launch variables of a script on two nodes, if the fleet allows several. The image decides nothing here."""
    alone = cluster.model_copy(update={"fleets": (fleet,)})
    for nodes in (2, 1):
        try:
            return launch_environment(plan(Script(filename="x", content=b"x", nodes=nodes, image="x/y:z"), alone))
        except JobError:
            continue
    return {}
