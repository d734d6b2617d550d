"""Constructs whose arguments have the types of their annotations, as the CDK's own."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from constructs import Construct
from pydantic import BaseModel

from trainium_cdk.cdk.helpers.stack_wide import share
from trainium_cdk.description.settings.base import is_number_token
from trainium_cdk.errors import SettingsError, similar
from trainium_cdk.problems import Source
from trainium_cdk.text import choices

_LISTS = (collections.abc.Sequence, list, tuple)
_MAPPINGS = (collections.abc.Mapping, dict)
_PACKAGE = __name__.partition(".")[0]


class Checked(Construct):
    """A construct that refuses arguments of another type, and takes a mapping for a struct of the CDK or a settings model.

    A subclass outside this package has its own arguments, which are not checked.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__ and cls.__module__.partition(".")[0] == _PACKAGE:
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)
    annotations = {p.name: p.annotation for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    kinds: dict[str, Any] = {}

    @functools.wraps(init)
    def checked(self: Construct, *args: Any, **given: Any) -> None:
        if args and isinstance(args[0], Construct):
            share(args[0], self, "stack")
        try:
            signature.bind_partial(self, *args, **given)
            for name in [each for each in given if each in annotations]:
                if name not in kinds:
                    kinds[name] = _evaluated(annotations[name], init.__module__)
                given[name] = _taken(given[name], kinds[name], name)
            signature.bind(self, *args, **given)
        except TypeError as e:
            unknown = [name for name in given if name not in signature.parameters]
            homes = dict.fromkeys(home for name in unknown for home in _homes(name, annotations, init))
            where = _path(*args[:2], **given)
            raise TypeError(f"{where}: {e}{'. Fix: give ' if homes else ''}{' or '.join(homes)}") from None
        except SettingsError as e:
            raise SettingsError(e.problems, Source(_path(*args[:2], **given))) from None
        try:
            init(self, *args, **given)
        except RuntimeError as e:  # the CDK's, often without a name
            where = _path(*args[:2], **given)
            if where in str(e):
                raise
            raise RuntimeError(f"{where}: {e}") from e

    return checked


def _homes(name: str, annotations: Mapping[str, Any], init: Callable[..., None]) -> Iterator[str]:
    """Yield the arguments that have a name as a key of their settings model; else the argument with a similar name."""
    inside = False
    for argument, annotation in annotations.items():
        for kind in choices(_evaluated(annotation, init.__module__)):
            listed = get_origin(kind) in _LISTS
            for model in choices(get_args(kind)[0] if listed else kind):
                if name in getattr(model, "model_fields", ()):
                    inside, made = True, f"settings.{model.__name__}({name}=...)"
                    yield f"{argument}={f'[{made}]' if listed else made}"
    if not inside and (close := similar(name, [*annotations])):
        yield close


def _path(scope: Any = None, id: object = "", **_: object) -> str:
    path = scope.node.path if isinstance(scope, Construct) else ""
    return f"{path}/{id}".removeprefix("/")


def _evaluated(annotation: Any, module: str) -> Any:
    """The type of an annotation; any type, where it cannot be evaluated: it names what only a type checker imports."""
    try:
        return eval(annotation, vars(sys.modules[module])) if isinstance(annotation, str) else annotation  # noqa: S307
    except Exception:
        return Any


def _taken(value: Any, kind: Any, name: str) -> Any:
    """The value as an argument of a type.

    Raises:
        TypeError: it has another type.
        SettingsError: it is a mapping that is not valid as the settings model.
    """
    allowed = list(choices(kind))
    for choice in allowed:
        origin = get_origin(choice)
        if isinstance(value, dict) and _takes_mapping(choice):
            return _made(choice, value, name)
        if origin in _MAPPINGS and isinstance(value, Mapping):
            of = get_args(choice)[1]
            return {key: _taken(each, of, f"{name}[{key!r}]") for key, each in value.items()}
        if origin in _LISTS and isinstance(value, Sequence) and not isinstance(value, str):
            of = get_args(choice)[0]
            taken = [_taken(each, of, f"{name}[{i}]") for i, each in enumerate(value)]
            return tuple(taken) if isinstance(value, tuple) else taken
    if not any(_fits(value, choice) for choice in allowed):
        inner = next((key for key, each in _public(value) if any(_fits(each, choice) for choice in allowed)), None)
        fix = f". Fix: give its attribute `{inner}`" if inner else ""
        raise TypeError(f"type of argument {name} must be {_named(allowed)}; got {_name(type(value))} instead{fix}")
    return value


def _public(value: object) -> Iterator[tuple[str, Any]]:
    """The attributes of a construct of ours that hold objects of the CDK."""
    if isinstance(value, Checked):
        for name, each in vars(value).items():
            if not name.startswith("_") and _fqns(each) != {None}:
                yield name, each


def _made(kind: Callable[..., Any], values: Mapping[str, Any], name: str) -> Any:
    try:
        return kind(**values)
    except SettingsError as e:
        raise SettingsError([replace(each, key=(name, *each.key)) for each in e.problems], e.source) from None


def _takes_mapping(kind: Any) -> bool:
    """Return whether a type is a struct of the CDK or a settings model."""
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or "__jsii_struct_bases__" in vars(kind))


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is Any or get_origin(kind) or not isinstance(kind, type):
        return get_origin(kind) not in (*_LISTS, *_MAPPINGS)  # what is not understood takes everything
    if kind is int and isinstance(value, float):
        return is_number_token(value)
    if kind is float:
        return isinstance(value, int | float)
    if fqn := _fqn(kind):
        return fqn in _fqns(value)
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(type(value), each) or each in vars(value) for each in vars(kind) if not each.startswith("_"))
    return isinstance(value, kind)


def _fqn(kind: type) -> str | None:
    """The CDK's name of one of its own types. Those that are made of them have none."""
    found: str | None = vars(kind).get("__jsii_declared_type__", vars(kind).get("__jsii_type__"))
    return found


def _fqns(value: object) -> set[str | None]:
    """The CDK's names of the classes of a value, and of the interfaces that it implements."""
    kinds = [kind for each in getattr(value, "_delegates", None) or (value,) for kind in type(each).__mro__]
    interfaces = [each for kind in kinds for each in vars(kind).get("__jsii_ifaces__", ())]
    return {_fqn(each) for kind in (*kinds, *interfaces) for each in kind.__mro__}


def _named(kinds: Sequence[Any]) -> str:
    names = [
        name for kind in kinds for name in ([_name(kind)] if _is_public(kind) else getattr(kind, "WRITTEN_AS", ()))
    ]
    return " or ".join(", ".join(some) for some in (names[:-1], names[-1:]) if some)


def _is_public(kind: Any) -> bool:
    """Return whether users can name a type. They do not write our base classes."""
    if not isinstance(kind, type) or not kind.__module__.startswith("trainium_cdk"):
        return True
    homes = (sys.modules["trainium_cdk"], sys.modules["trainium_cdk.description.settings"])
    return any(kind.__qualname__ in dir(home) for home in homes)


def _name(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if origin:
        return f"{origin.__name__}[{', '.join(_named(list(choices(of))) for of in get_args(kind) if of is not ...)}]"
    if not isinstance(kind, type):
        return str(kind)
    if kind is type(None):
        return "None"
    places = {"trainium_cdk.description.settings": "trainium_cdk.settings", "trainium_cdk": "trainium_cdk"}
    home = next((name for place, name in places.items() if kind.__module__.startswith(place)), kind.__module__)
    return kind.__qualname__ if home == "builtins" else f"{home}.{kind.__qualname__}"
