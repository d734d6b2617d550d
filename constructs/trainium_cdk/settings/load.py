"""Reading an environment from a YAML file, with every mistake named by file, line, key, value, reason and fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from trainium_cdk.errors import SettingsError, SettingsFileError
from trainium_cdk.settings.base import TOKEN, may_be_none
from trainium_cdk.settings.environment import Environment, environment_model
from trainium_cdk.settings.problems import KeyPath, Problem, Source
from trainium_cdk.settings.shape import problems_of

MAX_BYTES = 250_000


def load(file: str | Path | None = None) -> Environment:
    """The environment of a YAML file, or the default one where `file` is None.

    Raises:
        SettingsFileError: the file cannot be read or is not a YAML mapping.
        SettingsError: a key or value is wrong; names each.
    """
    if file is None:
        return environment_model()()
    return parse(_text(Path(file)), str(file))


def parse(text: str, file: str = "(text)") -> Environment:
    """The environment that a YAML text describes; `file` is only its name in messages. Raises as `load` does."""
    if TOKEN in text:
        raise SettingsFileError(file, f"it holds a CDK token ({TOKEN}...)", "Write the value itself")
    try:
        document = _document(text)
    except MarkedYAMLError as e:
        line = f"line {e.problem_mark.line + 1}: " if e.problem_mark else ""
        what = str(e.problem or e.context or "wrong").splitlines()[0]
        raise SettingsFileError(file, f"{line}not YAML: {what}", "Mend that line") from None
    except RecursionError:
        raise SettingsFileError(file, "nested too deeply", "Name an environment file") from None
    except (YAMLError, ValueError, TypeError, LookupError, AttributeError) as e:
        # the last three are how the YAML library fails on some malformed input, as an alias used as a merge key
        what = next(iter(str(e).splitlines()), type(e).__name__)
        raise SettingsFileError(file, f"not YAML: {what}", "Save it as UTF-8 YAML text") from None
    if document in (None, _Blank):
        document = CommentedMap()
    if not isinstance(document, CommentedMap):
        raise SettingsFileError(file, "its top is not a mapping", "Begin with a key, as `name: trn`")
    lines: dict[KeyPath, int] = {}
    try:
        plain = _Plain(lines)
        data = plain.value(document, ())
    except OverflowError as e:
        raise SettingsFileError(file, str(e), "Remove the anchors (&) and aliases (*)") from None
    except ValueError as e:
        raise SettingsFileError(file, str(e), "Write a smaller one, or put text in quotes") from None
    source = Source(file, lines)
    if unclear := list(_unclear(plain.blank)):
        raise SettingsError(unclear, source)
    return validate(data, source)


def validate(data: Mapping[str, Any], source: Source | None = None) -> Environment:
    """The environment that plain data describes.

    Raises:
        SettingsError: a key or value is wrong; names each.
    """
    source = source or Source("(data)")
    try:
        environment = environment_model().model_validate(data)
    except ValidationError as e:
        raise SettingsError(problems_of(e), source) from None
    environment._source = source
    return environment


def json_schema() -> dict[str, Any]:
    """The JSON schema of the environment file: editors complete and check with it."""
    schema = environment_model().model_json_schema(by_alias=True)
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
    """Keys with nothing after them where null is a choice: people write that for the defaults as well as for none."""
    fixes = {
        "section": "write {} for its defaults, or null for none",
        "value": "write null for none, or remove the line for its default",
    }
    for key in blank:
        if what := may_be_none(environment_model(), key):
            yield Problem(key, "(nothing)", "this may mean its default, or none", fixes[what])


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise SettingsFileError(file, f"larger than {MAX_BYTES:,} bytes", "Name an environment file")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise SettingsFileError(file, "there is no such file", "Check the path given with `-c env=FILE`") from None
    except UnicodeDecodeError as e:
        raise SettingsFileError(file, f"not UTF-8 text (byte {e.start})", "Save it as UTF-8 YAML text") from None
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise SettingsFileError(file, f"cannot be read: {reason}", "Name a readable file") from None


def _document(text: str) -> Any:
    if "!" in text:  # tags would make other things than plain data
        for event in YAML(typ="rt", pure=True).parse(text):
            if tag := getattr(event, "tag", None):
                mark = event.start_mark
                raise MarkedYAMLError(problem=f"the tag {tag} (tags are not used here)", problem_mark=mark)
    yaml = YAML(typ="rt", pure=True)
    yaml.Constructor = _Constructor
    return yaml.load(text)


class _Blank:
    """A key with nothing after it."""


class _Constructor(RoundTripConstructor):
    """Tells a key with nothing after it from one with `null`."""

    def null(self, node: Any) -> Any:
        return None if node.value else _Blank


_Constructor.add_constructor("tag:yaml.org,2002:null", _Constructor.null)


class _Plain:
    """Round-trip YAML nodes as plain Python values (pydantic's strictness is about our types, not ruamel's), and the
    line of each key. Stops, with OverflowError, where a few aliases would unfold into gigabytes, and with ValueError at a number
    that Python would refuse to print."""

    MOST_VALUES = 50_000
    MOST_LEVELS = 40
    MOST_BITS = 1024

    def __init__(self, lines: dict[KeyPath, int]):
        self.lines = lines
        self.values = 0
        self.blank: list[KeyPath] = []

    def value(self, node: Any, at: KeyPath) -> Any:
        self.values += 1
        if self.values > self.MOST_VALUES:
            raise OverflowError(f"more than {self.MOST_VALUES:,} values")
        if len(at) > self.MOST_LEVELS:
            raise OverflowError(f"more than {self.MOST_LEVELS} levels deep")
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
        if isinstance(plain, int) and plain.bit_length() > self.MOST_BITS:
            raise ValueError(f"line {self.lines.get(at, 1)}: a number of {plain.bit_length():,} bits")
        return plain

    def _pairs(self, node: CommentedMap, at: KeyPath) -> Iterator[tuple[Any, Any]]:
        for key, value in node.items():
            name = self._scalar(key, at)
            path = (*at, name if isinstance(name, str | int) else str(name))
            if key in (node.lc.data or {}):  # not so for a key that a merge (<<) brings
                self.lines[path] = node.lc.key(key)[0] + 1
            yield name, self.value(value, path)

    def _item(self, node: CommentedSeq, i: int, at: KeyPath) -> Any:
        self.lines[(*at, i)] = node.lc.item(i)[0] + 1
        return self.value(node[i], (*at, i))


def _scalar(node: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node
