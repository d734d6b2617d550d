"""Which property change makes CloudFormation replace a resource, for all types that the local AWS carries.

`python -m sandbox.replacing` refreshes the data (replacing.json) from the database of the CDK's command line. It is made of
CloudFormation's resource schemas: the properties in `createOnlyProperties`, at every depth.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sandbox import paths

_FILE = Path(__file__).with_name("replacing.json")
_TYPES = (
    "import json; from sandbox.emulator import cfn; cfn.install(); "
    "from ministack.services.cloudformation import provisioners; print(json.dumps(sorted(provisioners._RESOURCE_HANDLERS)))"
)


@cache
def data() -> Mapping[str, tuple[str, ...]]:
    """By type: paths of its properties, such as `LustreConfiguration.DeploymentType`."""
    return {name: tuple(found) for name, found in json.loads(_FILE.read_text("utf-8"))["types"].items()}


def changed(type_name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The properties that differ, and whose change replaces the resource; none for an unknown type.

    >>> changed("AWS::SSM::Parameter", {"Name": "a", "Value": "1"}, {"Name": "b", "Value": "2"})
    ['Name']
    """
    return [p for p in data().get(type_name, ()) if list(_at(old, p.split("."))) != list(_at(new, p.split(".")))]


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    """The value at a path, in every element of lists on the way."""
    if isinstance(value, list) and path:
        for each in value:
            yield from _at(each, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


def carried() -> list[str]:
    """The resource types that the local AWS carries."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(paths.environment("aws") / "bin" / "python"), "-c", _TYPES],
            env={"PYTHONPATH": str(paths.source()), "SANDBOX_DIR": folder, "HOME": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    return list(json.loads(done.stdout.splitlines()[-1]))


def read() -> dict[str, list[str]]:
    """By type: the paths, from the CDK's database."""
    from trainium_cdk.client.operations.updates import Spec

    spec = Spec.load()
    return {name: found for name in carried() if (found := list(spec.replacing(name)))}


def main() -> int:
    source = f"CloudFormation's resource schemas, in the database of aws-cdk {_version()}"
    about = {"source": source, "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "command": "python -m sandbox.replacing"}
    head = json.dumps(about)[:-1]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in read().items())
    _FILE.write_text(f'{head},\n"types": {{\n{lines}\n}}}}\n', "utf-8")
    return 0


def _version() -> str:
    package = paths.NODE_MODULES / "aws-cdk" / "package.json"
    return str(json.loads(package.read_text("utf-8"))["version"])


if __name__ == "__main__":
    sys.exit(main())
