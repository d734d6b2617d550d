"""Synthesising constructs in tests, and passing the templates to third-party validators."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudformation_validate
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Template
from cfnlint.config import ConfigMixIn, ManualArgs
from cfnlint.decode.decode import decode_str
from cfnlint.runner import Runner

Resources = dict[str, dict[str, Any]]
IN_US_EAST_1 = Environment(account="111122223333", region="us-east-1")


@functools.cache
def assemblies() -> str:
    """Where apps write; the CDK's own choice is a folder that stays."""
    folder = tempfile.mkdtemp(prefix="trn-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def app(context: Mapping[str, Any] | None = None) -> App:
    """An app without the CDK's own validation (slow)."""
    outdir = tempfile.mkdtemp(dir=assemblies())
    return App(outdir=outdir, builtin_cloud_formation_validation=False, context=context)


def synth(build: Callable[[Stack], object], *, env: Environment | None = None) -> Template:
    """The template of a plain stack that `build` fills, in an app of its own.

    env: the stack's account and region. Default: none, as in an app that knows neither.
    """
    stack = Stack(app(), "Test", env=env)
    build(stack)
    return Template.from_stack(stack)


def resources(template: Template, kind: str) -> Resources:
    """The resources of one type, by logical id: `resources(t, "EC2::Subnet")`."""
    found: Resources = template.find_resources(f"AWS::{kind}")
    return found


def properties(template: Template, kind: str) -> list[dict[str, Any]]:
    """Their properties, in the template's order."""
    return [r.get("Properties", {}) for r in resources(template, kind).values()]


def only(template: Template, kind: str) -> dict[str, Any]:
    """The properties of the one resource of a type."""
    [found] = properties(template, kind)
    return found


def needs(template: Template, logical_id: str) -> set[str]:
    """The logical ids of everything CloudFormation makes before a resource, directly or not."""
    everything: Resources = template.to_json()["Resources"]
    seen: set[str] = set()
    waiting = [logical_id]
    while waiting:
        resource = everything[waiting.pop()]
        found = {r for r in _references(resource) if r in everything} - seen
        seen |= found
        waiting.extend(found)
    return seen


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*(_references(n) for n in node)) if node else set()
    if not isinstance(node, dict):
        return set()
    found = set().union(*(_references(v) for v in node.values())) if node else set()
    if isinstance(node.get("Ref"), str):
        found.add(node["Ref"])
    if "Fn::GetAtt" in node:
        found.add(node["Fn::GetAtt"][0])
    depends = node.get("DependsOn", [])
    return found | ({depends} if isinstance(depends, str) else set(depends))


_OPTIONS = ManualArgs(regions=["us-east-1"], ignore_checks=["W", "I"])
_CLEAN = Path(__file__).parent.parent / ".cache/clean-templates"
"""An empty file for each template without findings, by the hash of its text, of the validators' versions and of their options: most changes
of the code change few templates, and each takes half a second."""


@functools.cache
def _validators() -> tuple[Runner, cloudformation_validate.RegoEngine]:
    """Each loads its rules when it is made, for half a second."""
    return Runner(ConfigMixIn(**_OPTIONS)), cloudformation_validate.RegoEngine()


def findings(template: Template) -> list[str]:
    """What cfn-lint and the CloudFormation validator call an error; `Template.from_stack` refuses circles."""
    text = json.dumps(template.to_json())
    by = [repr(_OPTIONS), *(version(name) for name in ("cfn-lint", "cloudformation-validate"))]
    clean = _CLEAN / hashlib.sha256("\n".join([*by, text]).encode()).hexdigest()
    if clean.exists():
        return []
    if not (found := _findings(text)):
        _CLEAN.mkdir(parents=True, exist_ok=True)
        clean.touch()
    return found


def _findings(text: str) -> list[str]:
    linter, engine = _validators()
    document, mistakes = decode_str(text)
    linted = [*mistakes, *linter.validate_template(document)]
    report = engine.validate_template(cloudformation_validate.TemplateContent(text, "test.template.json"))
    errors = {cloudformation_validate.Severity.ERROR, cloudformation_validate.Severity.FATAL}
    return [
        *(f"cfn-lint {m.rule.id}: {m.message} ({m.path})" for m in linted),
        *(f"cloudformation-validate {d.rule_id}: {d.message}" for d in report.diagnostics if d.severity in errors),
    ]
