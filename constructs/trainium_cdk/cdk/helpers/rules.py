"""Parts of checks of a construct's arguments: tokens, regions, and errors that fail the synthesis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsii
from constructs import Construct, IValidation

from trainium_cdk.cdk.helpers.stack_wide import place_of
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.settings.base import NUMBER_TOKEN
from trainium_cdk.description.settings.reserved import group_region
from trainium_cdk.description.settings.section import NodeSettings
from trainium_cdk.text import LIST_TOKEN, LOOKUP, PLACEHOLDERS

# also the network that the CDK gives a VPC before it is looked up (`Vpc.from_lookup`), and CloudFormation's dynamic references
_PLACEHOLDERS = (*PLACEHOLDERS, LIST_TOKEN, "1.2.3.4/5", "{{resolve:")


def fail_synthesis(construct: Construct, texts: list[str]) -> None:
    """Fail the synthesis with these errors of a construct, if there are any."""
    if texts:
        construct.node.add_validation(_Errors(texts))


def unresolved(value: object) -> bool:
    """Return whether a value is or holds a CDK token or another placeholder. (The CDK's own check sends a message to Node for each value.)"""
    if isinstance(value, str):
        return any(mark in value for mark in _PLACEHOLDERS)
    if isinstance(value, int | float):
        return value <= NUMBER_TOKEN
    if isinstance(value, Mapping):
        return any(unresolved(each) for pair in value.items() for each in pair)
    return isinstance(value, list | tuple) and any(map(unresolved, value))


def refuse_tokens(construct: Construct, **values: object) -> None:
    """Raises ValueError for an argument that must be known at synthesis."""
    refuse_lookups(construct, **values)
    for name, value in values.items():
        if unresolved(value):
            raise ValueError(
                f"{construct.node.path}: {name} is a token of the CDK, which has no value before the deployment: give a plain value"
            )


def refuse_lookups(construct: Construct, **values: object) -> None:
    """Raises ValueError for the placeholder of a lookup. The CDK's command line looks up values after the first synthesis, and
    only if that succeeds."""
    for name, value in values.items():
        if LOOKUP in str(value):
            raise ValueError(
                f"{construct.node.path}: {name} is not looked up yet in the first synthesis, and must be known there: "
                "give value_from_lookup a default_value"
            )


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The given values without tokens."""
    return {k: v for k, v in values.items() if v is not None and not unresolved(v)}


def likely_regions(catalog: Catalog, nodes: Iterable[NodeSettings]) -> list[str]:
    """Regions that nodes in a stack of any region may be for: their reservations' regions, then regions that offer all of their types."""
    nodes = list(nodes)
    offered = [set(catalog.regions_of(each.instance_type)) for each in nodes if each.instance_type in catalog.instances]
    named = [region for each in nodes if (region := group_region(each.reservation))]
    return named + (sorted(set.intersection(*offered)) if offered else [])


def region_of(construct: Construct, otherwise: Sequence[str]) -> str:
    """The region of the construct's stack; for an agnostic stack, the first of `otherwise`."""
    region = place_of(construct).region
    return next(iter(otherwise), "us-east-1") if unresolved(region) else region


@jsii.implements(IValidation)
class _Errors:
    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def validate(self) -> list[str]:
        return self._texts
