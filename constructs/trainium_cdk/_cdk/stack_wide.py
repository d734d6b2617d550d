"""Constructs of which a stack has at most one, shared by everything in it that needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aws_cdk import Stack
from constructs import Construct, IConstruct

T = TypeVar("T", bound=IConstruct)


def stack_wide(scope: Construct, id: str, kind: type[T], create: Callable[[Stack, str], T]) -> T:
    """The construct `id` of the scope's stack; created when it is first needed.

    Args:
        create: called with the stack and `id`; a class whose constructor takes no more will do.
    """
    stack = Stack.of(scope)
    existing = stack.node.try_find_child(id)
    return existing if isinstance(existing, kind) else create(stack, id)
