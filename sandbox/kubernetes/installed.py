"""The pods that EKS's add-ons and our charts run on nodes, as objects of the cluster: DaemonSets and Deployments with their requests, whose
containers do nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sandbox.kubernetes import claims
from sandbox.kubernetes.api import Api, ApiError, Object, path_of
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.pods import Pod, pods
from trainium_cdk.description.outputs import ROLE_LABEL
from trainium_cdk.description.outputs.eks import DEVICES_LABEL

NAMESPACE = "kube-system"
_TYPE = "node.kubernetes.io/instance-type"
_PLUGIN = "neuron-device-plugin"
"""Runs on no node whose devices are given by claims."""


def objects(parts: Collection[str]) -> Iterator[Object]:
    """The objects of these parts of a cluster (see `catalog.pods`)."""
    for pod in pods().installed(parts, "every", "training", "efa", "claims", "system"):
        yield _object(pod)


def install(api: Api, parts: Collection[str]) -> None:
    """Create those that are not there yet. Kubernetes's own controllers create their pods, on nodes that come later, too."""
    for wanted in objects(parts):
        metadata = wanted["metadata"]
        try:
            api.get(path_of(wanted["apiVersion"], wanted["kind"], metadata["name"], metadata["namespace"]))
        except ApiError as error:
            if error.status != 404:
                raise
            api.create(wanted)


def _object(pod: Pod) -> Object:
    labels, namespace = {"app": pod.name}, claims.NAMESPACE if pod.nodes == "claims" else NAMESPACE
    everywhere = pod.nodes != "system"
    spec: Object = {
        "containers": [
            {
                "name": "main",
                "image": "installed",
                "resources": {"requests": {"cpu": f"{pod.cpu}m", "memory": f"{pod.memory}Mi"}},
            }
        ],
        "tolerations": [{"operator": "Exists"}] if everywhere else [],
        "priorityClassName": "system-node-critical" if everywhere else "",
        "automountServiceAccountToken": False,
    }
    rules = []
    if pod.nodes in ("training", "efa", "claims"):
        spec["nodeSelector"] = {ROLE_LABEL: "training"}
    if pod.nodes == "claims":
        spec["nodeSelector"] = {DEVICES_LABEL: "claims"}
    if pod.nodes == "efa":
        types = [kind.name for kind in Catalog.load().instances.values() if kind.efa_interfaces]
        rules = [{"key": _TYPE, "operator": "In", "values": types}]
    elif pod.name == _PLUGIN:
        rules = [{"key": DEVICES_LABEL, "operator": "NotIn", "values": ["claims"]}]
    if rules:
        required = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    made: Object = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet" if everywhere else "Deployment",
        "metadata": {"name": pod.name, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    if not everywhere:
        made["spec"]["replicas"] = pod.count
    return made
