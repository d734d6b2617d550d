"""`TrnEks`: everything that jobs of `trn` need on an EKS cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct, IDependable

from trainium_cdk.cdk.bucket import TrnBucket
from trainium_cdk.cdk.efa import TrnEfaSecurityGroup
from trainium_cdk.cdk.eks.addons import TrnAddons
from trainium_cdk.cdk.eks.bastion_host import TrnBastionHost
from trainium_cdk.cdk.eks.images import TrnImageBuilder
from trainium_cdk.cdk.eks.installation import Existing
from trainium_cdk.cdk.eks.node_group import TrnNodeGroup
from trainium_cdk.cdk.eks.node_role import TrnNodeRole
from trainium_cdk.cdk.eks.plugins import TrnPlugins
from trainium_cdk.cdk.eks.scaling import TrnScaler
from trainium_cdk.cdk.eks.system_nodes import TrnSystemNodes
from trainium_cdk.cdk.eks.view import AnyCluster, view_of
from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.paths import digest
from trainium_cdk.cdk.helpers.permissions import allow, grant_keys, job_file_statements
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.cdk.helpers.types import AnyRole
from trainium_cdk.cdk.stack_outputs import TrnOutputs
from trainium_cdk.cdk.storage import AnyStorage
from trainium_cdk.description import settings
from trainium_cdk.description.catalog import Catalog


class TrnEks(Checked):
    """Trainium node groups on an EKS cluster, and everything that jobs of `trn` need there: add-ons, system nodes, plug-ins, queues, the
    scaler, and the outputs by which `trn` finds the cluster.

    Example:
        trn = TrnEks(self, "Trn", cluster=cluster, storage=storage, node_groups=[settings.NodeGroup(max_nodes=4)])
        trn.grant_submit(role)
        corpus.grant_read(trn.plugins)

    Args:
        cluster: A `TrnEksCluster`, an `aws_eks_v2` cluster with a kubectl provider, or an `aws_eks` one, as for `TrnPlugins`.
        storage: The shared file systems, as for `TrnNodeGroup`: jobs live there.
        node_groups: The Trainium nodes; jobs without a named group use the first. Default: up to two trn1.32xlarge.
        system: The nodes for everything else. Default: two r5.large. None: the cluster has its own nodes for it.
        bucket: Where jobs keep files. Default: a new `TrnBucket`.
        data_buckets: Buckets that jobs may read and write as a whole. Default: none.
        repository: Where training images are. Default: none.
        image_builder: What `trn image build` starts. Default: none.
        bastion_host: The way to a private Kubernetes API. Default: none.
        access_role: The role that `trn` assumes to use the Kubernetes API, which it gets access to. Default: the `TrnEksCluster`'s;
            else a new one.
        vpc_subnets: Subnets of the nodes and of the scaler. Default: the private subnets of the cluster's VPC.
        group_subnets: The subnet of a node group, by its name. Default: one of `vpc_subnets` in a zone that offers the type.
        plugins: What is installed, and whether there is a scaler. Its `devices` is the default of the node groups. Default: what jobs
            need.
        scaling: How nodes are started for jobs, and how long they may wait. Default: as of `TrnScaler`.
        observability: Logs and metrics in CloudWatch, charged by volume. Default: none.
        log_retention: How long those logs are kept. Default: a year.
        metrics: Whether the scaler writes metrics for `TrnObservability`. Default: False.
        job_ends: Whether the scaler writes a line for each job that has ended, for `TrnJobNotices`. Default: False.
        devices: What the scaler does about a node with a broken device: see `TrnScaler`. Default: `replace`.
        alarm_topic: Where the scaler's alarm is sent. Default: none.
        namespace: Where jobs run. Default: the cluster's; training for one that is no `TrnEksCluster`.
        queues: Shares of the nodes for teams. Default: all nodes are for `namespace`.
        existing: Plug-ins that the cluster has already. Default: none.
        addons: Whether EKS's add-ons are installed. Default: True.
        addon_versions: Other versions than the catalogue's, by the add-on's name. Default: none.
        mirror: Sources of charts and images instead of their public registries. Default: none.
        job_networks: Private networks to which jobs may connect, on all ports. Default: none.
        neuron_driver: As for `TrnNodeGroup`, for groups without their own image. Default: the image's driver.
        release_version: As for `TrnNodeGroup`. Default: EKS's newest image.
        version: Kubernetes version. Default: the cluster's.
        outputs: Whether to make the outputs for `trn`, which a stack has once. Default: True.
        removal_policy: For the new bucket and for logs, on `cdk destroy`. Default: DESTROY.
        catalog: The catalogue with instance types and versions. Default: this release's.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: a value of a settings model is wrong.
        ValueError: as its parts: for example, the cluster has no kubectl provider, or two node groups have one name.
    """

    node_groups: list[TrnNodeGroup]
    """The Trainium nodes, in the order of the argument."""
    system: TrnSystemNodes | None
    """The nodes for everything else."""
    plugins: TrnPlugins
    """The software in the cluster. Grant permissions of jobs to it: `corpus.grant_read(trn.plugins)`."""
    scaler: TrnScaler | None
    """The function that starts and stops the nodes."""
    bucket: s3.IBucket
    """Where jobs keep files."""
    access_role: iam.IRole
    """The role that `trn` assumes to use the Kubernetes API."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        storage: AnyStorage,
        node_groups: Sequence[settings.NodeGroup] = (settings.NodeGroup.model_construct(),),
        system: settings.SystemNodes | None = settings.SystemNodes.model_construct(),  # noqa: B008
        bucket: s3.IBucket | None = None,
        data_buckets: Sequence[s3.IBucket] = (),
        repository: ecr.IRepository | None = None,
        image_builder: TrnImageBuilder | None = None,
        bastion_host: TrnBastionHost | None = None,
        access_role: AnyRole | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        group_subnets: Mapping[str, ec2.ISubnet] | None = None,
        plugins: settings.Plugins = settings.Plugins.model_construct(),  # noqa: B008
        scaling: settings.Scaling = settings.Scaling.model_construct(),  # noqa: B008
        observability: settings.ContainerInsights | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        metrics: bool = False,
        job_ends: bool = False,
        devices: Literal["tell", "replace"] = "replace",
        alarm_topic: sns.ITopic | None = None,
        namespace: str | None = None,
        queues: Sequence[settings.TeamQueue] = (),
        existing: Sequence[Existing] = (),
        addons: bool = True,
        addon_versions: Mapping[str, str] | None = None,
        mirror: settings.Mirror = settings.Mirror.model_construct(),  # noqa: B008
        job_networks: Sequence[str] = (),
        neuron_driver: str | None = None,
        release_version: str | None = None,
        version: str | None = None,
        outputs: bool = True,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        self._view = view = view_of(cluster)
        self.bucket = bucket or TrnBucket(self, "Files", removal_policy=removal_policy).bucket
        before: list[IDependable] = []
        installed = None
        if addons:
            installed = TrnAddons(
                self,
                "Addons",
                cluster=cluster,
                storage=storage,
                version=version,
                addon_versions=addon_versions,
                plugins=plugins,
                observability=observability,
                log_retention=log_retention,
                removal_policy=removal_policy,
                catalog=catalog,
            )
            before.append(installed.before_nodes)
        efa = TrnEfaSecurityGroup(self, "Efa", vpc=view.vpc)
        role = TrnNodeRole(self, "Nodes", storage=storage, pull_through_caches=list(mirror.images.values()))
        self.system = None
        if system:
            self.system = TrnSystemNodes(
                self,
                "System",
                cluster=cluster,
                nodes=system,
                vpc_subnets=vpc_subnets,
                node_role=role.role,
                storage=storage,
                version=version,
                rules=rules,
            )
            self.system.wait_for(*before)
        if installed:
            installed.run_on(*([self.system] if self.system else []))
        self.node_groups = []
        for group in node_groups:
            subnet = (group_subnets or {}).get(group.name)
            made = TrnNodeGroup(
                self,
                f"Group{group.name}",
                cluster=cluster,
                nodes=group.model_copy(update={"devices": group.devices or plugins.devices}),
                vpc_subnets=ec2.SubnetSelection(subnets=[subnet]) if subnet else vpc_subnets,
                efa_security_group=efa.security_group,
                node_role=role.role,
                storage=storage,
                neuron_driver=None if group.custom_ami else neuron_driver,
                release_version=release_version,
                version=version,
                catalog=catalog,
                rules=rules,
            )
            made.wait_for(*before)
            self.node_groups.append(made)
        self.plugins = TrnPlugins(
            self,
            "Plugins",
            cluster=cluster,
            node_groups=self.node_groups,
            system_nodes=[self.system] if self.system else (),
            storage=storage,
            bucket=self.bucket,
            data_buckets=data_buckets,
            namespace=namespace,
            queues=queues,
            existing=existing,
            plugins=plugins,
            scaling=scaling,
            mirror=mirror,
            job_networks=job_networks,
            catalog=catalog,
            rules=rules,
        )
        self.scaler = None
        if plugins.autoscaler:
            self.scaler = TrnScaler(
                self,
                "Scaler",
                cluster=cluster,
                node_groups=self.node_groups,
                plugins=self.plugins,
                vpc_subnets=vpc_subnets,
                scaling=scaling,
                metrics=metrics,
                job_ends=job_ends,
                devices=devices,
                alarm_topic=alarm_topic,
                catalog=catalog,
            )
        self.access_role = view.access_role or self._access(access_role)
        if outputs:
            TrnOutputs(
                self,
                "Outputs",
                cluster=cluster,
                bucket=self.bucket,
                repository=repository,
                node_groups=self.node_groups,
                image_builder=image_builder,
                bastion_host=bastion_host,
                access_role=self.access_role,
                namespace=self.plugins.namespace,
                queues=queues,
                version=version,
            )

    def wait_for(self, *others: IDependable) -> None:
        """Create the nodes after these."""
        if self.system:
            self.system.wait_for(*others)
        for group in self.node_groups:
            group.wait_for(*others)

    def _access(self, given: AnyRole | None) -> iam.IRole:
        """The given role or a new one, which may use the Kubernetes API."""
        role = given or iam.Role(
            self,
            "AccessRole",
            description=f"Uses the Kubernetes API of {self._view.name}; has no permissions in AWS",
            assumed_by=iam.AccountRootPrincipal(),
        )
        self.plugins.grant_access("Access", role, "edit")
        return role

    def grant_submit(self, role: AnyRole, *, team: str | None = None) -> None:
        """Let a role submit, follow and end jobs with `trn`. A role may be in several teams: call it for each.

        Args:
            team: A team's namespace instead of the jobs' namespace. Default: none.

        Raises:
            ValueError: the cluster takes its users from a ConfigMap alone, or IAM attaches no policy, as the role is of another account.
        """
        stack = Stack.of(self)
        theirs = role.principal_account
        if theirs and theirs != stack.account and not unresolved([theirs, stack.account]):
            raise ValueError(
                f"{self.node.path}: grant_submit: {role.role_name} is of account {theirs}, and gets no policy from {stack.account}. "
                f"Fix: make a role in {stack.account} that it may assume, and grant to that one"
            )
        # the role's own name, and not its path: a stack that moves keeps it
        key = digest(json.dumps(stack.resolve(role.role_arn)))
        if team is None:
            self.access_role.grant_assume_role(role.grant_principal)
        else:
            self.plugins.grant_access(f"Access{key}", role, "edit", team=team)
        if self.node.try_find_child(f"Submit{key}"):
            return  # the rest is the same for each team
        statements = [
            allow(self._view.arn, "eks:DescribeCluster"),
            allow(stack.stack_id, "cloudformation:DescribeStacks"),
            *job_file_statements(stack.partition, self.bucket.bucket_name),
        ]
        policy = iam.ManagedPolicy(self, f"Submit{key}", statements=statements, roles=[role])
        acknowledge_wildcards(policy, statements)
        grant_keys(role, self.bucket, write=True)
