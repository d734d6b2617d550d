"""Constructs that a stack has at most once, shared by everything in it that needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from aws_cdk import Stack
from constructs import Construct, IConstruct

T = TypeVar("T", bound=IConstruct)


def kept_with(owner: object, what: str) -> dict[str, Any]:
    """Return the values that this library keeps with a construct under a name. They save repeated requests to the CDK's Node process."""
    found: dict[str, Any] = vars(owner).setdefault(f"_trn_{what}", {})
    return found


def share(owner: IConstruct, other: IConstruct, what: str) -> None:
    """Keep something with two constructs, as one."""
    vars(other)[f"_trn_{what}"] = kept_with(owner, what)


def once(construct: object, name: str) -> Any:
    """An attribute of an object of the CDK that does not change. Each reading would be a request."""
    kept = kept_with(construct, "read")
    if name not in kept:
        # of the one interface that has it: the object of several would ask twice, first whether it has it
        views = [each for each in vars(construct).get("_delegates", ()) if hasattr(type(each), name)]
        kept[name] = getattr(next(iter(views), construct), name)
    return kept[name]


class StackPart(Construct):
    """A construct of ours that users do not make. Its stack is its scope's, which is asked for once."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        share(scope, self, "stack")


def stack_of(construct: IConstruct) -> Stack:
    """The stack of a construct, asked for once."""
    kept = kept_with(construct, "stack")
    if "stack" not in kept:
        kept["stack"] = construct if isinstance(construct, Stack) else Stack.of(construct)
    stack: Stack = kept["stack"]
    return stack


class _Place(NamedTuple):
    """Place of a stack in AWS. Each may be a token."""

    partition: str
    region: str
    account: str
    url_suffix: str


def place_of(construct: IConstruct) -> _Place:
    """Where the stack of a construct is, asked for once."""
    stack = stack_of(construct)
    return _Place(*(once(stack, name) for name in _Place._fields))


def stack_wide(scope: Construct, id: str, kind: type[T], create: Callable[[Stack, str], T]) -> T:
    """The construct `id` of the scope's stack; created when it is first needed.

    Args:
        create: called with the stack and `id`; a class whose constructor takes no more will do.
    """
    stack = stack_of(scope)
    known = kept_with(stack, "shared")
    if id not in known:
        existing = once(stack, "node").try_find_child(id)
        known[id] = existing if isinstance(existing, kind) else _made(scope, stack, id, create)
    found = known[id]
    assert isinstance(found, kind)  # noqa: S101  an id is of one class
    return found


def _made(scope: Construct, stack: Stack, id: str, create: Callable[[Stack, str], T]) -> T:
    try:
        return create(stack, id)
    except RuntimeError as e:  # the CDK's, which does not name the construct, for example where a stack takes no assets
        stack.node.try_remove_child(id)  # the half of it
        raise RuntimeError(f"{scope.node.path}: {e}") from e
