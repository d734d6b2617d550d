"""Kueue, the queue of the cluster: its configuration, and the objects that make a queue of each node group. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainium_cdk.cdk.eks.installation import Installation, Manifest, kubernetes_object
from trainium_cdk.description.outputs import GROUP_LABEL, Fleet

API = "kueue.x-k8s.io/v1beta2"
CHECK = "trn-nodes"
"""The admission check of each queue: a job starts when its nodes are there. It is also the name of its configuration."""
PROVISIONING_CLASS = "node-group.trainium-cdk"
"""Class of the ProvisioningRequests that the function `trainium_cdk.cdk.eks.scaler` answers."""
NAMESPACE_LABEL = {"trainium-cdk/queues": "true"}
"""Kueue manages jobs only in namespaces with this label: elsewhere in the cluster nothing depends on it."""
SHARED_FLAVOR = "trn-unlimited"
"""Flavor of CPU, memory and similar resources, which the queues do not limit: pods that need no device stay free to run on any node."""
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
_PAUSES = 8
"""The pause before a job is tried again doubles up to this many times the first one."""
_ALWAYS = 2**31 - 1
"""Attempts after which Kueue gives a job up: the highest number that it accepts."""


def priority_class(name: str) -> str:
    """The WorkloadPriorityClass of a priority (low, normal or high)."""
    return f"trn-{name}"


def configuration(classes: Mapping[str, str] | None = None) -> Manifest:
    """The configuration of Kueue's controller: its chart's, but only jobs that name a queue, and only in our namespaces.

    Not waitForPodsReady: a pod that compiles in its init container is not ready for hours, and Kueue would stop its job. Nor is one whose training
    makes no progress: trn reports it, and people decide.

    Args:
        classes: the DeviceClass of each resource. Claims of the class then count as the resource.
    """
    mappings = [{"name": name, "deviceClassNames": [device]} for name, device in (classes or {}).items()]
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
        **({"resources": {"deviceClassMappings": mappings}} if mappings else {}),
    }


def queues(wanted: Installation) -> list[Manifest]:
    """A queue for each node group, and one for each team that may use it, in the order in which the objects refer to each other."""
    found = [_object("ResourceFlavor", SHARED_FLAVOR, {})]
    found += [_flavor(wanted, fleet) for fleet in wanted.fleets]
    if wanted.plugins.autoscaler:
        found += _checks(wanted)
    about = "Jobs of trn submit --priority"
    found += [
        {**_object("WorkloadPriorityClass", priority_class(name)), "value": value, "description": about}
        for name, value in PRIORITIES.items()
    ]
    for fleet in wanted.fleets:
        found += _queues_of(wanted, fleet)
    return found


def _flavor(wanted: Installation, fleet: Fleet) -> Manifest:
    spec = {
        "nodeLabels": {GROUP_LABEL: fleet.queue},
        "tolerations": [{"key": wanted.catalog.eks.taint, "operator": "Exists", "effect": "NoSchedule"}],
    }
    return _object("ResourceFlavor", fleet.queue, spec)


def _checks(wanted: Installation) -> list[Manifest]:
    pause = wanted.retry_minutes * 60
    # by it Kueue 0.18.3 looks at what containers request, and would admit pods with claims without any node
    managed = {} if wanted.claims else {"managedResources": [wanted.catalog.eks.resources.device]}
    requests = {
        "provisioningClassName": PROVISIONING_CLASS,
        **managed,
        "retryStrategy": {
            "backoffLimitCount": _ALWAYS,
            "backoffBaseSeconds": pause,
            "backoffMaxSeconds": _PAUSES * pause,
        },
    }
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": CHECK}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    return [_object("ProvisioningRequestConfig", CHECK, requests), _object("AdmissionCheck", CHECK, check)]


def _queues_of(wanted: Installation, fleet: Fleet) -> list[Manifest]:
    """The jobs' own namespace has what the teams do not: without teams, the whole group. All may borrow what others do not use."""
    name, found = fleet.queue, []
    shares = {team.namespace: team.nodes.get(name, 0) for team in wanted.teams}
    shares = {wanted.namespace: fleet.nodes - sum(shares.values()), **shares}
    most = {team.namespace: team.max_nodes.get(name, fleet.nodes) for team in wanted.teams}
    for namespace, nodes in shares.items():
        if not (limit := most.get(namespace, fleet.nodes)):
            continue
        queue = f"{name}.{namespace}"  # of each namespace alone: what a LocalQueue refers to cannot change
        quota = {"nominalQuota": str(nodes * fleet.devices)}
        if wanted.teams:
            quota["borrowingLimit"] = str((limit - nodes) * fleet.devices)
        found.append(_cluster_queue(wanted, fleet, queue, namespace, quota))
        found.append(_object("LocalQueue", name, {"clusterQueue": queue}, namespace=namespace))
    return found


def _cluster_queue(wanted: Installation, fleet: Fleet, name: str, namespace: str, quota: Mapping[str, str]) -> Manifest:
    names, preemption = wanted.catalog.eks.resources, {"withinClusterQueue": "LowerPriority"}
    spec: Manifest = {
        "namespaceSelector": {"matchLabels": {**NAMESPACE_LABEL, "kubernetes.io/metadata.name": namespace}},
        "queueingStrategy": "StrictFIFO",
        "preemption": preemption,
        "resourceGroups": [
            _resources(fleet.queue, {names.device: quota}),
            _resources(SHARED_FLAVOR, {r: {"nominalQuota": q} for r, q in {**_UNLIMITED, names.efa: "1M"}.items()}),
        ],
    }
    if wanted.plugins.autoscaler:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    if wanted.teams:
        spec["cohortName"] = fleet.queue
        preemption["reclaimWithinCohort"] = "Any"
    return _object("ClusterQueue", name, spec)


def _resources(flavor: str, quotas: Mapping[str, Mapping[str, str]]) -> Manifest:
    limits = [{"name": name, **quota} for name, quota in quotas.items()]
    return {"coveredResources": list(quotas), "flavors": [{"name": flavor, "resources": limits}]}


def _object(kind: str, name: str, spec: Manifest | None = None, *, namespace: str = "") -> Manifest:
    found = kubernetes_object(API, kind, name, namespace=namespace)
    return found if spec is None else {**found, "spec": spec}
