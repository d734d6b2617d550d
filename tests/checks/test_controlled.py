"""Keys of a cluster configuration that a setting controls: what is said of each kind of value, and that following it works."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.pcluster.examples import ids_for
from trainium_cdk import checks, settings
from trainium_cdk.checks.controlled import CONTROLLED, FIXED
from trainium_cdk.cluster_configuration.config import render

BASE = """
region: us-east-1
network: {zone_ids: [use1-az6]}
pcluster:
  login_nodes: {}
  accounting: {uri: db, user: slurm, password_secret: "arn:aws:secretsmanager:us-east-1:111122223333:secret:s"}
  queues:
    - {name: compute1}
    - {name: small, compute_resources: [{name: trn, instance_type: trn1.2xlarge}]}
    - {name: mixed, compute_resources: [{name: a}, {name: b}]}
"""
PUBLIC = "pcluster: {head: {subnet: public}}"
OWN_VPC = """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 10.0.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]
    public_subnets: [{id: subnet-0123456789abcdef1, zone_id: use1-az6}]
pcluster: {head: {subnet: public}}
"""
COMPUTE, SMALL, CPU = "SlurmQueues.compute1", "SlurmQueues.small", "SlurmQueues.cpu"
SUBNET, SECRET = "subnet-0123456789abcdef0", "arn:aws:secretsmanager:us-east-1:111122223333:secret:other"

# path in overrides (a queue, pool or compute resource by its name), value -> what is said: `KEY: VALUE` of a setting, `works`, or
# what cannot be set with what to do instead
CASES: list[tuple[str, Any, str]] = [
    ("Region", "us-west-2", "region: us-west-2"),
    ("Tags", [{"Key": "team", "Value": "ml"}], "tags"),
    ("Image.Os", "alinux2023", "pcluster.os: alinux2023"),
    ("Image.Os", "rocky9", "cannot: use pcluster.os: ubuntu2404"),
    ("Image.CustomAmi", "ami-0123456789abcdef0", "pcluster.custom_ami: ami-0123456789abcdef0"),
    ("HeadNode.InstanceType", "m6i.4xlarge", "pcluster.head.instance_type: m6i.4xlarge"),
    ("HeadNode.InstanceType", "m7g.4xlarge", "cannot: choose an ordinary x86_64 type"),
    ("HeadNode.InstanceType", "trn1.32xlarge", "cannot: choose an ordinary x86_64 type"),
    ("HeadNode.Image.CustomAmi", "ami-0123456789abcdef0", "pcluster.head.custom_ami: ami-0123456789abcdef0"),
    ("HeadNode.LocalStorage.RootVolume.Size", 1000, "pcluster.head.root_volume_gib: 1000"),
    ("HeadNode.LocalStorage.RootVolume.Size", 20000, "works"),
    ("HeadNode.LocalStorage.RootVolume.Size", 35, "cannot: use a root volume of 50 GiB or more"),
    ("HeadNode.Networking.SubnetId", SUBNET, "works"),
    ("HeadNode.Networking.ElasticIp", True, "pcluster.head.subnet: public"),
    ("HeadNode.Networking.ElasticIp", False, "pcluster.head.subnet: private"),
    ("HeadNode.Networking.ElasticIp", "203.0.113.10", "pcluster.head.elastic_ip: 203.0.113.10"),
    ("HeadNode.Networking.ElasticIp", "eipalloc-0123456789abcdef0", "cannot: use pcluster.head.elastic_ip with the address"),
    ("HeadNode.Ssh.AllowedIps", "203.0.113.0/24", "pcluster.head.ssh.from_cidrs: [203.0.113.0/24]"),
    ("HeadNode.Ssh.AllowedIps", "pl-0123456789abcdef0", "pcluster.head.ssh.from_cidrs: [pl-0123456789abcdef0]"),
    ("HeadNode.Ssh.AllowedIps", "203.0.113.7/24", "cannot: write the network address and its prefix"),
    ("HeadNode.Ssh.KeyName", "office", "pcluster.head.ssh.key_name: office"),
    ("Scheduling.SlurmSettings.ScaledownIdletime", -1, "pcluster.scale_down_idle_minutes: -1"),
    ("Scheduling.SlurmSettings.ScaledownIdletime", 0, "cannot: use pcluster.scale_down_idle_minutes: 1"),
    ("Scheduling.SlurmSettings.Database.Uri", "db2:3307", "pcluster.accounting.uri: db2:3307"),
    ("Scheduling.SlurmSettings.Database.UserName", "other", "pcluster.accounting.user: other"),
    ("Scheduling.SlurmSettings.Database.UserName", "a slurm user", "cannot: write the name of a database user"),
    ("Scheduling.SlurmSettings.Database.PasswordSecretArn", SECRET, f"pcluster.accounting.password_secret: {SECRET}"),
    ("Scheduling.SlurmSettings.Database.DatabaseName", "old_slurm", "pcluster.accounting.database: old_slurm"),
    (f"{COMPUTE}.CapacityType", "SPOT", "pcluster.queues[].capacity_type: spot"),
    (f"{CPU}.CapacityType", "SPOT", "works"),
    (f"{COMPUTE}.ComputeSettings.LocalStorage.RootVolume.Size", 1000, "pcluster.queues[].root_volume_gib: 1000"),
    (f"{CPU}.ComputeSettings.LocalStorage.RootVolume.Size", 1000, "pcluster.cpu_queue.root_volume_gib: 1000"),
    (f"{CPU}.ComputeSettings.LocalStorage.RootVolume.Size", 20000, "works"),
    (f"{COMPUTE}.ComputeSettings.LocalStorage.EphemeralVolume.MountDir", "/nvme", "pcluster.queues[].local_storage_dir: /nvme"),
    (f"{COMPUTE}.ComputeSettings.LocalStorage.EphemeralVolume.MountDir", "/home", "cannot: choose another directory"),
    (f"{CPU}.ComputeSettings.LocalStorage.EphemeralVolume.MountDir", "/nvme", "works"),
    (f"{COMPUTE}.Networking.SubnetIds", [SUBNET], "works"),
    (f"{COMPUTE}.Networking.SubnetIds", [SUBNET, "subnet-0123456789abcdef1"], "cannot: make a queue for each zone"),
    (f"{SMALL}.Networking.SubnetIds", [SUBNET, "subnet-0123456789abcdef1"], "works"),
    (f"{CPU}.Networking.SubnetIds", [SUBNET, "subnet-0123456789abcdef1"], "works"),
    (f"{COMPUTE}.Networking.PlacementGroup.Enabled", False, "pcluster.queues[].placement_group: off"),
    (f"{COMPUTE}.Networking.PlacementGroup.Name", "ours", "pcluster.queues[].placement_group: ours"),
    (f"{COMPUTE}.Networking.PlacementGroup.Id", "pg-0123456789abcdef0", "cannot: write its name in pcluster.queues[].placement_group"),
    (f"{COMPUTE}.Image.CustomAmi", "ami-0123456789abcdef0", "pcluster.queues[].custom_ami: ami-0123456789abcdef0"),
    (f"{CPU}.Image.CustomAmi", "ami-0123456789abcdef0", "pcluster.cpu_queue.custom_ami: ami-0123456789abcdef0"),
    (f"{COMPUTE}.trn.InstanceType", "trn1n.32xlarge", "pcluster.queues[].compute_resources[].instance_type: trn1n.32xlarge"),
    (f"{COMPUTE}.trn.InstanceType", "g6.xlarge", "cannot: add a queue of another name"),
    (f"{CPU}.cpu.InstanceType", "m6i.2xlarge", "pcluster.cpu_queue.instance_type: m6i.2xlarge"),
    (f"{CPU}.cpu.InstanceType", "c7g.2xlarge", "cannot: choose an ordinary x86_64 type"),
    (f"{CPU}.cpu", {"InstanceType": None, "Instances": [{"InstanceType": "c5.2xlarge"}, {"InstanceType": "m5.2xlarge"}]}, "works"),
    (f"{CPU}.cpu.Instances", [{"InstanceType": "c5.2xlarge"}], "refused: add InstanceType: null beside it"),
    (f"{CPU}.cpu", {"InstanceType": None, "Instances": [{"InstanceType": "c7g.2xlarge"}]}, "cannot: choose an ordinary x86_64 type"),
    (f"{SMALL}.trn", {"InstanceType": None, "Instances": [{"InstanceType": "trn1.2xlarge"}]}, "works"),
    (f"{SMALL}.trn", {"InstanceType": None, "Instances": [{"InstanceType": "trn1.2xlarge"}, {"InstanceType": "trn2.3xlarge"}]},
     "cannot: add a compute resource for each type"),
    (f"{COMPUTE}.trn.InstanceType", None, "pcluster.queues[].compute_resources[].instance_type"),
    (f"{COMPUTE}.trn.MinCount", 2, "pcluster.queues[].compute_resources[].min_nodes: 2"),
    (f"{COMPUTE}.trn.MaxCount", 64, "pcluster.queues[].compute_resources[].max_nodes: 64"),
    (f"{CPU}.cpu.MinCount", 1, "pcluster.cpu_queue.min_nodes: 1"),
    (f"{CPU}.cpu.MaxCount", 64, "pcluster.cpu_queue.max_nodes: 64"),
    (f"{COMPUTE}.trn.Efa.Enabled", False, "pcluster.queues[].compute_resources[].efa: off"),
    (f"{CPU}.cpu.Efa.Enabled", False, "works"),
    (f"{COMPUTE}.trn.DisableSimultaneousMultithreading", False, "pcluster.queues[].compute_resources[].hyperthreads: true"),
    (f"{CPU}.cpu.DisableSimultaneousMultithreading", True, "works"),
    (f"{COMPUTE}.trn.CapacityReservationTarget.CapacityReservationId", "cr-0123456789abcdef0",
     "pcluster.queues[].compute_resources[].reservation: cr-0123456789abcdef0"),
    (f"{COMPUTE}.trn.CapacityReservationTarget.CapacityReservationResourceGroupArn",
     "arn:aws:resource-groups:us-east-1:111122223333:group/trn",
     "pcluster.queues[].compute_resources[].reservation: arn:aws:resource-groups:us-east-1:111122223333:group/trn"),
    (f"{COMPUTE}.trn.Networking.PlacementGroup.Enabled", False, "pcluster.queues[].placement_group: off"),
    ("SlurmQueues.mixed.a.Networking.PlacementGroup.Enabled", False, "works"),
    ("SlurmQueues.mixed.a.Networking.PlacementGroup.Name", "ours", "works"),
    (f"{COMPUTE}.trn.Networking.PlacementGroup.Name", "ours", "pcluster.queues[].placement_group: ours"),
    (f"{COMPUTE}.trn.Networking.PlacementGroup.Id", "pg-0123456789abcdef0", "cannot: write its name in pcluster.queues[].placement_group"),
    ("Pools.login.InstanceType", "m6i.large", "pcluster.login_nodes.instance_type: m6i.large"),
    ("Pools.login.InstanceType", "m7g.large", "cannot: choose an ordinary x86_64 type"),
    ("Pools.login.Networking.SubnetIds", [SUBNET], "works"),
    ("DirectoryService", {"DomainName": "corp.example.com"}, "pcluster.directory_service"),
    ("DeploymentSettings.DisableSudoAccessForDefaultUser", True, "pcluster.sudo: false"),
    ("Monitoring.Logs.CloudWatch.RetentionInDays", 90, "pcluster.log_days: 90"),
    ("Monitoring.Logs.CloudWatch.RetentionInDays", 0, "works"),
    ("Monitoring.Dashboards.CloudWatch.Enabled", False, "pcluster.dashboard: false"),
    *((f"{of}.CustomActions.{action}", {"Script": "s3://b/x.sh"}, "cannot: use bootstrap.scripts")
      for of in ("HeadNode", COMPUTE, CPU, "Pools.login") for action in ("OnNodeConfigured", "OnNodeUpdated")),
    ("Scheduling.Scheduler", "awsbatch", "cannot: remove it"),
    ("Scheduling.SlurmSettings.CustomSlurmSettings", [{"ClusterName": "old"}], "cannot: use pcluster.cluster_name"),
    *((f"{of}.Iam.{key}", "arn:aws:iam::111122223333:x/y", "cannot: add policies with Iam.AdditionalIamPolicies")
      for of in ("HeadNode", COMPUTE, "Pools.login") for key in ("InstanceRole", "InstanceProfile")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "said"), CASES, ids=[f"{path}={str(value)[:30]}" for path, value, _ in CASES]
)
def test_a_value_is_refused_only_if_a_setting_has_it_or_it_cannot_work(path: str, value: Any, said: str) -> None:
    problems = _about_overrides(settings.parse(BASE), _overrides(path, value))
    told = [f"{p.reason}. Fix: {p.fix}" for p in problems if p.level == "error"]
    if said == "works":
        assert told == []
        assert any(p.level == "warning" for p in problems)
    elif said.startswith("cannot: "):
        assert any("it cannot be set: " in text and f"Fix: {said.removeprefix('cannot: ')}" in text for text in told)
    elif said.startswith("refused: "):
        assert [text for text in told if text.endswith(f"Fix: {said.removeprefix('refused: ')}")]
    else:
        assert [text for text in told if text.endswith(f"Fix: use {said}")], told


@pytest.mark.parametrize(("path", "value", "said"), [c for c in CASES if re.match(r"(pcluster|region)[^:]*: ", c[2])],
                         ids=lambda x: str(x)[:40])  # fmt: skip
def test_the_setting_that_is_named_renders_the_value(path: str, value: Any, said: str) -> None:
    wanted = _at(_merged({"pcluster": {"overrides": _overrides(path, value)}}, rules=False), path)
    assert wanted == value
    key, _, text = said.partition(": ")
    settings_of: dict[str, Any] = {}
    place = settings_of
    steps = key.split(".")
    queue = _queue_of(path)
    resource = path.split(".")[2] if "compute_resources[]" in key else None
    for step in steps[:-1]:
        if step == "queues[]":
            place["queues"] = [{"name": queue}]
            place = place["queues"][0]
        elif step == "compute_resources[]":
            place["compute_resources"] = [{"name": resource}]
            place = place["compute_resources"][0]
        else:
            place = place.setdefault(step, {})
    place[steps[-1]] = yaml.safe_load(text) if text not in ("on", "off") else text
    if "elastic_ip" in key:
        place["subnet"] = "public"
    # another region and another system need other zones, secrets and packages
    found = _merged(settings_of, rules=key not in ("region", "pcluster.os"))
    of_its_queue = re.sub(r"^(SlurmQueues\.\w+)\.\w+(\.Networking)", r"\1\2", path)
    assert value in (_at(found, path), _at(found, of_its_queue)), "a compute resource has what its queue has"


def test_every_controlled_key_has_a_case() -> None:
    shown = {_pattern(path) for path, _, _ in CASES}
    for path, value, _ in CASES:
        if isinstance(value, dict):
            shown |= {f"{_pattern(path)}.{key}" for key in value}
        if path.endswith("CustomSlurmSettings"):
            shown |= {f"{path}.*.{key}" for key in value[0]}
    assert {*CONTROLLED, *FIXED} - shown == set()


@pytest.mark.parametrize(
    ("environment", "value", "level"),
    [(PUBLIC, False, "error"), (OWN_VPC, False, "warning"), (OWN_VPC, True, "error")],
)
def test_a_public_head_node_needs_an_address(environment: str, value: bool, level: str) -> None:
    found = _about_overrides(settings.parse(environment), {"HeadNode": {"Networking": {"ElasticIp": value}}})
    assert [p.level for p in found] == [level]


def _about_overrides(env: settings.Environment, overrides: Mapping[str, Any]) -> list[settings.Problem]:
    whole = env.model_copy(update={"pcluster": env.pcluster.model_copy(update={"overrides": dict(overrides)})})
    return [p for p in checks.check(whole) if p.key[:2] == ("pcluster", "overrides")]


def _overrides(path: str, value: Any) -> dict[str, Any]:
    """`SlurmQueues.compute1.trn.MinCount` is in the compute resource trn of the queue compute1."""
    first, *rest = path.split(".")
    if first == "SlurmQueues":
        queue, *more = rest
        if more[0].islower():
            resource, *more = more
            inner = {"Name": queue, "ComputeResources": [{"Name": resource, **_nested(more, value)}]}
        else:
            inner = {"Name": queue, **_nested(more, value)}
        return {"Scheduling": {"SlurmQueues": [inner]}}
    if first == "Pools":
        return {"LoginNodes": {"Pools": [{"Name": rest[0], **_nested(rest[1:], value)}]}}
    return _nested(path.split("."), value)


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    return {path[0]: _nested(path[1:], value)} if path[1:] else {path[0]: value} if path else value


def _steps(path: str) -> Iterator[str]:
    first, *rest = path.split(".")
    if first == "SlurmQueues":
        yield from ("Scheduling", first, f"={rest[0]}")
        if rest[1].islower():
            yield from ("ComputeResources", f"={rest[1]}")
        yield from rest[2 if rest[1].islower() else 1 :]
    elif first == "Pools":
        yield from ("LoginNodes", first, f"={rest[0]}", *rest[1:])
    else:
        yield from (first, *rest)


def _pattern(path: str) -> str:
    return ".".join("*" if step.startswith("=") else step for step in _steps(path))


def _at(config: Any, path: str) -> Any:
    """What is not there is off."""
    for step in _steps(path):
        config = next(i for i in config if i["Name"] == step[1:]) if step.startswith("=") else config.get(step, {})
    return config or False


def _queue_of(path: str) -> str:
    return path.split(".")[1] if path.startswith("SlurmQueues") else ""


def _merged(changes: Mapping[str, Any], *, rules: bool = True) -> Any:
    """The cluster configuration of the base environment with other settings, which must have no error."""
    data = _over(yaml.safe_load(BASE), changes)
    env = settings.validate(data)
    if rules:
        assert [p for p in checks.check(env, "slurm") if p.level == "error"] == []
    return render(env, ids_for(env))


def _over(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, Mapping):
        return ours | {k: _over(ours.get(k), v) for k, v in theirs.items()}
    if isinstance(ours, list) and isinstance(theirs, list) and isinstance(theirs[0], dict):
        found = {item["name"]: item for item in ours}
        return list((found | {i["name"]: _over(found.get(i["name"]), i) for i in theirs}).values())
    return theirs
