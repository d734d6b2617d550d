"""The JSON schema that editors complete and check the environment file with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from trainium_cdk import settings

ENVIRONMENTS = sorted((Path(__file__).parent.parent / "environments").glob("*.yaml"))
SCHEMA = settings.json_schema()


def _errors(data: Any) -> list[str]:
    # dates of releases are plain YAML dates, and text in the schema
    return [e.json_path for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(data)]


def _read(text: str) -> Any:
    loaded = settings.parse(text)  # so that what follows is known to be right
    assert loaded
    return YAML(typ="safe", pure=True).load(text)


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda f: f.stem)
def test_accepts_valid_environments(file: Path) -> None:
    assert _errors(_read(file.read_text("utf-8"))) == []


def test_takes_empty_sections() -> None:
    text = "pcluster:\n  head:\n  queues:\nnetwork:\n  zone_ids:\ntags:\ncatalog:\n  instances:\n"
    assert _errors(_read(text)) == []
    assert _errors(
        {"network": {"existing": {"vpc_id": "vpc-12345678", "cidr": "10.0.0.0/16", "private_subnets": None}}}
    )


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"regoin": "x"}, "$"),
        ({"name": 5}, "$.name"),
        ({"on_destroy": "kept"}, "$.on_destroy"),
        ({"network": {"nat": "two"}}, "$.network.nat"),
        ({"network": {"zone_ids": ["us-east-1a"]}}, "$.network.zone_ids[0]"),
        ({"pcluster": {"queues": []}}, "$.pcluster.queues"),
        ({"pcluster": {"queues": [{"compute_resources": [{"max_nodes": 0}]}]}}, "$.pcluster.queues[0].compute_resources[0].max_nodes"),
        ({"pcluster": {"accounting": {"uri": "db"}}}, "$.pcluster.accounting"),
        ({"catalog": {"instances": {"trn1.32xlarge": 5}}}, "$.catalog.instances['trn1.32xlarge']"),
        ({"overrides": {}}, "$"),
        ([], "$"),
    ],
)  # fmt: skip
def test_refuses_bad_shapes(data: Any, path: str) -> None:
    assert any(p == path or path.startswith(p) for p in _errors(data))
    with pytest.raises(settings.SettingsError):
        settings.validate(data)


def test_is_a_schema_and_describes_each_key() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert "catalog" in SCHEMA["properties"]
    undescribed = [
        f"{name}.{key}"
        for name, part in {"Environment": SCHEMA, **SCHEMA["$defs"]}.items()
        for key, value in part.get("properties", {}).items()
        if "description" not in value and "$ref" not in value
    ]
    assert undescribed == []


def test_the_schema_in_the_repository_is_current() -> None:
    written = json.loads((Path(__file__).parent.parent.parent / "environment.schema.json").read_text("utf-8"))
    assert written == SCHEMA, "the settings have changed: run `make schema` and commit environment.schema.json"
