"""The catalogue's facts and what we guess from names, against data that others keep: EC2's descriptions as the
emulator carries them, and ParallelCluster's own source."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, completed, need
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks import cluster_configuration
from trainium_cdk.description.checks.nodes import _ARM, memory_gib

CATALOG = Catalog.load()


@pytest.fixture(scope="module")
def ec2() -> Path:
    """The folder of EC2 descriptions in moto."""
    found = sorted(ROOT.glob(".venvs/aws/lib/python3*/site-packages/moto/ec2/resources"))
    need(found, "the emulator is not installed (.venvs/aws): make setup")
    return found[0]


@pytest.fixture(scope="module")
def instance_types(ec2: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((ec2 / "instance_types.json.gz").read_bytes()))
    return found


@pytest.mark.parametrize("name", CATALOG.instances)
def test_instance_types_are_as_ec2_describes_them(name: str, instance_types: dict[str, Any]) -> None:
    ours, theirs = CATALOG.instance(name), instance_types[name]
    network = theirs["NetworkInfo"]
    assert ours.vcpus == theirs["VCpuInfo"]["DefaultVCpus"]
    assert ours.memory_gib == theirs["MemoryInfo"]["SizeInMiB"] / 1024
    assert ours.network_cards == network["MaximumNetworkCards"]
    assert ours.efa_interfaces == network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    assert ours.nvme.count * ours.nvme.size_gb == theirs["InstanceStorageInfo"]["TotalSizeInGB"]
    assert set(ours.capacity_types) == set(theirs["SupportedUsageClasses"])
    if "NeuronInfo" in theirs:
        device = theirs["NeuronInfo"]["NeuronDevices"][0]
        assert ours.neuron_devices == device["Count"]
        assert ours.cores_per_device == device["CoreInfo"]["Count"]
        if not name.startswith("trn2"):  # its device memory is wrong there
            assert ours.hbm_gib == theirs["NeuronInfo"]["TotalNeuronDeviceMemoryInMiB"] / 1024


def test_zones_are_those_of_the_offerings(ec2: Path) -> None:
    offered: dict[str, set[str]] = {name: set() for name in CATALOG.instances}
    regions: dict[str, str] = {}
    for file in (ec2 / "instance_type_offerings" / "availability-zone-id").glob("*.json.gz"):
        for offering in json.loads(gzip.decompress(file.read_bytes())):
            if offering["InstanceType"] in offered:
                offered[offering["InstanceType"]].add(offering["Location"])
                regions[offering["Location"]] = file.name.removesuffix(".json.gz")
    assert {name: sorted(zones) for name, zones in offered.items()} == {
        name: sorted(kind.zone_ids) for name, kind in CATALOG.instances.items()
    }
    assert {zone: CATALOG.region_of(zone) for zone in regions} == regions


def test_arm_types_are_recognised_by_name(instance_types: dict[str, Any]) -> None:
    arm = {n for n, t in instance_types.items() if "arm64" in t["ProcessorInfo"]["SupportedArchitectures"]}
    assert len(arm) > 100
    assert {n for n in instance_types if _ARM.match(n.split(".")[0])} == arm


def test_memory_given_in_a_name_is_correct(instance_types: dict[str, Any]) -> None:
    guessed = {n: m for n in instance_types if (m := memory_gib(n)) is not None}
    assert len(guessed) > 300
    less = {n: m for n, m in guessed.items() if instance_types[n]["MemoryInfo"]["SizeInMiB"] / 1024 < m}
    assert less == {}
    assert guessed["c5.4xlarge"] == 32
    assert guessed["m5.large"] == 8


ASK_PCLUSTER = """
import inspect, json, re
from importlib.metadata import version
from importlib.resources import files
from pcluster import constants
from pcluster.validators.cluster_validators import SharedStorageMountDirValidator
from pcluster.validators.slurm_settings_validator import SLURM_SETTINGS_DENY_LIST
conf = SLURM_SETTINGS_DENY_LIST["SlurmConf"]
source = inspect.getsource(SharedStorageMountDirValidator)
print(json.dumps({
    "default": version("aws-parallelcluster"),
    "regions": (files("pcluster") / "resources" / "supported-regions").read_text().split(),
    "reserved_mount_dirs": re.findall(r'"(/[a-z0-9_/]+)"', source),
    "denied_slurm_settings": conf["Global"],
    "denied_slurm_settings_with_accounting": conf["Accounting"],
    "denied_slurm_settings_of_queue": SLURM_SETTINGS_DENY_LIST["Queue"]["Global"],
    "denied_slurm_settings_of_resource": SLURM_SETTINGS_DENY_LIST["ComputeResource"]["Global"],
    "root_volume_gib": constants.EBS_VOLUME_TYPE_DEFAULT and constants.EBS_ROOT_VOLUME_SIZE_DEFAULT,
    "operating_systems": constants.SUPPORTED_OSES,
    "limits": {
        "cluster_name": constants.PCLUSTER_NAME_MAX_LENGTH,
        "cluster_name_with_accounting": constants.PCLUSTER_NAME_MAX_LENGTH_SLURM_ACCOUNTING,
        "queues": constants.MAX_NUMBER_OF_QUEUES,
        "compute_resources": constants.MAX_NUMBER_OF_COMPUTE_RESOURCES_PER_CLUSTER,
    },
}))
"""


@pytest.fixture(scope="module")
def pcluster() -> dict[str, Any]:
    python = ROOT / ".venvs/pcluster/bin/python"
    need(python.exists(), "aws-parallelcluster is not installed (.venvs/pcluster): make setup")
    done = completed([python, "-c", ASK_PCLUSTER])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_parallelclusters_schema_is_what_its_package_has() -> None:
    python = ROOT / ".venvs/pcluster/bin/python"
    need(python.exists(), "aws-parallelcluster is not installed (.venvs/pcluster): make setup")
    done = completed([python, ROOT / "sandbox/pcluster_validator/schema.py"])
    assert json.loads(done.stdout) == cluster_configuration.schema(), done.stderr


def test_parallelcluster_entries_match_its_package(pcluster: dict[str, Any]) -> None:
    facts = CATALOG.parallelcluster
    assert facts.default == pcluster["default"]
    assert set(facts.operating_systems) <= set(pcluster["operating_systems"])
    assert set(facts.reserved_mount_dirs) == set(pcluster["reserved_mount_dirs"])
    for lines in ("settings", "settings_with_accounting", "settings_of_queue", "settings_of_resource"):
        assert sorted(getattr(facts, f"denied_slurm_{lines}")) == sorted(pcluster[f"denied_slurm_{lines}"])
    assert facts.root_volume_gib() == pcluster["root_volume_gib"]
    assert {k: v for k, v in facts.limits.model_dump().items() if k in pcluster["limits"]} == pcluster["limits"]
    # those of other partitions are left out
    assert set(facts.regions) == {r for r in pcluster["regions"] if not r.startswith("us-iso")}
