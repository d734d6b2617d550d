"""The functions of a stack: where they are, and where their logs go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stacks import synthesis


def functions(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {n: r for n, r in template["Resources"].items() if r["Type"] == "AWS::Lambda::Function"}


DEFAULTS = {"slurm": lambda: synthesis.SLURM.document("default"), "eks": lambda: synthesis.EKS.document("default")}


@pytest.mark.parametrize("engine", DEFAULTS)
def test_functions_of_kubernetes_are_in_the_vpc(engine: str) -> None:
    found = [r["Properties"] for r in functions(DEFAULTS[engine]()).values()]
    assert {"VpcConfig" in f for f in found} == {engine == "eks"}
    assert not any("ReservedConcurrentExecutions" in f for f in found), "a new account has next to none to reserve"


@pytest.mark.parametrize("engine", DEFAULTS)
def test_functions_of_the_deployment_share_a_log_group(engine: str) -> None:
    """Of the deployment and, on Kubernetes, of the scaler, which users read."""
    groups = {r["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] for r in functions(DEFAULTS[engine]()).values()}
    assert sorted(name[:-8] for name in groups) == (["PluginsObjectsLogs", "ScalerLogs"] if engine == "eks" else []) + [
        "TrnDeploymentLogs"
    ]
