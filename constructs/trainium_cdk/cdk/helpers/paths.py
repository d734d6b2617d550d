"""Names that do not change when a stack moves: below a stage, or to another id."""

from __future__ import annotations

import hashlib

from aws_cdk import CfnResource
from constructs import IConstruct

from trainium_cdk.cdk.helpers.stack_wide import once, stack_of

_LONGEST = 200
"""Characters of the readable part; CloudFormation allows 255 in all."""


def path_of(construct: IConstruct) -> str:
    """The path of a construct, asked for once."""
    path: str = once(once(construct, "node"), "path")
    return path


def below_stack(construct: IConstruct) -> str:
    """The path of a construct below its stack; as in logical ids, without what is called "Default"."""
    path = path_of(construct).removeprefix(path_of(stack_of(construct)))
    return "/".join(part for part in path.split("/") if part not in ("", "Default"))


def name_by(resource: CfnResource, *parts: str) -> None:
    """Give a resource a logical id of these parts, for what the CDK names by a path that begins at the app."""
    readable = "".join(c for c in "".join(parts) if c.isascii() and c.isalnum())
    resource.override_logical_id(f"{readable[:_LONGEST]}{digest(*parts).upper()}")


def digest(*parts: str) -> str:
    """Eight characters that stand for some texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
