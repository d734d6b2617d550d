"""The keys of a model by their paths, and the types that they may have; and the one that was meant by a key that does not exist: by its meaning
before its spelling. Pure."""

from __future__ import annotations

import functools
import re
import types
import typing
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from trainium_cdk.description import engines
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.lookup import read
from trainium_cdk.errors import similar
from trainium_cdk.problems import KeyPath, dotted
from trainium_cdk.text import choices, join_words

_SECTIONS = frozenset(engine.section for engine in engines.ENGINES.values())
_ITEM = "[]"
"""Any item of a list, in a path."""
_MOST = 3
"""More places than these do not help anybody."""


def keys_at(model: Any, at: KeyPath) -> list[str]:
    """The keys that a model has at a path."""
    model = _model_at(model, at)
    return [f.alias or n for n, f in model.model_fields.items()] if _is_model(model) else []


@functools.cache
def numbers(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model that hold numbers, and no booleans."""
    return frozenset(k for k, kinds in _kinds(model) if bool not in kinds and any(map(_is_number, kinds)))


def _is_number(kind: Any) -> bool:
    if typing.get_origin(kind) is typing.Literal:
        return any(isinstance(value, int) for value in typing.get_args(kind))
    return kind in (int, float)


@functools.cache
def sections(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model that hold mappings or lists, and may not be null."""
    return frozenset(k for k, kinds in _kinds(model) if type(None) not in kinds and any(map(_is_section, kinds)))


def _kinds(model: type[BaseModel]) -> list[tuple[str, tuple[Any, ...]]]:
    """The keys of a model, each with the types that it may have."""
    return [(f.alias or name, tuple(choices(f.annotation))) for name, f in model.model_fields.items()]


def may_be_none(model: type[BaseModel], path: KeyPath) -> typing.Literal["section", "value"] | None:
    """Return "section" or "value" if `null` at this path means something other than the default; else None."""
    kinds: list[Any] = [model]
    default: Any = None
    for step in path:
        if isinstance(step, int):
            kinds = [c for k in kinds if typing.get_origin(k) is tuple for c in choices(typing.get_args(k)[0])]
            continue
        models = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        fields = [f for m in models for name, f in m.model_fields.items() if (f.alias or name) == step]
        kinds = [c for f in fields for c in choices(f.annotation)]
        default = fields[0].default if fields else None
    if type(None) not in kinds:
        return None
    if any(map(_is_section, kinds)):
        return "section"
    return "value" if default is not None else None


def _is_section(kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, BaseModel | dict | tuple)


def fix_of_unknown(model: type[BaseModel], at: KeyPath, key: str) -> str:
    """What to write in place of a key that does not exist.

    Args:
        at: the path of the section with the key.
    """
    known = keys_at(model, at)
    if same := next((k for k in known if _plain(k) == _plain(key)), None):
        return f"write {same}"
    if at[:1] != ("catalog",):
        if "." in key and _steps(key)[-1] in keys_at(model, (*at, *_steps(key)[:-1])):
            return f"write {', '.join(f'`{k}:`' for k in _steps(key))}, each in the one before it"
        if found := _meant(model, at, key):
            return _written(found, at, key)
        if advice := _words().advice.get(_plain(key)):
            return advice
    close = similar(key, known, 0.8)
    return f"write {close}" if close else f"remove it; the known keys are {', '.join(known)}"


def _meant(model: type[BaseModel], at: KeyPath, key: str) -> dict[KeyPath, str]:
    """The places of a key's meaning, the nearest ones, each with the note that follows it. Empty: there are none, or too many."""
    plain, here = _plain(key), _any_item(at)
    general = plain in _words().general
    words = {t: text for where, t, text in _words().keys.get(plain, ()) if not where or here[-len(where) :] == where}
    for end in range(len(at), -1, -1):
        if general and at and not end:
            break
        found = {p: text for target, text in words.items() for p in _places(model, at, end, target)}
        if not found and not general:
            top = [p for p in _paths(model).get(plain, ()) if len(p) == 1]  # tags: nearer ones mean something else
            found = dict.fromkeys(top or _places(model, at, end, (key,), anywhere=True), "")
        if found:
            return found if len(found) <= _MOST else {}
    return {}


def _places(model: type[BaseModel], at: KeyPath, end: int, wanted: KeyPath, *, anywhere: bool = False) -> list[KeyPath]:
    """The shortest paths with these last steps, under the first `end` steps of a path.

    No path leads from one engine's section into another's, or from a section into the items of a list next to it. One step alone is a key of the
    section itself, unless it may be anywhere.
    """
    here, plain = _any_item(at), tuple(_plain(str(step)) for step in wanted)
    found: list[KeyPath] = []
    for path in _paths(model).get(plain[-1], ()):
        ends = tuple(_plain(str(step)) for step in path[-len(plain) :]) == plain
        other = here[:1] != path[:1] and {*here[:1], path[0]} <= _SECTIONS
        beside = (end < len(at) and _ITEM in path[end:]) or (len(plain) == 1 and not anywhere and len(path) > end + 1)
        if ends and path[:end] == here[:end] and not (at and other) and not beside:
            found.append((*at[:end], *path[end:]))
    return [p for p in found if len(p) == min(map(len, found))]


def _written(found: Mapping[KeyPath, str], at: KeyPath, key: str) -> str:
    """The fix that names these places."""
    if all(p[:-1] == at for p in found):
        return f"write {join_words((f'{p[-1]}{text}' for p, text in found.items()), 'or')}"
    same = all(_plain(str(p[-1])) == _plain(key) for p in found)
    top = ", at the top of the file" if at and all(len(p) == 1 for p in found) else ""
    return f"{'move it to' if same else 'write'} {join_words((f'{dotted(p)}{text}' for p, text in found.items()), 'or')}{top}"


class _Words(NamedTuple):
    """Words of other programs, without their spelling.

    Attributes:
        keys: by word, where it is written (empty: anywhere), the end of our key's path, and what is printed after it.
        advice: by word, where no key does the same.
        general: words that mean something else in each section, so that they are not looked for in others.
    """

    keys: Mapping[str, list[tuple[KeyPath, KeyPath, str]]]
    advice: Mapping[str, str]
    general: frozenset[str]


@functools.cache
def _words() -> _Words:
    data = read("words")
    keys: dict[str, list[tuple[KeyPath, KeyPath, str]]] = defaultdict(list)
    for key, words in data["keys"].items():
        path, after = re.fullmatch(r"([\w.\[\]]+)(.*)", key).groups()  # type: ignore[union-attr]  # a test reads all
        for *where, word in map(_steps, words):
            keys[_plain(str(word))].append((tuple(where), _steps(path), after))
    advice = {_plain(word): text for text, words in data["advice"].items() for word in words}
    return _Words(keys, advice, frozenset(map(_plain, data["general"])))


def _any_item(path: KeyPath) -> KeyPath:
    return tuple(_ITEM if isinstance(step, int) else step for step in path)


def _steps(dotted: str) -> KeyPath:
    """`queues[].name` as steps."""
    return tuple(step for step in dotted.replace(_ITEM, f".{_ITEM}").split(".") if step)


def _plain(word: str) -> str:
    """A word without what programs write differently: `subnetIds` and `subnet_id` are the same."""
    return word if word == _ITEM else re.sub(r"[^a-z0-9]", "", word.lower()).rstrip("s")


@functools.cache
def _paths(model: type[BaseModel]) -> Mapping[str, list[KeyPath]]:
    """The paths of all keys of a model, without the catalogue's, by the last step without its spelling."""
    found: dict[str, list[KeyPath]] = defaultdict(list)
    for path in _walk(model):
        found[_plain(str(path[-1]))].append(path)
    return found


def _walk(model: Any) -> Iterator[KeyPath]:
    for key in keys_at(model, ()):
        yield (key,)
        below = None if key == "catalog" else _below(model, key)
        item = typing.get_origin(below) is tuple
        yield from ((key, *((_ITEM,) if item else ()), *path) for path in _walk(_below(below, 0) if item else below))


@functools.cache
def _model_at(model: Any, at: KeyPath) -> Any:
    for i, step in enumerate(at):
        if i == 1 and at[0] == "catalog":
            model = Catalog  # an override's entries have the same shape as the catalogue's
        model = _below(model, step)
    return model


def _below(kind: Any, step: str | int) -> Any:
    if _is_model(kind):
        fields = {f.alias or n: f.annotation for n, f in kind.model_fields.items()}
        return _inner(fields.get(str(step)))
    if typing.get_origin(kind) in (dict, tuple):
        return _inner(typing.get_args(kind)[-1 if typing.get_origin(kind) is dict else 0])
    return None


def _inner(annotation: Any) -> Any:
    """The model, mapping or list inside `X | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next((m for a in typing.get_args(annotation) if (m := _inner(a)) is not None), None)
    known = _is_model(annotation) or typing.get_origin(annotation) in (dict, tuple, Mapping)
    return annotation if known else None


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
