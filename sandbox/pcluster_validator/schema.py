"""ParallelCluster's schema of a cluster configuration as JSON Schema, for the catalogue. Runs in the environment `.venvs/pcluster`:

.venvs/pcluster/bin/python sandbox/pcluster_validator/schema.py > constructs/trainium_cdk/description/catalog/data/parallelcluster.schema.json
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import Any

_DATE = "2026-09-08"
"""The schema of the installed release (PyPI)."""


def document() -> dict[str, Any]:
    """The schema, with the release that it is of."""
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    from pcluster.schemas.cluster_schema import ClusterSchema

    sections: dict[str, Any] = {}
    top = _section(ClusterSchema(cluster_name="trn"), sections, {})
    release = version("aws-parallelcluster")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "source": f"aws-parallelcluster {release}, pcluster.schemas.cluster_schema",
        "date": _DATE,
        "$ref": f"#/$defs/{top}",
        "$defs": dict(sorted(sections.items())),
    }


def _section(schema: Any, sections: dict[str, Any], names: dict[type, str]) -> str:
    """The name of a section among the definitions, where it is added with those below it. Classes of one name in two modules get two."""
    kind = type(schema)
    if kind in names:
        return names[kind]
    name = kind.__name__.removesuffix("Schema")
    while name in sections:
        name += "_"
    properties: dict[str, Any] = {}
    required: list[str] = []
    names[kind] = name
    sections[name] = {"type": "object", "additionalProperties": False, "properties": properties}
    for field, described in schema.fields.items():
        key = described.data_key or "".join(word.capitalize() for word in field.split("_"))
        properties[key] = _field(described, sections, names)
        if described.required:
            required.append(key)
    if required:
        sections[name]["required"] = sorted(required)
    return name


def _field(field: Any, sections: dict[str, Any], names: dict[type, str]) -> dict[str, Any]:
    """CloudFormation hands over numbers and booleans as text, which ParallelCluster takes too."""
    from marshmallow import fields, validate

    if isinstance(field, fields.Nested):
        found: dict[str, Any] = {"$ref": f"#/$defs/{_section(field.schema, sections, names)}"}
        if type(field).__name__ == "OneOrManyCustomActionField":  # one script, or a sequence of them
            many = {
                "type": "object",
                "additionalProperties": False,
                "properties": {"Sequence": {"type": "array", "items": found}},
            }
            return {"if": {"required": ["Sequence"]}, "then": many, "else": found}
        found = {"type": "array", "items": found} if field.many or field.schema.many else found
    elif isinstance(field, fields.List):
        found = {"type": "array", "items": _field(field.inner, sections, names)}
    elif isinstance(field, fields.Dict):
        found = {"type": "object"}
    elif isinstance(field, fields.Boolean):
        found = {
            "type": ["boolean", "string"],
            "pattern": "^([Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|[Nn]o|[Oo]n|[Oo]ff|[01])$",
        }
    elif isinstance(field, fields.Integer):
        found = {"type": ["integer", "string"], "pattern": "^[+-]?[0-9]+$"}
    elif isinstance(field, fields.Float):
        found = {"type": ["number", "string"]}
    elif isinstance(field, fields.String):
        found = {"type": "string"}
    else:
        return {}
    for rule in field.validators:
        if isinstance(rule, validate.OneOf):
            found["enum"] = list(rule.choices)
            found.pop("type", None)
        elif isinstance(rule, validate.Length) and found.get("type") == "array":
            found |= {k: v for k, v in (("minItems", rule.min), ("maxItems", rule.max)) if v}
        elif isinstance(rule, validate.Range):
            found |= {k: v for k, v in (("minimum", rule.min), ("maximum", rule.max)) if v is not None}
    return found


if __name__ == "__main__":
    found = document()
    sections = found.pop("$defs")
    print(json.dumps(found)[:-1] + ', "$defs": {')  # a section a line
    print(",\n".join(f"{json.dumps(name)}: {json.dumps(sections[name], sort_keys=True)}" for name in sections) + "}}")
