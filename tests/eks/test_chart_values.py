"""Every value that charts and add-ons get, against their own values (`catalog/data/charts.yaml`). Helm ignores those that a chart lacks."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from trainium_cdk import settings
from trainium_cdk.cdk.eks import charts
from trainium_cdk.cdk.eks.addons import addon_values
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.charts import check_values, recorded
from trainium_cdk.description.catalog.slurm import Wrong
from trainium_cdk.description.outputs import eks_fleets
from trainium_cdk.description.settings import Mirror, Plugins
from trainium_cdk.errors import RequirementError

Sent = list[tuple[str, dict[str, Any]]]
CATALOG = Catalog.load()
CHARTS = {name.removesuffix("-claims") for name in CATALOG.eks.charts}
OLDER = {
    "vpc-cni": "EKS shows an add-on's schema to an account alone: this is the newest that is published, in the AWS CLI's reference"
}
"""Add-ons of which another version than the catalogue's is recorded, with the reason."""
REGISTRIES = {i.split("/")[0] for c in CATALOG.eks.charts.values() for i in c.images.values()}
MIRRORS = [Mirror(), Mirror(images=dict.fromkeys(sorted(REGISTRIES), "registry.example.com/mirror"))]
GROUPS = [
    [{"name": "efa"}],
    [{"name": "one", "instance_type": "trn1.2xlarge", "max_nodes": 1}],
    [{"name": "plain"}, {"name": "claims", "instance_type": "trn2.48xlarge", "devices": "claims"}],
]
FLEETS = [eks_fleets(settings.validate({"eks": {"node_groups": groups}})) for groups in GROUPS]


@pytest.fixture(scope="module")
def sent() -> Sent:
    return list(_sent())


def _sent() -> Iterator[tuple[str, dict[str, Any]]]:
    """What each chart and add-on gets, with every combination of the settings that change it."""
    switches = itertools.product([False, True], repeat=4)
    for (volcano, scheduler, detector, recovery), mirror, fleets in itertools.product(switches, MIRRORS, FLEETS):
        plugins = Plugins(
            volcano=volcano,
            neuron_scheduler=scheduler,
            node_problem_detector=detector or recovery,
            node_monitoring=not recovery,
            node_recovery=recovery,
        )
        wanted = Installation(fleets=fleets, catalog=CATALOG, namespace="training", plugins=plugins, mirror=mirror)
        for release in charts.releases(wanted):
            yield release.name.removesuffix("-claims"), release.values  # the same chart again
    for name, metrics in itertools.product(CATALOG.eks.addons, [False, True]):
        if values := addon_values(name, CATALOG.eks.pod_addresses, metrics=metrics):
            yield name, values


def paths(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def wrong(name: str, values: dict[str, Any]) -> Wrong | None:
    return check_values(name, recorded(name) or "", values)


def test_every_value_is_known_to_its_chart(sent: Sent) -> None:
    assert {name for name, _ in sent} == {*CHARTS, "vpc-cni", "amazon-cloudwatch-observability"}
    assert [(name, found) for name, values in sent if (found := wrong(name, values))] == []


def test_the_values_are_those_of_the_installed_versions(sent: Sent) -> None:
    assert len({(c.chart, c.version) for c in CATALOG.eks.charts.values()}) == len(CHARTS)
    assert {name: recorded(name) for name in CHARTS} == {n: CATALOG.eks.charts[n].version for n in CHARTS}
    addons = {name for name, _ in sent} - CHARTS
    assert {a for a in addons if recorded(a) not in CATALOG.eks.addons[a].versions.values()} == set(OLDER)


def test_a_misspelt_key_is_found(sent: Sent) -> None:
    """Each key that is sent, without its last letter but one."""
    terms = "nodeSelectorTerms"  # below it the keys are Kubernetes's
    every = {(name, path): values for name, values in sent for path in paths(values) if path[-1] != terms}
    assert len(every) > 50
    for (name, path), values in every.items():
        *above, key = path
        misspelt = key[:-2] + key[-1]
        inner = changed = copy.deepcopy(values)
        for part in above:
            inner = inner[part]
        inner[misspelt] = inner.pop(key)
        found = wrong(name, changed)
        assert found
        assert (found.name, found.fix) == (".".join([*above, misspelt]), f"write {key}, or remove it")


@pytest.mark.parametrize(
    ("name", "values", "place", "fix"),
    [
        ("neuron", {"npd": {"enabled": "false"}}, "npd.enabled", "write true or false without quotes"),
        ("neuron", {"npd": True}, "npd", "write a mapping"),
        ("neuron", {"neuronInstances": "trn1.32xlarge"}, "neuronInstances", "write a list"),
        ("neuron", {"scheduler": {"image": {"tag": 2.32}}}, "scheduler.image.tag", "write a text in quotes"),
        # of older and of newer releases of the chart
        ("neuron", {"npd": {"namespace": {"create": False}}}, "npd.namespace", "write namespaceOverride, or remove it"),
        ("neuron", {"device_plugin": {"enabled": True}}, "device_plugin", "write devicePlugin, or remove it"),
        ("kueue", {"controllerManager": {"replicas": True}}, "controllerManager.replicas", "write a whole number without quotes"),
        ("volcano", {"custom": {"tolerances": []}}, "custom.tolerances", None),
        ("vpc-cni", {"enableNetworkPolicy": True}, "enableNetworkPolicy", 'write the text "true" or "false"'),
        ("vpc-cni", {"env": {"WARM_IP_TARGET": 2}}, "env.WARM_IP_TARGET", 'write a whole number in quotes, for example "12"'),
        ("vpc-cni", {"env": {"WARM_IP_TARGET": "two"}}, "env.WARM_IP_TARGET", 'write a whole number in quotes, for example "12"'),
    ],
)  # fmt: skip
def test_what_a_chart_would_ignore_or_misread(name: str, values: dict[str, Any], place: str, fix: str | None) -> None:
    found = wrong(name, values)
    assert found
    assert found.name == place
    assert fix in (None, found.fix)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("volcano", {"custom": {"scheduler_config_override": "actions: enqueue"}}),  # no default in the chart
        ("jobset", {"controller": {"nodeSelector": {"any.example/key": "x"}, "tolerations": [{}]}}),  # any key below
        ("neuron", {"scheduler": {"replicaCount": 2}}),
    ],
)
def test_what_a_chart_takes(name: str, values: dict[str, Any]) -> None:
    assert wrong(name, values) is None


def test_an_image_of_a_catalogue_of_ones_own_at_a_place_that_the_chart_lacks() -> None:
    chart = CATALOG.eks.charts["jobset"].model_copy(
        update={"images": {"image.repositry": "registry.k8s.io/jobset/jobset"}}
    )
    eks = CATALOG.eks.model_copy(update={"charts": {**CATALOG.eks.charts, "jobset": chart}})
    wanted = Installation(
        fleets=FLEETS[0],
        catalog=CATALOG.model_copy(update={"eks": eks}),
        namespace="training",
        plugins=Plugins(),
        mirror=MIRRORS[1],
    )
    with pytest.raises(
        RequirementError, match=r"^jobset: image.repositry: jobset 0.12.0 has no such value. Write repository"
    ):
        charts.releases(wanted)
