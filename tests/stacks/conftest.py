"""A stack of ours with the real CDK command line, in the local AWS."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sandbox import LocalAws
from sandbox.leftovers import beyond, inventory
from tests.stacks.synthesis import ROOT

Cdk = Callable[..., tuple[int, str]]


@pytest.fixture
def name() -> str:
    return f"life-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def cdk(local_aws: LocalAws, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cdk]:
    """`cdk(verb, {...environment...}, *flags)`, of the fixture's parameter, else the module's STACK: exit code and what was printed. Nothing is left after the
    test, log groups included."""
    before, file = inventory(local_aws.client), tmp_path / "environment.yaml"
    stack = getattr(request, "param", None) or request.module.STACK

    def run(verb: str, environment: dict[str, Any], *flags: str) -> tuple[int, str]:
        YAML().dump({"name": name, **environment}, file)
        approved = ("--require-approval", "never") if verb == "deploy" else ()
        done = local_aws.cdk(
            verb, stack, "-c", f"env={file}", "--output", str(tmp_path / "cdk.out"), "--exclusively", *approved, *flags,
            cwd=ROOT, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    yield run
    code, output = run("destroy", {}, "--force")
    assert code == 0, output
    left = beyond(inventory(local_aws.client), before)
    assert left == {}
