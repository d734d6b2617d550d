"""`TrnPlugins`: what training needs in the cluster, beside the add-ons."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk._cdk.job_files import job_file_statements
from trainium_cdk.eks import manifests, network_policies
from trainium_cdk.eks.charts import DETECTOR_ACCOUNT, DETECTOR_NAMESPACE, Release, releases
from trainium_cdk.eks.cluster import TrnEksCluster
from trainium_cdk.eks.identities import PodRole, detector_statements
from trainium_cdk.outputs import SERVICE_ACCOUNT
from trainium_cdk.settings import Environment
from trainium_cdk.storage import TrnStorage

HELM_MINUTES = 10
"""Lambda ends the function after 15, and Helm must end before it: else the release stays `pending`."""


class TrnPlugins(Construct):
    """Neuron's device plug-in, EFA's, Volcano with the jobs' queues; the jobs' namespace, identity and volumes.

    Volcano is installed on the system nodes, and its pods are waited for: once the stack is there, jobs can be submitted. The
    other charts are DaemonSets for Trainium nodes, which may come much later, so nothing waits for those.

    Nothing is taken out of the cluster one by one when the stack is destroyed: it goes with the cluster, at once. (A namespace
    or a chart's clean-up job that waits for nodes which are gone already is how such a destroy hangs.) So what is turned
    off later stays in the cluster until it is removed with `helm uninstall`.

    Args:
        environment: whose catalogue pins the charts.
        system_nodes: what Volcano runs on.
        storage: whose file systems become claims.
        bucket: name of the stack's bucket, of which jobs may read and write their own prefix. Default: none.
        data_buckets: names of buckets that jobs may read and write as a whole.
    """

    role: iam.Role
    """The jobs' role in AWS: grant to it what jobs may do."""
    ready: DependencyGroup
    """Everything that jobs need in the cluster."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        cluster: TrnEksCluster,
        storage: TrnStorage,
        system_nodes: IDependable,
        bucket: str = "",
        data_buckets: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        self._environment, self._cluster = environment, cluster
        self.ready = DependencyGroup()
        base = self._apply(
            "Base",
            [
                *manifests.namespaces(environment),
                manifests.service_account(environment),
                *manifests.access(environment),
                *network_policies.policies(environment),
                *(manifests.scaler_access() if environment.eks.plugins.autoscaler else []),
                *manifests.volumes(environment, storage.file_systems),
            ],
        )
        for release in releases(environment):
            volcano = release.name == "volcano"
            chart = self._install(release, wait=volcano)
            chart.node.add_dependency(base)
            self.ready.add(chart)
            if volcano:
                chart.node.add_dependency(system_nodes)
                self.ready.add(self._apply("Queue", manifests.queues(environment), after=chart))
        partition = Stack.of(self).partition
        self.role = self._identity(
            "Job",
            environment.eks.namespace,
            SERVICE_ACCOUNT,
            job_file_statements(partition, bucket, data_buckets),
        )
        plugins = environment.eks.plugins
        if plugins.node_problem_detector:
            self._identity(
                "Detector",
                DETECTOR_NAMESPACE,
                DETECTOR_ACCOUNT,
                detector_statements(Stack.of(self), cluster.name, recovery=plugins.node_recovery),
            )

    def _apply(
        self, id: str, objects: list[manifests.Manifest], after: IDependable | None = None
    ) -> eks.KubernetesManifest:
        made = eks.KubernetesManifest(
            self,
            id,
            cluster=self._cluster.cluster,
            manifest=objects,
            overwrite=True,  # what an attempt that failed has left is taken over
            prune=False,
            removal_policy=RemovalPolicy.RETAIN,
        )
        made.node.add_dependency(self._cluster.ready, *([after] if after else []))
        return made

    def _install(self, release: Release, *, wait: bool) -> eks.HelmChart:
        made = eks.HelmChart(
            self,
            release.name.capitalize(),
            cluster=self._cluster.cluster,
            release=release.name,
            chart=release.chart,
            repository=release.repository,
            version=release.version,
            namespace=release.namespace,
            create_namespace=release.create_namespace,
            values=release.values,
            wait=wait,
            timeout=Duration.minutes(HELM_MINUTES),
            removal_policy=RemovalPolicy.RETAIN,
        )
        made.node.add_dependency(self._cluster.ready)
        return made

    def _identity(self, id: str, namespace: str, account: str, statements: Sequence[iam.PolicyStatement]) -> iam.Role:
        made = PodRole(
            self,
            f"{id}Identity",
            cluster_arn=self._cluster.arn,
            account=Stack.of(self).account,
            statements=statements,
        )
        eks.CfnPodIdentityAssociation(
            self,
            f"{id}Association",
            cluster_name=self._cluster.resource.ref,
            namespace=namespace,
            service_account=account,
            role_arn=made.role.role_arn,
        )
        return made.role
