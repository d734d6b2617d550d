"""Requests against botocore's own model of a service: names, required members, types, lengths, enumerations and patterns."""

from __future__ import annotations

import functools
import re
from typing import Any

from sandbox.emulator.query import ApiError

Data = dict[str, Any]


@functools.cache
def of(service: str) -> Any:
    """botocore's model of a service."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def checked(service: str, action: str, request: Data) -> Data:
    """The request with numbers as numbers.

    Raises:
        ApiError: the model does not allow it.
    """
    found: Data = _checked(of(service).operation_model(action).input_shape, request, action)
    return found


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def _checked(shape: Any, value: Any, at: str) -> Any:
    limits, kind = shape.metadata, shape.type_name
    if kind == "structure":
        if missing := [name for name in limits.get("required", ()) if name not in value]:
            raise _invalid(f"{at}: {', '.join(missing)} is missing")
        if unknown := sorted(set(value) - set(shape.members)):
            raise _invalid(f"{at}: unknown {', '.join(unknown)}")
        return {name: _checked(shape.members[name], item, f"{at}.{name}") for name, item in value.items()}
    if kind == "list":
        _within(len(value), limits, at, "items")
        return [_checked(shape.member, item, f"{at}[{i}]") for i, item in enumerate(value)]
    if kind == "map":
        return {k: _checked(shape.value, v, f"{at}.{_checked(shape.key, k, at)}") for k, v in value.items()}
    if kind == "integer":
        if not re.fullmatch(r"-?\d+", str(value)):
            raise _invalid(f"{at}: {value!r} is not a whole number")
        _within(int(value), limits, at, "")
        return int(value)
    if not isinstance(value, str):
        raise _invalid(f"{at}: {value!r} is not text")
    _within(len(value), limits, at, "characters")
    if "enum" in limits and value not in limits["enum"]:
        raise _invalid(f"{at}: {value!r} is none of {', '.join(limits['enum'])}")
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        raise _invalid(f"{at}: {value!r} does not match {limits['pattern']}")
    return value


def _within(number: int, limits: Data, at: str, what: str) -> None:
    if not limits.get("min", number) <= number <= limits.get("max", number):
        bounds = f"{limits.get('min', '')} to {limits.get('max', '')}"
        raise _invalid(f"{at}: {number} {what}".rstrip() + f" is not within {bounds}")
