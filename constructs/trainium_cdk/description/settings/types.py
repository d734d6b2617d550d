"""Types of settings: which types a key may have, and the CDK's own types and tokens in place of a number or a word. Nothing here imports the CDK."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ValidatorFunctionWrapHandler, WrapValidator

from trainium_cdk.problems import KeyPath, wrong
from trainium_cdk.text import choices

TOKEN = "${Token["  # noqa: S105  not a secret
"""How the CDK's tokens begin. CloudFormation fills them in at deployment, so that they cannot be checked here."""
LIST_TOKEN = "#{Token["  # noqa: S105  not a secret
"""How the one element of a list begins whose elements are not known."""
LOOKUP = "dummy-value-for-"
"""What the CDK puts in place of a value that it looks up after the first synthesis (`value_from_lookup`)."""
_DUMMY_VPC = ("vpc-12345", "1.2.3.4/5")
"""Id and network of a VPC that the CDK has not looked up yet (`Vpc.from_lookup`)."""
PLACEHOLDERS = (TOKEN, LOOKUP)
"""Marks of values that come later, so that they cannot be checked here. An environment file cannot have them."""
DYNAMIC = "{{resolve:"
"""How CloudFormation's dynamic references begin. It fills them in, too."""
NUMBER_TOKEN = -1.8e289
"""Numbers that stand for the CDK's tokens are below it."""


def is_placeholder(text: str) -> bool:
    """Return whether a text's value comes later: it has a token, the placeholder of a lookup, or a dynamic reference."""
    return text in _DUMMY_VPC or any(mark in text for mark in (*PLACEHOLDERS, LIST_TOKEN, DYNAMIC))


def is_number_token(value: object) -> bool:
    """Return whether a value is a number that stands for a token."""
    return isinstance(value, int | float) and -math.inf < value <= NUMBER_TOKEN


def _text_or_checked(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, str) and is_placeholder(value) else check(value)


def _number_or_checked(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if is_number_token(value) else check(value)


def _by(method: str, whole: str = "") -> Callable[[Any], Any]:
    """Calls a method of the CDK's value; any other value stays. `whole` is the unit that must come out even."""

    def convert(value: Any) -> Any:
        own = getattr(value, method, None)
        if not callable(own):
            return value
        try:
            return own()
        except RuntimeError as e:  # jsii's errors are RuntimeErrors
            reason = str(e).partition("\n")[0].partition(": ")[2].rstrip(".")
            raise wrong(reason or "it cannot be read", f"give whole {whole}") from None

    return convert


def _member(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _version(value: Any) -> Any:
    return getattr(value, "version", value)


def _word(value: Any) -> Any:
    return str(value.value).lower().replace("_", "-") if isinstance(value, Enum) else value


MaybeToken = WrapValidator(_text_or_checked)
"""Outermost on a text: it may be a token, where the template can have one."""
MaybeNumberToken = WrapValidator(_number_or_checked)
"""On a number, after its limits and before `From...`: it may be a token, where the template can have one. All other numbers refuse tokens."""
FromName = BeforeValidator(_by("to_string"))
"""On a text: also an object with `to_string`, such as `ec2.InstanceType`."""
FromGibibytes = BeforeValidator(_by("to_gibibytes", "GiB"))
"""On a number of GiB: also a `Size`."""
FromMebibytes = BeforeValidator(_by("to_mebibytes", "MiB"))
"""On a number of MiB: also a `Size`."""
FromMinutes = BeforeValidator(_by("to_minutes", "minutes"))
"""On a number of minutes: also a `Duration`."""
FromDays = BeforeValidator(_by("to_days", "days"))
"""On a number of days: also a `Duration`."""
FromMember = BeforeValidator(_member)
"""On one of several words: also a member of an enum of the CDK whose value is that word as it is, such as `LustreDeploymentType.SCRATCH_2`."""
FromWord = BeforeValidator(_word)
"""On one of several words: also a member of an enum of the CDK whose value is that word, such as `CapacityType.ON_DEMAND`."""
FromVersion = BeforeValidator(_version)
"""On a version as text: also an object with `version`, such as `eks.KubernetesVersion`."""


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
    """Return "section" or "value" if `null` at this path means something other than the default; else None."""
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
