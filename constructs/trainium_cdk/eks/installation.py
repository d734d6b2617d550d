"""What is installed in a cluster for training, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.eks import Chart
from trainium_cdk.outputs import Fleet, eks_fleets
from trainium_cdk.settings import Environment, Mirror, Plugins


@dataclass(frozen=True)
class Installation:
    """What the charts and Kubernetes objects of a cluster are rendered from. None of it may be a CDK token.

    Attributes:
        fleets: the Trainium node groups.
        catalog: pins the charts; knows the instance types and the names of resources.
        namespace: where jobs run.
        plugins: what is installed.
        mirror: where charts and images come from instead of their public registries.
        job_networks: private networks whose every port jobs may connect to.
    """

    fleets: Sequence[Fleet]
    catalog: Catalog
    namespace: str
    plugins: Plugins
    mirror: Mirror
    job_networks: Sequence[str] = ()

    @classmethod
    def of(cls, environment: Environment) -> Installation:
        """What the EKS cluster of an environment has."""
        eks = environment.eks
        return cls(
            fleets=eks_fleets(environment),
            catalog=environment.catalog,
            namespace=eks.namespace,
            plugins=eks.plugins,
            mirror=eks.mirror,
            job_networks=eks.job_networks,
        )

    @property
    def charts(self) -> dict[str, Chart]:
        """The Helm charts, by name, in the order in which they are installed."""
        return self.catalog.eks.charts_for(
            self.mirror.charts.items(), efa=any(fleet.efa for fleet in self.fleets), volcano=self.plugins.volcano
        )
