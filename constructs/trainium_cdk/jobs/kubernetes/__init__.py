"""Jobs on Kubernetes: a Volcano Job on the EKS cluster of a stack."""

from trainium_cdk.errors import ApiError
from trainium_cdk.jobs.kubernetes.api import Api
from trainium_cdk.jobs.kubernetes.backend import KubernetesBackend
from trainium_cdk.jobs.kubernetes.render import Submission, render

__all__ = ["Api", "ApiError", "KubernetesBackend", "Submission", "render"]
