"""What the jobs' network policies let through, by the rules of Kubernetes' NetworkPolicy (a model: no policy engine runs here)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.stacks import eks_synthesis
from trainium_cdk import settings
from trainium_cdk.eks.installation import Installation
from trainium_cdk.eks.network_policies import policies

Policy = dict[str, Any]
ENV = settings.validate({"eks": {"job_networks": ["10.9.0.0/24"]}})


@dataclass(frozen=True)
class End:
    """A pod, or, without a namespace, any other address."""

    ip: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def worker(job: str, ip: str) -> End:
    return End(ip, "training", {"volcano.sh/job-name": job, "volcano.sh/job-namespace": "training"})


def of_volcano(job: str) -> Policy:
    """What Volcano's plug-in `svc` makes for a job, by its documentation: no test compares it with the real one."""
    labels = {"volcano.sh/job-name": job, "volcano.sh/job-namespace": "training"}
    spec = {
        "podSelector": {"matchLabels": labels},
        "ingress": [{"from": [{"podSelector": {"matchLabels": labels}}]}],
        "policyTypes": ["Ingress"],
    }
    return {"kind": "NetworkPolicy", "metadata": {"name": job, "namespace": "training"}, "spec": spec}


def connects(source: End, target: End, port: int, protocol: str = "TCP", *, rules: list[Policy]) -> bool:
    """Whether a connection is let out at its source and in at its target."""
    return _passes(source, target, port, protocol, "Egress", rules) and _passes(
        target, source, port, protocol, "Ingress", rules
    )


def _passes(own: End, other: End, port: int, protocol: str, direction: str, rules: list[Policy]) -> bool:
    mine = [
        p["spec"]
        for p in rules
        if p["metadata"]["namespace"] == own.namespace
        and direction in p["spec"]["policyTypes"]
        and _selects(p["spec"]["podSelector"], own.labels)
    ]
    if not own.namespace or not mine:
        return True  # no policy isolates it in this direction
    key, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    return any(
        (peers not in rule or any(_is(peer, other, own.namespace) for peer in rule[peers]))
        and ("ports" not in rule or any((p["port"], p["protocol"]) == (port, protocol) for p in rule["ports"]))
        for spec in mine
        for rule in spec.get(key, [])
    )


def _is(peer: Policy, end: End, namespace: str) -> bool:
    if block := peer.get("ipBlock"):
        address = ip_address(end.ip)
        return address in ip_network(block["cidr"]) and not any(
            address in ip_network(n) for n in block.get("except", [])
        )
    there = {"kubernetes.io/metadata.name": end.namespace}
    in_namespace = (
        _selects(peer["namespaceSelector"], there) if "namespaceSelector" in peer else end.namespace == namespace
    )
    return bool(end.namespace) and in_namespace and _selects(peer.get("podSelector", {}), end.labels)


def _selects(selector: Policy, labels: dict[str, str]) -> bool:
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())


MINE, SAME, OTHER = worker("mine", "10.0.0.1"), worker("mine", "10.0.0.2"), worker("other", "10.0.0.3")
DNS = End("10.0.0.9", "kube-system", {"k8s-app": "kube-dns"})
CONTROLLER = End("10.0.0.8", "kube-system", {"app": "ebs"})
STAGING = End("10.0.0.5", "training", {"job-name": "trn-data"})
TABLE = [
    # source, target, port, protocol, passes
    (MINE, SAME, 41000, "TCP", True),
    (SAME, MINE, 62182, "TCP", True),
    (MINE, OTHER, 41000, "TCP", False),
    (OTHER, MINE, 22, "TCP", False),
    (STAGING, MINE, 8080, "TCP", False),
    (CONTROLLER, MINE, 8080, "TCP", False),
    (End("10.0.0.77"), MINE, 8080, "TCP", False),
    (MINE, DNS, 53, "UDP", True),
    (MINE, DNS, 53, "TCP", True),
    (MINE, DNS, 9153, "TCP", False),
    (MINE, CONTROLLER, 8080, "TCP", False),
    (MINE, End("169.254.170.23"), 80, "TCP", True),  # credentials of the job's own role
    (MINE, End("169.254.169.254"), 80, "TCP", False),  # those of the node
    (MINE, End("169.254.169.254"), 443, "TCP", False),
    (MINE, End("10.0.1.20"), 443, "TCP", True),  # an interface endpoint of AWS
    (MINE, End("52.216.0.1"), 443, "TCP", True),  # S3
    (MINE, End("140.82.112.4"), 22, "TCP", True),  # git over SSH
    (MINE, End("10.0.1.30"), 10250, "TCP", False),  # a node's kubelet
    (MINE, End("10.0.1.30"), 22, "TCP", False),
    (MINE, End("192.168.1.1"), 5432, "TCP", False),
    (MINE, End("10.9.0.5"), 5000, "TCP", True),  # of eks.job_networks
    (STAGING, End("52.216.0.1"), 443, "TCP", True),
    (CONTROLLER, End("10.0.1.30"), 10250, "TCP", True),  # other namespaces are not touched
]


@pytest.mark.parametrize(("source", "target", "port", "protocol", "passes"), TABLE)
def test_allowed_traffic(source: End, target: End, port: int, protocol: str, passes: bool) -> None:
    rules = [*policies(Installation.of(ENV)), of_volcano("mine"), of_volcano("other")]
    assert connects(source, target, port, protocol, rules=rules) is passes


def test_without_policies_all_traffic_is_allowed() -> None:
    assert all(connects(s, t, port, protocol, rules=[]) for s, t, port, protocol, _ in TABLE)


def test_the_add_on_enforces_them() -> None:
    """Without this setting the VPC CNI keeps policies and does nothing."""
    template = eks_synthesis.document("default")["Resources"].values()
    [cni] = [
        r["Properties"]
        for r in template
        if r["Type"] == "AWS::EKS::Addon" and r["Properties"]["AddonName"] == "vpc-cni"
    ]
    assert json.loads(cni["ConfigurationValues"])["enableNetworkPolicy"] == "true"
    applied = json.dumps([r for r in template if r["Type"] == "Custom::AWSCDK-EKS-KubernetesResource"])
    assert all(p["metadata"]["name"] in applied for p in policies(Installation.of(settings.load())))
