"""Instance types, their capacity types, and what idle nodes cost; availability zones, and the instance types that they offer. Zones have ids here,
because zone names differ between accounts."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.catalog.constants import HOURS_OF_A_MONTH, ULTRASERVER
from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.description.checks.rule import (
    Rules,
    duplicates,
    error,
    info,
    inventories,
    join_words,
    known_nodes,
    warning,
    zoned,
)
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.inventory import Inventory
from trainium_cdk.description.settings.reserved import group_region, is_group
from trainium_cdk.errors import UnknownCatalogEntry
from trainium_cdk.problems import KeyPath

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


# --- availability zones ------------------------------------------------------------------------------------------------

ZONES = Rules()


@ZONES.refuse("catalogue, instances: EC2's offerings")
def type_not_in_region(env: Environment) -> Iterator[Problem]:
    for cluster in inventories(env):
        for name in _offered_somewhere(cluster):
            if not env.catalog.zone_ids(name, env.region):
                same = partition(env.region)
                regions = [each for each in env.catalog.regions_of(name) if partition(each) == same]
                named = f"list the zones that your account sees under catalog.instances.{name}.zone_ids"
                if env.region not in env.catalog.zone_regions.values():
                    named += f", and under catalog.regions what their ids begin with, as BEGINNING: {env.region}"
                yield error(
                    ("region",),
                    f"the catalogue has no zone of this region that offers {name}",
                    f"use {join_words(regions, 'or')}, or {named}" if regions else named,
                    engine=cluster.engine.name,
                )


@ZONES.refuse("RAM user guide, working-with-az-ids: a zone is in one region")
def zone_of_another_region(env: Environment) -> Iterator[Problem]:
    for key, zone in _zones(env):
        region = env.catalog.region_of(zone)
        if region is None:
            prefix = zone.rsplit("-", 1)[0]
            yield error(
                key,
                f"the catalogue has no region whose zone ids begin with {prefix}",
                f"correct it, or add {prefix}: {env.region} under catalog.regions",
            )
        elif region != env.region:
            kinds = [
                t
                for cluster in inventories(env)
                if cluster.engine.name in env.engines
                for t in _offered_somewhere(cluster)
            ]
            here = sorted({z for t in kinds for z in env.catalog.zone_ids(t, env.region)})
            fix = f"write {join_words(here, 'or')}" if here else f"use zone ids of {env.region}"
            yield error(key, f"it is in {region}, but the region is {env.region}", f"{fix}, or region: {region}")


@ZONES.refuse("EFS user guide, accessing-fs: one mount target in a zone")
def repeated_zone(env: Environment) -> Iterator[Problem]:
    zones = env.network.zone_ids
    for i in duplicates(zones):
        yield error(("network", "zone_ids", i), "this zone is listed twice", "list each zone once")


@ZONES.refuse("VPC user guide, configure-subnets: a subnet is in one zone")
def queue_zone_outside_network(env: Environment) -> Iterator[Problem]:
    for at, queue, cluster in zoned(env):
        zone, zones = queue.zone_id, cluster.zone_ids
        if not zone or zone in zones:
            continue
        where = (
            "no private subnet is in this zone" if env.network.existing else "the network has no subnets in this zone"
        )
        key = "network.existing.private_subnets" if env.network.existing else "network.zone_ids"
        yield error(
            (*at, "zone_id"),
            f"{where}, only in {join_words(zones)}",
            f"add {zone} to {key}, or choose {join_words(zones, 'or')}",
        )


@ZONES.refuse("catalogue, instances: EC2's offerings")
def type_not_in_zone(env: Environment) -> Iterator[Problem]:
    for cluster in inventories(env):
        what = cluster.engine.queue_noun
        for f in cluster.known_nodes:
            zone = cluster.zone_of(f.queue)
            offered = env.catalog.zone_ids(f.kind.name, env.region)
            if not zone or not offered or zone in offered or env.catalog.region_of(zone) != env.region:
                continue  # other rules report a missing zone, region or list of zones
            key: KeyPath = (*f.queue_at, "zone_id") if f.queue.zone_id else f.at
            how = "" if f.queue.zone_id else f" (the network's first zone, because {what} {f.queue.name} sets none)"
            fixed = env.network.zone_ids or env.network.existing  # else zones are added for the queue
            add = ", and add that zone to the network" if fixed and not set(offered) & set(cluster.zone_ids) else ""
            yield error(
                key,
                f"the catalogue does not list {zone}{how} among the zones that offer {f.kind.name}",
                f"write zone_id: {join_words(offered, 'or')} in the {what}{add}, or correct catalog.instances.{f.kind.name}.zone_ids",
                value=zone,
            )


@ZONES.refuse("catalogue, instances: EC2's offerings")
def no_zone_offers_all_types(env: Environment) -> Iterator[Problem]:
    for cluster in inventories(env):
        if not cluster.zone_ids:
            yield from _no_zone(env, cluster)


def _no_zone(env: Environment, cluster: Inventory) -> Iterator[Problem]:
    key: KeyPath = ("network", "zone_ids")
    offers = {t: env.catalog.zone_ids(t, env.region) for t in _offered_somewhere(cluster)}
    if not offers and any(t in env.catalog.instances for t in cluster.instance_types):
        yield error(
            key,
            f"the zones that offer {join_words(cluster.instance_types)} are not known, so that none can be chosen",
            "write network.zone_ids, or the type's zone_ids under catalog.instances",
            engine=cluster.engine.name,
        )
    elif offers and all(offers.values()):  # otherwise another rule reports the region
        where = "; ".join(f"{name} in {join_words(zones)}" for name, zones in offers.items())
        what = cluster.engine.queue_noun
        fix = f"set zone_id for each {what}, or use two environments"
        by_queue: dict[KeyPath, list[str]] = {}
        for nodes in cluster.nodes:
            by_queue.setdefault(nodes.queue_at, []).append(nodes.resource.instance_type)
        for named in by_queue.values():
            types = [t for t in named if t in offers]
            if types and not set.intersection(*(set(offers[t]) for t in types)):
                fix = f"put {join_words(types)} into separate queues, each with its zone_id: a queue has one zone"
        yield error(key, f"no zone offers every instance type: {where}", fix, engine=cluster.engine.name)


@ZONES.refuse("VPC user guide, configure-subnets: an instance is in a subnet, and none is named")
def public_nodes_without_public_subnet(env: Environment) -> Iterator[Problem]:
    existing, login = env.network.existing, env.pcluster.login_nodes
    if not existing or existing.public_subnets:
        return
    for key, where in (("head", env.pcluster.head.subnet), ("login_nodes", login.subnet if login else None)):
        if where == "public":
            yield error(
                ("pcluster", key, "subnet"),
                "the existing VPC is described without public subnets",
                "write subnet: private, or add network.existing.public_subnets",
            )


@ZONES.add
def settings_of_an_existing_vpc(env: Environment) -> Iterator[Problem]:
    if env.network.existing:
        for key in sorted(env.network.model_fields_set - {"existing", "peerings"}):
            yield warning(("network", key), "it has no effect on an existing VPC", "remove it")


def _offered_somewhere(cluster: Inventory) -> list[str]:
    """The known instance types whose zones are known."""
    known = cluster.env.catalog.instances
    return [t for t in cluster.instance_types if t in known and known[t].zone_ids]


def _zones(env: Environment) -> Iterator[tuple[KeyPath, str]]:
    for i, zone in enumerate(env.network.zone_ids):
        yield ("network", "zone_ids", i), zone
    for at, queue, _ in zoned(env):
        if queue.zone_id:
            yield (*at, "zone_id"), queue.zone_id
    if existing := env.network.existing:
        for name in ("private_subnets", "public_subnets"):
            for i, subnet in enumerate(getattr(existing, name)):
                yield ("network", "existing", name, i, "zone_id"), subnet.zone_id
