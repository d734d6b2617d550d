"""Of what well-known programs print, the series are read that a person would read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainium_cdk.client.jobs.metrics import read_log
from trainium_cdk.runner.readers.records import Evaluation, Record, Step

FORMS = yaml.safe_load(Path(__file__).with_suffix(".yaml").with_stem("printed").read_text("utf-8"))


def as_read(record: Record) -> dict[str, Any]:
    values = {name: value for name, value in record._asdict().items() if value is not None}
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in values.items()}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["form"])
def test_a_log_is_read(form: dict[str, Any]) -> None:
    found = read_log(form["log"].replace("⏎", "\r").encode())
    assert all(isinstance(one, (Step, Evaluation)) for one in found)
    assert [as_read(one) for one in found] == form["read"]
