"""A real Kubernetes API for the local EKS cluster, built from its Go modules.

`build` makes the programs, `LocalKubernetes` runs them, `schemas` judges objects where they cannot be built.
"""

from sandbox.kubernetes.build import available
from sandbox.kubernetes.cluster import KubernetesFailed, LocalKubernetes

__all__ = ["KubernetesFailed", "LocalKubernetes", "available"]
