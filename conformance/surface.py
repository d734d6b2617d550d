"""Interfaces in a vendor's source: Python parsed as a syntax tree, YAML as data. Nothing is executed. Pure."""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, cast

Options = Mapping[str, Mapping[str, Any]]
"""Options of a command line, by `--name`: their type, default, choices and action, as far as the source has them as literals."""

_KEPT = ("action", "choices", "nargs", "required", "const", "dest", "default")


def argparse_options(source: str) -> dict[str, dict[str, Any]]:
    """The options that the source adds to an argparse parser, sorted."""
    found = {}
    for call in _calls(source, "add_argument"):
        names = [str(ast.literal_eval(name)) for name in call.args]
        settings = {k.arg: _literal(k.value) for k in call.keywords if k.arg in _KEPT and _literal(k.value) is not None}
        kind = next((ast.unparse(k.value) for k in call.keywords if k.arg == "type"), None)
        found[names[-1]] = {**({"type": kind} if kind else {}), **settings}
    return dict(sorted(found.items()))


def class_fields(source: str, names: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """The fields of the named dataclasses (`Outer.Inner`), with type and default; `required` where a field has no default."""
    return {name: dict(_fields(_class(ast.parse(source), name))) for name in names}


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    found: ast.Module | ast.ClassDef = tree
    for part in name.split("."):
        found = next(node for node in ast.walk(found) if isinstance(node, ast.ClassDef) and node.name == part)
    return cast("ast.ClassDef", found)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        value = item.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
            given = {keyword.arg: keyword.value for keyword in value.keywords}
            value = given.get("default")
            required = not given.keys() & {"default", "default_factory"}
        else:
            required = value is None
        default = None if value is None else _literal(value)
        kind = " | ".join(part for part in ast.unparse(item.annotation).split(" | ") if part != "None")
        found: dict[str, Any] = {"type": kind, **({} if default is None else {"default": default})}
        yield item.target.id, {**found, **({"required": True} if required else {})}


def class_options(classes: Mapping[str, Options], root: str, prefix: str = "--") -> dict[str, Mapping[str, Any]]:
    """The options that a command line made of a dataclass has: `--field`, and `--field.inner` where the type is another class."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, settings in classes[root].items():
        if settings["type"] in classes:
            found |= class_options(classes, settings["type"], f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = settings
    return found


def literal_options(source: str) -> list[str]:
    """Every string of the source that is an option's name, sorted: for a program that parses its arguments itself."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return sorted({text for text in texts if isinstance(text, str) and re.fullmatch(r"--[a-z]\w+", text)})


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def attributes(source: str, package: str) -> dict[str, list[str]]:
    """The attributes that the source uses from modules of a package, by module."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {a.asname: a.name for a in node.names if a.asname and a.name.split(".")[0] == package}
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            found.setdefault(aliases[node.value.id], set()).add(node.attr)
    return {module: sorted(names) for module, names in sorted(found.items())}


def top_level(source: str) -> list[str]:
    """The names that a module defines or imports at its top level, sorted."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets: Iterable[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return sorted(found)


def _calls(source: str, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node


def yaml_keys(source: str) -> list[str]:
    """The dotted keys of a YAML mapping, sorted; a list counts as a value."""
    return list(yaml_values(source))


def yaml_values(source: str) -> dict[str, Any]:
    """The values of a YAML mapping, by their dotted keys, sorted; a list is one value."""
    from ruamel.yaml import YAML

    def walk(value: object, above: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from walk(inner, f"{above}.{key}" if above else str(key))
        else:
            yield above, value

    return dict(sorted(walk(YAML(typ="safe").load(source), "")))


def yaml_options(source: str) -> list[str]:
    """The keys that a YAML file has in comments only, as examples (`# key: ...`), sorted."""
    return sorted(set(re.findall(r"^ *# *([A-Za-z][A-Za-z0-9_]*):(?: |$)", source, re.MULTILINE)))


def crd_schema(source: str) -> dict[str, Any]:
    """The schema of a CustomResourceDefinition's newest version: types and allowed values, without descriptions. Objects accept
    only the named properties."""
    from ruamel.yaml import YAML

    def strict(schema: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {key: schema[key] for key in ("type", "enum", "format") if key in schema}
        if "items" in schema:
            kept["items"] = strict(schema["items"])
        if "properties" in schema:
            kept["properties"] = {name: strict(inner) for name, inner in schema["properties"].items()}
            kept["additionalProperties"] = False
        elif isinstance(more := schema.get("additionalProperties"), dict):
            kept["additionalProperties"] = strict(more)
        return kept

    version = YAML(typ="safe").load(source)["spec"]["versions"][-1]
    return strict(version["schema"]["openAPIV3Schema"])


def yaml_sections(source: str) -> list[str]:
    """The dotted keys of a YAML mapping down to the second level, sorted."""
    return sorted({".".join(key.split(".")[:2]) for key in yaml_keys(source)})


def cfn_interface(source: str) -> dict[str, list[str]]:
    """The parameters and outputs of a CloudFormation template."""
    from ruamel.yaml import YAML

    template = YAML(typ="rt").load(source)
    return {section: sorted(map(str, template.get(section, {}))) for section in ("Parameters", "Outputs")}


def attachable_policies(source: str) -> list[str]:
    """The patterns of managed policies that a template's roles may attach (conditions on `iam:PolicyARN`), sorted."""
    from ruamel.yaml import YAML

    def walk(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            for key, inner in node.items():
                if key == "iam:PolicyARN":
                    patterns = inner if isinstance(inner, list) else [inner]
                    yield from (str(getattr(one, "value", one)) for one in patterns)
                else:
                    yield from walk(inner)
        elif isinstance(node, list):
            for inner in node:
                yield from walk(inner)

    return sorted(set(walk(YAML(typ="rt").load(source))))


def s3_objects(source: str) -> list[str]:
    """The addresses of objects in S3 that a text names, as s3://bucket/key, sorted."""
    found = re.findall(r"(?:s3://|https://s3\.amazonaws\.com/)([\w.-]+/[\w./-]*\w)", source)
    return sorted({f"s3://{name}" for name in found})


def requirement_lines(source: str) -> list[str]:
    """The lines of a requirements file, without blanks and comments."""
    lines = (line.partition("#")[0].strip() for line in source.splitlines())
    return [line for line in lines if line]


class Refused(Exception):
    """A program rejects these arguments."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(text)
    return text.lower() in ("true", "1", "yes")


_TYPES: Mapping[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}


def parser(options: Options) -> argparse.ArgumentParser:
    """A parser of recorded options: names, types, choices, required options and defaults. It raises `Refused`."""
    made = _Parser(allow_abbrev=False)
    for name, recorded in options.items():
        settings = dict(recorded)
        kind = settings.pop("type", None)
        if kind == "bool":
            settings |= {"type": _boolean, "nargs": "?", "const": True}
        elif kind and any(part.startswith("list") for part in kind.split(" | ")):
            settings |= {"nargs": "+"}
        elif kind and kind.startswith("Literal["):
            settings |= {"choices": list(ast.literal_eval(kind.removeprefix("Literal")))}
        elif kind:
            settings |= {"type": _TYPES.get(kind, str)}
        made.add_argument(name, dest=settings.pop("dest", name.removeprefix("--")), **settings)
    return made


def agent_files(source: str) -> dict[str, Any]:
    """The CloudWatch agent's schema of one entry of `logs.logs_collected.files.collect_list`, without descriptions."""
    schema = json.loads(source)
    logs = schema["definitions"]["logsDefinition"]
    if "files" not in logs["properties"]["logs_collected"]["properties"]:
        raise ValueError("logs_collected has no files")

    def short(node: Mapping[str, Any]) -> dict[str, Any]:
        while "$ref" in node:
            found: Any = schema
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            node = found
        return {key: node[key] for key in ("type", "enum", "minLength", "maxLength") if key in node}

    items = logs["definitions"]["logsFilesDefinition"]["properties"]["collect_list"]["items"]
    of = {name: short(value) for name, value in items["properties"].items()}
    return {
        "type": "object",
        "required": items["required"],
        "additionalProperties": items["additionalProperties"],
        "properties": of,
    }


def node_metrics(source: str) -> list[str]:
    """Names of Container Insights' metrics of nodes: devices, EFA, memory and disks."""
    return sorted(set(re.findall(r'"(node_(?:neuron|efa|memory_u|filesystem)\w+)"', source)))
