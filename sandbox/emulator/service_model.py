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


def of_query(action: str, params: dict[str, Any]) -> Data:
    """EC2's request in its query form (`InstanceType.1`), as boto3's names and values; numbers as numbers, booleans as text.

    Raises:
        ApiError: the model does not allow it.
    """
    shape = of("ec2").operation_model(action).input_shape
    flat = {k: v[0] if isinstance(v, list) else v for k, v in params.items() if k not in ("Action", "Version")}
    request = _structure(shape, flat)
    if flat:
        raise ApiError("UnknownParameter", f"The parameter {min(flat)} is not recognized")
    try:
        found: Data = _checked(shape, request, action)
    except ApiError as e:
        code = "MissingParameter" if "is missing" in e.message else "InvalidParameterValue"
        raise ApiError(code, e.message) from None
    return found


def _structure(shape: Any, flat: dict[str, str], prefix: str = "") -> Data:
    """Takes what belongs to a structure out of the flat form."""
    found = {}
    for name, member in shape.members.items():
        written = str(member.serialization.get("queryName") or member.serialization.get("name", name))
        if (value := _taken(member, flat, prefix + written[:1].upper() + written[1:])) is not None:
            found[name] = value
    return found


def _taken(shape: Any, flat: dict[str, str], at: str) -> Any:
    if shape.type_name == "structure":
        return _structure(shape, flat, f"{at}.") or None
    if shape.type_name == "list":
        items: list[Any] = []
        while (item := _taken(shape.member, flat, f"{at}.{len(items) + 1}")) is not None:
            items.append(item)
        return items or None
    return flat.pop(at, None)


def invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def _checked(shape: Any, value: Any, at: str) -> Any:
    limits, kind = shape.metadata, shape.type_name
    if kind == "structure":
        if missing := [name for name in limits.get("required", ()) if name not in value]:
            raise invalid(f"{at}: {', '.join(missing)} is missing")
        if unknown := sorted(set(value) - set(shape.members)):
            raise invalid(f"{at}: unknown {', '.join(unknown)}")
        return {name: _checked(shape.members[name], item, f"{at}.{name}") for name, item in value.items()}
    if kind == "list":
        _within(len(value), limits, at, "items")
        return [_checked(shape.member, item, f"{at}[{i}]") for i, item in enumerate(value)]
    if kind == "map":
        return {k: _checked(shape.value, v, f"{at}.{_checked(shape.key, k, at)}") for k, v in value.items()}
    if kind == "integer":
        if not re.fullmatch(r"-?\d+", str(value)):
            raise invalid(f"{at}: {value!r} is not a whole number")
        _within(int(value), limits, at, "")
        return int(value)
    if not isinstance(value, str):
        raise invalid(f"{at}: {value!r} is not text")
    _within(len(value), limits, at, "characters")
    if "enum" in limits and value not in limits["enum"]:
        raise invalid(f"{at}: {value!r} is none of {', '.join(limits['enum'])}")
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        raise invalid(f"{at}: {value!r} does not match {limits['pattern']}")
    return value


def _within(number: int, limits: Data, at: str, what: str) -> None:
    if not limits.get("min", number) <= number <= limits.get("max", number):
        bounds = f"{limits.get('min', '')} to {limits.get('max', '')}"
        raise invalid(f"{at}: {number} {what}".rstrip() + f" is not within {bounds}")
