"""The offline rules for one construct in any app: errors fail the synthesis, warnings are shown by the CDK's command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jsii
from aws_cdk import Annotations, Stack
from constructs import Construct, IValidation

from trainium_cdk import settings
from trainium_cdk.checks import Rule
from trainium_cdk.settings import Problem
from trainium_cdk.settings.base import LIST_TOKEN, LOOKUP, NUMBER_TOKEN, TOKEN
from trainium_cdk.settings.problems import KeyPath, Source, show


def report(
    construct: Construct,
    data: Mapping[str, Any],
    *,
    at: KeyPath,
    rules: Iterable[Rule],
    names: Mapping[str, str],
) -> None:
    """Register problems of the arguments of a construct, with the text of `trn validate`.

    Args:
        data: the environment that describes the construct, as plain data without tokens (see `known`).
        at: the key below which the construct is described; problems of other keys are ignored, except the region's.
        rules: the rules that apply to it.
        names: name of the key in an environment -> name of the argument.
    """
    try:
        environment = settings.validate(data)
    except settings.SettingsError as e:
        register(construct, e.problems, at=at, names=names)
    else:
        report_on(construct, environment, at=at, rules=rules, names=names)


def report_on(
    construct: Construct,
    environment: settings.Environment,
    *,
    at: KeyPath,
    rules: Iterable[Rule],
    names: Mapping[str, str],
    engine: str | None = None,
) -> None:
    """The same for an environment. `engine`: ignore problems of other engines."""
    found = [replace(problem, rule=rule.__name__) for rule in rules for problem in rule(environment)]
    of_engine = [p for p in found if engine is None or p.engine in {None, engine}]
    register(construct, of_engine, at=at, names=names)


def register(construct: Construct, found: Iterable[Problem], *, at: KeyPath, names: Mapping[str, str]) -> None:
    """Warnings for the CDK's command line, and errors that fail the synthesis. Arguments as of `report`."""
    problems = [p for p in found if p.key[: len(at)] == at or p.key == ("region",)]
    for problem in problems:
        if problem.level == "warning":
            Annotations.of(construct).add_warning_v2(f"trn:{problem.rule}", _text(problem, at, names))
    if errors := [_text(p, at, names) for p in problems if p.level == "error"]:
        construct.node.add_validation(_Errors(errors))


def unresolved(value: object) -> bool:
    """Whether a value is a CDK token, or the placeholder of a lookup, or holds one. (The CDK's own check sends a message to Node
    for each value.)"""
    if isinstance(value, str):
        return any(mark in value for mark in (TOKEN, LIST_TOKEN, LOOKUP))
    if isinstance(value, int | float):
        return value <= NUMBER_TOKEN
    if isinstance(value, Mapping):
        return any(unresolved(each) for pair in value.items() for each in pair)
    return isinstance(value, list | tuple) and any(map(unresolved, value))


def refuse_tokens(construct: Construct, **values: object) -> None:
    """Raises ValueError for an argument that must be known at synthesis."""
    refuse_lookups(construct, **values)
    for name, value in values.items():
        if unresolved(value):
            raise ValueError(
                f"{construct.node.path}: {name} is a token of the CDK, which has no value before the deployment: give a plain value"
            )


def refuse_lookups(construct: Construct, **values: object) -> None:
    """Raises ValueError for the placeholder of a lookup. The CDK's command line looks up values after the first synthesis, and
    only if that succeeds."""
    for name, value in values.items():
        if LOOKUP in str(value):
            raise ValueError(
                f"{construct.node.path}: {name} is not looked up yet in the first synthesis, and must be known there: "
                "give value_from_lookup a default_value"
            )


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The given values without tokens."""
    return {k: v for k, v in values.items() if v is not None and not unresolved(v)}


def region_of(construct: Construct, otherwise: Sequence[str]) -> str:
    """The region of the construct's stack; for an agnostic stack, the first of `otherwise`."""
    region = Stack.of(construct).region
    return next(iter(otherwise), "us-east-1") if unresolved(region) else region


@jsii.implements(IValidation)
class _Errors:
    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def validate(self) -> list[str]:
        return self._texts


def _text(problem: Problem, at: KeyPath, names: Mapping[str, str]) -> str:
    key = problem.key[len(at) :] if problem.key[: len(at)] == at else problem.key
    text = f"{problem.reason}. Fix: {problem.fix}.".replace(".".join(map(str, (*at, ""))), "")
    # keys, for example `max_nodes`, `capacity_type: spot` or `fsx`; not the same words in a sentence
    text = re.sub(r"\b[a-z]+(_[a-z]+)+\b|\b[a-z]+(?=: )|\bfsx\b", lambda m: names.get(m[0], m[0]), text)
    if not key:
        return text
    argument = re.sub(r"^[a-z_]+", lambda m: names.get(m[0], m[0]), replace(problem, key=key).dotted)
    return f"{argument} = {show(problem.value)}: {text}"
