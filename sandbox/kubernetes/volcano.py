"""Volcano as its Helm chart installs it, without the images: namespace and admission webhooks."""

from __future__ import annotations

from sandbox.kubernetes.api import Object
from trainium_cdk.cdk.eks import charts

NAMESPACE = "volcano-system"
_ALL: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("/jobs/mutate", "batch.volcano.sh/v1alpha1", "jobs", ("CREATE",)),
    ("/jobs/validate", "batch.volcano.sh/v1alpha1", "jobs", ("CREATE", "UPDATE")),
    ("/podgroups/validate", "scheduling.volcano.sh/v1beta1", "podgroups", ("CREATE",)),
    ("/queues/mutate", "scheduling.volcano.sh/v1beta1", "queues", ("CREATE",)),
    ("/queues/validate", "scheduling.volcano.sh/v1beta1", "queues", ("CREATE", "UPDATE", "DELETE")),
)
ADMISSIONS = tuple(admission for admission in _ALL if admission[0] in charts.ADMISSIONS)
"""(path, group and version, resource, operations) of the webhooks that the stack enables."""
PROBE: Object = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {
        "minAvailable": 1,
        "tasks": [
            {
                "name": "probe",
                "replicas": 1,
                "template": {
                    "metadata": {"name": "probe"},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]},
                },
            }
        ],
    },
}
"""A job that passes admission."""


def namespace() -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def webhook_configurations(port: int, authority: str) -> list[Object]:
    """Volcano's admission webhooks, registered for a port of this machine.

    Args:
        authority: base64 of the certificate that signed the webhook server's.
    """
    return [_registration(port, authority, *admission) for admission in ADMISSIONS]


def _registration(
    port: int, authority: str, path: str, api_version: str, resource: str, operations: tuple[str, ...]
) -> Object:
    group, _, version = api_version.partition("/")
    changes = path.endswith("/mutate")
    name = path.strip("/").replace("/", "-")
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration" if changes else "ValidatingWebhookConfiguration",
        "metadata": {"name": f"volcano-admission-service-{name}"},
        "webhooks": [
            {
                "name": f"{name}.volcano.sh",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority},
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "operations": list(operations),
                        "resources": [resource],
                        "scope": "*",
                    }
                ],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": 10,
            }
        ],
    }
