"""Properties for constructs that the CDK creates inside its own constructs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsii
from aws_cdk import IPropertyInjector
from constructs import Construct


@jsii.implements(IPropertyInjector)
class AddProperties:
    """Adds properties to every construct of a class: `PropertyInjectors.of(scope).add(AddProperties(...))`.

    Args:
        kind: `PROPERTY_INJECTION_ID` of the class.
        properties: By their names in TypeScript.
    """

    def __init__(self, kind: str, **properties: Any) -> None:
        self._kind, self._properties = kind, properties

    @property
    def construct_unique_id(self) -> str:
        return self._kind

    def inject(self, original_props: Mapping[str, Any], *, id: str, scope: Construct) -> dict[str, Any]:  # noqa: ARG002
        return {**original_props, **self._properties}
