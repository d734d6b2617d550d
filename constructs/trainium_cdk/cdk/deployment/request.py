"""Request of CloudFormation to a custom resource, and the response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Client = Callable[..., Any]
"""`boto3.client`, with the name of a service."""


@dataclass(frozen=True)
class Request:
    """A request of CloudFormation.

    Attributes:
        kind: Create, Update or Delete.
        stack: Id of the stack.
        properties: of the resource; numbers are text.
        physical_id: None if the resource was not created yet.
    """

    kind: str
    stack: str
    properties: Mapping[str, Any]
    physical_id: str | None = None

    @property
    def delete(self) -> bool:
        return self.kind == "Delete"


@dataclass(frozen=True)
class Response:
    """Success.

    Attributes:
        physical_id: CloudFormation replaces the resource, and deletes the old one, if an update changes it.
        attributes: for `Fn::GetAtt`.
    """

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
