"""A real Kubernetes API for the local EKS cluster, built from its Go modules.

`build` builds the programs, `LocalKubernetes` runs them, `schemas` validates objects where they cannot be built.
"""

from sandbox.kubernetes.build import available
from sandbox.kubernetes.cluster import KubernetesFailed, LocalKubernetes

__all__ = ["KubernetesFailed", "LocalKubernetes", "available"]
