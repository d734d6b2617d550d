"""pcluster's own validators, reading the local AWS: valid configurations pass, invalid ones get its message."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.pcluster_validator import PCLUSTER_PYTHON, PclusterValidator, errors, installed_version
from sandbox.pcluster_validator.seed import Seeded, reservation, seed
from tests.support import need

Config = dict[str, Any]
Change = Callable[[Config, Seeded], None]


@pytest.fixture(scope="module")
def validator(local_aws: LocalAws) -> PclusterValidator:
    need(installed_version(), f"aws-parallelcluster is not installed ({PCLUSTER_PYTHON}): make setup")
    return local_aws.pcluster_validator


@pytest.fixture(scope="module")
def seeded(local_aws: LocalAws) -> Seeded:
    return seed(partial(local_aws.client, region="us-east-2"), "use2-az3")


@pytest.fixture
def good(seeded: Seeded) -> Config:
    """Two queues, both kinds of storage, a script."""
    networking = {"SubnetIds": [seeded.private_subnet], "AdditionalSecurityGroups": [seeded.security_group]}
    return {
        "Region": "us-east-2",
        "Image": {"Os": "ubuntu2204"},
        "HeadNode": {
            "InstanceType": "c5.4xlarge",
            "Networking": {
                "SubnetId": seeded.public_subnet,
                "AdditionalSecurityGroups": [seeded.security_group],
            },
            "Ssh": {"KeyName": seeded.key_name},
            "CustomActions": {"OnNodeConfigured": {"Script": seeded.script}},
            "Iam": {"S3Access": [{"BucketName": seeded.bucket}]},
        },
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmQueues": [
                {
                    "Name": "trn1",
                    "Networking": {**networking, "PlacementGroup": {"Enabled": True}},
                    "ComputeResources": [
                        {
                            "Name": "nodes",
                            "InstanceType": "trn1.32xlarge",
                            "MaxCount": 16,
                            "Efa": {"Enabled": True},
                        }
                    ],
                },
                {
                    "Name": "plain",
                    "Networking": networking,
                    "ComputeResources": [{"Name": "nodes", "InstanceType": "trn1.2xlarge", "MaxCount": 2}],
                },
            ],
        },
        "SharedStorage": [
            {
                "Name": "efs",
                "MountDir": "/shared",
                "StorageType": "Efs",
                "EfsSettings": {"FileSystemId": seeded.efs},
            },
            {
                "Name": "fsx",
                "MountDir": "/fsx",
                "StorageType": "FsxLustre",
                "FsxLustreSettings": {"FileSystemId": seeded.fsx},
            },
        ],
    }


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


def stringified(value: Any) -> Any:
    """As CloudFormation passes properties to a custom resource."""
    if isinstance(value, dict):
        return {key: stringified(item) for key, item in value.items()}
    if isinstance(value, list):
        return [stringified(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


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


def _set(*path: Any, value: Any) -> Change:
    def change(config: Config, _seeded: Seeded) -> None:
        place: Any = config
        for key in path[:-1]:
            place = place[key]
        if callable(value):
            place[path[-1]] = value(_seeded)
        else:
            place[path[-1]] = value

    return change


def _without_placement(config: Config, _seeded: Seeded) -> None:
    del queue(config)["Networking"]["PlacementGroup"]


QUEUES = ("Scheduling", "SlurmQueues")
NODES = (*QUEUES, 0, "ComputeResources", 0)
WRONG: dict[str, tuple[Change, str]] = {
    "retired system": (_set("Image", "Os", value="ubuntu2004"), "Must be one of: alinux2023, ubuntu2204"),
    "RSA key": (
        _set("HeadNode", "Ssh", "KeyName", value=lambda seeded: seeded.rsa_key_name),
        "ubuntu2204 does not support RSA keys",
    ),
    "no such key": (_set("HeadNode", "Ssh", "KeyName", value="missing"), "The key pair 'missing' does not exist"),
    "no such subnet": (
        _set("HeadNode", "Networking", "SubnetId", value="subnet-0123456789abcdef0"),
        "The subnet ID 'subnet-0123456789abcdef0' does not exist",
    ),
    "EFA where there is none": (
        _set(*NODES, "InstanceType", value="trn1.2xlarge"),
        "Instance type 'trn1.2xlarge' does not support EFA",
    ),
    "placement group left open": (
        _without_placement,
        "The placement group for EFA-enabled compute resources in queue 'trn1' must be explicit",
    ),
    "no such instance type": (_set(*NODES, "InstanceType", value="trn9.big"), "trn9.big"),
    "too many to start": (_set(*NODES, "MinCount", value=20), "Max count must be greater than or equal to min count"),
    "queue in capitals": (
        _set(*QUEUES, 0, "Name", value="Compute"),
        "only contain lowercase letters, digits and hyphens",
    ),
    "queue called default": (_set(*QUEUES, 0, "Name", value="default"), "'default'"),
    "nodes in the public subnet": (
        _set(*QUEUES, 0, "Networking", "SubnetIds", value=lambda seeded: [seeded.public_subnet]),
        "public IP",
    ),
    "no such file system": (
        _set("SharedStorage", 1, "FsxLustreSettings", "FileSystemId", value="fs-0123456789abcdef0"),
        "File system 'fs-0123456789abcdef0' does not exist",
    ),
    "two mounts in one place": (_set("SharedStorage", 1, "MountDir", value="/shared"), "/shared"),
    "file system behind a closed group": (
        lambda config, _: config["HeadNode"]["Networking"].pop("AdditionalSecurityGroups"),
        "does not satisfy mounting requirement",
    ),
    "unknown key": (_set("HeadNode", "Flavour", value="large"), "Unknown field"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration_gets_pclusters_own_message(
    case: str, validator: PclusterValidator, good: Config, seeded: Seeded
) -> None:
    change, message = WRONG[case]
    change(good, seeded)
    found = errors(validator.validate(good))
    assert message in " | ".join(finding.message for finding in found)


def test_update_policy_depends_on_the_fleet(validator: PclusterValidator, good: Config) -> None:
    def verdicts(change: Callable[[Config], object], *, running: bool) -> list[bool]:
        new = copy.deepcopy(good)
        change(new)
        return [item.allowed for item in validator.check_update(good, new, fleet_running=running)]

    assert verdicts(dict, running=True) == []
    assert verdicts(lambda config: nodes(config).update(MaxCount=32), running=True) == [True]
    shrink = partial(verdicts, lambda config: nodes(config).update(MaxCount=8))
    assert shrink(running=True) == [False]
    assert shrink(running=False) == [True]
    head = partial(verdicts, lambda config: config["HeadNode"].update(InstanceType="c5.9xlarge"))
    assert head(running=False) == [False]
