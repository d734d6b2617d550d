"""Network policies of the jobs' pods, for both directions. Pure.
 The VPC CNI's agent enforces them (`enableNetworkPolicy` of the add-on). EFA is not IP traffic, and is not filtered; shared file systems
are mounted by the node. Volcano's plug-in `svc` lets the pods of one job reach each other, with a policy for each job.
"""

from __future__ import annotations

import ipaddress

from trainium_cdk.cdk.eks.installation import Installation, Manifest, kubernetes_object
from trainium_cdk.cdk.helpers.rules import unresolved

POD_IDENTITY = "169.254.170.23/32"
"""Addresses of the EKS Pod Identity agent, which provides the jobs' credentials on port 80 (EKS user guide, Pod Identity agent)."""
METADATA = "169.254.169.254/32"
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
"""Networks of VPCs, the cluster's services and the node itself. All others are the internet."""


def policies(wanted: Installation) -> list[Manifest]:
    """Policies of each namespace of jobs.

    Ingress: only what a job's own policy allows. Egress: the namespace's pods (subject to their own policies), DNS, credentials,
    HTTPS to everything but the instance's metadata (AWS's endpoints may be in the VPC), the internet, and `eks.job_networks`.
    """
    everywhere = {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE)}}
    https = {"ipBlock": {"cidr": "0.0.0.0/0", "except": [METADATA]}}
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    egress: list[Manifest] = [
        {"to": [{"podSelector": {}}]},
        {"to": [dns], "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        {"to": [{"ipBlock": {"cidr": POD_IDENTITY}}], "ports": [{"protocol": "TCP", "port": 80}]},
        {"to": [https], "ports": [{"protocol": "TCP", "port": 443}]},
        {"to": [everywhere, *(_block(cidr) for cidr in wanted.job_networks)]},
    ]
    return [
        policy
        for namespace in wanted.namespaces
        for policy in (
            _policy(namespace, "trn-deny-in", {"policyTypes": ["Ingress"]}),
            _policy(namespace, "trn-out", {"policyTypes": ["Egress"], "egress": egress}),
        )
    ]


def _block(cidr: str) -> Manifest:
    """A network, without the instance's metadata. What a token stands for is not known: the hop limit keeps pods from it there."""
    if unresolved(cidr):
        return {"ipBlock": {"cidr": cidr}}
    inside = ipaddress.ip_network(METADATA).subnet_of(ipaddress.ip_network(cidr))  # type: ignore[arg-type]  # both are of version 4
    return {"ipBlock": {"cidr": cidr, **({"except": [METADATA]} if inside else {})}}


def _policy(namespace: str, name: str, spec: Manifest) -> Manifest:
    found = kubernetes_object("networking.k8s.io/v1", "NetworkPolicy", name, namespace=namespace)
    return {**found, "spec": {"podSelector": {}, **spec}}
