"""Our table of ParallelCluster's update policies, against ParallelCluster itself."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sandbox.pcluster_validator import PCLUSTER_PYTHON, PclusterValidator, ValidatorError
from tests.pcluster.examples import change, ids_for, stringified
from tests.support import completed, need_pcluster
from trainium_cdk import settings
from trainium_cdk.client.operations.updates.slurm import changes, policy
from trainium_cdk.description.cluster_configuration import Config, render

HERE = Path(__file__).parent
EDITS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "edits.yaml").read_text("utf-8"))


def base() -> Config:
    env = settings.load(HERE / "base.yaml")
    return render(env, ids_for(env))


def edited(*names: str) -> Config:
    config = base()
    for name in names:
        with contextlib.suppress(IndexError, KeyError):  # what it would change, another one took away
            for path, value in EDITS[name].items():
                change(config, path, value)
    return config


def agree(validator: PclusterValidator, old: Config, new: Config) -> None:
    """In each state of the cluster, every change that ParallelCluster finds has its verdict, and no other is found."""
    for fleet, logins in itertools.product((True, False), repeat=2):
        ours: dict[str, set[str]] = {}
        for c in changes(old, new, login_running=logins):
            ours.setdefault(c.path, set()).add(c.verdict)
        refused = {"new"} | ({"stop"} if fleet else set()) | ({"stop-login"} if logins else set())
        refused |= {"stop-both"} if fleet or logins else set()
        allowed = {path: not verdicts & refused for path, verdicts in ours.items()}
        theirs: dict[str, bool] = {}
        try:
            for c in validator.check_update(old, new, fleet_running=fleet, login_running=logins):
                theirs[c.path] = theirs.get(c.path, True) and c.allowed
        except ValidatorError as e:  # an exception of its own is a refusal of the whole update
            if "object has no attribute 'get'" not in str(e) or all(allowed.values()):
                raise
            continue
        hidden = {c.path for c in changes(old, new) if c.policy == "IGNORED"}
        assert theirs.keys() == ours.keys() - hidden
        assert theirs == {path: allowed[path] for path in theirs}, (fleet, logins)


def test_there_are_enough_changes() -> None:
    assert len(EDITS) >= 90


@pytest.mark.parametrize("what", EDITS)
def test_one_change(what: str, validator: PclusterValidator) -> None:
    old, new = base(), edited(what)
    assert old != new
    agree(validator, old, new)
    agree(validator, new, old)


@pytest.mark.parametrize("what", ["no placement group", "a placement group for one", "fewer nodes", "spot"])
def test_values_as_cloudformation_sends_them(what: str, validator: PclusterValidator) -> None:
    """Text: ParallelCluster takes "false" as true where it looks for a placement group that it created."""
    old, new = base(), edited(what)
    agree(validator, stringified(old), stringified(new))
    agree(validator, stringified(new), stringified(old))


@examples(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(picked=st.lists(st.sampled_from(sorted(EDITS)), min_size=2, max_size=6, unique=True))
def test_several_changes_at_once(picked: list[str], validator: PclusterValidator) -> None:
    agree(validator, base(), edited(*picked))


def test_no_change_is_no_change() -> None:
    assert changes(base(), base()) == []
    as_cloudformation_says_it = json.loads(json.dumps(base()), parse_int=str)
    assert changes(base(), as_cloudformation_says_it) == []


def test_every_path_has_parallelclusters_policy() -> None:
    need_pcluster()
    done = completed(
        [PCLUSTER_PYTHON, "-W", "ignore", "-c", _ALL_PATHS],
        check=True,
        env={"AWS_DEFAULT_REGION": "us-east-1", "HOME": "/nonexistent"},
    )
    theirs: dict[str, Any] = json.loads(done.stdout)
    assert len(theirs) > 300
    assert {path: policy(path) for path in theirs} == {path: rule for path, (rule, _) in theirs.items()}
    from trainium_cdk.description.catalog.updates import updates

    keys = {path: key for path, (_, key) in theirs.items() if key}
    assert updates().parallelcluster.keys == keys


_ALL_PATHS = """
import json
from marshmallow import fields
from pcluster.schemas.cluster_schema import ClusterSchema
found = {}
def walk(schema, at):
    for name, field in schema.fields.items():
        path = f"{at}.{field.data_key or name}" if at else field.data_key or name
        rule = field.metadata.get("update_policy")
        found[path] = [rule.name, field.metadata.get("update_key")]
        if isinstance(field, fields.Nested):
            walk(field.schema, path + ("[]" if field.many else ""))
walk(ClusterSchema(cluster_name="x"), "")
print(json.dumps(found))
"""
