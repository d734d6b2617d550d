"""`TrnPcluster`: AWS ParallelCluster inside a CloudFormation stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import jsii
from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IDependable

from trainium_cdk._cdk.encryption import volume_statements
from trainium_cdk._cdk.launch_templates import groups_among
from trainium_cdk._cdk.permissions import (
    grant_cluster_files,
    grant_keys,
    secret_key_statements,
    session_manager_statements,
)
from trainium_cdk._cdk.removal import removal_policy as policy_of
from trainium_cdk._cdk.tags import InheritedTags
from trainium_cdk.bootstrap import TrnBootstrap, with_scripts_of
from trainium_cdk.bucket import TrnBucket
from trainium_cdk.catalog import Catalog
from trainium_cdk.cluster_configuration.config import ClusterIds, render
from trainium_cdk.network import TrnNetwork
from trainium_cdk.pcluster.described import (
    TagsFit,
    default_name,
    environment_of,
    refuse_the_stacks_name,
    refuse_unknown_system,
)
from trainium_cdk.pcluster.provider import TrnClusterName, TrnPclusterProvider
from trainium_cdk.pcluster.ssh import key_pair, ssh_access
from trainium_cdk.pcluster.subnets import ClusterSubnets, chosen_subnets, environments_subnets
from trainium_cdk.settings import (
    Accounting,
    ClusterUser,
    CpuQueue,
    DirectoryService,
    Environment,
    HeadNode,
    LoginNodes,
    Queue,
    SharedVolume,
)
from trainium_cdk.settings.inventory import inventory
from trainium_cdk.storage import AnyStorage, TrnStorage
from trainium_cdk.storage.connections import PORTS, ServerConnections, Servers
from trainium_cdk.storage.given import wrapped

POLICY_PATH = "/parallelcluster/"
"""The provider's role attaches customer policies of this path (or of names that begin so), and no others."""


@jsii.implements(iam.IGrantable)
class TrnPcluster(Construct):
    """A Slurm cluster on AWS ParallelCluster, in any VPC. Each queue is in one subnet, as EFA does not cross subnets.

    EFA needs no other security group: ParallelCluster's own allows all traffic between the nodes.

    Example:
        TrnPcluster(self, "Slurm", vpc=vpc, storage=existing_efs, queues=[settings.Queue(name="trn")])

    Args:
        vpc: Where the cluster is.
        queues: The partitions. Default: one, of up to 16 trn1.32xlarge.
        cpu_queue: Nodes without Trainium, where jobs prepare their data. They start when a job needs them. Default: up to two
            c5.2xlarge. None: jobs prepare on a node of the cheapest queue.
        storage: File systems that every node mounts: a `TrnStorage`, or an EFS or FSx for Lustre file system of the CDK. Default: a new EFS.
        bootstrap: The scripts that every node runs at its start, for the same operating system, mounts and types. Default: a `TrnBootstrap`,
            in a `TrnBucket`.
        vpc_subnets: Where nodes may be: for each queue one of them is chosen, in an availability zone that offers its types.
            Default: the private subnets of the VPC.
        queue_subnets: The subnets of queues, by name. Default: chosen from `vpc_subnets`.
        ssh_from: What may connect to the head node and the login nodes by SSH, beside `head_node.ssh.from_cidrs`: prefix lists, networks,
            security groups. `head_node.ssh` gives the key. Default: nothing more.
        head_node: Default: a c5.4xlarge without SSH; Session Manager reaches it.
        head_node_subnet: Default: the first of `vpc_subnets`; of the public ones where `head_node.subnet` is public.
        cluster_name: Default: from the construct's path. ParallelCluster creates a stack of this name.
        operating_system: ubuntu2404, ubuntu2204 or alinux2023. Default: ubuntu2404.
        version: ParallelCluster's version. Default: the catalogue's.
        login_nodes: Nodes for interactive work. Default: none.
        login_subnet: Default: that of the head node.
        accounting: Slurm accounting in an existing MySQL database. Default: none.
        users: People with accounts on every node, whose jobs and files are separate. Default: all jobs belong to the image's user.
        directory_service: A directory whose users have accounts on the nodes. Default: none.
        custom_ami: Image of every node without an image of its own. Default: ParallelCluster's.
        volume_keys: Keys of volumes, which the head node and ParallelCluster's function may use, only through EC2: the account's default key
            of EBS, if it is not AWS's own, and those of encrypted images and EBS volumes. Default: none.
        scale_down_idle_time: A dynamic node without work is stopped after this time. Default: 10 minutes.
        slurm_settings: Lines for slurm.conf. Default: none.
        node_policies: More policies of every node's role. ParallelCluster may attach only policies of the account whose name begins
            with parallelcluster (give them that path), and some of AWS's. Default: none; grants to the cluster need none.
        shared_storage: Existing file systems that every node mounts beside those of `storage`. Default: none.
        sudo: Whether the user of the jobs may become root on the nodes. Default: True.
        overrides: Keys merged last into the cluster configuration, in ParallelCluster's own spelling, for example
            `{"Iam": {"PermissionsBoundary": arn}}`: the CDK's permissions boundaries do not reach ParallelCluster's own roles. Default: none.
        removal_policy: For the cluster's logs on `cdk destroy`. Default: DESTROY.
        catalog: The catalogue with the instance types of the queues. Default: this release's.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: a value is not valid, or the cluster has the stack's name.
        ValueError: the VPC has no subnet of a required kind.
    """

    head_node_id: str
    """EC2 instance id of the head node."""
    head_node_private_ip: str
    head_node_public_ip: str | None
    """None for a head node in a private subnet."""
    node_policy: iam.ManagedPolicy
    """Permissions of every node in addition to ParallelCluster's: grant to it as to a role."""
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
        queues: Sequence[Queue] = (Queue(),),
        cpu_queue: CpuQueue | None = CpuQueue(),  # noqa: B008  frozen
        storage: AnyStorage | None = None,
        bootstrap: TrnBootstrap | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        queue_subnets: Mapping[str, ec2.ISubnet] | None = None,
        head_node: HeadNode = HeadNode(),  # noqa: B008  frozen
        head_node_subnet: ec2.ISubnet | None = None,
        ssh_from: Sequence[ec2.IPeer] = (),
        cluster_name: str | None = None,
        operating_system: str = "ubuntu2404",
        version: str | None = None,
        login_nodes: LoginNodes | None = None,
        login_subnet: ec2.ISubnet | None = None,
        accounting: Accounting | None = None,
        users: Sequence[ClusterUser] = (),
        directory_service: DirectoryService | None = None,
        custom_ami: str | None = None,
        volume_keys: Sequence[kms.IKey] = (),
        scale_down_idle_time: Duration | None = None,
        slurm_settings: Sequence[Mapping[str, str | int]] = (),
        node_policies: Sequence[iam.IManagedPolicy] = (),
        shared_storage: Sequence[SharedVolume] = (),
        sudo: bool = True,
        overrides: Mapping[str, Any] | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        catalog = catalog or Catalog.load()
        if not isinstance(storage, TrnStorage):
            storage = wrapped(self, "Storage", vpc, storage) if storage else TrnStorage(self, "Storage", vpc=vpc)
        environment = environment_of(
            self,
            storage=storage,
            catalog=catalog,
            rules=rules,
            queues=queues,
            cpu_queue=cpu_queue,
            cluster_name=cluster_name or default_name(self),
            head=head_node,
            os=operating_system,
            version=version,
            login_nodes=login_nodes,
            accounting=accounting,
            users=tuple(users),
            directory_service=directory_service,
            custom_ami=custom_ami,
            volume_keys=[key.key_arn for key in volume_keys],
            scale_down_idle_minutes=int(scale_down_idle_time.to_minutes()) if scale_down_idle_time else None,
            slurm_settings=[dict(line) for line in slurm_settings],
            node_policies=[policy.managed_policy_arn for policy in node_policies],
            shared_storage=tuple(shared_storage),
            sudo=sudo,
            overrides=dict(overrides or {}),
        )
        if bootstrap:
            environment = with_scripts_of(self, environment, bootstrap, engine="slurm", rules=rules)
        else:
            refuse_unknown_system(self, environment)
            bootstrap = TrnBootstrap(
                self,
                "Bootstrap",
                bucket=TrnBucket(self, "Files").bucket,
                instance_types=inventory(environment, "slurm").instance_types,
                operating_system=operating_system,
                mount_dirs=environment.storage.mount_dirs,
                users=users,
                directory_service=directory_service,
                catalog=catalog,
                rules=rules,
            )
        subnets = chosen_subnets(
            self,
            vpc,
            vpc_subnets,
            queues=queues,
            given=queue_subnets or {},
            head_node=head_node,
            head=head_node_subnet,
            login=login_subnet,
            cpu=cpu_queue.name if cpu_queue else None,
        )
        self._build(environment, vpc, subnets, storage, bootstrap, removal_policy, ssh_from, rules=rules)

    @classmethod
    def from_settings(
        cls,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        network: TrnNetwork,
        storage: TrnStorage,
        bootstrap: TrnBootstrap,
        encryption_key: kms.IKey | None = None,
    ) -> TrnPcluster:
        """The Slurm cluster of an environment. It may use `encryption_key` for volumes, as the account's default key of EBS."""
        return _OfEnvironment(scope, id, environment, network, storage, bootstrap, encryption_key)

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The roles of all nodes: `bucket.grant_read(cluster)`."""
        return self.node_policy.grant_principal

    def _build(
        self,
        environment: Environment,
        vpc: ec2.IVpc,
        subnets: ClusterSubnets,
        storage: TrnStorage,
        bootstrap: TrnBootstrap,
        removal_policy: RemovalPolicy,
        ssh_from: Sequence[ec2.IPeer] = (),
        encryption_key: kms.IKey | None = None,
        *,
        rules: bool = False,
    ) -> None:
        self.environment, self.storage = environment, storage
        refuse_the_stacks_name(environment, Stack.of(self).stack_name)
        tags = InheritedTags(self, kind="Custom::PclusterCluster", rules=rules)
        self.node.add_validation(TagsFit(self, environment, tags))
        p = environment.pcluster
        file_systems = {each.kind: each.id for each in storage.file_systems}
        clients = p.accounting.client_security_group if p.accounting else None
        # Everything of one cluster is below its name, so that another name creates another cluster with its own provider
        # (perhaps of another release) on the same file systems, before this one is deleted.
        self._own = Construct(self, environment.cluster_name)
        keys = [*p.volume_keys, *([encryption_key.key_arn] if encryption_key else [])]
        for_volumes = volume_statements(self, list(dict.fromkeys(keys)))
        policies = list(p.provider.policies)
        if for_volumes and not p.provider.role:
            policies.append(
                self._policy("ProviderPolicy", "ParallelCluster's function", for_volumes).managed_policy_arn
            )
        self.provider = TrnPclusterProvider(
            self._own, "Provider", version=p.version, role=p.provider.role, policies=policies
        )
        self.node_policy = self._policy("NodePolicy", "every node", bootstrap.read_statements())
        grant_keys(self.node_policy, bootstrap.bucket)
        secrets = [each.password_secret for each in (p.directory_service, p.accounting) if each]
        may = [*session_manager_statements(self), *for_volumes, *secret_key_statements(self, secrets)]
        self.head_policy = self._policy("HeadPolicy", "the head node", may)
        login = p.login_nodes and self._policy("LoginPolicy", "login nodes", session_manager_statements(self))
        pair = key_pair(self._own, environment)
        self.key_pair_id = pair.attr_key_pair_id if pair else None
        ssh = ssh_access(self, environment, vpc, ssh_from)
        ids = ClusterIds(
            region=Stack.of(self).region,
            head_subnet=subnets.head,
            login_subnet=subnets.login if p.login_nodes else None,
            queue_subnets=subnets.queues,
            entry_url=bootstrap.entry_url,
            scripts_url=bootstrap.scripts_url,
            pointer=bootstrap.pointer.parameter_name,
            policies=(self.node_policy.managed_policy_arn,),
            head_policies=(self.head_policy.managed_policy_arn,),
            login_policies=(login.managed_policy_arn,) if login else (),
            security_groups=(storage.client_security_group.security_group_id,),
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
        self._name.resource.node.add_dependency(*others)
        self.resource.node.add_dependency(*others)

    def grant_bucket(self, bucket: s3.IBucket) -> iam.Grant:
        """Let every node read and write the jobs' files in the stack's bucket, and the head node read what `trn` sends to it, and
        store what it returns.

        ParallelCluster's own S3Access with write access allows every action.
        """
        grants = grant_cluster_files(bucket, Stack.of(self).partition, self.head_policy, self.node_policy)
        grants += [*grant_keys(self.head_policy, bucket), *grant_keys(self.node_policy, bucket, write=True)]
        return reduce(iam.Grant.combine, grants)

    def _allow_volumes(self, clients: ec2.ISecurityGroup) -> list[IDependable]:
        """Let the nodes mount `shared_storage`; what the cluster waits for.

        Volumes of one file system have one group, and EC2 refuses a rule that is there already: each port is allowed by the first of them.
        """
        ready: list[IDependable] = []
        allowed = set[tuple[str, str]]()
        for volume in self.environment.pcluster.shared_storage:
            id = volume.security_group
            ports = {(id, port.to_string()): port for port in PORTS[volume.type]} if id else {}
            if id and (new := {rule: port for rule, port in ports.items() if rule not in allowed}):
                allowed |= new.keys()
                scope = Construct(self, f"Volume-{volume.name}")
                group = ec2.SecurityGroup.from_security_group_id(scope, "Group", id, allow_all_outbound=False)
                servers = ServerConnections([Servers(group.connections, list(new.values()), volume.name)])
                servers.allow_clients(clients)
                ready.append(scope)
        return ready

    def _policy(self, id: str, whose: str, statements: Sequence[iam.PolicyStatement]) -> iam.ManagedPolicy:
        what = f"What {whose} may do beside ParallelCluster's own permissions"
        return iam.ManagedPolicy(self, id, path=POLICY_PATH, description=what, statements=statements)


class _OfEnvironment(TrnPcluster):
    """The cluster of an environment."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        environment: Environment,
        network: TrnNetwork,
        storage: TrnStorage,
        bootstrap: TrnBootstrap,
        encryption_key: kms.IKey | None,
    ) -> None:
        Construct.__init__(self, scope, id)
        subnets = environments_subnets(environment, network)
        removal = policy_of(environment.on_destroy)
        self._build(environment, network.vpc, subnets, storage, bootstrap, removal, encryption_key=encryption_key)
