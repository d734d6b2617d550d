"""Changes that AWS rejects as CloudFormation creates what is new before it deletes the old."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from typing import Any

from trainium_cdk.client.operations.updates.change import Change, intrinsic, marked, references, text

SUBNET = "AWS::EC2::Subnet"
_ROUTE, _TARGET, _LINK = "AWS::EC2::Route", "AWS::EFS::MountTarget", "AWS::FSx::DataRepositoryAssociation"
_ENTRY = "AWS::EKS::AccessEntry"
_NETWORK = "leave the network as it was"
Resources = Mapping[str, Mapping[str, Any]]
Clash = tuple[str, str, str]
"""The property that is rejected, what the old resource has or is, and what to do."""


@dataclass(frozen=True)
class Templates:
    """Both templates' resources, and which of the old ones have another value after the deployment (`compare` finds them)."""

    old: Resources
    new: Resources
    renewed: set[tuple[str, str]]

    def created(self, key: str) -> bool:
        """Return whether the deployment creates the resource, also in the place of one with this logical id."""
        return key not in self.old or (key, "") in self.renewed

    def same(self, old: Any, new: Any) -> bool:
        """Return whether two values are equal after the deployment."""
        return bool(text(old) == text(marked(new, self.renewed)))


def rejected(templates: Templates, names: Mapping[str, str]) -> Iterator[Change]:
    """Subnets with addresses, routes to a network, mount targets in a zone or VPC, links of directories, and access entries of a principal that
    clash with old ones of their kind.

    names: logical id -> path in the construct tree.
    """
    for key, resource in templates.new.items():
        clash = _CLASHES.get(resource["Type"])
        if clash is None or not templates.created(key):
            continue
        for other, there in templates.old.items():
            if there["Type"] != resource["Type"]:
                continue
            found = clash(templates, there.get("Properties") or {}, resource.get("Properties") or {})
            if found:
                property, why, advice = found
                kept = other in templates.new and not templates.created(other)
                meaning = f"AWS rejects it: {'the old one' if other == key else names[other]} {why}" + (
                    "" if kept else ", and CloudFormation deletes that only after it has created this"
                )
                yield Change("refused", key, resource["Type"], names[key], property, "", "", meaning, advice)
                break


def _addresses(templates: Templates, old: Mapping[str, Any], new: Mapping[str, Any]) -> Clash | None:
    before, after = _network(old.get("CidrBlock")), _network(new.get("CidrBlock"))
    if before and after and before.overlaps(after) and templates.same(old.get("VpcId"), new.get("VpcId")):
        return "CidrBlock", f"has the addresses {before}", _NETWORK
    return None


def _network(value: Any) -> IPv4Network | None:
    """None for anything but a network in plain text."""
    try:
        found = ip_network(value, strict=False) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if isinstance(found, IPv4Network) else None


def _route(templates: Templates, old: Mapping[str, Any], new: Mapping[str, Any]) -> Clash | None:
    there = old.get("DestinationCidrBlock")
    if not there or text(there) != text(new.get("DestinationCidrBlock")):
        return None
    if not templates.same(old.get("RouteTableId"), new.get("RouteTableId")):
        return None
    advice = "deploy without the old one first (a peering: without it in network.peerings), then this"
    return "DestinationCidrBlock", f"leads to {text(there)} in the same route table", advice


def _mount_target(templates: Templates, old: Mapping[str, Any], new: Mapping[str, Any]) -> Clash | None:
    """EFS user guide, "Creating mount targets": in one VPC at a time, and in one subnet of a zone."""
    if not templates.same(old.get("FileSystemId"), new.get("FileSystemId")):
        return None
    before, after = _subnet(templates.old, old), _subnet(templates.new, new)
    vpcs = [_ids(before.get("VpcId")), _ids(after.get("VpcId"))]
    left = any(id not in templates.new or (id, "") in templates.renewed for id in vpcs[0])
    entered = any(id not in templates.old for id in vpcs[1])
    if left or entered:
        why = "is in another VPC"
        return "SubnetId", why, f"{_NETWORK}; for another VPC, deploy another environment, and copy the files"
    if _zone(before) and _zone(before) == _zone(after):
        return "SubnetId", "is in the same zone", _NETWORK
    return None


def _subnet(resources: Resources, target: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of its subnet; empty if the template does not have it."""
    found = (resources.get(id, {}) for id in _ids(target.get("SubnetId")))
    return next((s.get("Properties") or {} for s in found if s.get("Type") == SUBNET), {})


def _ids(value: Any) -> list[str]:
    return [id for id, _ in references(value)] if intrinsic(value) else []


def _zone(subnet: Mapping[str, Any]) -> Any:
    return text(subnet.get("AvailabilityZoneId") or subnet.get("AvailabilityZone"))


def _link(templates: Templates, old: Mapping[str, Any], new: Mapping[str, Any]) -> Clash | None:
    """FSx API reference, CreateDataRepositoryAssociation: each has its own directory and prefix."""
    if not templates.same(old.get("FileSystemId"), new.get("FileSystemId")):
        return None
    for property in ("FileSystemPath", "DataRepositoryPath"):
        a, b = (f"{str(of.get(property)).rstrip('/')}/" for of in (old, new))
        if a.startswith(b) or b.startswith(a):
            advice = "deploy without the link in storage.fsx.s3_links first, then this; or leave it as it was"
            return property, f"links {a.rstrip('/') or '/'}", advice
    return None


def _entry(templates: Templates, old: Mapping[str, Any], new: Mapping[str, Any]) -> Clash | None:
    """EKS user guide, "Create access entries": a principal has one in a cluster. One of our constructs has the id of the first grant."""
    if all(templates.same(old.get(name), new.get(name)) for name in ("ClusterName", "PrincipalArn")):
        return "PrincipalArn", "is of the same principal", "keep the id of its first grant; or deploy without it first"
    return None


_CLASHES: dict[str, Callable[[Templates, Mapping[str, Any], Mapping[str, Any]], Clash | None]] = {
    SUBNET: _addresses,
    _ROUTE: _route,
    _TARGET: _mount_target,
    _LINK: _link,
    _ENTRY: _entry,
}
