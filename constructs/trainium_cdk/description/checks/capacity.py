"""Instance types, their capacity types, and what idle nodes cost."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.catalog.constants import HOURS_OF_A_MONTH, ULTRASERVER
from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.description.checks.rule import (
    Rules,
    error,
    info,
    inventories,
    join_words,
    known_nodes,
    warning,
    zoned,
)
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.reserved import group_region, is_group
from trainium_cdk.errors import UnknownCatalogEntry

CAPACITY_BLOCK_NODES = 64
"""The maximum number of instances of one Capacity Block (EC2 user guide, 2026-11)."""


RULES = Rules()


@RULES.refuse("catalogue, instances: devices, cards and zones of a type, without which nothing is made")
def unknown_instance_type(env: Environment) -> Iterator[Problem]:
    for nodes in (nodes for cluster in inventories(env) for nodes in cluster.nodes):
        try:
            env.catalog.instance(nodes.resource.instance_type)
        except UnknownCatalogEntry as e:
            yield error((*nodes.at, "instance_type"), e.reason, e.fix)


@RULES.refuse("EC2 user guide, efa: types with EFA")
def type_without_efa(env: Environment) -> Iterator[Problem]:
    for f in known_nodes(env):
        if f.resource.efa == "on" and not f.kind.efa_interfaces:
            able = [n for n, k in env.catalog.instances.items() if k.efa_interfaces]
            yield error(
                (*f.at, "efa"), f"{f.kind.name} has no EFA", f"write efa: auto, or choose {join_words(able, 'or')}"
            )


@RULES.add
def many_nodes_without_efa(env: Environment) -> Iterator[Problem]:
    for f in known_nodes(env):
        nodes = f.resource.max_nodes
        if nodes > 1 and not f.kind.efa_interfaces:
            yield warning(
                (*f.at, "max_nodes"),
                f"{f.kind.name} has no EFA, so that a job cannot use more than one of these nodes",
                "choose a type with EFA for jobs of several nodes, or ignore this if each job uses one node",
            )
        elif nodes > 1 and not f.efa:
            yield warning(
                (*f.at, "efa"),
                f"{f.resource.name} has up to {nodes} nodes of {f.kind.name}, and jobs of several nodes need EFA",
                "write efa: auto, or ignore this if each job uses one node",
            )


@RULES.refuse("EC2 user guide, ec2-capacity-blocks: its types; catalogue, instances: the other ways")
def capacity_type_not_offered(env: Environment) -> Iterator[Problem]:
    for f in known_nodes(env):
        way = f.queue.capacity_type
        if way not in f.kind.capacity_types:
            others = [n for n, k in env.catalog.instances.items() if way in k.capacity_types]
            yield error(
                (*f.queue_at, "capacity_type"),
                f"{f.kind.name} is not available with this capacity type",
                f"write capacity_type: {join_words(f.kind.capacity_types, 'or')}, or choose {join_words(others, 'or')}",
            )


@RULES.refuse("EC2 user guide, ec2-capacity-blocks: 64 instances at most, which start by the id")
def capacity_block_size(env: Environment) -> Iterator[Problem]:
    for f in known_nodes(env):
        most = f.resource.max_nodes
        if f.queue.capacity_type != "capacity-block":
            continue
        if not f.resource.reservation:
            yield error(
                (*f.at, "reservation"),
                "a capacity block needs its reservation id",
                "give the id of the block that you bought, for example cr-0123456789abcdef0",
            )
        if most > CAPACITY_BLOCK_NODES:
            yield error(
                (*f.at, "max_nodes"),
                f"one capacity block has at most {CAPACITY_BLOCK_NODES} instances",
                f"buy several blocks, and give each its own {f.engine.nodes_noun}",
            )


@RULES.refuse("EC2 user guide, cr-groups-launch: an instance has one purchase option")
def reservation_of_another_capacity_type(env: Environment) -> Iterator[Problem]:
    for f in known_nodes(env):
        if f.resource.reservation and f.queue.capacity_type == "spot":
            yield error(
                (*f.at, "reservation"),
                "spot instances cannot use a reservation",
                f"write capacity_type: on-demand for this {f.engine.queue_noun}, or remove the reservation",
            )


@RULES.refuse("EC2 user guide, create-cr-group: a group has resources of one region")
def reservation_group_of_another_region(env: Environment) -> Iterator[Problem]:
    for f in known_nodes(env):
        group = f.resource.reservation
        if group is None or not is_group(group):
            continue
        ours = f"arn:{partition(env.region)}:resource-groups:{env.region}:"
        if not group.startswith(ours):
            yield error(
                (*f.at, "reservation"),
                f"this group is in {group_region(group)}, and the nodes are in {env.region}",
                f"give a group whose ARN begins with {ours}",
            )


@RULES.add
def capacity_block_without_id(env: Environment) -> Iterator[Problem]:
    """Where EC2 starts nodes by a launch template, it takes a group of blocks, though AWS shows only single ones."""
    for f in (f for cluster in inventories(env) if cluster.takes_groups_of_blocks for f in cluster.known_nodes):
        if f.queue.capacity_type == "capacity-block" and is_group(f.resource.reservation):
            yield warning(
                (*f.at, "reservation"),
                "EC2 starts nodes in the blocks of a group, but the service's own documentation shows the id of one block only",
                f"give the id of one block, and each further block its own {f.engine.nodes_noun}, or ignore this",
            )


@RULES.add
def placement_group_with_reservation(env: Environment) -> Iterator[Problem]:
    for at, queue, cluster in zoned(env):
        reservations = (n.resource.reservation for n in cluster.nodes if n.queue_at == at)
        reserved = next(filter(None, reservations), None)
        block = queue.capacity_type == "capacity-block"
        if (queue.placement_group == "on" and (reserved or block)) or (queue.existing_group and block):
            group = "this placement group" if queue.existing_group else "the stack's new placement group"
            yield warning(
                (*at, "placement_group"),
                f"the instances of {reserved or 'a capacity block'} may be outside {group}: nodes may not start (InsufficientInstanceCapacity)",
                "write placement_group: auto, or the name of the placement group in which the reservation was made",
            )


@RULES.add
def reservation_used_twice(env: Environment) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for f in known_nodes(env):
        if not f.resource.reservation:
            continue
        if other := seen.get(f.resource.reservation):
            yield warning(
                (*f.at, "reservation"),
                f"{other} uses the same reservation: the number of nodes of both together is limited by it",
                "give each its own reservation, or make sure that it is large enough for both",
            )
        seen[f.resource.reservation] = f.name


@RULES.add
def static_nodes(env: Environment) -> Iterator[Problem]:
    for cluster in inventories(env):
        for f in cluster.known_nodes:
            nodes = f.resource.min_nodes
            if not nodes or f.resource.reservation or f.queue.capacity_type == "capacity-block":
                continue
            price = env.catalog.price(f.kind.name, env.region)
            if price is None:
                cost = f"the catalogue has no price of {f.kind.name} in {env.region}"
            else:
                hour = nodes * price
                cost = f"{hour:,.2f} USD an hour, {hour * HOURS_OF_A_MONTH:,.0f} USD a month, at the on-demand price"
            if cluster.deployment_waits_for_nodes:
                cost += ". The deployment waits for them, and fails completely if EC2 has no capacity for them"
            yield warning(
                (*f.at, "min_nodes"),
                f"{nodes} x {f.kind.name} always run and are always charged: {cost}",
                "write min_nodes: 0 to pay for nodes only while jobs run",
            )


@RULES.add
def ultraserver_network(env: Environment) -> Iterator[Problem]:
    for f in known_nodes(env):
        if f.kind.ultraserver and f.resource.max_nodes > 1:
            yield info(
                (*f.at, "instance_type"),
                ULTRASERVER,
                "expect the bandwidth of EFA between nodes; nothing has to change",
            )
