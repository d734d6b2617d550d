"""Whether parts of the local Kubernetes are ready to be used."""

from __future__ import annotations

from sandbox.kubernetes.api import Api, Object, path_of


def node_ready(node: Object) -> bool:
    """Whether the node is Ready and the controllers have seen it: until then they keep pods off it."""
    conditions, taints = node["status"].get("conditions", []), node["spec"].get("taints", [])
    seen = not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
    return seen and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def served(api: Api, *, volcano: bool) -> bool:
    """Whether the kinds that were defined a moment ago can be asked for."""
    kinds = [
        ("kwok.x-k8s.io/v1alpha1", "Logs"),
        ("kwok.x-k8s.io/v1alpha1", "Exec"),
        ("kwok.x-k8s.io/v1alpha1", "PortForward"),
        ("autoscaling.x-k8s.io/v1", "ProvisioningRequest"),
    ]
    if volcano:
        kinds += [
            ("batch.volcano.sh/v1alpha1", "Job"),
            ("scheduling.volcano.sh/v1beta1", "PodGroup"),
            ("scheduling.volcano.sh/v1beta1", "Queue"),
        ]
    for version, kind in kinds:
        api.get(path_of(version, kind))
    return True
