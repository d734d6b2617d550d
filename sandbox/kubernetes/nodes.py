"""Virtual nodes: Node objects that announce the devices of a real instance."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from sandbox.kubernetes import claims
from sandbox.kubernetes.api import Object
from trainium_cdk.description.catalog import Catalog, InstanceType
from trainium_cdk.description.catalog.pods import Machine, machine, pods
from trainium_cdk.description.settings.eks import SystemNodes

_FACTS = Catalog.load().eks
NEURON_TAINT: Object = {"key": _FACTS.taint, "value": "true", "effect": "NoSchedule"}
"""The taint that the Neuron chart tolerates, and that keeps other pods off the expensive nodes."""
HUGE_PAGES_MIB = 5128 * 2
"""MiB that the EKS images for accelerated instances reserve for EFA (EKS user guide, EFA)."""
CSI_DRIVERS = ("fsx.csi.aws.com", "efs.csi.aws.com")
OWN_STATUS = "sandbox/own-status"
"""Annotation of a node whose status stays as it is written, for example not Ready; of others it becomes Ready again at once."""
SYSTEM_TYPE = SystemNodes().instance_type
"""Size of system nodes whose type is not given, or is not known."""
_UNKNOWN_MAX_PODS = 110


def capacity(instance: InstanceType) -> dict[str, str]:
    """The resources of a node of the type, by Kubernetes resource name."""
    wanted = {
        "cpu": str(instance.vcpus),
        "memory": f"{instance.memory_gib}Gi",
        "pods": str(instance.max_pods or _UNKNOWN_MAX_PODS),
        "ephemeral-storage": "500Gi",
        _FACTS.resources.hugepages: f"{HUGE_PAGES_MIB}Mi" if instance.efa_interfaces else "0",
        _FACTS.resources.device: str(instance.neuron_devices),
        _FACTS.resources.core: str(instance.logical_cores()),
    }
    if instance.efa_interfaces:
        wanted[_FACTS.resources.efa] = str(instance.efa_interfaces)
    return wanted


def node(
    instance: InstanceType,
    name: str,
    *,
    zone: str,
    zone_id: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (NEURON_TAINT,),
    instance_id: str = "",
    devices: bool = True,
) -> Object:
    """The Node object of an instance, labelled as on EKS. Neuron devices that are given by claims are in its slice (`claims`), not here.

    Args:
        devices: whether the device plug-ins have announced the devices.
        name: for example ip-10-0-1-20.ec2.internal.
        zone: availability zone name, for example us-east-1b.
        zone_id: for example use1-az5; empty: no label.
    """
    has = capacity(instance)
    kind = Machine(instance.vcpus, instance.memory_gib * 1024, instance.max_pods or _UNKNOWN_MAX_PODS)
    left = {**has, **_allocatable(kind, HUGE_PAGES_MIB if instance.efa_interfaces else 0)}
    more = {**({"topology.k8s.aws/zone-id": zone_id} if zone_id else {}), **(labels or {})}
    if not devices:
        has, left = ({k: v for k, v in amounts.items() if "/" not in k} for amounts in (has, left))
    if claims.published(more):
        neuron = (_FACTS.resources.device, _FACTS.resources.core)
        has, left = ({k: v for k, v in amounts.items() if k not in neuron} for amounts in (has, left))
    return _object(name, instance.name, zone, more, taints, has, left, instance_id)


def system_node(
    name: str,
    *,
    zone: str,
    instance_type: str = SYSTEM_TYPE,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (),
    instance_id: str = "",
) -> Object:
    """A node without devices, for plug-ins and controllers."""
    kind = machine(instance_type) or machine(SYSTEM_TYPE) or Machine(2, 16_384, 29)
    has = {"cpu": str(kind.vcpus), "memory": f"{kind.memory}Mi", "pods": str(kind.pods), "ephemeral-storage": "80Gi"}
    return _object(name, instance_type, zone, labels or {}, taints, has, {**has, **_allocatable(kind)}, instance_id)


def _allocatable(kind: Machine, hugepages: int = 0) -> dict[str, str]:
    left = pods().allocatable(kind, hugepages=hugepages)
    return {"cpu": f"{left.cpu}m", "memory": f"{left.memory}Mi", "pods": str(left.pods)}


def csi_node(node: Object) -> Object:
    """Registered on a node by the pods of the storage drivers. Without it Volcano schedules no pod with a volume there."""
    instance_id = node["spec"]["providerID"].rpartition("/")[2]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node["metadata"]["name"]},
        "spec": {"drivers": [{"name": name, "nodeID": instance_id, "topologyKeys": []} for name in CSI_DRIVERS]},
    }


def _object(
    name: str,
    instance_type: str,
    zone: str,
    labels: Mapping[str, str],
    taints: Sequence[Object],
    has: Mapping[str, str],
    left: Mapping[str, str],
    instance_id: str = "",
) -> Object:
    known = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": zone.rstrip("abcdefgh"),
        "topology.kubernetes.io/zone": zone,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**known, **labels},
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {
            "providerID": f"aws:///{zone}/{instance_id or _instance_id(name)}",
            "taints": [dict(taint) for taint in taints],
        },
        "status": {"capacity": dict(has), "allocatable": dict(left)},
    }


def _instance_id(name: str) -> str:
    return "i-" + hashlib.sha256(name.encode()).hexdigest()[:17]
