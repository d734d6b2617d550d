"""Keys of a cluster configuration that a setting controls: what is said of each, and of values that work."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.checks import overrides
from trainium_cdk.description.checks.cluster_keys import CANNOT, CONTROLLED, POOL, QUEUE

BASE = """
pcluster:
  login_nodes: {}
  queues:
    - {name: compute1}
    - {name: small, compute_resources: [{name: trn, instance_type: trn1.2xlarge}]}
"""
SUBNETS = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
SECRET = "arn:aws:secretsmanager:us-east-1:111122223333:secret:slurm"
DATABASE = {"Uri": "db:3306", "UserName": "slurm", "PasswordSecretArn": SECRET}
SEVERAL = {"InstanceType": None, "Instances": [{"InstanceType": "c5.2xlarge"}, {"InstanceType": "m5.2xlarge"}]}
ARM = {"InstanceType": None, "Instances": [{"InstanceType": "c7g.2xlarge"}]}
TYPE = "pcluster.queues[].compute_resources[].instance_type"

# path (a queue, a pool or a compute resource by its name), value -> level, part of the reason or of the fix
CASES: list[tuple[str, Any, str, str]] = [
    ("HeadNode.InstanceType", "m6i.4xlarge", "warning", "use pcluster.head.instance_type"),
    ("HeadNode.InstanceType", "m7g.4xlarge", "error", "choose an x86_64 type"),
    ("HeadNode.LocalStorage.RootVolume.Size", 20000, "warning", "use pcluster.head.root_volume_gib"),
    ("HeadNode.Networking.ElasticIp", "203.0.113.10", "warning", "use pcluster.head.subnet or pcluster.head.elastic_ip"),
    ("Scheduling.SlurmSettings.Database", DATABASE, "warning", "use pcluster.accounting"),
    ("Image.Os", "alinux2023", "error", "use pcluster.os"),
    ("Image.Os", "ubuntu2404", "", ""),
    ("Region", "us-east-1", "", ""),
    ("Scheduling.Scheduler", "slurm", "", ""),
    ("Scheduling.Scheduler", "awsbatch", "error", "only Slurm is supported"),
    ("SlurmQueues.compute1.CapacityType", "SPOT", "warning", "use pcluster.queues[].capacity_type"),
    ("SlurmQueues.cpu.CapacityType", "SPOT", "warning", "no setting of the CPU queue says this"),
    ("SlurmQueues.cpu.ComputeSettings.LocalStorage.RootVolume.Size", 500, "warning", "use pcluster.cpu_queue.root_volume_gib"),
    ("SlurmQueues.cpu.cpu.MaxCount", 64, "warning", "use pcluster.cpu_queue.max_nodes"),
    ("SlurmQueues.compute1.Networking.SubnetIds", SUBNETS[:1], "warning", "use network and pcluster.queues[].zone_id"),
    ("SlurmQueues.cpu.Networking.SubnetIds", SUBNETS[:1], "warning", "use network, or make sure"),
    ("SlurmQueues.small.Networking.SubnetIds", SUBNETS, "error", "several subnets for a compute resource with InstanceType"),
    ("SlurmQueues.compute1.Networking.SubnetIds", SUBNETS, "error", "EFA does not cross zones"),
    ("SlurmQueues.compute1.Networking.PlacementGroup.Name", "ours", "warning", "use pcluster.queues[].placement_group"),
    ("SlurmQueues.compute1.trn.InstanceType", "trn1.32xlarge", "", ""),
    ("SlurmQueues.compute1.trn.InstanceType", "g6.xlarge", "error", f"use {TYPE}, with a compute resource for each type"),
    ("SlurmQueues.compute1.trn.InstanceType", None, "error", f"use {TYPE}"),
    ("SlurmQueues.compute1.trn", SEVERAL, "error", "or add a queue of another name"),
    ("SlurmQueues.small.trn", {"InstanceType": None, "Instances": [{"InstanceType": "trn1.2xlarge"}]}, "", ""),
    ("SlurmQueues.cpu.cpu.InstanceType", "m6i.2xlarge", "warning", "use pcluster.cpu_queue.instance_type"),
    ("SlurmQueues.cpu.cpu.InstanceType", "c7g.2xlarge", "error", "choose an x86_64 type"),
    ("SlurmQueues.cpu.cpu", SEVERAL, "warning", "use pcluster.cpu_queue.instance_type"),
    ("SlurmQueues.cpu.cpu", ARM, "error", "choose an x86_64 type"),
    ("SlurmQueues.cpu.cpu.Instances", SEVERAL["Instances"], "error", "add InstanceType: null next to it"),
    ("Pools.login.Count", 0, "", ""),
]  # fmt: skip


def _nested(path: list[str], value: Any) -> Any:
    return {path[0]: _nested(path[1:], value)} if path[1:] else {path[0]: value} if path else value


def _overrides(path: str, value: Any) -> dict[str, Any]:
    """`SlurmQueues.compute1.trn.MinCount` is in the compute resource trn of the queue compute1."""
    first, *rest = path.split(".")
    if first == "Pools":
        return {"LoginNodes": {"Pools": [{"Name": rest[0], **_nested(rest[1:], value)}]}}
    if first != "SlurmQueues":
        return _nested(path.split("."), value)  # type: ignore[no-any-return]
    queue, *more = rest
    if more[0].islower():
        resource = {"Name": more[0], **_nested(more[1:], value)}
        return {"Scheduling": {"SlurmQueues": [{"Name": queue, "ComputeResources": [resource]}]}}
    return {"Scheduling": {"SlurmQueues": [{"Name": queue, **_nested(more, value)}]}}


def _environment(path: str, value: Any) -> settings.Environment:
    env = settings.parse(BASE)
    return env.model_copy(update={"pcluster": env.pcluster.model_copy(update={"overrides": _overrides(path, value)})})


@pytest.mark.parametrize(("path", "value", "level", "part"), CASES, ids=lambda x: str(x)[:40])
def test_what_is_said_of_a_value(path: str, value: Any, level: str, part: str) -> None:
    problems = checks.check(_environment(path, value), "slurm")
    said = [(p.level, f"{p.reason}. Fix: {p.fix}") for p in problems if p.key[:2] == ("pcluster", "overrides")]
    assert [one for one, text in said if part in text] == ([level] if level else [])
    assert level == "error" or "error" not in dict(said), "what works on AWS is not refused"


@pytest.mark.parametrize("pattern", [*CONTROLLED, *CANNOT])
def test_each_key_names_its_setting_or_what_to_do_instead(pattern: str) -> None:
    path = pattern.replace(QUEUE, "SlurmQueues.compute1").replace(POOL, "Pools.login")
    path = path.replace("ComputeResources.*", "trn")
    path, _, key = path.partition(".*.")
    said = list(overrides._controlled(_environment(path, [{key: "x"}] if key else "x")))
    level, fix = ("error", CANNOT[pattern][1]) if pattern in CANNOT else ("warning", f"use {CONTROLLED[pattern]}")
    assert [p.level for p in said if re.match(rf"{re.escape(fix)}\b", p.fix)] == [level]
