"""The reference of the environment file, from the JSON schema of the settings' models and the environments of the tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML

from sandbox.paths import HOME as ROOT
from tools.reference.markdown import code, plain
from trainium_cdk import settings

Schema = Mapping[str, Any]
UNITS = {
    "gib": "GiB",
    "gb": "GB",
    "minutes": "minutes",
    "days": "days",
    "log_days": "days",
    "mibps": "MiB/s",
    "iops": "operations/s",
    "nodes": "nodes",
}
"""The last word of a key -> the unit of its number."""
EXAMPLES = ("tutorial.yaml", "**/*.yaml")
OWN = {
    ("tags",): {"team": "speech"},
    ("catalog", "instances"): {"trn2.48xlarge": {"vcpus": 192}},
    ("catalog", "releases"): {"2.33.0": {"released": "2026-09-30"}},
}


@dataclass
class Section:
    """One section of the file: where it stands, and its keys."""

    path: tuple[str, ...]
    about: str
    keys: Mapping[str, Schema]
    required: frozenset[str] = field(default_factory=frozenset)

    @property
    def title(self) -> str:
        return ".".join(self.path).replace(".[]", "[]") or "Top level"


def sections() -> list[Section]:
    """Every section, each below the one that it is in."""
    schema = settings.json_schema()
    return list(_sections((), schema, schema["$defs"]))


def _sections(path: tuple[str, ...], schema: Schema, models: Schema) -> Iterator[Section]:
    yield Section(path, schema.get("description", ""), schema["properties"], frozenset(schema.get("required", ())))
    for name, key in schema["properties"].items():
        for below, model in _models(key, models):
            yield from _sections((*path, name, *below), model, models)


def _models(key: Schema, models: Schema) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """The sections that are values of a key, or items of its list."""
    if "$ref" in key:
        model = models[key["$ref"].rsplit("/", 1)[1]]
        if "properties" in model:
            yield (), model
    for choice in (*key.get("anyOf", ()), *key.get("allOf", ())):
        yield from _models(choice, models)
    for below, model in _models(key["items"], models) if "items" in key else ():
        yield ("[]", *below), model
    if isinstance(key.get("additionalProperties"), Mapping):
        for below, model in _models(key["additionalProperties"], models):
            yield ("NAME", *below), model


def kind(key: Schema) -> str:
    """The type of a key's value in words, with its limits."""
    if "anyOf" in key:
        found = list(dict.fromkeys(kind(choice) for choice in key["anyOf"]))
        return "section" if set(found) == {"section", "`null`"} else " or ".join(found)
    if "$ref" in key or "allOf" in key:
        return "section"
    if "enum" in key or "const" in key:
        values = key["enum"] if "enum" in key else [key["const"]]
        return ", ".join(code(json.dumps(value).strip('"')) for value in values)
    types = key.get("type", "any")
    name = next((t for t in types if t != "null"), "null") if isinstance(types, list) else types
    match name:
        case "array":
            return f"list of {kind(key['items'])}" if "items" in key else "list"
        case "object":
            of = key.get("additionalProperties")
            return f"mapping of names to {kind(of)}" if isinstance(of, Mapping) and of.get("type") else "mapping"
        case "string":
            return "text"
        case "integer" | "number":
            return ("whole number" if name == "integer" else "number") + _range(key)
        case "boolean":
            return "`true` or `false`"
        case "null":
            return "`null`"
    return str(name)


def _range(key: Schema) -> str:
    low = key.get("minimum", key.get("exclusiveMinimum"))
    high = key.get("maximum", key.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    return (
        f", {low} to {high}"
        if None not in (low, high)
        else f", at least {low}"
        if high is None
        else f", at most {high}"
    )


def default(section: Section, name: str) -> str:
    """What holds where the key is absent."""
    value = section.keys[name].get("default")
    if isinstance(value, Mapping) and value and "$ref" in json.dumps(section.keys[name]):
        return "see the section"
    if value is None:
        return "see the text" if "Default:" in section.keys[name].get("description", "") else "none"
    return code(json.dumps(value).strip('"')) if len(json.dumps(value)) < 60 else "see the section"


def unit(name: str, key: Schema) -> str:
    """The unit of a number; of others, none."""
    if not any(word in kind(key) for word in ("number",)) and not name.endswith("days"):
        return ""
    return UNITS.get(name, UNITS.get(name.rsplit("_", 1)[-1], ""))


def examples() -> dict[tuple[str, ...], Any]:
    """Path of a key -> a value of an environment that the tests load, the shortest one."""
    found: dict[tuple[str, ...], Any] = dict(OWN)
    files = [file for pattern in EXAMPLES for file in sorted((ROOT / "tests/environments").glob(pattern))]
    for file in dict.fromkeys(files):
        for path, value in _values((), YAML(typ="safe").load(file.read_text("utf-8"))):
            if path not in found or len(str(value)) < len(str(found[path])):
                found[path] = value
    return found


def _values(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if path and path[-1] != "[]":
        yield path, value
    for key, below in value.items() if isinstance(value, Mapping) else ():
        yield from _values((*path, str(key)), below)
    for below in value if isinstance(value, list) else ():
        yield from _values((*path, "[]"), below)


def example(section: Section, name: str, known: Mapping[tuple[str, ...], Any]) -> str:
    """A value that is accepted: of a tested environment, else of the schema."""
    key = section.keys[name]
    value = known.get((*section.path, name))
    if value is None:
        choices = [c for part in (key, *key.get("anyOf", ())) for c in part.get("enum", ())]
        other = [c for c in choices if c != key.get("default")]
        value = other[0] if other else key.get("default")
        if isinstance(value, bool):
            value = not value
    text = json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    return code(f"{name}: {text}") if value is not None and len(text) < 90 else ""


def page() -> str:
    """The page."""
    known = examples()
    parts = [
        "# The environment file\n\n"
        "Every key of the file. A key that you leave out has its default. An unknown key is an error that names the key that was meant, "
        "also for words of eksctl, ParallelCluster, Terraform and SkyPilot. "
        "`trn check --offline --environment FILE` checks yours; [messages](messages.md) lists what it can report.\n"
    ]
    for section in sections():
        about = plain(section.about.partition("Read one with")[0])
        keys = "".join(_key(section, name, known) for name in section.keys)
        parts.append(f"## {section.title}\n\n{about}\n\n{keys}")
    return "\n".join(parts)


def _key(section: Section, name: str, known: Mapping[tuple[str, ...], Any]) -> str:
    key = section.keys[name]
    takes = [" ".join(filter(None, (kind(key), unit(name, key))))]
    takes.append("required" if name in section.required else f"default: {default(section, name)}")
    shown = example(section, name, known)
    told = plain(key.get("description", ""))
    return f"**{code(name)}** ({'; '.join(takes)})\n\n:   {told}{f' Example: {shown}' if shown else ''}\n\n"
