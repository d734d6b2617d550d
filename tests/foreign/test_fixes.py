"""What a message tells to write works: each mistake, the words of its fix, and the same app with that fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Stack

from tests.foreign.foreign import stack, template, vpc
from trainium_cdk import TrnNetwork, TrnPcluster, TrnPcsCluster, TrnPeering, TrnRegistry, TrnStorage, settings

CPU = {"name": "cpu-nodes"}
ROLE = "arn:aws:iam::444455556666:role/AcceptPeering"
HEAD: dict[str, Any] = {"HeadNode": {"InstanceType": "c5.large"}}


def storage(scope: Stack, **given: Any) -> TrnStorage:
    return TrnStorage(scope, "S", vpc=vpc(scope), **given)


def slurm(scope: Stack, **given: Any) -> TrnPcluster:
    return TrnPcluster(scope, "S", vpc=vpc(scope), cluster=settings.Pcluster(**given))


def pcs(scope: Stack, **given: Any) -> TrnPcsCluster:
    return TrnPcsCluster(scope, "S", vpc=vpc(scope), cluster=settings.Pcs(**given))


def network(scope: Stack, **given: Any) -> TrnNetwork:
    return TrnNetwork(scope, "S", network=settings.Network(**given))


def peering(scope: Stack, **given: Any) -> TrnPeering:
    peer: dict[str, Any] = {"vpc_id": "vpc-0123456789abcdef0", "cidr": "10.9.0.0/16", "account": "444455556666"}
    return TrnPeering(scope, "S", vpc=vpc(scope), peer=settings.Peering(**peer | given))


@pytest.mark.parametrize(
    ("build", "wrong", "fix", "right"),
    [
        (storage, {"efs": {"throughput": "provisioned"}}, "add provisioned_mibps: 1024", {"efs": {"throughput": "provisioned", "provisioned_mibps": 1024}}),
        (storage, {"efs": {"provisioned_mibps": 9}}, "write throughput: provisioned, or remove", {"efs": {"throughput": "provisioned", "provisioned_mibps": 9}}),
        (storage, {"efs": None}, "give efs=settings.Efs()", {"efs": settings.Efs()}),
        (storage, {"efs_mount_dir": "/data"}, "give mount_dir to settings.Efs", {"efs": settings.Efs(mount_dir="/data")}),
        (storage, {"lustre": {"mount_dir": "/efs/x"}}, "choose two mount_dir values", {"lustre": {"mount_dir": "/fsx"}}),
        (storage, {"lustre": {"capacity_gib": 1000}}, "write 1200 or 2400", {"lustre": {"capacity_gib": 2400}}),
        (storage, {"lustre": {"throughput": 125}}, "remove throughput, or choose PERSISTENT_2", {"lustre": {"throughput": 125, "deployment": "PERSISTENT_2"}}),
        (storage, {"lustre": {"deployment": "PERSISTENT_2", "efa": True}}, "write capacity_gib: 38400", {"lustre": {"deployment": "PERSISTENT_2", "efa": True, "capacity_gib": 38400}}),
        (slurm, {"scale_down_idle_minutes": 0}, "write 1 or more, or -1 for never", {"scale_down_idle_minutes": -1}),
        (slurm, {"queues": [{"name": "cpu"}]}, "write cpu_queue: {name: cpu-nodes}, or cpu_queue: null", {"queues": [{"name": "cpu"}], "cpu_queue": CPU}),
        (slurm, {"queues": [{"name": "cpu"}]}, "cpu_queue: null for none", {"queues": [{"name": "cpu"}], "cpu_queue": None}),
        (slurm, {"overrides": HEAD}, "use cluster.head", {"head": {"instance_type": "c5.4xlarge"}}),
        (slurm, {"os": "ubuntu2004"}, "write ubuntu2", {"os": "ubuntu2204"}),
        (slurm, {"queues": [{"capacity_type": "capacity-block"}]}, "give the id of the block", {"queues": [{"capacity_type": "capacity-block", "compute_resources": [{"min_nodes": 1, "max_nodes": 1, "reservation": "cr-0123456789abcdef0"}]}]}),
        (pcs, {"os": "ubuntu2204"}, "or give cluster.custom_ami", {"os": "ubuntu2204", "custom_ami": "ami-0123456789abcdef0"}),
        (network, {"cidr": "10.0.0.0/8"}, "for example 10.0.0.0/16", {"cidr": "10.0.0.0/16"}),
        (network, {"zone_ids": ["usw2-az4", "usw2-az4"]}, "list each zone once", {"zone_ids": ["usw2-az4"]}),
        (peering, {}, "give peer.accepter_role", {"accepter_role": ROLE}),
    ],
)  # fmt: skip
def test_a_printed_fix_works(
    build: Callable[..., object], wrong: dict[str, Any], fix: str, right: dict[str, Any]
) -> None:
    with pytest.raises((settings.SettingsError, ValueError, RuntimeError)) as refused:
        template(lambda scope: build(scope, **wrong))
    assert fix in str(refused.value)
    assert "pydantic" not in str(refused.value)
    assert template(lambda scope: build(scope, **right))


def test_a_zone_of_a_queue_is_a_subnet_in_an_app_of_your_own() -> None:
    queue = settings.Queue(zone_id="usw2-az4")
    with pytest.raises(ValueError, match=r"give queue_subnets=\{'compute1': subnet\}, and no zone_id"):
        TrnPcluster(scope := stack(), "S", vpc=vpc(scope), queues=[queue])
    within = vpc(scope := stack())
    subnets = {"compute1": within.private_subnets[0]}
    assert TrnPcluster(scope, "S", vpc=within, queues=[settings.Queue()], queue_subnets=subnets)


def test_no_registry_in_place_of_a_disabled_one() -> None:
    with pytest.raises(ValueError, match="Fix: make no TrnRegistry, or write enabled: true"):
        TrnRegistry(stack(), "R", registry=settings.Registry(enabled=False))
    assert TrnRegistry(stack(), "R", registry=settings.Registry(enabled=True))
