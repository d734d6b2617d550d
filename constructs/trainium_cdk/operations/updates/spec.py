"""Property changes with which CloudFormation replaces a resource: from the database of the CDK's command line."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from trainium_cdk.errors import TrnError

Impact = Literal["yes", "maybe"]
_FILE = "db.json.gz"
_OF_PROJECT = "node_modules/.bin/cdk"


class Spec:
    """The resource types of CloudFormation, as the CDK knows them.

    `cdk diff` reads only the first level of properties, but deeper ones count too: another DeploymentType in the
    LustreConfiguration replaces the file system. So this reads every level.
    """

    def __init__(self, database: dict[str, Any]) -> None:
        schema = database["schema"]
        self._resources = {e["cloudFormationType"]: e for e in schema["resource"]["entities"]}
        self._types = {e["$id"]: e for e in schema["typeDefinition"]["entities"]}

    @classmethod
    def load(cls, file: str | Path | None = None) -> Spec:
        """The database in `file`, else the one of the `cdk` that `command` finds.

        Raises:
            TrnError: it does not exist, or is not such a database.
        """
        return _read(str(file or find()))

    def knows(self, type_name: str) -> bool:
        return type_name in self._resources

    def stateful(self, type_name: str) -> bool:
        """Return whether resources of this type store data, by the CDK's database."""
        return bool(self._resources.get(type_name, {}).get("isStateful"))

    def named_by(self, type_name: str) -> tuple[str, ...]:
        """The properties that identify a resource of this type, such as its name; none if AWS gives the identifier."""
        known = self._resources.get(type_name, {})
        keys = tuple(known.get("primaryIdentifier", ()))
        return keys if all(key in known["properties"] for key in keys) else ()

    def impact(self, type_name: str, path: Sequence[str]) -> Impact | None:
        """Return whether a change at a path of the properties replaces the resource: `yes` or `maybe`; None for no.

        path: property names; list indices and keys of maps are ignored.
        """
        found: Impact | None = None
        here = self._resources.get(type_name, {}).get("properties", {})
        for name in path:
            if name not in here:
                if name.isdecimal():
                    continue
                break
            impact = here[name].get("causesReplacement")
            if impact == "yes":
                return "yes"
            found = "maybe" if impact == "maybe" else found
            here = self._inside(here[name]["type"])
        return found

    def replacing(self, type_name: str) -> Iterator[str]:
        """Paths of the properties whose change always replaces a resource of this type, such as
        `LustreConfiguration.DeploymentType`; none for an unknown type."""
        yield from sorted(set(self._replacing(self._resources.get(type_name, {}).get("properties", {}), frozenset())))

    def _replacing(self, here: dict[str, Any], above: frozenset[str]) -> Iterator[str]:
        for name, one in here.items():
            if one.get("causesReplacement") == "yes":
                yield name
                continue
            for kind in set(_kinds(one["type"])) - above:  # types may contain themselves
                inner = self._types[kind].get("properties", {})
                yield from (f"{name}.{path}" for path in self._replacing(inner, above | {kind}))

    def _inside(self, kind: dict[str, Any]) -> dict[str, Any]:
        """The properties within a property of this kind, of every type it may have."""
        found: dict[str, Any] = {}
        for each in _kinds(kind):
            found |= self._types[each].get("properties", {})
        return found


def _kinds(kind: dict[str, Any]) -> Iterator[str]:
    if kind["type"] == "ref":
        yield kind["reference"]["$ref"]
    for inner in [*kind.get("types", ()), *([kind["element"]] if isinstance(kind.get("element"), dict) else ())]:
        yield from _kinds(inner)


def find() -> Path:
    """The database in the folder of the `cdk` that `command` finds.

    Raises:
        TrnError: cdk or its database is not found.
    """
    cdk = command()
    for folder in cdk.resolve().parents:
        if (folder / _FILE).is_file():
            return folder / _FILE
    raise TrnError(
        f"{cdk} has no resource database ({_FILE}) in its folder. Install the CDK's command line with npm "
        "(`npm install -g aws-cdk@2`), or set TRN_CDK to another one"
    )


def command() -> Path:
    """The CDK's command line: TRN_CDK's, or the PATH's. Else the one in this folder's node_modules, if the folder has an app (cdk.json): a
    folder of somebody else may have any program there.

    Raises:
        TrnError: it is not found.
    """
    project = _OF_PROJECT if Path("cdk.json").is_file() else None
    for place in (os.environ.get("TRN_CDK"), shutil.which("cdk"), project):
        if place and Path(place).is_file():
            return Path(place)
    raise TrnError(
        "there is no `cdk` on the PATH, or in node_modules next to a cdk.json. Install it (`npm install -g aws-cdk@2`), or set TRN_CDK to its path"
    )


@cache
def _read(file: str) -> Spec:
    try:
        return Spec(json.loads(gzip.decompress(Path(file).read_bytes())))
    except (OSError, ValueError, KeyError, TypeError, EOFError) as e:
        raise TrnError(
            f"{file} is not the CDK's resource database: {e}. Install the CDK's command line again"
        ) from None
