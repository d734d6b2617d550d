"""Zones and subnets of a new VPC, with their routes, gateways and NAT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import CfnResource, Fn, Stack, Tags, Token
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, DependencyGroup

from trainium_cdk.cdk.helpers.stack_wide import StackPart, once
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.settings import ZoneSubnets

EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class Zone:
    """An availability zone, by its id or, if that is not known, by its name.

    Attributes:
        key: its name in logical ids and messages: the zone id, or `zone1`.
        zone_id: for example use1-az4.
        name: for example us-east-1a, usually a token.
    """

    key: str
    zone_id: str | None = None
    name: str | None = None

    @property
    def logical(self) -> str:
        """Its part of a logical id."""
        return self.key.title().replace("-", "")


def zone_of(zone_id: str) -> Zone:
    return Zone(zone_id, zone_id=zone_id)


def default_zones(scope: Construct, count: int) -> list[Zone]:
    """Zones of the stack's region, those with the most Trainium types first; in a region without Trainium, or an unknown one,
    the first zones of the account.

    Raises:
        ValueError: no zone.
    """
    if count < 1:
        raise ValueError(f"{scope.node.path}: max_azs = {count}: a network needs a zone. Fix: write max_azs=1 or more")
    region, catalog = Stack.of(scope).region, Catalog.load()
    if not Token.is_unresolved(region) and (known := catalog.eks.zone_ids.get(region)):
        offers = {z: sum(z in kind.zone_ids for kind in catalog.instances.values()) for z in known}
        return [zone_of(z) for z in sorted(known, key=lambda z: (-offers[z], z))[:count]]
    names = Fn.get_azs()
    return [Zone(f"zone{i + 1}", name=Fn.select(i, names)) for i in range(count)]


class Subnets(StackPart):
    """A public and a private subnet for each planned zone, an internet gateway, and NAT gateways in the first zones.

    Each private subnet has its own route table, so that more NAT gateways can be added without replacing a subnet.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc_id: str,
        zones: Sequence[Zone],
        planned: Sequence[ZoneSubnets],
        nat_gateways: int,
        name: str,
    ) -> None:
        super().__init__(scope, id)
        self._vpc_id, self._name = vpc_id, name
        self._ready: list[CfnResource] = []
        self.public: dict[str, ec2.CfnSubnet] = {}
        self.private: dict[str, ec2.CfnSubnet] = {}

        internet = ec2.CfnInternetGateway(self, "Internet")
        Tags.of(internet).add("Name", name)
        attached = ec2.CfnVPCGatewayAttachment(
            self, "InternetAttached", vpc_id=vpc_id, internet_gateway_id=once(internet, "ref")
        )
        table = self._table("Public", "public")
        self.route_table_ids: dict[str, str] = {"public": once(table, "ref")}
        """Route tables: `public`, and the private one of each zone by its key."""
        out = ec2.CfnRoute(
            self,
            "PublicOut",
            route_table_id=once(table, "ref"),
            destination_cidr_block=EVERYWHERE,
            gateway_id=once(internet, "ref"),
        )
        out.add_resource_dependency(attached)
        self._ready += [attached, out]

        gateway: ec2.CfnNatGateway | None = None
        for i, (zone, plan) in enumerate(zip(zones, planned, strict=True)):
            key = zone.logical
            self.public[zone.key] = self._subnet(f"Public{key}", "public", zone, str(plan.public), table)
            own = self._table(f"Private{key}", f"private-{zone.key}")
            self.private[zone.key] = self._subnet(f"Private{key}", "private", zone, str(plan.private), own)
            self.route_table_ids[zone.key] = once(own, "ref")
            if i < nat_gateways:
                gateway = self._nat(zone, after=out)
            if gateway:
                route = ec2.CfnRoute(
                    self,
                    f"Private{key}Out",
                    route_table_id=once(own, "ref"),
                    destination_cidr_block=EVERYWHERE,
                    nat_gateway_id=once(gateway, "ref"),
                )
                self._ready += [gateway, route]
        self.internet_ready = DependencyGroup(*self._ready)

    def _table(self, id: str, name: str) -> ec2.CfnRouteTable:
        table = ec2.CfnRouteTable(self, f"{id}Routes", vpc_id=self._vpc_id)
        Tags.of(table).add("Name", f"{self._name}-{name}")
        return table

    def _subnet(self, id: str, kind: str, zone: Zone, cidr: str, table: ec2.CfnRouteTable) -> ec2.CfnSubnet:
        subnet = ec2.CfnSubnet(
            self,
            id,
            vpc_id=self._vpc_id,
            availability_zone_id=zone.zone_id,
            availability_zone=zone.name,
            cidr_block=cidr,
            map_public_ip_on_launch=False,
        )
        Tags.of(subnet).add("Name", f"{self._name}-{kind}-{zone.key}")
        ids = {"subnet_id": once(subnet, "ref"), "route_table_id": once(table, "ref")}
        routed = ec2.CfnSubnetRouteTableAssociation(self, f"{id}Routed", **ids)
        self._ready.append(routed)
        return subnet

    def _nat(self, zone: Zone, after: ec2.CfnRoute) -> ec2.CfnNatGateway:
        key = zone.logical
        address = ec2.CfnEIP(self, f"Nat{key}Address", domain="vpc")
        # an address cannot be released after the VPC's internet gateway is detached
        address.add_resource_dependency(after)
        gateway = ec2.CfnNatGateway(
            self,
            f"Nat{key}",
            subnet_id=once(self.public[zone.key], "ref"),
            allocation_id=address.attr_allocation_id,
        )
        gateway.add_resource_dependency(after)
        for resource in (address, gateway):
            Tags.of(resource).add("Name", f"{self._name}-nat-{zone.key}")
        return gateway
