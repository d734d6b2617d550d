"""Pydantic's validation errors of an environment, as problems with a reason and a fix."""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trainium_cdk import text
from trainium_cdk.description.settings.keys import fix_of_unknown, keys_at, may_be_none
from trainium_cdk.problems import KeyPath, Problem, show
from trainium_cdk.text import counted, is_placeholder

CATALOG_ERROR = "trn_catalog"
"""Type of the error that collects all mistakes under `catalog`."""
_READ_AS = {bool: "true or false", int: "a number", float: "a number", dt.date: "a date", dt.datetime: "a date"}


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    numbers: Mapping[KeyPath, str] = types.MappingProxyType({}),
) -> list[Problem]:
    """One problem for each mistake, without errors that only follow from another one.

    Args:
        model: the validated model.
        numbers: as they are written. Default: unknown.
    """
    details = error.errors()
    problems = [p for e in _roots(details) for p in _problems(e, numbers, model)]
    hashable = all(p.value is None or isinstance(p.value, str | int | float) for p in problems)
    return list(dict.fromkeys(problems)) if hashable else problems


def _roots(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """A list whose only item is wrong is also reported as too short, and a default that depends on a wrong value as not made."""
    above = {e["loc"][:end] for e in details for end in range(len(e["loc"]))}
    unmade = "default_factory_not_called"
    return [e for e in details if e["type"] != unmade and not (e["type"] == "too_short" and e["loc"] in above)]


def _problems(error: ErrorDetails, numbers: Mapping[KeyPath, str], model: type[BaseModel]) -> list[Problem]:
    if error["type"] == CATALOG_ERROR:
        inner: list[ErrorDetails] = error["ctx"]["errors"]
        return [p for e in _roots(inner) for p in _problems({**e, "loc": ("catalog", *e["loc"])}, numbers, model)]
    key = tuple(k for k in error["loc"] if k not in ("[key]", "int", "str"))
    return [_problem(error, key, error["input"], numbers.get(key), model)]


def _problem(error: ErrorDetails, key: KeyPath, value: Any, number: str | None, model: type[BaseModel]) -> Problem:
    context = error.get("ctx", {})
    last = key[-1] if key else "it"
    after = "the dash" if isinstance(last, int) else f"`{last}:`"
    if value is None:
        return Problem(key, "(nothing)", "it has no value", f"write a value after {after}, or remove the line")
    match error["type"]:
        case "trn":
            return Problem(key, _shown(value), str(context["reason"]), str(context["fix"]))
        case "extra_forbidden":
            return Problem(key, value, "this key does not exist", fix_of_unknown(model, key[:-1], str(last)))
        case "missing":
            return Problem(key, "(absent)", "this key is required", f"add `{last}:`")
        case "literal_error" if f" {value}," in f" {context['expected'].replace(' or', ',')},":
            return Problem(key, value, "read as text, not as a number", f"remove the quotes: {value}")
        case "literal_error":
            return Problem(key, value, "not one of the allowed values", f"write {context['expected']}")
        case text.MISMATCH if isinstance(value, str) and is_placeholder(value):
            return Problem(
                key,
                value,
                "a token of the CDK has no value before the deployment, and this must be known",
                "give the text",
            )
        case text.MISMATCH:
            return Problem(key, value, "it does not have the required form", f"write {context['fix']}")
        case "string_pattern_mismatch":  # of a type of someone else's
            return Problem(
                key, value, "it does not have the required form", "see the key's description in `trn show schema`"
            )
        case "string_type" if type(value) in _READ_AS:
            # as it is written: 2.30 was read as 2.3, and 012 as 12
            written = number or ("" if isinstance(value, float) else show(value))
            fix = f'put it in quotes: "{written}"' if written else "put the value in quotes"
            return Problem(key, number or value, f"read as {_READ_AS[type(value)]}, not as text", fix)
        case "string_type" if isinstance(value, list | tuple | Mapping):
            only = f': "{show(value[0])}"' if isinstance(value, list) and len(value) == 1 else ""
            return Problem(key, _shown(value), "this is text, not a list or a section", f"write it after {after}{only}")
        case "string_type":
            fix = text.fix_of(model, str(last)) or "its name or id, as text"
            return Problem(key, _shown(value), "this is text, not an object of Python", f"write {fix}")
        case "model_type" | "dict_type" | "model_attributes_type":
            known = keys_at(model, key)
            fix = f"write keys under it, for example {known[0]}" if known else "write keys under it"
            pairs = [pair.split("=", 1) for pair in value.split()] if isinstance(value, str) else []
            if pairs and all(len(pair) == 2 and '"' not in pair[1] for pair in pairs):  # a line of slurm.conf
                fix = "write {" + ", ".join(f'{name}: "{given}"' for name, given in pairs) + "}"
            fix += ", or null for none" if may_be_none(model, key) else ""
            return Problem(key, value, "this is a section, not a value", fix)
        case "tuple_type":
            return Problem(
                key, value, "this is a list", f"write its items under `{last}:`, one per line, each after a dash"
            )
        case "too_short":
            least = context["min_length"]
            return Problem(key, value, f"it needs at least {least} item(s)", "add an item, or remove the key")
        case "invalid_key":
            return Problem(key, value, "the key's name is not text", "put the name in quotes")
        case "too_long":
            most = context["max_length"]
            return Problem(key, value, f"it has {context['actual_length']} items, and may have {most}", "remove some")
        case _:
            message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
            return Problem(
                key,
                _shown(value),
                message[:1].lower() + message[1:],
                fix_of_value(error["type"], context) or "give a value of this kind",
            )


def fix_of_value(kind: str, context: Mapping[str, Any]) -> str:
    """The fix for a number outside its range, a text of the wrong length, or a value of another type; empty for other errors."""
    match kind:
        case "less_than_equal":
            return f"write {context['le']} or less"
        case "greater_than_equal":
            return f"write {context['ge']} or more"
        case "less_than":
            return f"write less than {context['lt']}"
        case "greater_than":
            return f"write more than {context['gt']}"
        case "string_too_long":
            return f"shorten it to {counted(context['max_length'], 'character')}"
        case "string_too_short":
            return f"write at least {counted(context['min_length'], 'character')}"
        case "int_type" | "int_parsing" | "int_from_float":
            return "write a whole number, without a unit"
        case "float_type" | "float_parsing" | "finite_number":
            return "write a number, without a unit"
        case "bool_type" | "bool_parsing":
            return "write true or false"
    return ""


def _shown(value: Any) -> Any:
    """The value; for a section, a placeholder, because the reason then names the values."""
    if isinstance(value, Mapping):
        return "(this section)"
    return f"({type(value).__name__})" if repr(value).startswith("<") else value
