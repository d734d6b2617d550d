"""`TrnPlugins`: software for training in the cluster, in addition to the add-ons."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import jsii
from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk.cdk.eks import kueue, manifests, provisioning_requests
from trainium_cdk.cdk.eks.access import Policy
from trainium_cdk.cdk.eks.access_entry import access_entry
from trainium_cdk.cdk.eks.boundaries import boundaries, network_policies
from trainium_cdk.cdk.eks.charts import CONTROLLERS, DETECTOR_ACCOUNT, DETECTOR_NAMESPACE, Release, releases
from trainium_cdk.cdk.eks.groups import INodeGroup, refuse_duplicates
from trainium_cdk.cdk.eks.identities import PodRole, detector_statements
from trainium_cdk.cdk.eks.installation import Existing, Installation, Manifest, requests
from trainium_cdk.cdk.eks.owned import OwnedObjects, owned, owner_of, reaches_api
from trainium_cdk.cdk.eks.rules import check_plugins
from trainium_cdk.cdk.eks.view import AnyCluster, install_once, kubectl_of, refuse_config_map, view_of
from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.permissions import code_stays, grant_addresses, grant_keys, job_file_statements
from trainium_cdk.cdk.helpers.rules import refuse_tokens, unresolved
from trainium_cdk.cdk.helpers.stack_wide import once, place_of, stack_of
from trainium_cdk.cdk.helpers.types import AnyRole
from trainium_cdk.cdk.storage import AnyStorage
from trainium_cdk.cdk.storage.efs import folder_of_namespace
from trainium_cdk.cdk.storage.given import mounts
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import SERVICE_ACCOUNT
from trainium_cdk.description.outputs.eks import JOB_USER
from trainium_cdk.description.settings import Mirror, Plugins, Scaling, TeamQueue
from trainium_cdk.text import LIST_TOKEN

HELM_MINUTES = 10
"""Lambda stops the function after 15, and Helm must end before it: otherwise the release stays `pending`."""
_NAMESPACE = "${aws:PrincipalTag/kubernetes-namespace}"
"""In a policy: the namespace of the pod that EKS Pod Identity gives a role (EKS user guide, session tags of pods, 2026-11)."""
_BUCKETS_OF_A_POLICY = 25
"""With the longest names 176 characters each; a managed policy may have 6,144, and a role ten policies (IAM quotas, 2026-11)."""


@cache
def _helm_time() -> Duration:
    return Duration.minutes(HELM_MINUTES)


@jsii.implements(iam.IGrantable)
class TrnPlugins(Checked):
    """Neuron's device plug-in or DRA driver, EFA's plug-in, JobSet, Kueue with the jobs' queues; the jobs' namespace, identity and volumes.

    JobSet and Kueue are installed on the system nodes, and the deployment waits for their pods, so that jobs can be submitted afterwards. The
    device plug-ins are DaemonSets for Trainium nodes, which may start much later, so nothing waits for them.

    A cluster that has some of this already keeps it: name it in `existing`. Kueue must then be of version 0.15 or later (API v1beta2) and
    manage JobSets, and the definition of ProvisioningRequest must be there when it starts: restart it after the first deployment. If its
    managedJobsNamespaceSelector does not select the jobs' namespaces, their jobs start without waiting for the queue.

    Objects that an update takes out (a team, a node group, another file system) are removed after it: a function compares what has this
    construct's label with what the stack has now. Namespaces with jobs or volumes stay, and queues whose jobs run stay without quota, until
    the jobs are gone; `stays` names them. That needs a cluster whose VPC is known, with private subnets, and access entries.

    When the stack is destroyed, nothing is uninstalled: it is deleted with the cluster. (Otherwise a namespace or a chart's
    clean-up job could wait forever for nodes that no longer exist.) So the chart of a plug-in that is turned off later stays in the
    cluster until it is removed with `helm uninstall`.

    Example:
        group = TrnNodeGroup(self, "Trn", cluster=cluster, storage=storage)
        plugins = TrnPlugins(self, "Plugins", cluster=cluster, node_groups=[group], storage=storage, system_nodes=[system])
        corpus.grant_read(plugins)
        plugins.grant_access("Users", role, "edit")  # the role may then use `trn`

    Args:
        cluster: A `TrnEksCluster`, an `aws_eks_v2` cluster with a kubectl provider, or an `aws_eks` one. An imported one needs the
            attributes `kubectl_role_arn` and `kubectl_layer`.
        node_groups: The Trainium node groups, `TrnNodeGroup`s or what `TrnNodeGroup.from_nodegroup_attributes` returns; each has a
            queue of its name.
        system_nodes: Nodes for the controllers, which wait for them. Default: none.
        storage: File systems that become claims in the namespace, as for `TrnNodeGroup`. Each team has its own folder on EFS, and
            `namespace` too on a new one of `TrnStorage`. Default: none.
        bucket: The stack's bucket, in which jobs may read and write `jobs/`; with `queues`, only `jobs/NAMESPACE/`. Default: none.
        data_buckets: Buckets that jobs may read and write as a whole, 25 in each policy of the jobs' role, which may have ten. Default: none.
        namespace: Namespace of the jobs. Default: the cluster's; training for one that is no `TrnEksCluster`.
        queues: Shares of the nodes for teams, each with its own namespace. Default: all nodes are for `namespace`.
        existing: What the cluster has already. It is not installed again, but gets the queues. neuron-claims is Neuron's DRA driver; your
            own device plug-in must stay off nodes with the label `trainium-cdk/devices`. Default: nothing.
        plugins: What is installed, as in an environment file. Each node group has its own `devices`. Default: what jobs need, and the node
            problem detector.
        scaling: How long a job without nodes waits before it is tried again (`retry_minutes`). Default: 30 minutes.
        mirror: Sources of charts and images instead of their public registries. Default: none.
        job_networks: Private networks to which jobs may connect, on all ports. Default: none.
        vpc_subnets: Subnets of the function that removes objects; they must reach AWS's endpoints and the Kubernetes API. Default: the
            cluster's own, or the private subnets of its VPC; without any, objects that leave stay.
        catalog: The catalogue with the charts' versions. Default: this release's.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        ValueError: the cluster has no kubectl provider or role, has IPv6 pods, or has a `TrnPlugins` already; or two node groups have
            one name.
        RequirementError: a chart of `catalog` has its image at a value that the chart's recorded version lacks.
    """

    role: iam.Role
    """The jobs' role in AWS: grant permissions of jobs to it."""
    ready: DependencyGroup
    """Everything that jobs need in the cluster."""
    namespace: str
    """The namespace of the jobs."""
    stays: str
    """Objects that the last change could not remove yet, with the reasons; `-` if there are none, or if it cannot remove."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        node_groups: Sequence[INodeGroup],
        system_nodes: Sequence[IDependable] = (),
        storage: AnyStorage | None = None,
        bucket: s3.IBucket | None = None,
        data_buckets: Sequence[s3.IBucket] = (),
        namespace: str | None = None,
        queues: Sequence[TeamQueue] = (),
        existing: Sequence[Existing] = (),
        plugins: Plugins = Plugins.model_construct(),  # noqa: B008  frozen
        scaling: Scaling = Scaling.model_construct(),  # noqa: B008  frozen
        mirror: Mirror = Mirror.model_construct(),  # noqa: B008  frozen
        job_networks: Sequence[str] = (),
        vpc_subnets: ec2.SubnetSelection | None = None,
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        refuse_tokens(self, job_networks=[each for each in job_networks if each.startswith(LIST_TOKEN)])
        install_once(self, cluster)
        self._view = view_of(cluster)
        self._cluster, self._constructs = kubectl_of(self, cluster)
        refuse_duplicates(self, node_groups)
        namespace = namespace or self._view.namespace
        if rules:
            fleets = [group.fleet for group in node_groups]
            check_plugins(
                self,
                fleets,
                queues,
                namespace=namespace,
                plugins=plugins,
                job_networks=tuple(each for each in job_networks if not unresolved(each)),
                mirror=mirror,
            )
        self.namespace, self.ready, self._manifests = namespace, DependencyGroup(), DependencyGroup()
        self._mounts = mounts(self, storage)
        self._folders = {
            each: folder_of_namespace(self, f"Folder{each}", mount.id, each, JOB_USER)
            for mount in self._mounts
            if mount.kind == "efs"
            for each in (*([namespace] if mount.owned else []), *(team.namespace for team in queues))
        }
        installation = Installation(
            fleets=[group.fleet for group in node_groups],
            catalog=catalog or Catalog.load(),
            namespace=namespace,
            plugins=plugins,
            mirror=mirror,
            job_networks=job_networks,
            teams=queues,
            retry_minutes=scaling.retry_minutes,
            existing=existing,
        )
        self._owner, self._objects = owner_of(self), list[Manifest]()
        self._install_all(installation, system_nodes)
        self.stays = self._remove_others(vpc_subnets)
        partition = place_of(self).partition
        own, data = once(bucket, "bucket_name") if bucket else "", [each.bucket_name for each in data_buckets]
        first, *more = [data[i : i + _BUCKETS_OF_A_POLICY] for i in range(0, max(len(data), 1), _BUCKETS_OF_A_POLICY)]
        files = job_file_statements(partition, own, first, folder=_NAMESPACE if queues else "")
        statements = [*files, *([code_stays(bucket)] if bucket else [])]
        self.role = self._identity("Job", installation.namespaces, SERVICE_ACCOUNT, statements)
        for i, some in enumerate(more, 1):
            statements = job_file_statements(partition, data_buckets=some)
            policy = iam.ManagedPolicy(self.role, f"Data{i}", statements=statements, roles=[self.role])
            acknowledge_wildcards(policy, statements)
        grant_keys(self.role, bucket, *data_buckets, write=True)
        if plugins.node_problem_detector:
            statements = detector_statements(stack_of(self), self._view.name, recovery=plugins.node_recovery)
            self._identity("Detector", [DETECTOR_NAMESPACE], DETECTOR_ACCOUNT, statements)

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The jobs' role: `bucket.grant_read(plugins)`."""
        return self.role

    def grant_addresses(self, *addresses: str) -> None:
        """Let jobs read and write below addresses in S3 (`s3://BUCKET/PREFIX`). Raises ValueError for any other text."""
        grant_addresses(self.role, addresses)

    def grant_access(self, id: str, principal: AnyRole | str, policy: Policy, *, team: str | None = None) -> None:
        """Let a role or user (an ARN) use the Kubernetes API: `TrnEksCluster.grant_access` for your own cluster.

        `trn` needs `edit`. JobSets are included, which no access policy of EKS covers.

        Args:
            policy: `cluster-admin` for all of the cluster; `admin`, `edit` or `view` for the jobs' namespace.
            team: A team's namespace instead of the jobs' namespace. Default: none.

        Raises:
            ValueError: the cluster takes its users from a ConfigMap alone.
        """
        refuse_config_map(self, self._cluster)
        access_entry(
            self._cluster,
            self,
            id,
            cluster_name=self._view.reference,
            principal=principal,
            policy=policy,
            namespace=self.namespace,
            team=None if team == self.namespace else team,
        )

    def _install_all(self, wanted: Installation, system_nodes: Sequence[IDependable]) -> None:
        base = self._apply(
            "Base",
            [
                # before Kueue, which looks for it only when it starts
                *([] if "provisioning-requests" in wanted.existing else [provisioning_requests.definition()]),
                *manifests.namespaces(wanted, restricted=[team.namespace for team in wanted.teams if self._folders]),
                *(manifests.service_account(wanted, name) for name in wanted.namespaces),
                *manifests.access(wanted),
                *network_policies(wanted),
                *boundaries(wanted),
                *(manifests.scaler_access(wanted) if wanted.plugins.autoscaler else []),
                *manifests.removal_access(),
                *manifests.volumes(wanted, self._mounts, self._folders),
            ],
        )
        charts: dict[str, Construct] = {}
        for release in releases(wanted):
            controller = release.name in CONTROLLERS
            chart = charts[release.name] = self._install(release, wait=controller)
            chart.node.add_dependency(base, *(system_nodes if controller else ()))
        queues = {"Queues": (kueue.queues(wanted), "kueue")}
        if wanted.plugins.volcano:
            queues["Queue"] = (manifests.queues(wanted), "volcano")
        ready = list[Construct]()
        for id, (objects, server) in queues.items():
            made = self._apply(id, objects)
            made.node.add_dependency(charts.get(server, base))
            ready.append(made)
        self.ready.add(*ready, *charts.values())

    def _apply(self, id: str, objects: list[Manifest]) -> Construct:
        """Apply the objects in their order, in as many requests as they need. Returns the last one, which waits for the others."""
        last: Construct | None = None
        objects = owned(objects, self._owner)
        self._objects += objects
        for number, some in enumerate(requests(objects), 1):
            manifest: Construct = self._constructs.KubernetesManifest(
                self,
                id if number == 1 else f"{id}{number}",
                cluster=self._cluster,
                manifest=some,
                overwrite=True,  # overwrites what a failed attempt has left
                prune=False,
                removal_policy=RemovalPolicy.RETAIN,
            )
            if last:
                manifest.node.add_dependency(last)
            last = manifest
            self._manifests.add(manifest)
        assert last is not None  # noqa: S101  no list of objects is empty
        return last

    def _remove_others(self, subnets: ec2.SubnetSelection | None) -> str:
        if not reaches_api(self, self._view, self._cluster, subnets):
            return "-"
        after = [self._manifests]
        removal = OwnedObjects(
            self, "Objects", view=self._view, owner=self._owner, objects=self._objects, after=after, subnets=subnets
        )
        return removal.resource.get_att_string("Stays")

    def _install(self, release: Release, *, wait: bool) -> Construct:
        chart: Construct = self._constructs.HelmChart(
            self,
            release.name.capitalize(),
            cluster=self._cluster,
            release=release.name,
            chart=release.chart,
            repository=release.repository,
            version=release.version,
            namespace=release.namespace,
            create_namespace=release.create_namespace,
            values=release.values,
            wait=wait,
            timeout=_helm_time(),
            removal_policy=RemovalPolicy.RETAIN,
        )
        return chart

    def _identity(
        self, id: str, namespaces: Sequence[str], account: str, statements: Sequence[iam.PolicyStatement]
    ) -> iam.Role:
        identity = PodRole(
            self,
            f"{id}Identity",
            cluster_arn=self._view.arn,
            account=place_of(self).account,
            statements=statements,
        )
        for namespace in namespaces:
            eks.CfnPodIdentityAssociation(
                self,
                f"{id}Association{namespace}",  # not its position: with one of several gone, EKS refuses a second one for a namespace
                cluster_name=self._view.reference,
                namespace=namespace,
                service_account=account,
                role_arn=identity.role.role_arn,
            )
        return identity.role
