"""What the scanners read: `python -m tools.audit.render FOLDER [ENVIRONMENT...]`.

The templates of each test environment, in a folder for each region; the scripts inside them; jobs as `trn submit` renders them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aws_cdk as cdk

import app as ours
from tools.audit import jobs
from tools.audit.jobs import plain
from trainium_cdk.description import engines

ROOT = Path(__file__).parents[2]
_FOLDER = ROOT / "tests/environments"
ENVIRONMENTS = {
    "default": None,
    **{str(f.relative_to(_FOLDER).with_suffix("")): f for f in sorted(_FOLDER.rglob("*.yaml"))},
}
"""Name -> file. Those in a folder are for the engine that the folder is named after."""
_SCRIPT = re.compile(r"Content-Type: text/x-shellscript[^\n]*\n\n(.*?)(?=\n--|\Z)", re.DOTALL)


def render(folder: Path, environments: Sequence[str] = ()) -> dict[str, Path]:
    """Write everything below a folder; default: of all environments. Returns the file of each template, as `STACK/ENVIRONMENT`."""
    templates: dict[str, Path] = {}
    for name in environments or ENVIRONMENTS:
        app = _app(name, folder / "cdk" / name)
        stacks = {stack.hierarchical_id: stack for stack in app.synth().stacks}
        for engine in engines.ENGINES.values():
            if engine.stack not in stacks or ("/" in name and not name.startswith(f"{engine.name}/")):
                continue
            template, region = stacks[engine.stack].template, stacks[engine.stack].environment.region
            if template.get("Resources"):
                about = f"{engine.stack}.{name.replace('/', '.')}"
                templates[f"{engine.stack}/{name}"] = _write(
                    folder / "templates" / region / f"{about}.json", json.dumps(template, indent=1).encode()
                )
                for place, text in _inside(template):
                    _write(folder / "scripts" / about / f"{place}.sh", text.encode())
                for file, content in jobs.rendered(template, engine.stack, region):
                    kind = "objects" if file.endswith(".yaml") else "jobs"
                    _write(folder / kind / about / file, content)
    return templates


def _write(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def _app(name: str, outdir: Path) -> cdk.App:
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    file = ENVIRONMENTS[name]
    if file is None:  # an empty file, so that neither TRN_ENV nor `trn use` of this machine names another one
        file = _write(outdir.with_name(f"{name}.yaml"), b"")
    context["env"] = str(file)
    app = cdk.App(builtin_cloud_formation_validation=False, context=context, outdir=str(outdir))
    ours.build(app)
    return app


def _inside(template: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The scripts in a template: of launch templates, and the commands of a build."""
    for name, resource in template["Resources"].items():
        for encoded in values(resource, "Fn::Base64"):
            for i, script in enumerate(_SCRIPT.findall(plain(encoded))):
                yield f"{name}.{i}", script
        if resource["Type"] == "AWS::CodeBuild::Project":
            source = json.loads(plain(resource["Properties"]["Source"]["BuildSpec"]))
            given = [v["Name"] for v in resource["Properties"]["Environment"].get("EnvironmentVariables", [])]
            lines = [c for phase in source["phases"].values() for c in phase["commands"]]
            yield name, "\n".join(["#!/bin/bash", *(f"export {variable}=given" for variable in given), *lines, ""])


def values(node: Any, key: str) -> Iterator[Any]:
    """All values under a key, at any depth."""
    if isinstance(node, dict):
        for k, value in node.items():
            if k == key:
                yield value
            yield from values(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from values(value, key)


if __name__ == "__main__":
    render(Path(sys.argv[1]), sys.argv[2:])
