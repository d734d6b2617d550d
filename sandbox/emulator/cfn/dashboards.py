"""AWS::CloudWatch::Dashboard. PutDashboard refuses a body that breaks CloudWatch's published structure: `dashboard.yaml`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from ministack.core.responses import AccountScopedDict
from ministack.services import cloudwatch

from sandbox.emulator.cfn.registry import Made, Properties, resource

cloudwatch._dashboards = AccountScopedDict()  # PutDashboard: "global, not region-specific"
_STRUCTURE = Path(__file__).with_name("dashboard.yaml")


@cache
def _validator() -> Any:
    return Draft202012Validator(yaml.safe_load(_STRUCTURE.read_text("utf-8")))


def mistakes(body: str) -> list[str]:
    """What CloudWatch would refuse in a dashboard's body."""
    try:
        value = json.loads(body)
    except ValueError as error:
        return [f"The dashboard body is not JSON: {error}"]
    return [f"{e.json_path}: {e.message}" for e in _validator().iter_errors(value)]


def _put(name: str, properties: Properties) -> Made:
    if wrong := mistakes(properties["DashboardBody"]):
        raise ValueError(f"The field DashboardBody must be a valid JSON object: {'; '.join(wrong)[:900]}")
    cloudwatch.cloudformation_put_dashboard(name, properties["DashboardBody"])
    return name, {}


def _create(logical: str, properties: Properties, stack: str) -> Made:
    name = properties.get("DashboardName") or f"{stack}-{logical}"
    if name in cloudwatch._dashboards:
        raise ValueError(f"{name} already exists")
    return _put(name, properties)


resource(
    "AWS::CloudWatch::Dashboard",
    create=_create,
    update=lambda id, _old, new: _put(id, new),
    delete=lambda id, _properties: cloudwatch.cloudformation_delete_dashboard(id),
)
