"""The stack of each environment, synthesised in one process (starting the CDK takes longest)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk.assertions import Template

from stacks.pcluster import TrnPclusterStack
from tests.cdk import app
from trainium_cdk import settings
from trainium_cdk.settings import Environment

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = sorted((ROOT / "tests/environments").glob("*.yaml"))
NAMES = ["default", *(f.stem for f in ENVIRONMENTS)]
ID = "TrnPclusterStack"


def environment(name: str) -> Environment:
    return settings.load(None if name == "default" else ROOT / f"tests/environments/{name}.yaml")


@functools.cache
def template(name: str) -> Template:
    """The template of an environment, as the app makes it with the context of cdk.json."""
    return template_of(environment(name))


def template_of(env: Environment) -> Template:
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    stack = TrnPclusterStack(
        app(context), ID, environment=env, env=cdk.Environment(account=env.account, region=env.region)
    )
    return Template.from_stack(stack)


def cluster(found: Template) -> dict[str, Any]:
    """The cluster resource."""
    [resource] = found.find_resources("Custom::PclusterCluster").values()
    return dict(resource)
