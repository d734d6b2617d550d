"""The stacks of each environment, synthesised in one process (starting the CDK takes longest)."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk.assertions import Template

from tests.cdk import app, assemblies, resources
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.settings import Environment
from trainium_cdk.stacks.eks import TrnEksStack
from trainium_cdk.stacks.pcluster import TrnPclusterStack
from trainium_cdk.stacks.pcs import TrnPcsStack

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/environments"
CONTEXT: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]


def environment(name: str) -> Environment:
    """`default`, or the name of a file: `fsx-persistent-s3`, `eks/keep`."""
    return settings.load(None if name == "default" else FOLDER / f"{name}.yaml")


class Stacks:
    """The stack of one engine, as the app makes it with the context of cdk.json."""

    def __init__(self, kind: type[TrnPclusterStack] | type[TrnEksStack] | type[TrnPcsStack]) -> None:
        self.kind = kind
        self._made: dict[str, Template] = {}

    @cached_property
    def names(self) -> list[str]:
        """The default environment, those of the engine's own folder, and those of no engine that suit it."""
        shared = [f.stem for f in sorted(FOLDER.glob("*.yaml"))]
        if self.kind is TrnPclusterStack:
            return ["default", *shared]
        own = [f"{self.engine}/{f.stem}" for f in sorted((FOLDER / self.engine).glob("*.yaml"))]
        return ["default", *own, *(name for name in shared if self.kind is TrnEksStack and _fits(name))]

    @property
    def engine(self) -> str:
        return {TrnPclusterStack: "slurm", TrnEksStack: "eks", TrnPcsStack: "pcs"}[self.kind]

    def template(self, name: str) -> Template:
        """That of an environment; synthesised once in a run of the tests."""
        if name not in self._made:
            self._made[name] = Template.from_json(self.document(name))
        return self._made[name]

    def document(self, name: str) -> dict[str, Any]:
        file = Path(
            os.environ.get("TRN_TEST_TEMPLATES") or assemblies(), f"{self.engine}-{name.replace('/', '-')}.json"
        )
        if not file.exists():
            with tempfile.NamedTemporaryFile(
                "w", dir=file.parent, delete=False
            ) as made:  # other workers see all of it or nothing
                json.dump(self.template_of(environment(name)).to_json(), made)
            Path(made.name).rename(file)
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return found

    def template_of(self, env: Environment, id: str = "", **context: Any) -> Template:
        """That of an environment without a file. `id`: of the stack; default: the name of its class."""
        stack = self.kind(
            app({**CONTEXT, **context}), id or self.kind.__name__, environment=env, env=cdk.Environment(account=env.account, region=env.region)
        )  # fmt: skip
        return Template.from_stack(stack)


SLURM, EKS, PCS = Stacks(TrnPclusterStack), Stacks(TrnEksStack), Stacks(TrnPcsStack)


def _fits(name: str) -> bool:
    """Whether an EKS cluster of defaults suits the network and storage of an environment of Slurm."""
    return not [p for p in checks.check(environment(name), "eks") if p.level == "error"]


def cluster(found: Template) -> dict[str, Any]:
    """The cluster resource of ParallelCluster."""
    [resource] = found.find_resources("Custom::PclusterCluster").values()
    return dict(resource)


def groups(name: str) -> dict[str, dict[str, Any]]:
    """Node groups by the name in the environment, with their launch template's data under `Data` and their logical id."""
    found = resources(EKS.template(name), "EKS::Nodegroup")
    everything = EKS.document(name)["Resources"]
    return {
        group["Properties"]["Labels"]["trainium-cdk/node-group"]: {
            **group["Properties"],
            "Id": logical_id,
            "Data": everything[group["Properties"]["LaunchTemplate"]["Id"]["Ref"]]["Properties"]["LaunchTemplateData"],
        }
        for logical_id, group in found.items()
    }
