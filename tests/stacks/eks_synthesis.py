"""The EKS stack of each environment, synthesised in one process (starting the CDK takes longest)."""

from __future__ import annotations

import functools
import json
from typing import Any

import aws_cdk as cdk
from aws_cdk.assertions import Template

from stacks.eks import TrnEksStack
from tests.cdk import app, resources
from tests.stacks.synthesis import ENVIRONMENTS, ROOT
from trainium_cdk import checks, settings
from trainium_cdk.settings import Environment

OWN = sorted((ROOT / "tests/environments/eks").glob("*.yaml"))
_FILES = {f"eks/{f.stem}": f for f in OWN} | {f.stem: f for f in ENVIRONMENTS}
ID = "TrnEksStack"


def environment(name: str) -> Environment:
    """`default`, `eks/<name>`, or the name of an environment that describes Slurm."""
    return settings.load(None if name == "default" else _FILES[name])


def _fits(name: str) -> bool:
    return not [p for p in checks.check(environment(name), "eks") if p.level == "error"]


NAMES = ["default", *(name for name in _FILES if name.startswith("eks/") or _fits(name))]
"""Every environment of EKS, and those of Slurm whose network and storage suit an EKS cluster of defaults."""


@functools.cache
def template(name: str) -> Template:
    return template_of(environment(name))


@functools.cache
def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = template(name).to_json()
    return found


def template_of(env: Environment) -> Template:
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    stack = TrnEksStack(app(context), ID, environment=env, env=cdk.Environment(account=env.account, region=env.region))
    return Template.from_stack(stack)


def groups(name: str) -> dict[str, dict[str, Any]]:
    """Node groups by the name in the environment, with their launch template's data under `Data` and their logical id."""
    found = resources(template(name), "EKS::Nodegroup")
    everything = document(name)["Resources"]
    return {
        group["Properties"]["Labels"]["trainium-cdk/node-group"]: {
            **group["Properties"],
            "Id": logical_id,
            "Data": everything[group["Properties"]["LaunchTemplate"]["Id"]["Ref"]]["Properties"]["LaunchTemplateData"],
        }
        for logical_id, group in found.items()
    }
