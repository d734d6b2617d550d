"""Kueue, the queue of the cluster: its configuration, and the objects that make a queue of each node group. Pure."""

from __future__ import annotations

from typing import Any

from trainium_cdk.eks.installation import Installation
from trainium_cdk.outputs import GROUP_LABEL, Fleet

Manifest = dict[str, Any]

API = "kueue.x-k8s.io/v1beta2"
CHECK = "trn-nodes"
"""The admission check of each queue: a job starts when its nodes are there. It is also the name of its configuration."""
PROVISIONING_CLASS = "node-group.trainium-cdk"
"""Class of the ProvisioningRequests that the function `trainium_cdk.eks.scaler` answers."""
NAMESPACE_LABEL = {"trainium-cdk/queues": "true"}
"""Kueue manages jobs only in namespaces with this label: elsewhere in the cluster nothing depends on it."""
SHARED_FLAVOR = "trn-other"
"""Flavor of CPU, memory and the like, of which the queues have no limit: pods that need no device stay free to run on any node."""
PRIORITIES = {"low": -100, "normal": 0, "high": 100}
"""WorkloadPriorityClasses, `trn-` before each name. A job without one has priority 0."""
FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "trainer.kubeflow.org/trainjob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/mpijob",
    "ray.io/rayjob",
)
"""Kinds of jobs that Kueue manages. Those whose definitions are not installed cost nothing."""
_UNLIMITED = {"cpu": "1M", "memory": "1Pi", "ephemeral-storage": "1Pi", "hugepages-2Mi": "1Pi", "hugepages-1Gi": "1Pi"}
"""More than any cluster has; the sum over all queues must fit into 63 bits."""
_OWNER = {"app.kubernetes.io/managed-by": "trainium-cdk"}


def priority_class(name: str) -> str:
    """The WorkloadPriorityClass of a priority (low, normal or high)."""
    return f"trn-{name}"


def configuration() -> Manifest:
    """The configuration of Kueue's controller: its chart's, but only jobs that name a queue, and only in our namespaces."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "clientConnection": {"qps": 50, "burst": 100},
        "manageJobsWithoutQueueName": False,
        "managedJobsNamespaceSelector": {"matchLabels": NAMESPACE_LABEL},
        "integrations": {"frameworks": list(FRAMEWORKS)},
    }


def queues(wanted: Installation) -> list[Manifest]:
    """A queue for each node group, in the order in which the objects refer to each other."""
    device = wanted.catalog.eks.resources.device
    found = [_object("ResourceFlavor", SHARED_FLAVOR, {})]
    found += [_flavor(wanted, fleet) for fleet in wanted.fleets]
    found += _checks(device)
    found += [
        {
            **_object("WorkloadPriorityClass", priority_class(name)),
            "value": value,
            "description": "Jobs of trn submit --priority",
        }
        for name, value in PRIORITIES.items()
    ]
    for fleet in wanted.fleets:
        found.append(_cluster_queue(wanted, fleet))
        found.append(_object("LocalQueue", fleet.queue, {"clusterQueue": fleet.queue}, namespace=wanted.namespace))
    return found


def _flavor(wanted: Installation, fleet: Fleet) -> Manifest:
    spec = {
        "nodeLabels": {GROUP_LABEL: fleet.queue},
        "tolerations": [{"key": wanted.catalog.eks.taint, "operator": "Exists", "effect": "NoSchedule"}],
    }
    return _object("ResourceFlavor", fleet.queue, spec)


def _checks(device: str) -> list[Manifest]:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": CHECK}
    return [
        _object(
            "ProvisioningRequestConfig",
            CHECK,
            {"provisioningClassName": PROVISIONING_CLASS, "managedResources": [device]},
        ),
        _object(
            "AdmissionCheck",
            CHECK,
            {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters},
        ),
    ]


def _cluster_queue(wanted: Installation, fleet: Fleet) -> Manifest:
    names = wanted.catalog.eks.resources
    spec = {
        "namespaceSelector": {"matchLabels": NAMESPACE_LABEL},
        "queueingStrategy": "StrictFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]},
        "resourceGroups": [
            _resources(fleet.queue, {names.device: str(fleet.nodes * fleet.devices)}),
            _resources(SHARED_FLAVOR, {**_UNLIMITED, names.efa: "1M"}),
        ],
    }
    return _object("ClusterQueue", fleet.queue, spec)


def _resources(flavor: str, quotas: dict[str, str]) -> Manifest:
    limits = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    return {"coveredResources": list(quotas), "flavors": [{"name": flavor, "resources": limits}]}


def _object(kind: str, name: str, spec: Manifest | None = None, *, namespace: str = "") -> Manifest:
    metadata: Manifest = {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": dict(_OWNER)}
    found = {"apiVersion": API, "kind": kind, "metadata": metadata}
    return found if spec is None else {**found, "spec": spec}
