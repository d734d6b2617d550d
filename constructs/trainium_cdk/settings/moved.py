"""An environment file for another region: the same file, without what belongs to the first one."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.representer import RoundTripRepresenter

from trainium_cdk.errors import SettingsError
from trainium_cdk.problems import KeyPath, Problem, show
from trainium_cdk.settings.environment import Environment
from trainium_cdk.settings.load import parse
from trainium_cdk.settings.reserved import group_region

_ID = re.compile(r"(vpc|subnet|rtb|sg|fs|fsvol|svm|cr|crg|pg|ami|vol|snap|eni|eipalloc|pl|lt|tgw|vpce)-[0-9a-f]{8,17}")
"""Ids of resources of EC2, EFS and FSx, which exist in one region."""
_ZONE = re.compile(r"[a-z]{2,5}[0-9]+-az[0-9]+")
_NAMES = ("key_name", "placement_group")
"""Keys of names that exist in one region."""
_EFFECTS = {
    "existing": "the stack creates its own, which is empty",
    "reservation": "reserve or buy capacity there, and write its id (trn capacity)",
    "custom_ami": "copy the image (aws ec2 copy-image), and write the id of the copy",
    "zone_id": "the default is a zone that offers the type",
    "zone_ids": "the default is the first zone that offers the types",
}
"""By the last key of what is left out."""


@dataclass(frozen=True)
class Moved:
    """The copy.

    Attributes:
        text: the file, with the comments of what is left of it.
        left_out: each part that is not in it, and what that means.
        notes: what stays, and may be of the first region only.
    """

    text: str
    environment: Environment
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def move(
    text: str,
    file: str,
    region: str,
    *,
    zone: str | None = None,
    name: str | None = None,
    replace: Mapping[str, str] | None = None,
) -> Moved:
    """The environment file for another region.

    An id or zone of the first region is left out, with the smallest part around it without which the file is valid. A value that
    names the first region in its text, such as an ARN, is not: it must be in `replace`.

    Args:
        file: its path, for messages.
        zone: zone id for all nodes. Default: the first that offers the instance types.
        name: name of the new environment. Default: the same, as stacks of two regions may have one name.
        replace: a value of the file -> the one of the new region.

    Raises:
        SettingsFileError, SettingsError: the file is not valid, or a value of it cannot be moved. The message lists each.
    """  # fmt: skip
    env = parse(text, file)
    old, document = env.region, _yaml().load(text) or CommentedMap()
    pairs, unused = dict(replace or {}), set(replace or {})
    for path, value in list(_values(document)):
        if value in pairs:
            unused.discard(value)
            _parent(document, path)[path[-1]] = pairs[value]
    for key, new in (("region", region), ("name", name)):
        if new and key in document:
            document[key] = new
        elif new:
            document.insert(0, key, new)
    problems = [
        Problem(("--replace",), value, f"{file} has no such value", "give OLD=NEW with a value of the file")
        for value in unused
    ]
    notes, left_out = [], []
    for path, value in list(_values(document)):
        problem = Problem(
            path, value, f"it belongs to {old}", f"give --replace '{show(value, 500)}=...' with the value of {region}"
        )
        if path[0] == "catalog":  # of every region
            continue
        if re.search(r"\s", value):
            if old in value:
                notes.append(f"{problem.dotted} names {old}")
        elif _is_tied(value, region, env) and _there(document, path):
            for end in range(len(path), 1, -1):
                if (without := _without(document, path[:end], file)) is not None:
                    document = without
                    part = Problem(path[:end], value, "", "").dotted
                    keys = [key for key in path[:end] if isinstance(key, str)]
                    effect = _EFFECTS.get(keys[-1], "")
                    left_out.append(f"{part} ({value} belongs to {old})" + (f": {effect}" if effect else ""))
                    break
            else:
                problems.append(problem)
        elif old in value and path != ("region",):
            problems.append(problem)
        elif value.startswith("s3://") or (path[-1] in _NAMES and value not in ("auto", "on", "off")):
            notes.append(f"{problem.dotted} = {show(value)} must be in {region}")
    if zone:
        zones = CommentedSeq([zone])
        zones.fa.set_flow_style()
        document["network"] = document.get("network") or CommentedMap()
        document["network"]["zone_ids"] = zones
    if problems:
        raise SettingsError(problems, env.source)
    made = _text(document)
    return Moved(made, parse(made, file), tuple(left_out), tuple(notes))


def _is_tied(value: str, region: str, env: Environment) -> bool:
    """Whether it is the id of a resource, or a zone or a group of reservations of another region than the new one."""
    if _ZONE.fullmatch(value):
        return env.catalog.region_of(value) != region
    return _ID.fullmatch(value) is not None or group_region(value) not in (None, region)


class _Representer(RoundTripRepresenter):
    """Writes null as it is: without a value, it would be unclear whether the default is meant, or none."""


_Representer.add_representer(type(None), lambda to, _: to.represent_scalar("tag:yaml.org,2002:null", "null"))


def _yaml() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 4096
    yaml.preserve_quotes = True
    yaml.Representer = _Representer
    return yaml


def _text(document: Any) -> str:
    out = io.StringIO()
    _yaml().dump(document, out)
    return out.getvalue()


def _values(node: Any, at: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Each text of a document, in its order; the last of a list first, so that it can be left out without moving the others."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _values(value, (*at, key))
    elif isinstance(node, list):
        for i in reversed(range(len(node))):
            yield from _values(node[i], (*at, i))
    elif isinstance(node, str):
        yield at, str(node)


def _parent(document: Any, path: KeyPath) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def _there(document: Any, path: KeyPath) -> bool:
    try:
        _parent(document, path)[path[-1]]
    except (KeyError, IndexError):
        return False
    return True


def _without(document: Any, path: KeyPath, file: str) -> Any | None:
    """The document without a part of it; None if it is not valid then."""
    other = copy.deepcopy(document)
    try:
        del _parent(other, path)[path[-1]]
        parse(_text(other), file)
    except (SettingsError, KeyError):  # of a merge (<<)
        return None
    return other
