"""pcluster's own validators, reading the local AWS: valid configurations pass, invalid ones get its message."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import LocalAws
from sandbox.pcluster_validator import PclusterValidator, errors
from sandbox.pcluster_validator.seed import Seeded, reservation, seed
from tests.pcluster.examples import change, stringified

HERE = Path(__file__).parent
Config = dict[str, Any]
WRONG = yaml.safe_load((HERE / "wrong_clusters.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def seeded(local_aws: LocalAws) -> Seeded:
    return seed(partial(local_aws.client, region="us-east-2"), "use2-az3")


def filled(value: Any, seeded: Seeded) -> Any:
    """A value with the attributes of what was seeded."""
    if isinstance(value, dict):
        return {key: filled(item, seeded) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, seeded) for item in value]
    return value.format_map(vars(seeded)) if isinstance(value, str) else value


@pytest.fixture
def good(seeded: Seeded) -> Config:
    found: Config = filled(yaml.safe_load((HERE / "cluster.yaml").read_text("utf-8")), seeded)
    return found


def queue(config: Config, number: int = 0) -> Any:
    return config["Scheduling"]["SlurmQueues"][number]


def nodes(config: Config, number: int = 0) -> Any:
    return queue(config, number)["ComputeResources"][0]


def reserved(config: Config, identifier: str, purchase: str | None, **changes: Any) -> Config:
    nodes(config).update(CapacityReservationTarget={"CapacityReservationId": identifier}, **changes)
    queue(config)["Networking"]["PlacementGroup"] = {"Enabled": False}
    if purchase:
        queue(config)["CapacityType"] = purchase
    return config


def test_a_good_configuration_passes_directly_and_as_cloudformation_passes_it(
    validator: PclusterValidator, good: Config
) -> None:
    for config in (good, stringified(good)):
        findings = validator.validate(config)
        assert errors(findings) == []
        assert {finding.level for finding in findings} <= {"INFO", "WARNING"}


def test_reservations_are_looked_up(
    validator: PclusterValidator, good: Config, seeded: Seeded, local_aws: LocalAws
) -> None:
    make = partial(reservation, partial(local_aws.client, region="us-east-2"), zone=seeded.zone)
    odcr = make("trn1.32xlarge", 16, block=False)
    assert errors(validator.validate(reserved(copy.deepcopy(good), odcr, None))) == []

    block = make("trn2.48xlarge", 2, block=True)
    sized = {"InstanceType": "trn2.48xlarge", "MinCount": 2, "MaxCount": 2}
    bought = reserved(copy.deepcopy(good), block, "CAPACITY_BLOCK", **sized)
    assert errors(validator.validate(bought)) == []

    nodes(bought).update(MinCount=1)
    assert "same value of min count" in errors(validator.validate(bought))[-1].message
    missing = reserved(copy.deepcopy(good), "cr-0123456789abcdef0", None)
    assert "does not exist" in errors(validator.validate(missing))[-1].message


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.sweep
def test_a_wrong_configuration_gets_pclusters_own_message(
    case: str, validator: PclusterValidator, good: Config, seeded: Seeded
) -> None:
    path, value, message = WRONG[case]
    change(good, path, filled(value, seeded))
    found = errors(validator.validate(good))
    assert message in " | ".join(finding.message for finding in found)
