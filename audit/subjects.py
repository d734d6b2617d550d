"""The subjects of an audit: the templates of both stacks in each test environment, and jobs rendered for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from cfnlint.decode import decode  # type: ignore[import-untyped]

import app as ours
from audit import jobs
from audit.findings import ROOT, Subjects
from trainium_cdk import engines

_FOLDER = ROOT / "tests/environments"
ENVIRONMENTS = {
    "default": None,
    **{str(f.relative_to(_FOLDER).with_suffix("")): f for f in sorted(_FOLDER.rglob("*.yaml"))},
}
"""Name -> file. Those in a folder are for the engine that the folder is named after."""


def make(folder: Path, environments: Sequence[str] = ()) -> tuple[Subjects, dict[str, str]]:
    """Synthesise into a folder.

    Args:
        environments: names of test environments. Default: all.

    Returns:
        The subjects, and the stacks that an environment does not describe, with the reason.
    """
    impossible: dict[str, str] = {}
    templates: dict[str, Path] = {}
    regions: dict[str, str] = {}
    scripts: dict[str, Path] = {}
    objects: dict[str, Path] = {}
    target = folder / "templates"
    target.mkdir(parents=True, exist_ok=True)
    for name in environments or ENVIRONMENTS:
        app = _app(name, folder / "cdk" / name)
        region = str(next(s.region for s in app.node.children if isinstance(s, cdk.Stack)))
        made = {stack.hierarchical_id: dict(stack.template) for stack in app.synth().stacks}
        regions |= dict.fromkeys((f"{stack}/{name}" for stack in made), region)
        for engine in engines.ENGINES.values():
            if "/" in name and not name.startswith(f"{engine.name}/"):
                continue
            subject = f"{engine.stack}/{name}"
            template = made.get(engine.stack, {})
            if not template.get("Resources"):
                impossible[subject] = "the environment does not describe this engine, or not correctly"
                continue
            file_name = f"{engine.stack}.{name.replace('/', '-')}"
            path = target / f"{file_name}.json"
            path.write_text(json.dumps(template, indent=1), "utf-8")
            templates[subject] = path
            for file, text in jobs.rendered(template, engine.stack, region):
                if file.endswith(".yaml"):
                    at = folder / "objects" / f"{file_name}.{file}"
                    objects[f"{subject}:{file.removesuffix('.yaml')}"] = at
                else:
                    at = folder / "jobs" / engine.stack / name / file
                    scripts[f"{subject}:{file}"] = at
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(text)
    return Subjects(templates=templates, regions=regions, scripts=scripts, objects=objects), impossible


def given(folder: Path, files: Sequence[Path]) -> Subjects:
    """Any templates, in JSON or YAML, copied into a folder as JSON.

    Raises:
        ValueError: a file is not a template.
    """
    target = folder / "templates"
    target.mkdir(parents=True, exist_ok=True)
    templates = {}
    for i, file in enumerate(files):
        template, problems = decode(str(file))
        if not isinstance(template, dict) or "Resources" not in template:
            why = "; ".join(p.message for p in problems) or "it has no Resources"
            raise ValueError(f"{file} is not a CloudFormation template: {why}")
        path = target / f"{i}.{file.stem}.json"
        path.write_text(json.dumps(template, indent=1, default=str), "utf-8")
        templates[str(file)] = path
    return Subjects(templates=templates)


def _app(name: str, outdir: Path) -> cdk.App:
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    file = ENVIRONMENTS[name]
    if file is None:  # an empty file, so that neither TRN_ENV nor `trn use` of this machine names another one
        file = outdir.with_name(f"{name}.yaml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("", "utf-8")
    context["env"] = str(file)
    app = cdk.App(builtin_cloud_formation_validation=False, context=context, outdir=str(outdir))
    ours.build(app)
    return app
