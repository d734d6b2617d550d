"""The rules as a set: all are registered, all are shown by a table, and none falls over."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.checks.tables import NOTICES, REFUSED
from tests.pcluster.examples import ids_for
from tests.pcluster.test_config import leaves
from tests.support import many
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.checks import overrides
from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.description.checks.rule import SOURCES, rule_id
from trainium_cdk.description.cluster_configuration import render
from trainium_cdk.description.settings.inventory import inventory

ENVIRONMENTS = sorted((Path(__file__).parent.parent / "environments").glob("*.yaml"))


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda f: f.stem)
def test_valid_environments_pass(file: Path) -> None:
    env = settings.load(file)
    assert {p.level for p in checks.require(env)} <= {"warning", "info"}
    assert inventory(env, "slurm").zone_ids


def test_a_network_without_zones_gets_one_that_offers_its_instance_types() -> None:
    """One is enough, and each has a NAT gateway and subnets: the cheapest plan that works."""
    env = settings.load()
    assert len(env.catalog.zone_ids("trn1.32xlarge", env.region)) > 1
    assert inventory(env, "slurm").zone_ids == env.catalog.zone_ids("trn1.32xlarge", env.region)[:1]


def test_the_folder_shows_every_kind() -> None:
    """The good environments are what other tests deploy: between them they must use every choice there is."""
    found = [settings.load(f) for f in ENVIRONMENTS]
    queues = [q for e in found for q in e.pcluster.queues]
    resources = [r for q in queues for r in q.compute_resources]
    assert {t for e in found for t in inventory(e, "slurm").instance_types} >= set(settings.load().catalog.instances)
    assert {q.capacity_type for q in queues} == {"on-demand", "spot", "capacity-block"}
    assert {e.storage.fsx.deployment for e in found if e.storage.fsx} == {"SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"}
    assert {e.storage.efs.throughput for e in found if e.storage.efs} == {"elastic", "provisioned", "bursting"}
    assert {e.pcluster.os for e in found} == set(settings.load().catalog.parallelcluster.operating_systems)
    assert {e.network.nat for e in found} == {"one", "per-zone", "none"}
    assert {e.pcluster.head.subnet for e in found} == {"public", "private"}
    assert {e.framework for e in found} == {"torch-xla", "torch-native", "jax", "none"}
    assert {e.on_destroy for e in found} == {"delete", "keep"}
    assert any(r.min_nodes and not r.reservation for r in resources)
    assert any(r.reservation and q.capacity_type == "on-demand" for q in queues for r in q.compute_resources)
    for some in ("existing", "peerings"):
        assert any(getattr(e.network, some) for e in found)
    for some in ("login_nodes", "accounting", "custom_ami", "slurm_settings", "overrides"):
        assert any(getattr(e.pcluster, some) for e in found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("region: us-east-2\npcluster: {queues: [{compute_resources: [{instance_type: trn2.48xlarge}]}]}", []),
        ("pcluster: {os: alinux2023}", ["pcluster.os"]),
        ("eks: {version: '1.29'}", ["eks.version"]),
        (
            "region: ap-south-2\neks: {node_groups: [{instance_type: trn2u.48xlarge, devices: claims}]}",
            ["eks.node_groups[0].devices"],
        ),
        ("account: '444455556666'\neks: {access: [{principal: 'arn:aws:iam::111122223333:role/Research'}]}", []),
    ],
)
def test_one_wrong_value_is_one_message(text: str, found: list[str]) -> None:
    """It does not change the automatic release, and engines that the file does not describe are silent."""
    problems = checks.check(settings.parse(text))
    assert [problem.dotted for problem in problems if problem.level != "info"] == found


def test_the_default_environment_has_no_findings() -> None:
    assert checks.check(settings.Environment()) == []


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
        "neuron-healthcheck-system",
        "neuron-dra-driver",
        "kueue-system",
        "volcano-system",
    ],
)
def test_namespaces_of_the_system_are_reserved(name: str) -> None:
    [found] = checks.check(settings.parse(f"eks: {{namespace: {name}}}"))
    assert (found.level, found.dotted) == ("error", "eks.namespace")


def test_a_node_image_of_the_catalogue_is_known() -> None:
    dates = settings.load().catalog.amis("1.36")
    assert [
        d
        for d in dates
        if any(p.rule == "unknown-node-image" for p in checks.check(settings.parse(f"eks: {{ami_release: '{d}'}}")))
    ] == []


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("us-east-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("eusc-de-east-1", "aws-eusc"),
    ],
)
def test_partitions(region: str, expected: str) -> None:
    assert partition(region) == expected


def test_what_the_stack_sets_itself_is_of_parallelcluster_and_of_a_setting() -> None:
    rendered = set().union(*(leaves(render(env, ids_for(env))) for env in map(settings.load, (None, *ENVIRONMENTS))))
    never = {key for key in overrides.CONTROLLED if not any(f"{leaf}.".startswith(f"{key}.") for leaf in rendered)}
    queue = "Scheduling.SlurmQueues.*"
    assert never == {  # they would replace what is rendered elsewhere
        "HeadNode.Image.CustomAmi",
        f"{queue}.Image.CustomAmi",
        f"{queue}.ComputeResources.*.Networking.PlacementGroup",
    }
    named = {key for text in overrides.CONTROLLED.values() for key in re.split(" and | or ", text)}
    assert {key for key in named if not _is_a_setting(key)} == set()


def _is_a_setting(key: str) -> bool:
    model: Any = settings.Environment
    for part in key.replace("[]", ".*").split("."):
        if part != "*":
            fields = {f.alias or name: f.annotation for name, f in getattr(model, "model_fields", {}).items()}
            if part not in fields:
                return False
            model = fields[part]
        models = [one for one in (model, *get_args(model)) if hasattr(one, "model_fields")]
        model = models[0] if models else model
    return True


def test_every_rule_is_registered() -> None:
    written = set()
    for module in pkgutil.iter_modules(checks.__path__):
        parts = import_module(f"trainium_cdk.description.checks.{module.name}")
        for name, function in inspect.getmembers(parts, inspect.isfunction):
            takes = list(inspect.signature(function).parameters)
            if (
                takes == ["env"]
                and name[0] != "_"
                and function.__module__ == parts.__name__ != "trainium_cdk.description.checks.rule"
            ):
                written.add(name)
    assert written == {rule.__name__ for rule in checks.RULES}
    assert len(checks.RULES) == len(written)


def test_every_rule_is_shown_by_a_table() -> None:
    texts = [row[0] for row in (*REFUSED, *NOTICES)]
    texts.append("on_destroy: keep\nstorage: {fsx: {deployment: SCRATCH_2}}")
    problems = [p for text in texts for p in checks.check(settings.parse(text))]
    assert {p.rule for p in problems} == {rule_id(rule) for rule in checks.RULES}
    assert {p.rule for p in problems if p.level == "error"} == SOURCES.keys()


TEXTS = [f.read_text("utf-8") for f in ENVIRONMENTS]
TEXTS += [row[0] for row in (*REFUSED, *NOTICES)]


@given(
    a=st.sampled_from(TEXTS),
    b=st.sampled_from(TEXTS),
    keys=st.sets(st.sampled_from(sorted(settings.Environment().model_dump(by_alias=True)))),
)
@hypothesis_settings(max_examples=many(150))
def test_rules_never_raise(a: str, b: str, keys: set[str]) -> None:
    """Sections of any two environments together: every rule ends, and every problem can be printed."""
    both = settings.parse(a).model_dump(mode="json", by_alias=True, exclude_unset=True)
    other = settings.parse(b).model_dump(mode="json", by_alias=True, exclude_unset=True)
    try:
        env = settings.validate(both | {k: v for k, v in other.items() if k in keys})
    except settings.SettingsError:
        return
    for problem in checks.check(env):
        assert env.source.describe(problem).endswith(".")
        assert problem.rule != "shape"
