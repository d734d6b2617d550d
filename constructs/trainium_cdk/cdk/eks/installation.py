"""The software installed in a cluster for training, as plain values, and the form of its Kubernetes objects. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.eks import Chart
from trainium_cdk.description.outputs import Fleet, eks_fleets
from trainium_cdk.description.settings import Environment, Mirror, Plugins, Scaling, TeamQueue

Existing = Literal["neuron", "neuron-claims", "efa", "jobset", "kueue", "provisioning-requests", "volcano"]
"""Software that a cluster can have already."""
Manifest = dict[str, Any]
OWNER = {"app.kubernetes.io/managed-by": "trainium-cdk"}
RETRY_MINUTES: int = Scaling().retry_minutes
MOST = 100_000
"""Characters of the objects that CloudFormation sends the installing function in one request. An update has the old and the new ones, and
Lambda has refused an event of more than 262,144 bytes (aws-cdk issue 19165); its API reference names 1 MB (2026-11)."""


@dataclass(frozen=True)
class Installation:
    """The input for a cluster's charts and Kubernetes objects. No value may be a CDK token.

    Attributes:
        fleets: the Trainium node groups.
        catalog: has the charts' versions, instance types and names of resources.
        namespace: of the jobs.
        plugins: installed software.
        mirror: sources of charts and images instead of their public registries.
        job_networks: private networks to which jobs may connect, on all ports.
        teams: shares of the nodes, each with its own namespace.
        retry_minutes: pause before a job without nodes is tried again.
        existing: software that the cluster has already; it is not installed, but gets the queues.
    """

    fleets: Sequence[Fleet]
    catalog: Catalog
    namespace: str
    plugins: Plugins
    mirror: Mirror
    job_networks: Sequence[str] = ()
    teams: Sequence[TeamQueue] = ()
    retry_minutes: int = RETRY_MINUTES
    existing: Collection[Existing] = ()

    @classmethod
    def of(cls, environment: Environment) -> Installation:
        """The installation of an environment's EKS cluster."""
        eks = environment.eks
        return cls(
            fleets=eks_fleets(environment),
            catalog=environment.catalog,
            namespace=eks.namespace,
            plugins=eks.plugins,
            mirror=eks.mirror,
            job_networks=eks.job_networks,
            teams=eks.queues,
            retry_minutes=eks.scaling.retry_minutes,
        )

    @property
    def charts(self) -> dict[str, Chart]:
        """The Helm charts to install, by name, in the order in which they are installed."""
        found = self.catalog.eks.charts_for(
            self.mirror.charts.items(),
            efa=any(fleet.efa for fleet in self.fleets),
            volcano=self.plugins.volcano,
            claims=self.claims,
        )
        return {name: chart for name, chart in found.items() if name not in self.existing}

    @property
    def claims(self) -> bool:
        """Whether pods claim devices of some nodes."""
        return any(fleet.claims for fleet in self.fleets)

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of jobs: the jobs' own, then the teams'."""
        return [self.namespace, *(team.namespace for team in self.teams)]


def kubernetes_object(
    api_version: str, kind: str, name: str, *, namespace: str | None = None, labels: dict[str, str] | None = None
) -> Manifest:
    """An object without what is particular to its kind. Default of `labels`: that it is this library's."""
    metadata: Manifest = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": {**metadata, "labels": dict(labels or OWNER)}}


def requests(objects: Sequence[Manifest], most: int = MOST) -> Iterator[list[Manifest]]:
    """The objects, in their order, in lists that can be sent.

    >>> [len(some) for some in requests([{"a": "b"}] * 5, most=40)]
    [2, 2, 1]
    """
    some: list[Manifest] = []
    size = 0
    for each in objects:
        length = len(json.dumps(json.dumps(each)))  # it is sent as text
        if some and size + length > most:
            yield some
            some, size = [], 0
        some.append(each)
        size += length
    yield some
