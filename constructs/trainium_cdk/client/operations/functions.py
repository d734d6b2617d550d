"""The logs of the functions behind custom resources, found in templates: AWS names them in no event, and the function may be deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from trainium_cdk.client.operations.teardown.survey import template_of

_DEEP = 5
"""Most functions that one calls after the other, with the nested stacks between them: the CDK's provider calls one."""


def is_custom(kind: str) -> bool:
    """Return whether a function creates resources of this type."""
    return kind.startswith("Custom::") or kind == "AWS::CloudFormation::CustomResource"


class Custom(NamedTuple):
    """A custom resource.

    Attributes:
        stack_id: of its stack, which may be deleted.
        logical_id: its own.
        token: ARN of its function; empty if the event does not name it.
    """

    stack_id: str
    logical_id: str
    token: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Custom:
        """Read the custom resource from an event of a stack."""
        try:
            token = json.loads(event.get("ResourceProperties") or "{}").get("ServiceToken", "")
        except (ValueError, AttributeError):  # cut off
            token = ""
        return cls(event["StackId"], event["LogicalResourceId"], str(token))


def log_groups(cloudformation: Any, resource: Custom) -> list[str]:
    """Names of the log groups of the function that a custom resource calls, and of the functions that this one calls.

    Raises:
        botocore.exceptions.ClientError: AWS rejected a request.
    """
    stack = _Stack(cloudformation, resource.stack_id)
    # after a rollback the template lacks a resource that was to be added
    properties = stack.resources.get(resource.logical_id, {}).get("Properties", {})
    return list(dict.fromkeys(_groups(stack, resource.token or properties.get("ServiceToken"), _DEEP)))


class _Stack:
    """A stack's template, and the physical ids that its resources have, or had."""

    def __init__(self, cloudformation: Any, stack_id: str) -> None:
        self.cloudformation, self.id = cloudformation, stack_id
        template = template_of(cloudformation, stack_id)
        self.resources: Mapping[str, Any] = template.get("Resources", {})
        self.outputs: Mapping[str, Any] = template.get("Outputs", {})

    @cached_property
    def physical(self) -> dict[str, str]:
        """The newest one of each resource, by its logical id."""
        pages = self.cloudformation.get_paginator("describe_stack_events").paginate(StackName=self.id)
        found: dict[str, str] = {}
        for event in (e for page in pages for e in page["StackEvents"]):
            if event.get("PhysicalResourceId"):
                found.setdefault(event["LogicalResourceId"], event["PhysicalResourceId"])
        return found

    def parameter(self, name: str) -> str:
        [described] = self.cloudformation.describe_stacks(StackName=self.id)["Stacks"]
        return next((p["ParameterValue"] for p in described.get("Parameters", []) if p["ParameterKey"] == name), "")


def _groups(stack: _Stack, value: Any, deep: int) -> Iterator[str]:
    """The log groups of the function that a value of a template names, by its ARN or a reference."""
    if isinstance(value, str):
        parts = value.split(":")
        if parts[2:3] == ["lambda"] and parts[5:6] == ["function"]:
            own = next((id for id, name in stack.physical.items() if name == parts[6]), "")
            yield from _of_function(stack, own, deep) if own else [f"/aws/lambda/{parts[6]}"]
    if not isinstance(value, dict) or not deep:
        return
    if name := value.get("Ref"):
        known = name in stack.resources
        yield from _groups(stack, stack.physical.get(name) if known else stack.parameter(name), deep - 1)
    name, attribute = _attribute(value.get("Fn::GetAtt"))
    kind = stack.resources.get(name, {}).get("Type")
    if kind == "AWS::CloudFormation::Stack" and name in stack.physical:
        inside = _Stack(stack.cloudformation, stack.physical[name])
        yield from _groups(inside, inside.outputs.get(attribute.partition(".")[2], {}).get("Value"), deep - 1)
    elif kind == "AWS::Lambda::Function":
        yield from _of_function(stack, name, deep - 1)


def _of_function(stack: _Stack, name: str, deep: int) -> Iterator[str]:
    """List the log groups of a function of the stack, by its logical id."""
    properties = stack.resources.get(name, {}).get("Properties", {})
    named = properties.get("LoggingConfig", {}).get("LogGroup", "")
    own = stack.physical.get(named.get("Ref", "")) if isinstance(named, dict) else named
    if own or name in stack.physical:
        yield own or f"/aws/lambda/{stack.physical[name]}"
    for called in properties.get("Environment", {}).get("Variables", {}).values():
        yield from _groups(stack, called, deep)


def _attribute(found: Any) -> tuple[str, str]:
    """The resource and the attribute that Fn::GetAtt names; empty if there is none."""
    if isinstance(found, str):
        found = found.split(".", 1)
    return (str(found[0]), str(found[1])) if isinstance(found, list) and len(found) == 2 else ("", "")
