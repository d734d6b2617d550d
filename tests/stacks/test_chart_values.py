"""The values of charts and add-ons in templates, against their own keys and types."""

from __future__ import annotations

import json

import pytest

from tests.stacks.synthesis import EKS
from tests.support import swept
from trainium_cdk.description.catalog.charts import check_values, recorded


@pytest.mark.parametrize("name", swept(EKS.names, "default", "eks/all-settings", "eks/claims"))
def test_charts_and_addons_know_every_value(name: str) -> None:
    """As the template has them; `eks/test_chart_values.py` tries all combinations."""
    template = EKS.template(name)
    charts = [c["Properties"] for c in template.find_resources("Custom::AWSCDK-EKS-HelmChart").values()]
    addons = [a["Properties"] for a in template.find_resources("AWS::EKS::Addon").values()]
    given = {c["Release"]: json.loads(c["Values"]) for c in charts}
    given |= {a["AddonName"]: json.loads(a["ConfigurationValues"]) for a in addons if "ConfigurationValues" in a}
    assert {*(c["Release"] for c in charts), "vpc-cni"} <= given.keys()
    for receiver, values in ((name.removesuffix("-claims"), values) for name, values in given.items()):
        assert check_values(receiver, recorded(receiver) or "", values) is None
