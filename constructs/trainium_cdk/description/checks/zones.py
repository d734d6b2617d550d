"""Availability zones and the instance types that they offer. Zones have ids here, because zone names differ between
accounts."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.description.checks.rule import Rules, duplicates, error, inventories, join_words, warning, zoned
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.inventory import Inventory
from trainium_cdk.problems import KeyPath

RULES = Rules()


@RULES.refuse("catalogue, instances: EC2's offerings")
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


@RULES.refuse("RAM user guide, working-with-az-ids: a zone is in one region")
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


@RULES.refuse("EFS user guide, accessing-fs: one mount target in a zone")
def repeated_zone(env: Environment) -> Iterator[Problem]:
    zones = env.network.zone_ids
    for i in duplicates(zones):
        yield error(("network", "zone_ids", i), "this zone is listed twice", "list each zone once")


@RULES.refuse("VPC user guide, configure-subnets: a subnet is in one zone")
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


@RULES.refuse("catalogue, instances: EC2's offerings")
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


@RULES.refuse("catalogue, instances: EC2's offerings")
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


@RULES.refuse("VPC user guide, configure-subnets: an instance is in a subnet, and none is named")
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


@RULES.add
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
