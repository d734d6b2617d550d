"""Which keys the node scripts get in S3: what may never change does not, and what changed has another key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from tests.cdk import only, synth
from trainium_cdk import settings
from trainium_cdk.cdk import bootstrap
from trainium_cdk.cdk.bootstrap import TrnBootstrap
from trainium_cdk.description.node.scripts import scripts_dir

KEY_OF_ENTRY = "node-scripts/entry-de39af7fb44f672a95131ca644785896.sh"
"""The location of entry.sh in a running cluster. ParallelCluster refuses an update with another one for the head node."""


def made(stack: Stack, data: dict[str, Any] | None = None) -> TrnBootstrap:
    bucket, environment = s3.Bucket(stack, "Files"), settings.validate(data or {})
    name = "/trainium/trn-slurm/node-scripts"
    return TrnBootstrap(stack, "Boot", bucket=bucket, bootstrap=environment.bootstrap, parameter_name=name)


def urls(data: dict[str, Any] | None = None) -> tuple[str, str]:
    """The entry script's URL and the scripts'."""
    found: list[TrnBootstrap] = []
    synth(lambda stack: found.append(made(stack, data)))
    [scripts] = found
    stack = Stack.of(scripts)
    return json.dumps(stack.resolve(scripts.entry_url)), json.dumps(stack.resolve(scripts.scripts_url))


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "bootstrap"
    shutil.copytree(scripts_dir(), copy)
    monkeypatch.setattr(bootstrap, "scripts_dir", lambda: copy)
    return copy


def test_the_entry_script_stays_where_it_is() -> None:
    assert KEY_OF_ENTRY in urls()[0]
    assert urls({"bootstrap": {"neuron_release": "2.31.0"}, "name": "other"})[0] == urls()[0]


def test_the_scripts_key_is_that_of_their_content(scripts: Path) -> None:
    before = urls()
    assert urls() == before
    (scripts / "README.md").write_text("other words")
    (scripts / "__pycache__").mkdir()
    (scripts / "__pycache__/x.pyc").write_bytes(b"x")
    assert urls() == before
    assert urls({"bootstrap": {"neuron_release": "2.31.0"}})[1] != before[1]
    (scripts / "lib/efa.sh").write_text("# changed\n")
    assert urls()[1] != before[1]
    assert urls()[0] == before[0]


def test_the_pointer_keeps_its_name_and_has_the_scripts_address() -> None:
    for release in ("2.30.0", "2.31.0"):
        data = {"bootstrap": {"neuron_release": release}}
        template = synth(lambda stack, data=data: made(stack, data))  # type: ignore[misc]
        parameter = only(template, "SSM::Parameter")
        assert parameter["Name"] == "/trainium/trn-slurm/node-scripts"
        assert json.dumps(parameter["Value"]) == urls({"bootstrap": {"neuron_release": release}})[1]


def test_readers_permissions_stay_the_same_when_the_scripts_change() -> None:
    def policy(release: str) -> list[dict[str, Any]]:
        def build(stack: Stack) -> None:
            role = iam.Role(stack, "Reader", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
            made(stack, {"bootstrap": {"neuron_release": release}}).grant_read(role)

        policies = synth(build).find_resources("AWS::IAM::Policy")
        [found] = (p["Properties"] for key, p in policies.items() if key.startswith("ReaderDefaultPolicy"))
        statements: list[dict[str, Any]] = found["PolicyDocument"]["Statement"]
        return statements

    objects, stay, pointer = policy("2.30.0")
    assert policy("2.31.0") == [objects, stay, pointer]
    assert (objects["Effect"], objects["Action"]) == ("Allow", "s3:GetObject")
    assert (stay["Effect"], "s3:PutObject" in stay["Action"]) == ("Deny", True)
    assert objects["Resource"] == stay["Resource"]
    assert '"Arn"]}, "/node-scripts/*"]' in json.dumps(objects["Resource"])
    assert pointer["Action"] == "ssm:GetParameter"
    assert "*" not in json.dumps(pointer)
