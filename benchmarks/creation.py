"""How long resources take to create: assumptions with their source."""

from __future__ import annotations

import datetime as dt
from functools import cache
from pathlib import Path

from pydantic import Field
from ruamel.yaml import YAML

from trainium_cdk.catalog.facts import Fact


class CreationTimes(Fact):
    source: str
    date: dt.date
    default: int = Field(gt=0, description="seconds for a type that is not listed")
    seconds: dict[str, int]

    def of(self, kind: str) -> int:
        """Seconds that a CloudFormation type takes."""
        return self.seconds.get(kind, self.default)


@cache
def creation_times() -> CreationTimes:
    return CreationTimes.model_validate(YAML(typ="safe", pure=True).load(Path(__file__).with_suffix(".yaml")))
