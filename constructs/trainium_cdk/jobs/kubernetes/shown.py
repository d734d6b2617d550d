"""A submission to read (`trn submit --dry-run`): the job and its objects as YAML, without the values of its variables, and without what is the same
in every job, or stands twice. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from trainium_cdk.runner import spec

Object = dict[str, Any]


def text(job: spec.Job, objects: Sequence[Object]) -> str:
    return _to_yaml([_shown(job), *map(_without_values, objects)])


def _shown(job: spec.Job) -> Object:
    """A job as plain data to read: its files as text, of its variables the names."""
    made: Object = spec.to_json(job)
    if job.variables:
        made["variables"] = dict.fromkeys(job.variables, "[not shown]")
    if job.files:
        made["files"] = {name: _text(content) for name, content in job.files.items()}
    return made


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"[{len(content):,} bytes]"


def _without_values(thing: Object) -> Object:
    """An object without what a Secret, or the runner's ConfigMap, has in it."""
    kept = {"stringData": "[not shown]", "binaryData": "[the runner]"}
    hidden = {key: dict.fromkeys(thing[key], note) for key, note in kept.items() if key in thing}
    if "job.json" in hidden.get("stringData", ()):
        hidden["stringData"]["job.json"] = "[the job above]"
    return {**thing, **hidden}


def _to_yaml(objects: Sequence[Object]) -> str:
    """The objects as a readable YAML stream: multi-line strings are written on several lines."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def readable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: readable(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [readable(inner) for inner in value]
        if isinstance(value, str) and "\n" in value:
            return LiteralScalarString(value)
        return value

    writer = YAML()
    writer.width = 10_000
    writer.explicit_start = True
    writer.indent(mapping=2, sequence=4, offset=2)
    out = StringIO()
    writer.dump_all([readable(thing) for thing in objects], out)
    return out.getvalue()
