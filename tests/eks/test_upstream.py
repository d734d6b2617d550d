"""What is given to the vendors' charts, add-ons and node images, against their recorded keys (`conformance/surfaces.yaml`)."""

from __future__ import annotations

import email
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from conformance import surfaces
from trainium_cdk import settings
from trainium_cdk.eks import addons, charts
from trainium_cdk.eks.installation import Installation
from trainium_cdk.eks.user_data import ApiServer, user_data

RECORDED = surfaces.load()
ENVIRONMENT = settings.validate(
    {"eks": {"plugins": {"node_monitoring": False, "node_recovery": True, "volcano": True}}}
)
NEWER = {"devicePlugin.enabled", "draDriver.enabled", "npd.namespace.create"}
"""Keys of the Neuron chart that its recorded release, the newest whose source is public, does not have yet. A release that does
not know a key ignores it."""


def paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from paths(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


@pytest.mark.parametrize("name", ["neuron", "efa", "volcano"])
def test_chart_values_exist_in_the_chart(name: str) -> None:
    recorded = RECORDED[f"chart-{name}"].recorded
    [release] = [r for r in charts.releases(Installation.of(ENVIRONMENT)) if r.name == name]
    given = set(paths(release.values)) - (NEWER if name == "neuron" else set())
    assert len(given) >= 2
    known = {*recorded["keys"], *(f"custom.{key}" for key in recorded.get("examples", []))}
    assert {key for key in given if not any(k == key or k.startswith(f"{key}.") for k in known)} == set()


def test_observability_is_configured_by_keys_of_the_add_on() -> None:
    given = set(paths(addons.observability_values(metrics=True)))
    assert given <= set(RECORDED["cloudwatch-observability"].recorded["sections"])


@pytest.mark.parametrize(
    "given",
    [
        {"huge_pages": "5Gi", "locked_memory": True, "local_storage": True, "lustre": True},
        {"locked_memory": True, "cluster": ApiServer("trn-eks", "https://x", "QUJD", "172.20.0.0/16")},
        {"local_storage": True},
    ],
    ids=lambda given: "-".join(given),
)
def test_user_data_is_a_node_config(given: dict[str, Any]) -> None:
    message = email.message_from_string(user_data(**given))
    [config] = [str(p.get_payload()) for p in message.walk() if p.get_content_type() == "application/node.eks.aws"]
    validate(YAML(typ="safe").load(config))


def test_the_schema_refuses_what_nodeadm_does_not_know() -> None:
    with pytest.raises(jsonschema.ValidationError, match="localStrage"):
        validate({"apiVersion": "x", "kind": "NodeConfig", "spec": {"instance": {"localStrage": {}}}})
    with pytest.raises(jsonschema.ValidationError, match="RAID5"):
        validate(
            {"apiVersion": "x", "kind": "NodeConfig", "spec": {"instance": {"localStorage": {"strategy": "RAID5"}}}}
        )


def validate(config: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(RECORDED["node-config"].recorded["schema"]).validate(config)
