"""Jobs on Kubernetes: a JobSet in a queue of Kueue, on the EKS cluster of a stack."""

from trainium_cdk.client.jobs.kubernetes.api import Api
from trainium_cdk.client.jobs.kubernetes.backend import KubernetesBackend, connect, kubernetes_api
from trainium_cdk.client.jobs.kubernetes.objects import render
from trainium_cdk.errors import ApiError

__all__ = ["Api", "ApiError", "KubernetesBackend", "connect", "kubernetes_api", "render"]
