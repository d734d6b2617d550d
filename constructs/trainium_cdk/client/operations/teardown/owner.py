"""Ownership: the only place that decides what may be deleted in addition to the stack's own resources, by the marks of each engine's clusters. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_LEFT_BY_AWS = ("AWS Lambda VPC ENI", "Amazon EKS ", "aws-K8S-", "ELB ", "EFS mount target")
"""Prefixes of the descriptions of such interfaces."""


@dataclass(frozen=True)
class Traces:
    """Marks of resources that belong to an engine's clusters.

    Attributes:
        cluster_resource: CloudFormation type of the cluster, by which a stack is known as one of this engine; empty for none.
        tags: of what was created for a cluster, by the cluster's name; each is enough.
        reservations: further tags, which count for capacity reservations only: the nodes of another engine's cluster may have them.
        log_groups: regular expressions of a cluster's own log groups -> what they are, by the cluster's name.
        shared: what stays after the stack is deleted, because all clusters of a region use it.
    """

    cluster_resource: str = ""
    tags: Callable[[str], Mapping[str, str]] = lambda _: {}
    reservations: Callable[[str], Mapping[str, str]] = lambda _: {}
    log_groups: Callable[[str], Mapping[str, str]] = lambda _: {}
    shared: str = ""


TRACES: Mapping[str, Traces] = {
    "slurm": Traces(
        cluster_resource="Custom::PclusterCluster",
        tags=lambda cluster: {"parallelcluster:cluster-name": cluster},
        # ParallelCluster appends the time of the cluster's creation to its name
        log_groups=lambda cluster: {
            rf"/aws/parallelcluster/{re.escape(cluster)}-\d{{12}}": "the log of the cluster's nodes",
        },
        shared="ParallelCluster's bucket parallelcluster-...-v1-do-not-delete (a few small objects of each cluster)",
    ),
    "eks": Traces(
        cluster_resource="AWS::EKS::Cluster",
        tags=lambda cluster: {
            f"kubernetes.io/cluster/{cluster}": "owned",
            "eks:cluster-name": cluster,
            "aws:eks:cluster-name": cluster,
            "cluster.k8s.amazonaws.com/name": cluster,
            "elbv2.k8s.aws/cluster": cluster,
            "KubernetesCluster": cluster,
        },
        reservations=lambda cluster: {"trainium-cdk:cluster": cluster},  # as instances of AWS PCS have it
        log_groups=lambda cluster: {re.escape(f"/aws/eks/{cluster}/cluster"): "the log of the control plane"},
    ),
    "pcs": Traces(cluster_resource="AWS::PCS::Cluster"),
}


@dataclass(frozen=True)
class Owner:
    """A stack, and how its leftovers are recognised.

    Never by a part of a name: another stack may have a similar one. A resource belongs to this stack if it has the stack's tags,
    if AWS created it in the stack's VPC for one of its parts, or if it is the log group of one of its functions or of its cluster.
    Whoever may tag resources can set most of these tags on any of them: AWS must vouch for it, too (`vouched`), before it is deleted.

    Attributes:
        stack, stack_id: name and ARN.
        cluster: name of its cluster; empty for none.
        engine: name of its engine; empty for none.
        vpcs: VPCs that it created.
        functions: names of its Lambda functions, nested stacks' included.
        projects: names of its CodeBuild projects.
        managed: physical ids of its resources: CloudFormation deletes them.
        kept: physical ids of resources to keep.
    """

    stack: str
    stack_id: str
    cluster: str = ""
    engine: str = ""
    vpcs: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    managed: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    def why(self, tags: Mapping[str, str]) -> str:
        """Explain why a resource with these tags belongs to the stack; empty if it does not."""
        return _one_of(self._tags(), tags)

    def vouched(self, tags: Mapping[str, str], vpc: str = "", group: str = "") -> bool:
        """Return whether AWS proves that a resource is of this stack: by a tag only AWS sets, or location.

        Args:
            vpc: its id; empty for none.
            group: ARN of its placement group; empty for none.
        """
        of_aws = {key: value for key, value in self._tags().items() if key.startswith("aws:")}
        return bool(vpc in self.vpcs or group.rpartition("/")[2] in self.managed or _one_of(of_aws, tags))

    def why_reservation(self, tags: Mapping[str, str]) -> str:
        """Explain why a capacity reservation with these tags belongs to the stack; empty if it does not."""
        made = TRACES[self.engine].reservations(self.cluster) if self.cluster and self.engine else {}
        return self.why(tags) or _one_of(made, tags)

    def why_interface(self, tags: Mapping[str, str], vpc: str, description: str) -> str:
        """Explain why a network interface belongs to the stack. Lambda, EKS and load balancers leave theirs without the stack's tags, in the VPC
        that it created. Other interfaces there belong to others."""
        if why := self.why(tags):
            return why
        if vpc in self.vpcs - self.kept and description.startswith(_LEFT_BY_AWS):
            return f"it is in the stack's VPC {vpc}, and was created by AWS ({description})"
        return ""

    def why_log(self, group: str) -> str:
        """Explain why a log group belongs to the stack; empty if it does not."""
        if group in {f"/aws/lambda/{f}" for f in self.functions}:
            return "it is the log of a function of the stack"
        if group in {f"/aws/codebuild/{p}" for p in self.projects}:
            return "it is the log of a build project of the stack"
        if self.cluster and self.engine:
            for pattern, what in TRACES[self.engine].log_groups(self.cluster).items():
                if re.fullmatch(pattern, group):
                    return f"it is {what}"
        return ""

    def _tags(self) -> dict[str, str]:
        found = {"aws:cloudformation:stack-id": self.stack_id}
        if self.cluster and self.engine:
            found |= TRACES[self.engine].tags(self.cluster)
        return found


def _one_of(wanted: Mapping[str, str], tags: Mapping[str, str]) -> str:
    return next((f"it is tagged {key} = {value}" for key, value in wanted.items() if tags.get(key) == value), "")
