"""What of our predictions was true: a record and a page that have nothing of the account in them.

The record is a list of fields that are allowed, each of a type that cannot hold a name: a number, a date, or a word of a list of ours.
Nothing is filtered. Names, ids, ARNs and messages of AWS stay in the run's own folder.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trainium_cdk import engines
from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.files import read
from trainium_cdk.catalog.known_errors import job_errors
from trainium_cdk.operations.verify.state import End, Run

FACTS = {
    "check-errors": ("errors of the check", "", 0.0),
    "check-warnings": ("warnings of the check", "", 0.0),
    "denied": ("commands that were denied something", "", 0.0),
    "bandwidth": ("bus bandwidth of the all-reduce", "GB/s", 0.25),
    "start-of-nodes": ("from the submission until the nodes had started", "s", 0.0),
    "stage-prepare": ("the stage prepare", "s", 0.0),
    "stage-precompile": ("the stage precompile", "s", 0.0),
    "steps-per-second": ("training steps", "a second", 0.0),
    "resumed-at-step": ("the step at which the training resumed", "", 0.0),
    "seconds-to-the-end": ("from the end of a node to that of the training", "s", 0.0),
    "jobs-listed": ("jobs in the list", "", 0.0),
    "steps-read": ("steps that were read from the log", "", 0.0),
}
"""What a step may see: in words, its unit, and by how much of the predicted value it may differ."""
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
    """A step: how it ended, how long it took, what it saw, and what of that was predicted. `known`: the name of the known error that ended it."""

    name: Annotated[Word, _among(frozenset(read("verify")["steps"]))]
    end: End
    seconds: Number
    predicted: Number
    facts: dict[OneOfFacts, Number] = {}
    predictions: dict[OneOfFacts, Number] = {}
    known: Annotated[Word, _among(frozenset({"", *(error.name for error in job_errors())}))] = ""


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
            seen.append(
                StepSeen(
                    name=step.name,
                    end=done.end,
                    seconds=round(done.seconds, 1),
                    predicted=step.usual,
                    facts={name: value for name, value in done.facts.items() if name in FACTS},
                    predictions={name: value for name, value in done.predictions.items() if name in FACTS},
                    known=_known(done.reason),
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
        by = step.seconds / step.predicted
        timed = step.predicted >= _SHORT and not found.sandbox
        right = step.end == "passed" and (not timed or RIGHT[0] <= by <= RIGHT[1])
        yield (
            step.name,
            f"passed, {step.predicted:,.0f} s",
            f"{step.end}, {step.seconds:,.0f} s",
            f"{by:.2f}",
            _verdict(right),
        )
        if step.end == "failed":
            said = f"known: {step.known}" if step.known else "no known error"
            yield f"{step.name}: why", "", said, "", "" if step.known else _verdict(False)
        for name, value in step.facts.items():
            words, unit, within = FACTS[name]
            if (predicted := step.predictions.get(name)) is None:
                yield f"{step.name}: {words}", "", _number(value, unit), "", ""
                continue
            right = abs(value - predicted) <= within * predicted
            ratio = f"{value / predicted:.2f}" if predicted else ""
            yield f"{step.name}: {words}", _number(predicted, unit), _number(value, unit), ratio, _verdict(right)
    right = found.usd <= RIGHT[1] * found.usd_predicted
    yield (
        "cost",
        _number(found.usd_predicted, "USD"),
        _number(found.usd, "USD"),
        f"{found.usd / found.usd_predicted:.2f}",
        _verdict(right),
    )


def _known(reason: str) -> str:
    """The name of the known error that a step's words match; empty if there is none."""
    lines = reason.splitlines()
    return next((error.name for error in job_errors() for line in lines if error.is_in(line)), "")


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
