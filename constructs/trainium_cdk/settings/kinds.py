"""The types that the keys of a settings model may have."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from trainium_cdk.annotations import choices
from trainium_cdk.problems import KeyPath
from trainium_cdk.settings.cdk_types import MaybeNumberToken


@cache
def numbers(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model that hold numbers, and no booleans."""
    return frozenset(k for k, kinds in _kinds(model) if bool not in kinds and any(map(_is_number, kinds)))


@cache
def deferred(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model whose numbers may be tokens."""
    return frozenset(f.alias or name for name, f in model.model_fields.items() if MaybeNumberToken in f.metadata)


def _is_number(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(isinstance(value, int) for value in get_args(kind))
    return kind in (int, float)


@cache
def sections(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model that hold mappings or lists, and may not be null."""
    return frozenset(k for k, kinds in _kinds(model) if type(None) not in kinds and any(map(_is_section, kinds)))


def _kinds(model: type[BaseModel]) -> list[tuple[str, tuple[Any, ...]]]:
    """The keys of a model, each with the types that it may have."""
    return [(f.alias or name, tuple(choices(f.annotation))) for name, f in model.model_fields.items()]


def may_be_none(model: type[BaseModel], path: KeyPath) -> Literal["section", "value"] | None:
    """Whether `null` at this path means something other than the default, and whether the path is a section or a single
    value."""
    kinds: list[Any] = [model]
    default: Any = None
    for step in path:
        if isinstance(step, int):
            kinds = [c for k in kinds if get_origin(k) is tuple for c in choices(get_args(k)[0])]
            continue
        models = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        fields = [f for m in models for name, f in m.model_fields.items() if (f.alias or name) == step]
        kinds = [c for f in fields for c in choices(f.annotation)]
        default = fields[0].default if fields else None
    if type(None) not in kinds:
        return None
    if any(map(_is_section, kinds)):
        return "section"
    return "value" if default is not None else None


def _is_section(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, BaseModel | dict | tuple)
