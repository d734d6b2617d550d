"""The default availability zones of a network."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Fn, Stack, Token
from constructs import Construct

from trainium_cdk.catalog import Catalog


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
