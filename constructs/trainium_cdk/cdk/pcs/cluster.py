"""`TrnPcsCluster`: a Slurm cluster on AWS Parallel Computing Service (PCS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import jsii
from aws_cdk import Names
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_pcs as pcs
from aws_cdk import aws_s3 as s3
from constructs import Construct, IDependable

from trainium_cdk.cdk.bootstrap import TrnBootstrap, scripts_of
from trainium_cdk.cdk.efa import TrnEfaSecurityGroup
from trainium_cdk.cdk.helpers.described import describe_slurm
from trainium_cdk.cdk.helpers.permissions import allow, grant_addresses, grant_cluster_files, session_manager_policy
from trainium_cdk.cdk.helpers.subnets import queue_subnets as queue_subnets_of
from trainium_cdk.cdk.helpers.subnets import routes_of, selected
from trainium_cdk.cdk.pcs.groups import PATH, Shared, cpu_group, login_group, node_role, training_group
from trainium_cdk.cdk.slurm import OwnSlurmCluster, add_policies, job_role
from trainium_cdk.cdk.storage import AnyStorage, TrnStorage
from trainium_cdk.cdk.storage.given import wrapped
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks import capacity, security
from trainium_cdk.description.checks import pcs as pcs_rules
from trainium_cdk.description.checks.storage import hidden_homes
from trainium_cdk.description.outputs import Exports, pcs_outputs
from trainium_cdk.description.settings import Environment, Pcs, PcsLoginNode, PcsQueue

_RULES = (
    *capacity.RULES,
    *pcs_rules.RULES,
    security.wide_node_policies,
    hidden_homes,
    capacity.type_not_in_region,
)


@dataclass(frozen=True)
class PcsSubnets:
    """The subnet ids of a cluster's controller and nodes, and what must exist before the nodes reach the internet."""

    controller: str
    queues: Mapping[str, str]
    ready: Sequence[IDependable]


@jsii.implements(iam.IGrantable, ec2.IConnectable)
class TrnPcsCluster(OwnSlurmCluster):
    """A Slurm cluster on AWS PCS, in any VPC: AWS runs the controller. Each queue is in one subnet, as EFA does not cross subnets.

    Example:
        TrnPcsCluster(self, "Slurm", vpc=vpc, storage=existing_efs, queues=[settings.PcsQueue.of("trn1.32xlarge", 16)])

    Args:
        vpc: Where the cluster is.
        queues: The partitions. Default: `cluster.queues`.
        login_node: Default: `cluster`'s, a c5.2xlarge, which Session Manager reaches.
        cluster_name: Default: `cluster`'s, else from the construct's path.
        cluster: Everything else that an environment describes of the cluster: nodes, users, the controller's size, settings of Slurm.
            Default: one queue of up to 16 trn1.32xlarge, and nodes without Trainium for preparing data.
        storage: File systems that every node mounts: a `TrnStorage`, or an EFS or FSx for Lustre file system of the CDK. Default: a new EFS.
        bootstrap: The scripts that every node runs at its start, for the same cluster and mounts. Default: a `TrnBootstrap`, in a `TrnBucket`.
        vpc_subnets: Where nodes may be: for each queue one of them is chosen, in an availability zone that offers its types. The
            controller and the login node are in the first. Default: the private subnets of the VPC.
        queue_subnets: The subnets of queues, by name. Default: chosen from `vpc_subnets`.
        node_policies: Policies of every node's role, in addition to `cluster.node_policies`. Default: none.
        catalog: The catalogue with the instance types of the queues. Default: this release's.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: a value is not valid.
        ValueError: the VPC has no subnet of a required kind.
    """

    engine = "pcs"
    cluster_id: str
    """The cluster's id in PCS, which is also its identity for jobs."""
    login_group_id: str
    """Id of the node group of the login node."""
    node_role: iam.Role
    """Role of the compute nodes. Only root there has it."""
    job_role: iam.Role
    """Role of jobs, and of users on the login node: grant to it, or to the cluster."""
    login_role: iam.Role
    """Role of the login node: with Session Manager and Run Command."""
    environment: Environment
    """The environment that describes the cluster."""
    storage: TrnStorage
    """The file systems that its nodes mount."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        queues: Sequence[PcsQueue] | None = None,
        login_node: PcsLoginNode | None = None,
        cluster_name: str | None = None,
        cluster: Pcs = Pcs.model_construct(),  # noqa: B008  frozen
        storage: AnyStorage | None = None,
        bootstrap: TrnBootstrap | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        queue_subnets: Mapping[str, ec2.ISubnet] | None = None,
        node_policies: Sequence[iam.IManagedPolicy] = (),
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        catalog = catalog or Catalog.load()
        if not isinstance(storage, TrnStorage):
            storage = wrapped(self, "Storage", vpc, storage) if storage else TrnStorage(self, "Storage", vpc=vpc)
        environment = describe_slurm(
            self,
            "pcs",
            "pcs",
            cluster,
            {
                "queues": ("queues", queues),
                "login_node": ("login", login_node),
                "cluster_name": ("cluster_name", cluster_name),
            },
            mounts={mount.kind: mount.mount_dir for mount in storage.file_systems},
            catalog=catalog,
            required=(pcs_rules.system_without_image,),
            rules=_RULES if rules else (),
            cluster_name=cluster.cluster_name or Names.unique_resource_name(self, max_length=40, separator="-"),
            node_policies=(*cluster.node_policies, *(policy.managed_policy_arn for policy in node_policies)),
        )
        environment, bootstrap = scripts_of(self, environment, bootstrap, engine="pcs", rules=rules)
        p = environment.pcs
        subnets = selected(vpc, vpc_subnets)
        chosen = queue_subnets_of(
            self, subnets, p.queues, queue_subnets or {}, p.cpu_queue.name if p.cpu_queue else None
        )
        routes = routes_of([*subnets, *(queue_subnets or {}).values()])
        self._build(environment, vpc, PcsSubnets(subnets[0].subnet_id, chosen, routes), storage, bootstrap, rules=rules)

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role of jobs: `bucket.grant_read(cluster)`."""
        return self.job_role

    @property
    def connections(self) -> ec2.Connections:
        """Network access to its nodes and its controller."""
        return self._group.connections

    def _build(
        self,
        environment: Environment,
        vpc: ec2.IVpc,
        subnets: PcsSubnets,
        storage: TrnStorage,
        bootstrap: TrnBootstrap,
        *,
        rules: bool,
    ) -> None:
        self.environment, self.storage = environment, storage
        p, facts = environment.pcs, environment.catalog.pcs
        self._group = TrnEfaSecurityGroup(self, "Nodes", vpc=vpc)
        self.resource = cluster = self._cluster(environment, subnets)
        cluster.node.add_dependency(*subnets.ready, self._group)
        self.cluster_id = cluster.attr_id
        self.node_role = node_role(self, "NodeRole", storage, bootstrap)
        self.login_role = node_role(self, "LoginRole", storage, bootstrap)
        self.login_role.add_managed_policy(session_manager_policy(self))
        for role in (self.node_role, self.login_role):
            role.add_to_policy(allow(cluster.attr_arn, "pcs:RegisterComputeNodeGroupInstance", sid="JoinCluster"))
            add_policies(role, p.node_policies)
        both = iam.CompositePrincipal(*(iam.ArnPrincipal(r.role_arn) for r in (self.node_role, self.login_role)))
        self.job_role = job_role(self, both, p.node_policies)
        for role in (self.node_role, self.login_role):
            self.job_role.grant_assume_role(role)
        nodes, login = (
            iam.InstanceProfile(self, f"{id}Profile", role=role, path=PATH)
            for id, role in (("Node", self.node_role), ("Login", self.login_role))
        )
        image = p.custom_ami
        if not image:  # the newest, at each deployment
            image = ec2.MachineImage.from_ssm_parameter(facts.images[p.os]).get_image(self).image_id
        groups = (self._group.security_group, storage.client_security_group)
        shared = Shared(
            environment,
            cluster,
            storage,
            bootstrap,
            [g.security_group_id for g in groups],
            image,
            self.job_role.role_arn,
            rules,
        )
        scope = Construct(self, "Login")
        self.login = login_group(scope, shared, subnets.controller, login.instance_profile_arn)
        self.login.node.add_dependency(self.login_role)
        self.login_group_id = self.login.attr_id
        for i, queue in enumerate(p.queues):
            of_queue = []
            scope = Construct(self, f"Queue{queue.name}")
            for resource in queue.compute_resources:
                group = training_group(
                    Construct(scope, resource.name),
                    shared,
                    queue,
                    resource,
                    subnets.queues[queue.name],
                    nodes.instance_profile_arn,
                )
                group.node.add_dependency(self.node_role)
                of_queue.append(group)
            _queue(scope, cluster, queue.name, of_queue, default=i == 0)
        for cpu in p.cpu_queues:
            scope = Construct(self, f"Queue{cpu.name}")
            group = cpu_group(scope, shared, cpu, subnets.queues[cpu.name], nodes.instance_profile_arn)
            group.node.add_dependency(self.node_role)
            _queue(scope, cluster, cpu.name, [group], default=False)

    def _cluster(self, environment: Environment, subnets: PcsSubnets) -> pcs.CfnCluster:
        p = environment.pcs
        settings = [
            pcs.CfnCluster.SlurmCustomSettingProperty(parameter_name=key, parameter_value=str(value))
            for key, value in p.slurm_settings.items()
        ]
        return pcs.CfnCluster(
            self,
            "Resource",
            name=environment.pcs_cluster_name,
            size=p.size.upper(),
            scheduler=pcs.CfnCluster.SchedulerProperty(
                type="SLURM", version=p.version or environment.catalog.pcs.default
            ),
            networking=pcs.CfnCluster.NetworkingProperty(
                subnet_ids=[subnets.controller], security_group_ids=[self._group.security_group.security_group_id]
            ),
            slurm_configuration=pcs.CfnCluster.SlurmConfigurationProperty(
                scale_down_idle_time_in_seconds=p.scale_down_idle_minutes * 60,
                slurm_custom_settings=settings or None,
                accounting=pcs.CfnCluster.AccountingProperty(mode="STANDARD") if p.accounting else None,
            ),
        )

    def wait_for(self, *others: IDependable) -> None:
        """Create the cluster after these, and delete it before them."""
        self.resource.node.add_dependency(*others)

    def grant_bucket(self, bucket: s3.IBucket) -> iam.Grant:
        """Let jobs read and write their files in the stack's bucket, and the login node read what `trn` sends to it, and store what it
        returns."""
        grants = grant_cluster_files(bucket, self.resource.stack.partition, self.login_role, self.job_role)
        return reduce(iam.Grant.combine, grants)

    def exports(self, bucket: str, registry_uri: str) -> Exports:
        return pcs_outputs(
            self.environment,
            cluster_id=self.cluster_id,
            login_group_id=self.login_group_id,
            bucket=bucket,
            registry_uri=registry_uri,
        )

    def grant_addresses(self, *addresses: str) -> None:
        """Let jobs read and write below addresses in S3 (`s3://BUCKET/PREFIX`). Raises ValueError for any other text."""
        grant_addresses(self.job_role, addresses)


def _queue(
    scope: Construct, cluster: pcs.CfnCluster, name: str, groups: Sequence[pcs.CfnComputeNodeGroup], *, default: bool
) -> None:
    """A partition in which each job has its nodes to itself, as on ParallelCluster."""
    settings = {"OverSubscribe": "EXCLUSIVE", **({"Default": "YES"} if default else {})}
    pcs.CfnQueue(
        scope,
        "Queue",
        cluster_id=cluster.attr_id,
        name=name,
        compute_node_group_configurations=[
            pcs.CfnQueue.ComputeNodeGroupConfigurationProperty(compute_node_group_id=group.attr_id) for group in groups
        ],
        slurm_configuration=pcs.CfnQueue.SlurmConfigurationProperty(
            slurm_custom_settings=[
                pcs.CfnQueue.SlurmCustomSettingProperty(parameter_name=key, parameter_value=value)
                for key, value in settings.items()
            ]
        ),
    )
