"""Tags of what our resources start: instances, volumes, a cluster of ParallelCluster. The CDK sees no tags inside of other properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import IResolvable, IStableAnyProducer, ITaggable, Lazy, TagManager, TagType
from constructs import Construct, IValidation

from trainium_cdk.cdk.helpers.described import tag_problems
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once, stack_of


@jsii.implements(ITaggable, IValidation)
class InheritedTags(StackPart):
    """The tags that `Tags.of` gives to any construct around it, and those given to its stack; its path is `SCOPE/Tags`.

    Args:
        kind: resource type of what they are for, by which `Tags.of` may choose.
        default: tags that any other of the same name replaces.
        fixed: tags that others do not replace.
        rules: whether to check them at synthesis, with the rules of `trn check`.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        kind: str,
        default: Mapping[str, str] | None = None,
        fixed: Mapping[str, str] | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, "Tags")
        self._fixed = fixed or {}
        self._first = {**(default or {}), **_stacks(self)}
        self._manager = TagManager(TagType.MAP, kind, self._first)
        if rules:
            scope.node.add_validation(self)

    @property
    def tags(self) -> TagManager:
        """Return the manager to which the CDK adds tags."""
        return self._manager

    @property
    def values(self) -> dict[str, str]:
        """They are complete when the template is written."""
        return {**self._manager.tag_values(), **self._fixed}

    @property
    def added(self) -> dict[str, str]:
        """Tags that `Tags.of` added. CloudFormation gives the stack's own tags to every resource."""
        return {k: v for k, v in self._manager.tag_values().items() if self._first.get(k) != v}

    def validate(self) -> list[str]:
        """Problems that fail the synthesis."""
        return tag_problems(self, self.values)

    def of_instances(self) -> IResolvable:
        """`TagSpecifications` for instances and volumes."""
        return Lazy.any(_Specifications(lambda: self.values, ("instance", "volume")))

    def of_template(self) -> IResolvable:
        """`TagSpecifications` for the launch template itself."""
        return Lazy.any(_Specifications(lambda: self.added, ("launch-template",)))

    def pairs(self) -> IResolvable:
        """A list of `Key` and `Value`, left out without tags."""
        return Lazy.any(_Pairs(self))


def _stacks(scope: Construct) -> dict[str, str]:
    """Tags that were given to the stack: CloudFormation gives them to resources, but not to what these start."""
    stack = stack_of(scope)
    while parent := once(stack, "nested_stack_parent"):
        stack = parent
    return dict(once(stack, "tags").tag_values())


@jsii.implements(IStableAnyProducer)
class _Specifications:
    def __init__(self, read: Callable[[], Mapping[str, str]], kinds: Sequence[str]) -> None:
        self._read, self._kinds = read, kinds

    def produce(self) -> Any:
        tags = [{"key": key, "value": value} for key, value in sorted(self._read().items())]
        return [{"resourceType": kind, "tags": tags} for kind in self._kinds] if tags else None


@jsii.implements(IStableAnyProducer)
class _Pairs:
    def __init__(self, tags: InheritedTags) -> None:
        self._tags = tags

    def produce(self) -> Any:
        return [{"Key": key, "Value": value} for key, value in sorted(self._tags.values.items())] or None
