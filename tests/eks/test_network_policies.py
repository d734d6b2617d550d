"""What the jobs' network policies let through, evaluated by Cyclonus, a policy engine that network plug-ins are compared with.

The VPC CNI's own agent needs the kernel's eBPF and cannot run here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sandbox.kubernetes import build
from tests.jobs.kubernetes.conftest import make_cluster
from tests.stacks import synthesis
from tests.support import completed, need_kubernetes
from trainium_cdk import settings
from trainium_cdk.cdk.eks.boundaries import network_policies as policies
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.client.jobs.kubernetes import render
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.client.jobs.kubernetes.parts import JOB_LABEL
from trainium_cdk.jobs import Script

Policy = dict[str, Any]
ENV = settings.validate({"eks": {"job_networks": ["10.9.0.0/24"]}})


@dataclass(frozen=True)
class End:
    """A pod, or, without a namespace, any other address."""

    ip: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)


Row = tuple[End, End, int, str, bool]
"""Source, target, port, protocol, and whether the connection is to be allowed."""


def worker(job: str, ip: str) -> End:
    return End(ip, "training", {JOB_LABEL: job})


def own(job: str) -> Policy:
    """The policy that is submitted with a job of this name."""
    cluster = make_cluster()
    rendered = render(Script(filename="x.sh", content=b"true", image="x/y:1", name=job), cluster, "t")
    [policy] = [thing for thing in objects(rendered, cluster).all if thing["kind"] == "NetworkPolicy"]
    return json.loads(json.dumps(policy).replace(rendered.id, job))  # type: ignore[no-any-return]


def connects(rows: list[Row], rules: list[Policy]) -> list[bool]:
    """For each row, whether Cyclonus lets the connection out at its source and in at its target."""
    need_kubernetes()
    connections = [
        {"Source": _peer(source), "Destination": _peer(target), "ResolvedPort": port, "Protocol": protocol}
        for source, target, port, protocol, _ in rows
    ]
    done = completed(
        [build.program("network-policies")], input=json.dumps({"Policies": rules, "Connections": connections})
    )
    assert done.returncode == 0, done.stderr
    answers: list[bool] = json.loads(done.stdout)
    return answers


def _peer(end: End) -> Policy:
    if not end.namespace:
        return {"IP": end.ip}
    there = {"kubernetes.io/metadata.name": end.namespace}
    return {"IP": end.ip, "Internal": {"PodLabels": end.labels, "NamespaceLabels": there, "Namespace": end.namespace}}


MINE, SAME, OTHER = worker("mine", "10.0.0.1"), worker("mine", "10.0.0.2"), worker("other", "10.0.0.3")
DNS = End("10.0.0.9", "kube-system", {"k8s-app": "kube-dns"})
CONTROLLER = End("10.0.0.8", "kube-system", {"app": "ebs"})
STAGING = End("10.0.0.5", "training", {"job-name": "trn-data"})
TABLE: list[Row] = [
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
    (MINE, End("35.186.228.49"), 443, "TCP", True),  # Weights & Biases
    (MINE, End("10.0.1.40"), 443, "TCP", True),  # a tracking server of MLflow in the network, with TLS
    (MINE, End("10.0.1.40"), 5000, "TCP", False),  # without: eks.job_networks opens it
    (MINE, End("10.0.1.30"), 10250, "TCP", False),  # a node's kubelet
    (MINE, End("10.0.1.30"), 22, "TCP", False),
    (MINE, End("192.168.1.1"), 5432, "TCP", False),
    (MINE, End("10.9.0.5"), 5000, "TCP", True),  # of eks.job_networks
    (STAGING, End("52.216.0.1"), 443, "TCP", True),
    (CONTROLLER, End("10.0.1.30"), 10250, "TCP", True),  # other namespaces are not touched
]


def test_allowed_traffic() -> None:
    rules = [*policies(Installation.of(ENV)), own("mine"), own("other")]
    answers = connects(TABLE, rules)
    assert [row for row, allowed in zip(TABLE, answers, strict=True) if allowed is not row[-1]] == []


def test_without_policies_all_traffic_is_allowed() -> None:
    assert all(connects(TABLE, []))


def test_the_add_on_enforces_them() -> None:
    """Without this setting the VPC CNI keeps policies and does nothing."""
    template = synthesis.EKS.document("default")["Resources"].values()
    [cni] = [
        r["Properties"]
        for r in template
        if r["Type"] == "AWS::EKS::Addon" and r["Properties"]["AddonName"] == "vpc-cni"
    ]
    assert json.loads(cni["ConfigurationValues"])["enableNetworkPolicy"] == "true"
    applied = json.dumps([r for r in template if r["Type"] == "Custom::AWSCDK-EKS-KubernetesResource"])
    assert all(p["metadata"]["name"] in applied for p in policies(Installation.of(settings.load())))


def test_only_public_addresses_are_open_to_jobs() -> None:
    """Private ranges of RFC 1918 and 6598, and link-local ones: the node's own metadata is among them."""
    text = json.dumps(list(policies(Installation.of(ENV))))
    private = ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"]
    assert json.dumps(private) in text
