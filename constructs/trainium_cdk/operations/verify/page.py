"""What of our predictions was true: a record and a page that have nothing of the account in them.

The record is a list of fields that are allowed, each of a type that cannot hold a name: a number, a date, or a word of a list of ours.
Nothing is filtered. Names, ids, ARNs and messages of AWS stay in the run's own folder.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trainium_cdk import engines
from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.files import read
from trainium_cdk.operations.verify.state import End, Run

FACTS = {
    "check-errors": ("errors of the check", ""),
    "check-warnings": ("warnings of the check", ""),
    "bandwidth": ("bus bandwidth of the all-reduce", "GB/s"),
    "bandwidth-predicted": ("the same, as published", "GB/s"),
    "start-of-nodes": ("from the submission until the nodes had started", "s"),
    "stage-prepare": ("the stage prepare", "s"),
    "stage-precompile": ("the stage precompile", "s"),
    "steps-per-second": ("training steps", "a second"),
    "resumed-at-step": ("the step at which the training resumed", ""),
    "seconds-to-the-end": ("from the end of a node to that of the training", "s"),
    "jobs-listed": ("jobs in the list", ""),
    "steps-read": ("steps that were read from the log", ""),
    "price": ("price of a node for an hour, as of the Price List", "USD"),
    "price-predicted": ("the same, as of the catalogue", "USD"),
    "left": ("resources that were left", ""),
}
"""What a step may see: in words, and its unit."""
_SHORT = 60
"""Seconds: a step that is predicted to be shorter is not compared; in the sandbox none is."""
RIGHT = (0.5, 2.0)
"""A duration between these multiples of the predicted one is as predicted."""


def _among(names: frozenset[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError("it is not in the list")
        return value

    return AfterValidator(check)


_CATALOG = Catalog.load()
Word = Annotated[str, Field(max_length=40)]
Number = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
OneOfFacts = Annotated[Word, _among(frozenset(FACTS))]


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepSeen(Record):
    """A step: how it ended, and how long it took. `known`: the name of the known error that its words match."""

    name: Annotated[Word, _among(frozenset(read("verify")["steps"]))]
    end: End
    seconds: Number
    predicted: Number
    facts: dict[OneOfFacts, Number] = {}


class Verified(Record):
    """A verification, as it may be published."""

    version: Annotated[
        str, Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){1,3}((a|b|rc)[0-9]{1,3})?(\.dev[0-9]{1,6})?$", max_length=40)
    ]
    date: dt.date
    sandbox: bool
    engine: Annotated[Word, _among(frozenset(engines.ENGINES))]
    region: Annotated[Word, _among(frozenset({*_CATALOG.prices, *_CATALOG.zone_regions.values()}))]
    instance_type: Annotated[Word, _among(frozenset(_CATALOG.instances))]
    nodes: Annotated[int, Field(ge=1, le=2)]
    kind: Annotated[Word, _among(frozenset(read("verify")["training"]))]
    release: Annotated[Word, _among(frozenset(_CATALOG.releases))]
    usd: Number
    usd_predicted: Number
    max_usd: Number
    seconds: Number
    steps: tuple[StepSeen, ...]


def record(run: Run, now: float, *, sandbox: bool) -> Verified:
    """What of a run may be published."""
    plan = run.plan
    recommended = Catalog.load().recommended(plan.instance_type)
    seen = []
    for step in plan.all:
        if (done := run.done.get(step.name)) is not None:
            facts = {name: value for name, value in done.facts.items() if name in FACTS}
            seen.append(
                StepSeen(
                    name=step.name, end=done.end, seconds=round(done.seconds, 1), predicted=step.usual, facts=facts
                )
            )
    return Verified(
        version=version("trainium-cdk"),
        date=dt.datetime.fromtimestamp(run.began, dt.UTC).date(),
        sandbox=sandbox,
        engine=plan.engine,
        region=plan.region,
        instance_type=plan.instance_type,
        nodes=plan.nodes,
        kind=plan.kind,
        release=recommended.release if recommended else "",
        usd=round(run.spent(now), 2),
        usd_predicted=round(plan.expected, 2),
        max_usd=run.max_usd,
        seconds=round(now - run.began),
        steps=tuple(seen),
    )


def rows(found: Verified) -> Iterator[tuple[str, str, str, str, str]]:
    """What, predicted, seen, their ratio, and whether it is as predicted."""
    for step in found.steps:
        if step.end == "not run":
            yield step.name, "passed", "not run", "", ""
            continue
        ratio = step.seconds / step.predicted
        timed = step.predicted >= _SHORT and not found.sandbox
        right = step.end == "passed" and (not timed or RIGHT[0] <= ratio <= RIGHT[1])
        yield (
            step.name,
            f"passed, {step.predicted:,.0f} s",
            f"{step.end}, {step.seconds:,.0f} s",
            f"{ratio:.2f}",
            _verdict(right),
        )
        for name, value in step.facts.items():
            if name.endswith("-predicted"):
                continue
            words, unit = FACTS[name]
            predicted = step.facts.get(f"{name}-predicted")
            said, right = (
                ("", None)
                if predicted is None
                else (_number(predicted, unit), 0.75 * predicted <= value <= 1.34 * predicted)
            )
            by = f"{value / predicted:.2f}" if predicted else ""
            yield f"{step.name}: {words}", said, _number(value, unit), by, "" if right is None else _verdict(right)
    right = found.usd <= RIGHT[1] * found.usd_predicted
    yield (
        "cost",
        _number(found.usd_predicted, "USD"),
        _number(found.usd, "USD"),
        f"{found.usd / found.usd_predicted:.2f}",
        _verdict(right),
    )


def _verdict(right: bool) -> str:
    return "as predicted" if right else "differs"


def _number(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value == int(value) and unit != "USD" else f"{value:,.2f}"
    return f"{text} {unit}".strip()


def page(found: Verified) -> str:
    """The page in Markdown."""
    what = f"{found.nodes} x {found.instance_type} in {found.region}, {found.kind}, Neuron SDK {found.release}"
    head = [
        f"# {engines.get(found.engine).stack}, {found.date}",
        "",
        f"{what}, trainium-cdk {found.version}. {found.usd:,.2f} USD of at most {found.max_usd:,.2f}, in {found.seconds / 60:,.0f} minutes.",
        *(["", "**In the sandbox: no real AWS, no real costs or speeds.**"] if found.sandbox else []),
        "",
        "| what | predicted | seen | ratio | |",
        "|---|---|---|---|---|",
    ]
    body = [f"| {' | '.join(row)} |" for row in rows(found)]
    return "\n".join([*head, *body, ""])


def line(found: Verified) -> str:
    """Its row for docs/about/verified.md."""
    ends = {end: sum(step.end == end for step in found.steps) for end in get_args(End)}
    result = ", ".join(f"{number} {end}" for end, number in ends.items() if number)
    cells = (
        found.date, found.engine, f"{found.nodes} x {found.instance_type}", found.region, found.release, found.kind,
        f"{found.seconds:,.0f}", f"{found.usd:,.2f}", result,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"
