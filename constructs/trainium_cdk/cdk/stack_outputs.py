"""`TrnOutputs`: makes any stack one that `trn` understands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk.cdk.eks.manifests import claims
from trainium_cdk.cdk.eks.view import AnyCluster, view_of
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.stack_wide import stack_wide
from trainium_cdk.cdk.helpers.types import AnyRole
from trainium_cdk.cdk.slurm import OwnSlurmCluster
from trainium_cdk.cdk.storage.given import mounts
from trainium_cdk.description.catalog import Catalog, Need, choose
from trainium_cdk.description.outputs import Exports, next_step
from trainium_cdk.description.outputs.eks import cluster_outputs

if TYPE_CHECKING:
    from trainium_cdk.cdk.eks.bastion_host import TrnBastionHost
    from trainium_cdk.cdk.eks.groups import INodeGroup
    from trainium_cdk.cdk.eks.images import TrnImageBuilder
    from trainium_cdk.description.settings import TeamQueue


class TrnOutputs(Checked):
    """The outputs by which `trn` finds the cluster of a stack: `trn submit --stack NAME`. One for each stack.

    On EKS, jobs need in the cluster what `TrnPlugins` installs: the namespace with its service account and claims, JobSet and Kueue
    with a queue of each node group's name, and the device plug-ins.

    Example:
        TrnOutputs(self, "Outputs", cluster=TrnPcluster(self, "Slurm", vpc=vpc), bucket=bucket)
        TrnOutputs(self, "Outputs", cluster=eks_cluster, node_groups=[group], bucket=bucket)

    Args:
        cluster: The stack's cluster: a `TrnPcluster`, a `TrnPcsCluster`, a `TrnEksCluster`, or any cluster of `aws_eks_v2` or `aws_eks`.
        bucket: Where jobs keep files, below `jobs/`: its nodes (Slurm) or pods (EKS) must be granted to read and write it.
        repository: Where training images are. Default: none.
        node_groups: On EKS: the Trainium node groups, as for `TrnPlugins`; jobs run in the first where none is named. Default: none,
            for Slurm.
        image_builder: On EKS: what `trn image build` starts. Default: none.
        bastion_host: On EKS: the way to a private Kubernetes API. Default: none.
        access_role: On EKS: the role that `trn` assumes to use the Kubernetes API, with access by `TrnPlugins.grant_access`. Default: the
            `TrnEksCluster`'s; else none: `trn` uses the caller's own credentials, which then need that access.
        endpoint: On EKS: `private` where the API is reached through `bastion_host` alone. Default: the `TrnEksCluster`'s; else `private`
            with a `bastion_host`, and `public` without.
        namespace: On EKS: where jobs run. Default: the `TrnEksCluster`'s; else training.
        queues: On EKS: shares of the nodes for teams, as for `TrnPlugins`: `trn --team`. Default: none.
        version: On EKS: Kubernetes version. Default: the `TrnEksCluster`'s; else the catalogue's.

    Raises:
        ValueError: the stack has a `TrnOutputs` already; or, on EKS, no node group is given, or none of them mounts a shared file system, where jobs live.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: OwnSlurmCluster | AnyCluster,
        bucket: s3.IBucket,
        repository: ecr.IRepository | None = None,
        node_groups: Sequence[INodeGroup] = (),
        image_builder: TrnImageBuilder | None = None,
        bastion_host: TrnBastionHost | None = None,
        access_role: AnyRole | None = None,
        endpoint: Literal["private", "public"] | None = None,
        namespace: str | None = None,
        queues: Sequence[TeamQueue] = (),
        version: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        if Stack.of(self).nested_stack_parent:
            raise ValueError(
                f"{self.node.path}: `trn` reads the outputs of a stack that you deploy, and this one is nested. "
                "Fix: make TrnOutputs in the parent stack"
            )
        first = stack_wide(self, "TrnOutputs", TrnOutputs, lambda *_: self)
        if first is not self:
            raise ValueError(f"{self.node.path}: the stack has the outputs of a cluster already: {first.node.path}")
        registry_uri = repository.repository_uri if repository else ""
        if isinstance(cluster, OwnSlurmCluster):
            _export(self, cluster.exports(bucket.bucket_name, registry_uri))
            return
        storage = next((group.storage for group in node_groups if group.storage), None)
        if storage is None:
            raise ValueError(
                f"{self.node.path}: jobs live on a shared file system: give node_groups, the first of them with a storage"
            )
        view, catalog, mounted = view_of(cluster), Catalog.load(), mounts(self, storage)
        version = version or view.version or catalog.eks.default
        need = Need("eks", tuple(dict.fromkeys(group.fleet.family for group in node_groups)), version=version)
        release, framework = choose(catalog, (need,))
        role = access_role or view.access_role
        _export(
            self,
            cluster_outputs(
                [group.fleet for group in node_groups],
                queues,
                cluster_name=view.name,
                namespace=namespace or view.namespace,
                claims=",".join(claims(mounted)),
                image=catalog.container(catalog.release(release), framework) or "",
                shell_image=catalog.eks.shell_image,
                build_project=image_builder.project_name if image_builder else "",
                endpoint=endpoint or view.endpoint or ("private" if bastion_host else "public"),
                bastion_host_id=bastion_host.instance_id if bastion_host else "",
                kubernetes_version=version,
                access_role=role.role_arn if role else "",
                shared_dir=mounted[0].mount_dir,
                mount_dirs=",".join(mount.mount_dir for mount in mounted),
                kernel=catalog.eks.kernel,
                neuron_driver="",  # which release of the image EKS takes is not known here
                neuron_release=release,
                framework=framework,
                bucket=bucket.bucket_name,
                registry_uri=registry_uri,
            ),
        )


def _export(scope: Construct, outputs: Exports) -> None:
    """Outputs of the stack under exactly their keys."""
    stack = Stack.of(scope)
    found = outputs | next_step(stack.stack_name, stack.region, outputs["TrnEngine"][0])
    for key, (value, description) in found.items():
        CfnOutput(scope, key, value=value, description=description).override_logical_id(key)
