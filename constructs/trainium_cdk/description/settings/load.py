"""Reading an environment from a YAML file. Each mistake is reported with file, line, key, value, reason and fix."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from ruamel.yaml import YAML, composer
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from trainium_cdk.description.settings.environment import Environment
from trainium_cdk.description.settings.keys import may_be_none
from trainium_cdk.description.settings.shape import problems_of
from trainium_cdk.errors import SettingsError, SettingsFileError, TrnError, fix_of_path
from trainium_cdk.problems import KeyPath, Problem, Source
from trainium_cdk.text import PLACEHOLDERS

MAX_BYTES = 250_000
_TOO_DEEP = getattr(composer, "MaxDepthExceededError", RecursionError)  # since 0.19
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_NUMBER = re.compile(r"[-+.]?\d[-+.\w]*")


def load(file: str | Path | None = None) -> Environment:
    """The environment of a YAML file, or the default one where `file` is None.

    Raises:
        SettingsFileError: the file cannot be read or is not a YAML mapping.
        SettingsError: keys or values are wrong; the message lists each.
    """
    if file is None:
        return Environment()
    return parse(read_text(Path(file), "an environment file"), str(file))


def no_file(folder: Path | None = None, instead: str = "") -> NoReturn:
    """Refuse to use a default in place of an environment file.

    Raises:
        TrnError: always. The message names a file of the folder (default: this one), else `trn init`, and `instead`.
    """
    how, files = ". Write one: trn init", (folder or Path()).glob("*.y*ml")
    for file in sorted(files, key=lambda file: (file.name == "environment.yaml", file.name), reverse=True):
        with contextlib.suppress(TrnError):
            if file.name == "environment.yaml" or load(file).model_fields_set:
                name = shlex.quote(file.name)
                how = f". Use the one here: trn use {name}. For one command: cdk deploy -c env={name}, or trn check --environment {name}"
                break
    raise TrnError(f"no environment file is named{how}{instead}")


def parse(text: str, file: str = "(text)") -> Environment:
    """The environment that a YAML text describes. `file` is only used in messages. Raises the same errors as `load`."""
    data, source, blank = read_yaml(text, file, "an environment file", "name: trn")
    if "job" in data and "region" not in data:
        raise SettingsFileError(file, "it describes a job", f"Submit it: trn submit {shlex.quote(file)}")
    if unclear := list(_unclear(blank)):
        raise SettingsError(unclear, source)
    return validate(data, source)


def read_yaml(text: str, file: str, kind: str, first: str) -> tuple[dict[str, Any], Source, list[KeyPath]]:
    """Read a YAML mapping as plain data. Returns the data, the lines of its keys, and the keys with nothing after them, whose value is None.

    Args:
        kind: what the file should be, for messages.
        first: a line with which such a file may begin.

    Raises:
        SettingsFileError: it is not a YAML mapping.
        SettingsError: a key has no name.
    """
    try:
        document = _document(text)
    except (RecursionError, _TOO_DEEP):
        raise SettingsFileError(file, "nested too deeply", f"Give {kind}") from None
    except MarkedYAMLError as e:
        line = f"line {e.problem_mark.line + 1}: " if e.problem_mark else ""
        what = str(e.problem or e.context or "invalid syntax").splitlines()[0]
        raise SettingsFileError(file, f"{line}not YAML: {what}", "Correct that line") from None
    except (YAMLError, ValueError, TypeError, LookupError, AttributeError) as e:
        # the YAML library raises the last three for some malformed input, for example an alias used as a merge key
        what = next(iter(str(e).splitlines()), type(e).__name__)
        raise SettingsFileError(file, f"not YAML: {what}", "Save it as UTF-8 YAML text") from None
    if document in (None, _Blank):
        document = CommentedMap()
    if not isinstance(document, CommentedMap):
        raise SettingsFileError(file, "its top level is not a mapping", f"Begin with a key, for example `{first}`")
    lines: dict[KeyPath, int] = {}
    try:
        plain = _Plain(lines, text)
        data = plain.value(document, ())
    except OverflowError as e:
        raise SettingsFileError(file, str(e), "Remove the anchors (&) and aliases (*)") from None
    except ValueError as e:
        raise SettingsFileError(file, str(e), "Write a smaller number, or put it in quotes if it is text") from None
    if plain.token:
        raise SettingsFileError(file, f"it contains a CDK token ({plain.token}...)", "Write the value itself")
    source = Source(file, lines, plain.numbers)
    if unnamed := [
        Problem(key, "(nothing)", "this key has no name", "write its name before the colon") for key in plain.unnamed
    ]:
        raise SettingsError(unnamed, source)
    return data, source, plain.blank


def validate(data: Mapping[str, Any], source: Source | None = None) -> Environment:
    """The environment that plain data describes.

    Raises:
        SettingsError: keys or values are wrong; the message lists each.
    """
    source = source or Source("(data)")
    try:
        environment = Environment.model_validate(data)
    except ValidationError as e:
        raise SettingsError(problems_of(e, Environment, source.numbers), source) from None
    environment._source = source
    return environment


def json_schema() -> dict[str, Any]:
    """The JSON schema of the environment file, for completion and checks in editors."""
    schema = Environment.model_json_schema(by_alias=True)
    parts = schema["$defs"]
    for part in (schema, *parts.values()):
        for key, value in part.get("properties", {}).items():
            named = [p["$ref"].rpartition("/")[2] for p in (value, *value.get("anyOf", ())) if "$ref" in p]
            if named and "description" in parts[named[0]]:  # a section is described where its model is
                value.setdefault("description", parts[named[0]]["description"])
            if key not in part.get("required", ()):  # a section with nothing under it has its defaults
                if value.get("type") in ("array", "object"):
                    value["type"] = [value["type"], "null"]
                elif "$ref" in value:
                    value["anyOf"] = [{"$ref": value.pop("$ref")}, {"type": "null"}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _unclear(blank: Iterable[KeyPath]) -> Iterator[Problem]:
    """Keys without a value for which null has its own meaning. Such a key could mean the defaults or "none"."""
    fixes = {
        "section": "write {} for its defaults, or null for none",
        "value": "write null for none, or remove the line for its default",
    }
    for key in blank:
        if what := may_be_none(Environment, key):
            yield Problem(key, "(nothing)", "it is unclear whether this means the default or none", fixes[what])


def read_text(file: Path, kind: str) -> str:
    """Read a file of settings. Raises SettingsFileError: it cannot be read, or is too large to be one of this kind."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise SettingsFileError(file, f"larger than {MAX_BYTES:,} bytes", f"Give {kind}")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise SettingsFileError(file, "the file does not exist", fix_of_path(file)) from None
    except UnicodeDecodeError as e:
        raise SettingsFileError(file, f"not UTF-8 text (byte {e.start})", "Save it as UTF-8 YAML text") from None
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise SettingsFileError(file, f"cannot be read: {reason}", "Give a readable file") from None


def _document(text: str) -> Any:
    if "!" in text:  # a tag would create something other than plain data
        for event in YAML(typ="rt", pure=True).parse(text):
            if tag := getattr(event, "tag", None):
                mark = event.start_mark
                raise MarkedYAMLError(problem=f"the tag {tag} (tags are not supported)", problem_mark=mark)
    yaml = YAML(typ="rt", pure=True)
    yaml.max_depth = 150  # the time that the library takes for a line grows with its levels
    yaml.Constructor = _Constructor
    return yaml.load(text)


class _Blank:
    """A key with nothing after it."""


class _Constructor(RoundTripConstructor):
    """Distinguishes a key without a value from a key with `null`, and rejects an alias inside the value that it refers to, which the
    library would read as null."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node in self.recursive_objects and node not in self.constructed_objects:
            raise MarkedYAMLError(
                problem="an alias (*) refers to the value that contains it", problem_mark=node.start_mark
            )
        return super().construct_object(node, deep=deep)

    def null(self, node: Any) -> Any:
        return None if node.value else _Blank


_Constructor.add_constructor("tag:yaml.org,2002:null", _Constructor.null)


class _Plain:
    """Round-trip YAML nodes as plain Python values (pydantic rejects ruamel's own types), and the line of each key.

    Raises OverflowError if aliases would expand into too many values, and ValueError for a number that Python cannot
    print."""

    MAX_VALUES = 50_000
    MAX_LEVELS = 40
    MAX_BITS = 1024

    def __init__(self, lines: dict[KeyPath, int], text: str):
        self.lines = lines
        self.text = _LINE_END.split(text)
        self.values = 0
        self.blank: list[KeyPath] = []
        self.unnamed: list[KeyPath] = []
        self.numbers: dict[KeyPath, str] = {}
        self.token = ""
        """How the last CDK token in a key or value begins. Comments may contain anything."""

    def value(self, node: Any, at: KeyPath) -> Any:
        self.values += 1
        if self.values > self.MAX_VALUES:
            raise OverflowError(f"more than {self.MAX_VALUES:,} values")
        if len(at) > self.MAX_LEVELS:
            raise OverflowError(f"more than {self.MAX_LEVELS} levels deep")
        if node is _Blank:
            self.blank.append(at)
            return None
        if isinstance(node, CommentedMap):
            return dict(self._pairs(node, at))
        if isinstance(node, CommentedSeq):
            return [self._item(node, i, at) for i in range(len(node))]
        return self._scalar(node, at)

    def _scalar(self, node: Any, at: KeyPath) -> Any:
        plain = _scalar(node)
        if isinstance(plain, int) and plain.bit_length() > self.MAX_BITS:
            raise ValueError(f"line {self.lines.get(at, 1)}: the number is too large ({plain.bit_length():,} bits)")
        if isinstance(plain, str):
            self.token = next((mark for mark in PLACEHOLDERS if mark in plain), self.token)
        return plain

    def _pairs(self, node: CommentedMap, at: KeyPath) -> Iterator[tuple[Any, Any]]:
        for key, value in node.items():
            name = "" if key is _Blank else self._scalar(key, at)
            path = (*at, name if isinstance(name, str | int) else str(name))
            if key in (node.lc.data or {}):  # a key from a merge (<<) has no line
                self.lines[path] = node.lc.key(key)[0] + 1
                self._as_written(value, path, node.lc.value(key))
            if key is _Blank:
                self.unnamed.append(path)
            yield name, self.value(value, path)

    def _item(self, node: CommentedSeq, i: int, at: KeyPath) -> Any:
        self.lines[(*at, i)] = node.lc.item(i)[0] + 1
        self._as_written(node[i], (*at, i), node.lc.item(i))
        return self.value(node[i], (*at, i))

    def _as_written(self, value: Any, at: KeyPath, position: tuple[int, int]) -> None:
        if not isinstance(value, int | float):
            return
        line, column = position
        for text in self.text[line : line + 1]:
            if found := _NUMBER.match(text, column):
                self.numbers[at] = found[0]


def _scalar(node: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node
