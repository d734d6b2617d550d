"""Interfaces in a vendor's source: Python parsed as a syntax tree, YAML as data. Nothing is executed. Pure."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn


def argparse_options(source: str) -> list[str]:
    """Every option (`--name`) that the source adds to an argparse parser, sorted."""
    found = set()
    for call in _calls(source, "add_argument"):
        found |= {str(a.value) for a in call.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")}
    return sorted(found)


def dataclass_fields(source: str, *names: str) -> list[str]:
    """The fields of the named dataclasses, sorted: HfArgumentParser makes options of them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name in names:
            found |= {
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
    return sorted(found)


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
    from ruamel.yaml import YAML

    def walk(value: object, above: str) -> Iterator[str]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from walk(inner, f"{above}.{key}" if above else str(key))
        else:
            yield above

    return sorted(walk(YAML(typ="safe").load(source), ""))


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


def requirement_lines(source: str) -> list[str]:
    """The lines of a requirements file, without blanks and comments."""
    lines = (line.partition("#")[0].strip() for line in source.splitlines())
    return [line for line in lines if line]


class Refused(Exception):
    """A program rejects these arguments."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


_TYPES: Mapping[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}


def argparse_parser(source: str) -> argparse.ArgumentParser:
    """The argparse parser that a source sets up: names, types, choices, required options. It raises `Refused`."""
    parser = _Parser(allow_abbrev=False)
    for call in _calls(source, "add_argument"):
        settings: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg == "type" and isinstance(keyword.value, ast.Name):
                settings["type"] = _TYPES.get(keyword.value.id, str)
            elif keyword.arg in ("action", "choices", "nargs", "required", "const", "dest"):
                settings[keyword.arg] = ast.literal_eval(keyword.value)
        parser.add_argument(*(ast.literal_eval(name) for name in call.args), **settings)
    return parser


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(text)
    return text.lower() in ("true", "1", "yes")


def dataclass_parser(*sources: tuple[str, str]) -> argparse.ArgumentParser:
    """The parser that HfArgumentParser makes of dataclasses, given as source and class name: names and simple types."""
    parser = _Parser(allow_abbrev=False)
    for source, name in sources:
        (found,) = (
            node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name
        )
        for item in found.body:
            if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
                continue
            parts = {part.strip() for part in ast.unparse(item.annotation).split("|")} - {"None"}
            option = f"--{item.target.id}"
            if parts == {"bool"}:
                parser.add_argument(option, type=_boolean, nargs="?", const=True)
            elif any(part.startswith("list") for part in parts):
                parser.add_argument(option, nargs="+")
            else:
                plain = _TYPES.get("".join(parts), str)
                parser.add_argument(option, type=plain, required=item.value is None or _without_default(item.value))
    return parser


def _without_default(value: ast.expr) -> bool:
    """Whether a field has neither a default nor a default_factory."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
        return False
    return not {keyword.arg for keyword in value.keywords} & {"default", "default_factory"}
