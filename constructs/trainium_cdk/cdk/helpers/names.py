"""Names in logical ids."""

from __future__ import annotations


def camel(name: str) -> str:
    """A name of AWS's as a part of a logical id: `ecr.dkr` and `vpc-cni` as EcrDkr and VpcCni."""
    return "".join(part.capitalize() for part in name.replace(".", "-").split("-"))
