"""Rules for reserved capacity and placement groups on ParallelCluster."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.checks.rule import Rules, error, queues
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.reserved import PLACEMENT_GROUP_ID, is_group

RULES = Rules()


@RULES.refuse("ParallelCluster user guide, launch-instances-capacity-blocks: the id is required")
def node_group_block_without_id(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        for i, resource in enumerate(queue.compute_resources):
            if queue.capacity_type == "capacity-block" and is_group(resource.reservation):
                yield error(
                    (*at, "compute_resources", i, "reservation"),
                    "ParallelCluster finds a capacity block by its id, and not in a group",
                    "give the id of one block, and each further block its own compute resource",
                )


@RULES.refuse("ParallelCluster, PlacementGroupNamingValidator: looks for the name, in both keys")
def placement_group_without_name(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        if PLACEMENT_GROUP_ID.fullmatch(queue.placement_group):
            yield error(
                (*at, "placement_group"),
                "ParallelCluster finds a placement group by its name",
                "write its name instead of its id (aws ec2 describe-placement-groups)",
            )
