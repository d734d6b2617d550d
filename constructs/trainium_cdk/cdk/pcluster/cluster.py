"""`TrnPcluster`: AWS ParallelCluster inside a CloudFormation stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import jsii
from aws_cdk import CustomResource, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct, IDependable

from trainium_cdk.cdk.bootstrap import TrnBootstrap, scripts_of
from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.described import describe_slurm
from trainium_cdk.cdk.helpers.encryption import volume_statements
from trainium_cdk.cdk.helpers.launch_templates import groups_among
from trainium_cdk.cdk.helpers.permissions import (
    grant_addresses,
    grant_cluster_files,
    grant_keys,
    secret_key_statements,
    session_manager_statements,
)
from trainium_cdk.cdk.helpers.retention import days_of
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once, place_of, stack_of
from trainium_cdk.cdk.helpers.subnets import queue_subnets as queue_subnets_of
from trainium_cdk.cdk.helpers.subnets import routes_of, selected
from trainium_cdk.cdk.helpers.tags import InheritedTags
from trainium_cdk.cdk.pcluster.provider import TrnClusterName, TrnPclusterProvider
from trainium_cdk.cdk.pcluster.rules import RULES, TagsFit, default_name, stacks_name_is_free
from trainium_cdk.cdk.pcluster.ssh import key_pair, ssh_access
from trainium_cdk.cdk.slurm import OwnSlurmCluster, job_role
from trainium_cdk.cdk.storage import AnyStorage, TrnStorage
from trainium_cdk.cdk.storage.connections import ServerConnections, Servers, ports_of
from trainium_cdk.cdk.storage.given import wrapped
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks.pcluster import unknown_system
from trainium_cdk.description.cluster_configuration import ClusterIds, render
from trainium_cdk.description.outputs import Exports, slurm_outputs
from trainium_cdk.description.settings import Environment, HeadNode, Pcluster, Queue

POLICY_PATH = "/parallelcluster/"
"""The provider's role attaches customer policies of this path (or of names that begin so), and no others."""


@dataclass(frozen=True)
class ClusterSubnets:
    """The subnet ids of a cluster's nodes, and what must exist before the nodes reach the internet."""

    head: str
    login: str | None
    queues: Mapping[str, str]
    ready: Sequence[IDependable]


@jsii.implements(iam.IGrantable)
class TrnPcluster(OwnSlurmCluster):
    """A Slurm cluster on AWS ParallelCluster, in any VPC. Each queue is in one subnet, as EFA does not cross subnets.

    EFA needs no other security group: ParallelCluster's own allows all traffic between the nodes.

    Example:
        TrnPcluster(self, "Slurm", vpc=vpc, storage=existing_efs, queues=[settings.Queue.of("trn1.32xlarge", 16)])

    Args:
        vpc: Where the cluster is.
        queues: The partitions. Default: `cluster.queues`.
        head_node: Default: `cluster`'s, a c5.4xlarge without SSH; Session Manager reaches it.
        cluster_name: ParallelCluster creates a stack of this name. Default: `cluster`'s, else from the construct's path.
        cluster: Everything else that an environment describes of the cluster: nodes, users, accounting, lines for slurm.conf. Default: one
            queue of up to 16 trn1.32xlarge, and nodes without Trainium for preparing data.
        storage: File systems that every node mounts: a `TrnStorage`, or an EFS or FSx for Lustre file system of the CDK. Default: a new EFS.
        bootstrap: The scripts that every node runs at its start, for the same cluster and mounts. Default: a `TrnBootstrap`, in a `TrnBucket`.
        vpc_subnets: Where nodes may be: for each queue one of them is chosen, in an availability zone that offers its types.
            Default: the private subnets of the VPC.
        queue_subnets: The subnets of queues, by name. Default: chosen from `vpc_subnets`.
        head_node_subnet: Default: the first of `vpc_subnets`; of the public ones where the head node's `subnet` is public.
        login_subnet: Default: the head node's.
        ssh_from: What may connect to the head node and the login nodes by SSH, in addition to `ssh.from_cidrs` of the head node: prefix lists,
            networks, security groups. Its `ssh` gives the key. Default: nothing more.
        volume_keys: Keys of volumes, in addition to `cluster.volume_keys`, which the head node and ParallelCluster's function may use, only through
            EC2. Default: none.
        node_policies: Policies of every node's role, in addition to `cluster.node_policies`. ParallelCluster may attach only policies of the account
            whose name begins with parallelcluster (give them that path), and some of AWS's. Default: none; grants to the cluster need none.
        log_retention: How long the cluster's logs are kept. Default: a year.
        removal_policy: For the cluster's logs on `cdk destroy`. Default: DESTROY.
        catalog: The catalogue with the instance types of the queues. Default: this release's.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: a value is not valid, or the cluster has the stack's name.
        ValueError: the VPC has no subnet of a required kind.
    """

    engine = "slurm"
    head_node_id: str
    """EC2 instance id of the head node."""
    head_node_private_ip: str
    head_node_public_ip: str | None
    """None for a head node in a private subnet."""
    job_role: iam.Role
    """Role of jobs: grant to it, or to the cluster."""
    node_policy: iam.ManagedPolicy
    """Permissions of every node in addition to ParallelCluster's: grant to it as to a role. Only root on the nodes has them."""
    head_policy: iam.ManagedPolicy
    """Additional permissions of the head node: Session Manager and Run Command. Compute nodes, where jobs run, have neither."""
    key_pair_id: str | None
    """The key pair created for SSH, if the settings name none."""
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
        queues: Sequence[Queue] | None = None,
        head_node: HeadNode | None = None,
        cluster_name: str | None = None,
        cluster: Pcluster = Pcluster.model_construct(),  # noqa: B008  frozen
        storage: AnyStorage | None = None,
        bootstrap: TrnBootstrap | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        queue_subnets: Mapping[str, ec2.ISubnet] | None = None,
        head_node_subnet: ec2.ISubnet | None = None,
        login_subnet: ec2.ISubnet | None = None,
        ssh_from: Sequence[ec2.IPeer] = (),
        volume_keys: Sequence[kms.IKey] = (),
        node_policies: Sequence[iam.IManagedPolicy] = (),
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        catalog = catalog or Catalog.load()
        if not isinstance(storage, TrnStorage):
            storage = wrapped(self, "Storage", vpc, storage) if storage else TrnStorage(self, "Storage", vpc=vpc)
        stack = once(stack_of(self), "stack_name")
        environment = describe_slurm(
            self,
            "pcluster",
            "slurm",
            cluster,
            {
                "queues": ("queues", queues),
                "head_node": ("head", head_node),
                "cluster_name": ("cluster_name", cluster_name),
            },
            mounts={mount.kind: mount.mount_dir for mount in storage.file_systems},
            catalog=catalog,
            required=(unknown_system, lambda env: stacks_name_is_free(env, stack)),
            rules=RULES if rules else (),
            cluster_name=cluster.cluster_name or default_name(self),
            volume_keys=(*cluster.volume_keys, *(key.key_arn for key in volume_keys)),
            node_policies=(*cluster.node_policies, *(policy.managed_policy_arn for policy in node_policies)),
        )
        environment = environment.model_copy(update={"log_days": days_of(log_retention, self) or 0})  # 0: for ever
        environment, bootstrap = scripts_of(self, environment, bootstrap, engine="slurm", rules=rules)
        p = environment.pcluster
        given, private = queue_subnets or {}, selected(vpc, vpc_subnets)
        of_head = private if p.head.subnet == "private" else vpc.public_subnets
        if not (head_node_subnet or of_head):
            raise ValueError(f"{self.node.path}: the VPC has no subnet for the head node: give head_node_subnet")
        head = head_node_subnet or of_head[0]
        subnets = ClusterSubnets(
            head=once(head, "subnet_id"),
            login=once(login_subnet or head, "subnet_id"),
            queues=queue_subnets_of(self, private, p.queues, given, p.cpu_queue.name if p.cpu_queue else None),
            ready=routes_of([head, *private, *given.values()]),
        )
        self._build(environment, vpc, subnets, storage, bootstrap, removal_policy, ssh_from, rules=rules)

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role of jobs: `bucket.grant_read(cluster)`."""
        return self.job_role

    def _build(
        self,
        environment: Environment,
        vpc: ec2.IVpc,
        subnets: ClusterSubnets,
        storage: TrnStorage,
        bootstrap: TrnBootstrap,
        removal_policy: RemovalPolicy,
        ssh_from: Sequence[ec2.IPeer],
        *,
        rules: bool,
    ) -> None:
        self.environment, self.storage = environment, storage
        tags = InheritedTags(self, kind="Custom::PclusterCluster", rules=rules)
        self.node.add_validation(TagsFit(self, environment, tags))
        p = environment.pcluster
        file_systems = {each.kind: each.id for each in storage.file_systems}
        clients = p.accounting.client_security_group if p.accounting else None
        # Everything of one cluster is below its name, so that another name creates another cluster with its own provider
        # (perhaps of another release) on the same file systems, before this one is deleted.
        self._own = StackPart(self, environment.cluster_name)
        for_volumes = volume_statements(self, list(dict.fromkeys(p.volume_keys)))
        self.provider = self._provider(p, for_volumes)
        self.node_policy = self._policy("NodePolicy", "every node", bootstrap.read_statements())
        grant_keys(self.node_policy, bootstrap.bucket)
        self.job_role = self._job_role(environment)
        secrets = [p.directory.get("PasswordSecretArn"), p.accounting and p.accounting.password_secret]
        may = [
            *session_manager_statements(self),
            *for_volumes,
            *secret_key_statements(self, [each for each in secrets if each]),
        ]
        self.head_policy = self._policy("HeadPolicy", "the head node", may)
        login = p.login_nodes and self._policy("LoginPolicy", "login nodes", session_manager_statements(self))
        pair = key_pair(self._own, environment)
        self.key_pair_id = pair.attr_key_pair_id if pair else None
        ssh = ssh_access(self, environment, vpc, ssh_from)
        ids = ClusterIds(
            region=place_of(self).region,
            head_subnet=subnets.head,
            login_subnet=subnets.login if p.login_nodes else None,
            queue_subnets=subnets.queues,
            entry_url=bootstrap.entry_url,
            scripts_url=bootstrap.scripts_url,
            job_role=self.job_role.role_arn,
            pointer=bootstrap.pointer.parameter_name,
            policies=(self.node_policy.managed_policy_arn,),
            head_policies=(self.head_policy.managed_policy_arn,),
            login_policies=(login.managed_policy_arn,) if login else (),
            security_groups=(once(storage.client_security_group, "security_group_id"),),
            head_security_groups=(clients,) if clients else (),
            efs_id=file_systems.get("efs"),
            fsx_id=file_systems.get("fsx"),
            key_name=pair.ref if pair else p.head.ssh.key_name if p.head.ssh else None,
            ssh_source=ssh.source,
            ssh_security_groups=ssh.groups,
            tags=tags.pairs(),
            reservation_groups=groups_among(self, [r.reservation for q in p.queues for r in q.compute_resources]),
        )
        self.configuration = render(environment, ids)
        self._name = TrnClusterName(
            self._own, "Name", cluster_name=environment.cluster_name, removal_policy=removal_policy
        )
        # No ServiceTimeout: CloudFormation passes it to the provider, which passes unknown properties to ParallelCluster, which
        # rejects them. ParallelCluster has its own time limit: 55 minutes for the head node.
        self.resource = CustomResource(
            self._own,
            "Resource",
            service_token=self.provider.service_token,
            resource_type="Custom::PclusterCluster",
            removal_policy=RemovalPolicy.DESTROY,
            properties={
                "ClusterName": environment.cluster_name,
                "ClusterConfiguration": self.configuration,
                "DeletionPolicy": "Delete",
            },
        )
        self.resource.node.add_dependency(self._name)
        self.wait_for(*subnets.ready, storage.ready, bootstrap, *self._allow_volumes(storage.client_security_group))
        self.head_node_id = self.resource.get_att_string("headNode.instanceId")
        self.head_node_private_ip = self.resource.get_att_string("headNode.privateIpAddress")
        # of a private head node the attribute does not exist, and reading it fails the deployment
        public = p.head.subnet == "public"
        self.head_node_public_ip = self.resource.get_att_string("headNode.publicIpAddress") if public else None

    def wait_for(self, *others: IDependable) -> None:
        """Create the cluster after these, and delete it before them. Its name is also claimed after them, so that nothing slow
        happens between the claim and the cluster."""
        for each in (self._name.resource, self.resource):
            each.node.add_dependency(*others)

    def grant_bucket(self, bucket: s3.IBucket) -> iam.Grant:
        """Let jobs read and write their files in the stack's bucket, and the head node read what `trn` sends to it, and store what it
        returns.

        ParallelCluster's own S3Access with write access allows every action.
        """
        grants = grant_cluster_files(bucket, place_of(self).partition, self.head_policy, self.job_role)
        return reduce(iam.Grant.combine, grants)

    def exports(self, bucket: str, registry_uri: str) -> Exports:
        return slurm_outputs(self.environment, head_node_id=self.head_node_id, bucket=bucket, registry_uri=registry_uri)

    def grant_addresses(self, *addresses: str) -> None:
        """Let jobs read and write below addresses in S3 (`s3://BUCKET/PREFIX`). Raises ValueError for any other text."""
        grant_addresses(self.job_role, addresses)

    def _allow_volumes(self, clients: ec2.ISecurityGroup) -> list[IDependable]:
        """Let the nodes mount `shared_storage`; what the cluster waits for.

        Volumes of one file system have one group, and EC2 refuses a rule that is there already: each port is allowed by the first of them.
        """
        ready: list[IDependable] = []
        allowed = set[tuple[str, str]]()
        for volume in self.environment.pcluster.shared_storage:
            id = volume.security_group
            ports = {(id, port.to_string()): port for port in ports_of(volume.type)} if id else {}
            if id and (new := {rule: port for rule, port in ports.items() if rule not in allowed}):
                allowed |= new.keys()
                scope = Construct(self, f"Volume-{volume.name}")
                group = ec2.SecurityGroup.from_security_group_id(scope, "Group", id, allow_all_outbound=False)
                servers = ServerConnections([Servers(group.connections, list(new.values()), volume.name)])
                servers.allow_clients(clients)
                ready.append(scope)
        return ready

    def _provider(self, p: Pcluster, for_volumes: Sequence[iam.PolicyStatement]) -> TrnPclusterProvider:
        role, policy_of = p.provider.role, iam.ManagedPolicy.from_managed_policy_arn
        policies = [policy_of(self._own, f"ProviderPolicy{i}", arn) for i, arn in enumerate(p.provider.policies)]
        if for_volumes and not role:
            policies.append(self._policy("ProviderPolicy", "ParallelCluster's function", for_volumes))
        return TrnPclusterProvider(
            self._own,
            "Provider",
            version=p.version,
            role=iam.Role.from_role_arn(self._own, "ProviderRole", role) if role else None,
            policies=policies,
        )

    def _job_role(self, environment: Environment) -> iam.Role:
        """ParallelCluster makes the roles of the nodes later, below a path of the cluster's."""
        place = place_of(self)
        nodes = f"arn:{place.partition}:iam::{place.account}:role/*/{environment.cluster_name}/*"
        only = {"ArnLike": {"aws:PrincipalArn": nodes}}
        role = job_role(
            self, iam.AccountPrincipal(place.account).with_conditions(only), environment.pcluster.node_policies
        )
        role.grant_assume_role(self.node_policy.grant_principal)
        return role

    def _policy(self, id: str, whose: str, statements: Sequence[iam.PolicyStatement]) -> iam.ManagedPolicy:
        what = f"What {whose} may do in addition to ParallelCluster's own permissions"
        policy = iam.ManagedPolicy(self, id, path=POLICY_PATH, description=what, statements=statements)
        acknowledge_wildcards(policy, statements, self)
        return policy
