"""The keys of a cluster configuration that a setting controls, and which of their values that setting can express.

A value that a setting expresses is refused in `pcluster.overrides`: the setting also tells the node scripts, the rules and `trn`. Another value
passes with a warning where the stack still works, and is refused with "cannot be set" where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainium_cdk.checks.setting_values import (
    NO,
    as_is,
    by_name,
    flag,
    gib,
    in_list,
    inverted,
    not_zero,
    on_off,
    ordinary_type,
)
from trainium_cdk.checks.verdicts import (
    CPU,
    GROUP_BY_ID,
    IN_CPU_QUEUE,
    ORDINARY_ONLY,
    QUEUES,
    RESOURCES,
    SUBNET,
    Given,
    Verdict,
    any_subnets,
    by_value,
    cannot,
    cpu_capacity,
    cpu_type,
    custom_action,
    elastic_ip,
    instances,
    queue_placement,
    queue_subnets,
    resource_placement,
    root_size,
    trainium_type,
    works,
)
from trainium_cdk.cluster_configuration.config import PURCHASE
from trainium_cdk.problems import Problem

QUEUE, POOL = "Scheduling.SlurmQueues.*", "LoginNodes.Pools.*"
RESOURCE = f"{QUEUE}.ComputeResources.*"


@dataclass(frozen=True)
class Key:
    """A controlled key.

    Attributes:
        setting: that controls it, of the whole cluster or of Trainium queues; empty where `judged` names it.
        value: the setting's value for one of the key; `NO` where it has none.
        otherwise: for a value that the setting cannot express. Default: the setting is named without a value, and refuses it.
        cpu: the CPU queue's setting, or what is said there.
        judged: decides alone, where more than the value matters.
    """

    setting: str = ""
    value: Callable[[Any], Any] = as_is
    otherwise: Verdict | None = None
    cpu: str | Verdict = IN_CPU_QUEUE
    judged: Verdict | None = None


CONTROLLED: dict[str, Key] = {
    "Region": Key("region"),
    "Tags": Key("tags"),
    "Image.Os": Key(
        "pcluster.os",
        by_name({name: name for name in ("ubuntu2404", "ubuntu2204", "alinux2023")}),
        cannot(
            "the node scripts install Neuron on Ubuntu 22.04 and 24.04 and Amazon Linux 2023 alone",
            "use pcluster.os: ubuntu2404",
        ),
    ),
    "Image.CustomAmi": Key("pcluster.custom_ami"),
    "HeadNode.InstanceType": Key("pcluster.head.instance_type", ordinary_type, ORDINARY_ONLY),
    "HeadNode.Image.CustomAmi": Key("pcluster.head.custom_ami"),
    "HeadNode.LocalStorage.RootVolume.Size": Key("pcluster.head.root_volume_gib", gib, root_size),
    "HeadNode.Networking.SubnetId": Key("network and pcluster.head.subnet", lambda _: NO, SUBNET),
    "HeadNode.Networking.ElasticIp": Key("pcluster.head.subnet", judged=elastic_ip),
    "HeadNode.Ssh.AllowedIps": Key("pcluster.head.ssh.from_cidrs", in_list),
    "HeadNode.Ssh.KeyName": Key("pcluster.head.ssh.key_name"),
    "Scheduling.SlurmSettings.ScaledownIdletime": Key(
        "pcluster.scale_down_idle_minutes",
        not_zero,
        cannot("nodes would stop before their job starts", "use pcluster.scale_down_idle_minutes: 1"),
    ),
    "Scheduling.SlurmSettings.Database.Uri": Key("pcluster.accounting.uri"),
    "Scheduling.SlurmSettings.Database.UserName": Key("pcluster.accounting.user"),
    "Scheduling.SlurmSettings.Database.PasswordSecretArn": Key("pcluster.accounting.password_secret"),
    "Scheduling.SlurmSettings.Database.DatabaseName": Key("pcluster.accounting.database"),
    f"{QUEUE}.CapacityType": Key(
        f"{QUEUES}.capacity_type",
        by_name({word: name for name, word in PURCHASE.items()}),
        cpu=cpu_capacity,
    ),
    f"{QUEUE}.ComputeSettings.LocalStorage.RootVolume.Size": Key(
        f"{QUEUES}.root_volume_gib", gib, root_size, f"{CPU}.root_volume_gib"
    ),
    f"{QUEUE}.ComputeSettings.LocalStorage.EphemeralVolume.MountDir": Key(f"{QUEUES}.local_storage_dir"),
    f"{QUEUE}.Networking.SubnetIds": Key(
        "network and pcluster.queues[].zone_id", judged=queue_subnets, cpu=any_subnets
    ),
    f"{QUEUE}.Networking.PlacementGroup.Enabled": Key(f"{QUEUES}.placement_group", judged=queue_placement),
    f"{QUEUE}.Networking.PlacementGroup.Name": Key(f"{QUEUES}.placement_group", judged=queue_placement),
    f"{QUEUE}.Networking.PlacementGroup.Id": Key(judged=GROUP_BY_ID),
    f"{QUEUE}.Image.CustomAmi": Key(f"{QUEUES}.custom_ami", cpu=f"{CPU}.custom_ami"),
    f"{RESOURCE}.InstanceType": Key(f"{RESOURCES}.instance_type", judged=trainium_type, cpu=cpu_type),
    f"{RESOURCE}.Instances": Key(judged=instances, cpu=instances),
    f"{RESOURCE}.MinCount": Key(f"{RESOURCES}.min_nodes", cpu=f"{CPU}.min_nodes"),
    f"{RESOURCE}.MaxCount": Key(f"{RESOURCES}.max_nodes", cpu=f"{CPU}.max_nodes"),
    f"{RESOURCE}.Efa.Enabled": Key(f"{RESOURCES}.efa", on_off),
    f"{RESOURCE}.DisableSimultaneousMultithreading": Key(f"{RESOURCES}.hyperthreads", inverted),
    f"{RESOURCE}.CapacityReservationTarget.CapacityReservationId": Key(f"{RESOURCES}.reservation"),
    f"{RESOURCE}.CapacityReservationTarget.CapacityReservationResourceGroupArn": Key(f"{RESOURCES}.reservation"),
    f"{RESOURCE}.Networking.PlacementGroup.Enabled": Key(f"{QUEUES}.placement_group", judged=resource_placement),
    f"{RESOURCE}.Networking.PlacementGroup.Name": Key(f"{QUEUES}.placement_group", judged=resource_placement),
    f"{RESOURCE}.Networking.PlacementGroup.Id": Key(judged=GROUP_BY_ID),
    f"{POOL}.InstanceType": Key("pcluster.login_nodes.instance_type", ordinary_type, ORDINARY_ONLY),
    f"{POOL}.Networking.SubnetIds": Key("pcluster.login_nodes.subnet", lambda _: NO, SUBNET),
    "DirectoryService": Key("pcluster.directory_service"),
    "DeploymentSettings.DisableSudoAccessForDefaultUser": Key("pcluster.sudo", inverted),
    "Monitoring.Logs.CloudWatch.RetentionInDays": Key(
        "pcluster.log_days",
        not_zero,
        works("the cluster's logs are kept, and charged, for ever", "use pcluster.log_days for a limit"),
    ),
    "Monitoring.Dashboards.CloudWatch.Enabled": Key("pcluster.dashboard", flag),
    **{
        f"{nodes}.CustomActions.{action}": Key("bootstrap.scripts", judged=custom_action, cpu=custom_action)
        for nodes in ("HeadNode", QUEUE, POOL)
        for action in ("OnNodeConfigured", "OnNodeUpdated")
    },
}
"""Path in a cluster configuration, `*` for each item of a list -> what controls it. Login nodes' `Count` is not here: 0 is possible only as
an override."""
FIXED: dict[str, Verdict] = {
    "Scheduling.SlurmSettings.CustomSlurmSettings.*.ClusterName": cannot(
        "Slurm's name is that of the cluster, and its controller stops if it changes", "use pcluster.cluster_name"
    ),
    "Scheduling.Scheduler": cannot("only Slurm is supported", "remove it"),
    **{
        f"{nodes}.Iam.{key}": cannot(
            "another role has none of the stack's permissions", "add policies with Iam.AdditionalIamPolicies"
        )
        for nodes in ("HeadNode", QUEUE, POOL)
        for key in ("InstanceRole", "InstanceProfile")
    },
}
"""Path -> what is said, where no setting exists."""


def judge(given: Given, key: Key) -> Iterator[Problem]:
    """What is said about a controlled key in `overrides`."""
    in_cpu = given.queue in [q.name for q in given.environment.pcluster.cpu_queues]
    if in_cpu and not isinstance(key.cpu, str):
        yield from key.cpu(given)
    elif in_cpu:
        yield from by_value(given, str(key.cpu), key.value, key.otherwise)
    elif key.judged:
        yield from key.judged(given)
    else:
        yield from by_value(given, key.setting, key.value, key.otherwise)
