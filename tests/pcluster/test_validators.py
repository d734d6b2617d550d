"""AWS ParallelCluster's own schema, validators and update policy, applied to what we render."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.pcluster_validator import PCLUSTER_PYTHON, PclusterValidator, errors
from tests.pcluster.examples import IDS, stringified
from tests.pcluster.seeding import configuration
from tests.support import completed, need_pcluster, swept
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks.rule import SOURCES
from trainium_cdk.description.cluster_configuration import Config, merged, render
from trainium_cdk.description.settings.pcluster import LOG_DAYS

FOLDER = Path("tests/environments")
ENVIRONMENTS = sorted(FOLDER.glob("*.yaml"))
SHORT = (
    "alinux2023",
    "existing-vpc",
    "fsx-persistent-s3",
    "login-and-accounting",
    "many-queues",
    "trn2u-reserved",
    "trn3-catalog",
    "tutorial",
)
"""Those of `make scenes`: each section of a configuration."""
# Instance types that their environment file describes, or offers in a region where the emulated EC2 does not: the validators
# cannot know them there. All else about these environments is validated with a type of the same shape instead.
NOT_OF_EC2 = {"trn3-catalog": "trn3.48xlarge", "trn2u-reserved": "trn2u.48xlarge"}
SAME_SHAPE = "trn2.48xlarge"
ACCEPTED = {
    "KeyPairValidator": "no key pair is meant: SSM Session Manager is the way in",
    "EfaPlacementGroupValidator": "reserved capacity has its place, and people may turn the group off",
    "CustomAmiTagValidator": "the stand-in for a user's own image carries no tags of pcluster",
    "AmiOsCompatibleValidator": "the same",
    "DetailedMonitoringValidator": "asked for by the environment, through overrides",
}


@pytest.mark.parametrize(
    "file", swept(ENVIRONMENTS, *(FOLDER / f"{name}.yaml" for name in SHORT)), ids=lambda f: f.stem
)
def test_every_environment_passes_the_dry_run(file: Path, validator: PclusterValidator, local_aws: LocalAws) -> None:
    env = settings.load(file)
    config = configuration(local_aws, env)
    if unknown := NOT_OF_EC2.get(file.stem):
        [only] = errors(validator.validate(stringified(config), env.cluster_name))
        assert f"instance types do not exist: [{unknown}]" in only.message
        env = settings.parse(file.read_text("utf-8").replace(unknown, SAME_SHAPE))
        config = configuration(local_aws, env)
    for written in (config, stringified(config)):
        findings = validator.validate(written, env.cluster_name)
        assert [f for f in findings if f.level != "INFO" and f.type not in ACCEPTED] == []


@pytest.mark.parametrize("type", ["fsx-openzfs", "fsx-ontap"])
def test_volumes_of_fsx_pass(type: str, validator: PclusterValidator, local_aws: LocalAws) -> None:
    """ParallelCluster looks up the volume, its file system, and whether the nodes' groups reach its ports. One that is missing fails."""
    id = "fsvol-0123456789abcdef0"
    volume = {"name": "more", "type": type, "id": id, "mount_dir": "/more"}
    env = settings.validate({"pcluster": {"shared_storage": [volume]}})
    config = configuration(local_aws, env)
    assert id not in str(config)
    assert errors(validator.validate(stringified(config), env.cluster_name)) == []
    [mount] = [m for m in config["SharedStorage"] if m["Name"] == "more"]
    mount[f"{mount['StorageType']}Settings"]["VolumeId"] = id
    wrong = errors(validator.validate(stringified(config), env.cluster_name))
    assert any(id in finding.message for finding in wrong)


@pytest.mark.parametrize("kind", ["efs", "fsx-openzfs", "fsx-lustre"])
def test_homes_may_be_on_a_shared_file_system(kind: str, validator: PclusterValidator, local_aws: LocalAws) -> None:
    """ParallelCluster 3.8.0 and newer."""
    if kind == "efs":
        env = settings.validate({"storage": {"efs": {"mount_dir": "/home"}}})
    elif kind == "fsx-lustre":
        env = settings.validate({"storage": {"fsx": {"mount_dir": "/home"}}})
    else:
        volume = {"name": "homes", "type": kind, "id": "fsvol-0123456789abcdef0", "mount_dir": "/home"}
        env = settings.validate({"pcluster": {"shared_storage": [volume]}})
    config = configuration(local_aws, env)
    assert "/home" in [mount["MountDir"] for mount in config["SharedStorage"]]
    assert errors(validator.validate(stringified(config), env.cluster_name)) == []


def test_an_address_of_ones_own_passes(validator: PclusterValidator, local_aws: LocalAws) -> None:
    address = local_aws.client("ec2", "us-east-1").allocate_address(Domain="vpc")
    env = settings.validate({"pcluster": {"head": {"subnet": "public", "elastic_ip": address["PublicIp"]}}})
    config = configuration(local_aws, env)
    assert config["HeadNode"]["Networking"]["ElasticIp"] == address["PublicIp"]
    assert errors(validator.validate(stringified(config), env.cluster_name)) == []


def test_what_passes_with_a_warning_passes_the_dry_run(validator: PclusterValidator, local_aws: LocalAws) -> None:
    """Several types, zones and SPOT for the CPU queue, several zones for nodes without EFA, a database by name, a prefix list."""
    env = settings.validate(
        {
            "network": {"zone_ids": ["use1-az6", "use1-az4"]},
            "pcluster": {
                "head": {"ssh": {"from_cidrs": ["pl-0123456789abcdef0"]}},
                "queues": [
                    {"name": "small", "zone_id": "use1-az6", "compute_resources": [{"instance_type": "trn1.2xlarge"}]},
                    {"name": "other", "zone_id": "use1-az4"},
                ],
            },
        }
    )
    config = configuration(local_aws, env)
    small, other, _ = config["Scheduling"]["SlurmQueues"]
    zones = [*small["Networking"]["SubnetIds"], *other["Networking"]["SubnetIds"]]
    several = {"Networking": {"SubnetIds": zones}}
    types = [{"InstanceType": kind} for kind in ("c5.2xlarge", "c5a.2xlarge")]
    theirs = [
        {"Name": "small", **several, "ComputeResources": [{"Name": "trn", "InstanceType": None, "Instances": [{"InstanceType": "trn1.2xlarge"}]}]},
        {"Name": "cpu", **several, "CapacityType": "SPOT", "ComputeResources": [{"Name": "cpu", "InstanceType": None, "Instances": types}]},
    ]  # fmt: skip
    overrides = {"Scheduling": {"SlurmQueues": theirs}}
    with_overrides = env.model_copy(update={"pcluster": env.pcluster.model_copy(update={"overrides": overrides})})
    said = [p for p in checks.check(with_overrides) if p.key[:2] == ("pcluster", "overrides")]
    assert {p.level for p in said} == {"warning"}
    found = validator.validate(stringified(merged(config, overrides)), env.cluster_name)
    assert [f for f in found if f.level == "ERROR"] == []


def test_every_allowed_log_retention_is_one_of_parallelclusters() -> None:
    need_pcluster()
    ask = (
        "from pcluster.schemas.cluster_schema import CloudWatchLogsSchema as s;"
        "print(*s().fields['retention_in_days'].validate.choices)"
    )
    done = completed([PCLUSTER_PYTHON, "-W", "ignore", "-c", ask], check=True)
    assert set(LOG_DAYS) == {int(days) for days in done.stdout.split()} - {0}  # 0 keeps them for ever


def test_the_sources_of_rules_are_validators_of_parallelcluster() -> None:
    need_pcluster()
    named = set(re.findall(r"ParallelCluster, (\w+)", " ".join(SOURCES.values())))
    ask = (
        "import pcluster.config.cluster_config as validators, pcluster.schemas.cluster_schema as schemas, sys;"
        "print(*[name for name in sys.argv[1:] if not hasattr(validators, name) and not hasattr(schemas, name)])"
    )
    done = completed([PCLUSTER_PYTHON, "-W", "ignore", "-c", ask, *sorted(named)], check=True)
    assert len(named) >= 15
    assert done.stdout.split() == []


def test_the_default_environment_passes_with_a_warning_about_the_key_only(
    validator: PclusterValidator, local_aws: LocalAws
) -> None:
    env = settings.load()
    findings = validator.validate(stringified(configuration(local_aws, env)), env.cluster_name)
    assert {f.type for f in findings} == {"KeyPairValidator"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"Scheduling": {"SlurmSettings": {"ScaledownIdletimes": 5}}}, "Unknown field"),
        ({"HeadNode": {"InstanceType": "c5.huge"}}, "instance types do not exist"),
        (
            {"Scheduling": {"SlurmQueues": [{"Name": "compute1", "Networking": None}]}},
            "Missing data for required field",
        ),
        ({"Monitoring": {"Logs": {"CloudWatch": {"RetentionInDays": 2}}}}, "Must be one of"),
    ],
)
def test_overrides_are_validated_too(
    overrides: Config, message: str, validator: PclusterValidator, local_aws: LocalAws
) -> None:
    env = settings.validate({"pcluster": {"overrides": overrides}})
    found = errors(validator.validate(stringified(configuration(local_aws, env)), env.cluster_name))
    assert found
    assert message in str(found)


def test_as_many_tags_as_the_rules_allow_pass_with_that_of_the_function(
    validator: PclusterValidator, local_aws: LocalAws
) -> None:
    """The provider adds a tag of its own: one more of ours, and ParallelCluster refuses each of its two queues."""
    most = Catalog.load().parallelcluster.limits.tags
    for count, refused in ((most, []), (most + 1, ["ComputeResourceTagsValidator"] * 2)):
        env = settings.validate({"tags": {f"t{i}": "x" for i in range(count)}})
        config = configuration(local_aws, env)
        config["Tags"].append({"Key": "parallelcluster:custom_resource", "Value": "cluster"})
        assert [f.type for f in errors(validator.validate(stringified(config), env.cluster_name))] == refused


def test_new_scripts_reach_a_cluster_that_runs(validator: PclusterValidator) -> None:
    env = settings.load()
    old = render(env, IDS)
    new = render(env, dataclasses.replace(IDS, scripts_url="s3://cdk-assets/newer.zip"))
    changes = validator.check_update(old, new, fleet_running=True)
    assert all(c.allowed for c in changes)
    where = {c.path for c in changes}
    assert any("OnNodeUpdated" in path for path in where)
    assert any("SlurmQueues" in path and "OnNodeConfigured" in path for path in where)
    assert old["HeadNode"]["CustomActions"]["OnNodeConfigured"] == new["HeadNode"]["CustomActions"]["OnNodeConfigured"]


GROUP = "arn:aws:resource-groups:us-east-1:111122223333:group/mine"


@pytest.mark.parametrize(
    ("placement", "reservation", "rendered"),
    [
        ("auto", GROUP, {"Enabled": False}),
        ("in-it", "cr-0123456789abcdef0", {"Name": "in-it"}),
        ("in-it", GROUP, {"Name": "in-it"}),
        ("alone", None, {"Name": "alone"}),
    ],
)
def test_reservations_in_groups_pass_the_dry_run(
    placement: str, reservation: str | None, rendered: object, validator: PclusterValidator, local_aws: LocalAws
) -> None:
    """Groups of reservations, and reservations that were made in a placement group."""
    resource = {"max_nodes": 2, **({"reservation": reservation} if reservation else {})}
    env = settings.validate({"pcluster": {"queues": [{"placement_group": placement, "compute_resources": [resource]}]}})
    config = configuration(local_aws, env)
    assert config["Scheduling"]["SlurmQueues"][0]["Networking"]["PlacementGroup"] == rendered
    findings = validator.validate(stringified(config), env.cluster_name)
    assert [f for f in findings if f.level != "INFO" and f.type not in ACCEPTED] == []
