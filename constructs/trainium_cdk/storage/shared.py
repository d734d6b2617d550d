"""`TrnStorage`: the file systems that every node mounts."""

from __future__ import annotations

from collections.abc import Sequence

import jsii
from aws_cdk import RemovalPolicy, aws_efs, aws_fsx
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk import settings as trn
from trainium_cdk._cdk.groups import ClosedGroup, allow_among
from trainium_cdk._cdk.removal import OnDestroy
from trainium_cdk._cdk.removal import removal_policy as policy_of
from trainium_cdk._cdk.subnets import ONE_PER_ZONE, keep, selected
from trainium_cdk._cdk.types import AnyKey
from trainium_cdk.network import TrnNetwork
from trainium_cdk.storage import efs, fsx
from trainium_cdk.storage.connections import PORTS, ServerConnections, Servers
from trainium_cdk.storage.described import check_storage, efs_of, lustre_of
from trainium_cdk.storage.options import EfsOptions, FileSystemMount, LustreOptions, Placement


@jsii.implements(ec2.IConnectable)
class TrnStorage(Construct):
    """EFS, FSx for Lustre, or both; new or existing. It belongs to the stack, so it outlives any cluster.

    Only members of `client_security_group`, and clients allowed by `connections`, can reach it, only with TLS (EFS), and
    only as an IAM identity that may mount it (EFS, see `grant_read_write`): mount with `tls,iam`.

    Example:
        storage = TrnStorage(self, "Storage", vpc=vpc)
        storage.connections.allow_default_port_from(instance)
        storage.grant_read_write(instance.role)

    Args:
        vpc: The VPC of the file systems.
        vpc_subnets: A mount target in each (EFS); Lustre is in the first. Default: one private subnet of each zone.
        efs: A new EFS file system, an existing one, or the id of one whose security group already allows the nodes; None for
            no EFS. Default: a new one.
        efs_mount_dir: Where every node mounts it. Default: /efs.
        lustre: A new FSx for Lustre file system, an existing one, or its id; None for no Lustre. Default: None.
        lustre_mount_dir: Where every node mounts it. Default: /fsx.
        lustre_mount_name: The mount name of an existing one, as FSx shows it. Default: that of an `fsx.LustreFileSystem`.
        encryption_key: Default: the key AWS manages for the service. Lustre's SCRATCH_2 always uses FSx's own.
        removal_policy: For new file systems and their data on `cdk destroy`. Default: DESTROY. A retained Lustre file
            system also retains its subnet, its security group and the VPC; a retained EFS only itself.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        ValueError: an existing Lustre file system without its mount name.
    """

    file_systems: list[FileSystemMount]
    """What to mount, EFS first."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        vpc_subnets: ec2.SubnetSelection | None = None,
        efs: EfsOptions | aws_efs.IFileSystem | str | None = EfsOptions(),  # noqa: B008  frozen
        efs_mount_dir: str = "/efs",
        lustre: LustreOptions | aws_fsx.IFileSystem | str | None = None,
        lustre_mount_dir: str = "/fsx",
        lustre_mount_name: str | None = None,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        if rules:
            check_storage(self, efs, efs_mount_dir, lustre, lustre_mount_dir)
        self._vpc, self._key, self._removal_policy = vpc, encryption_key, removal_policy
        clients = ClosedGroup(
            self, "Clients", vpc_id=vpc.vpc_id, description="Members may mount the shared file systems"
        )
        self.client_security_group = clients.group
        """Attach it to every node: its members may mount."""
        self._ready = DependencyGroup(clients)
        self._servers: list[Servers] = []
        self._efs_arn: str | None = None
        self.file_systems = []
        new = isinstance(efs, EfsOptions) or isinstance(lustre, LustreOptions)
        subnets = selected(vpc, vpc_subnets or ONE_PER_ZONE) if new else []
        if efs is not None:
            self.file_systems.append(self._efs(efs, efs_mount_dir, subnets))
        if lustre is not None:
            self.file_systems.append(self._lustre(lustre, lustre_mount_dir, lustre_mount_name, subnets))
        self._connections = ServerConnections(self._servers)
        self._connections.allow_clients(self.client_security_group)

    @classmethod
    def from_settings(
        cls,
        scope: Construct,
        id: str,
        settings: trn.Storage | None = None,
        *,
        network: TrnNetwork,
        zone_ids: Sequence[str] | None = None,
        encryption_key: AnyKey | None = None,
        on_destroy: OnDestroy = "delete",
    ) -> TrnStorage:
        """The file systems of the `storage` section of a checked environment.

        Args:
            zone_ids: Zones of the nodes, the fleet's first. Default: every zone of the network.
        """
        settings = settings or trn.Storage()
        lustre = settings.fsx
        return cls(
            scope,
            id,
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(
                subnets=[network.private_subnet(zone) for zone in zone_ids or network.zone_ids]
            ),
            efs=efs_of(scope, id, settings.efs),
            efs_mount_dir=settings.efs.mount_dir if settings.efs else "/efs",
            lustre=lustre_of(scope, id, lustre),
            lustre_mount_dir=lustre.mount_dir if lustre else "/fsx",
            lustre_mount_name=lustre.existing.mount_name if lustre and lustre.existing else None,
            encryption_key=encryption_key,
            removal_policy=policy_of(on_destroy),
            rules=False,
        )

    @property
    def connections(self) -> ec2.Connections:
        """Network access to the file systems: `storage.connections.allow_default_port_from(...)` opens the ports of all of them.

        Those rules are in the stack of the file systems. For clients in a stack that uses this one, see `allow_clients`.
        """
        return self._connections

    def allow_clients(self, clients: ec2.IConnectable) -> None:
        """Let clients use all file systems. The rules are in the clients' stack, which may be another one.

        Example:
            storage.allow_clients(instance)
        """
        self._connections.allow_clients(clients)

    @property
    def has_lustre(self) -> bool:
        """Whether one of the file systems is FSx for Lustre: nodes then need its client."""
        return any(mount.kind == "fsx" for mount in self.file_systems)

    @property
    def ready(self) -> IDependable:
        """Everything a node needs to mount: mount targets, file systems, links to S3, security group rules."""
        return self._ready

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity mount the EFS file system and read. (Access to Lustre depends only on `connections`.)"""
        return self._grant(grantee, efs.MOUNT)

    def grant_read_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity mount the EFS file system, read and write, but not as the root user."""
        return self._grant(grantee, efs.MOUNT, efs.WRITE)

    def grant_root_access(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity mount the EFS file system, read and write, as the root user too: nodes need it."""
        return self._grant(grantee, *efs.AS_ROOT)

    def _grant(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        if self._efs_arn is None:
            return iam.Grant.drop(grantee, "FSx for Lustre has no IAM permissions for mounting")
        return iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[self._efs_arn])

    def _efs(
        self, given: EfsOptions | aws_efs.IFileSystem | str, mount_dir: str, subnets: Sequence[ec2.ISubnet]
    ) -> FileSystemMount:
        if isinstance(given, EfsOptions):
            group = self._group("Efs", "EFS: NFS from its clients", PORTS["efs"], "NFS")
            placement = Placement(mount_dir, subnets, group, self._key, self._removal_policy)
            created = efs.EfsFileSystem(self, "Efs", given, placement)
            self._efs_arn = created.arn
            self._ready.add(created.ready)
            return created.mount
        self._efs_arn = efs.arn_of(self, given) if isinstance(given, str) else given.file_system_arn
        if not isinstance(given, str):
            self._servers.append(Servers(given.connections, PORTS["efs"], "NFS"))
            self._ready.add(given, given.mount_targets_available)
        return efs.existing(self, given, mount_dir)

    def _lustre(
        self,
        given: LustreOptions | aws_fsx.IFileSystem | str,
        mount_dir: str,
        mount_name: str | None,
        subnets: Sequence[ec2.ISubnet],
    ) -> FileSystemMount:
        if isinstance(given, LustreOptions):
            # a retained file system's network interfaces remain, and block the deletion of what they are in
            retain = self._removal_policy in (RemovalPolicy.RETAIN, RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
            if retain:
                keep(self._vpc)
                keep(subnets[0])
            ports = PORTS["fsx-lustre-efa" if given.efa else "fsx-lustre"]
            group = self._group(
                "Fsx",
                "FSx for Lustre: Lustre among its servers and clients",
                ports,
                "Lustre",
                retain=retain,
            )
            for port in ports:
                allow_among(group, port, "Lustre among its servers")
            placement = Placement(mount_dir, subnets, group, self._key, self._removal_policy)
            created = fsx.LustreFileSystem(self, "Fsx", given, placement)
            self._ready.add(created.ready)
            return created.mount
        mount = fsx.existing(self, given, mount_dir, mount_name)
        if not isinstance(given, str):
            self._servers.append(Servers(given.connections, PORTS["fsx-lustre"], "Lustre"))
            self._ready.add(given)
        return mount

    def _group(
        self, id: str, description: str, ports: Sequence[ec2.Port], what: str, *, retain: bool = False
    ) -> ec2.ISecurityGroup:
        created = ClosedGroup(self, f"{id}Group", vpc_id=self._vpc.vpc_id, description=description)
        if retain:
            created.resource.apply_removal_policy(RemovalPolicy.RETAIN)
        self._servers.append(Servers(created.group.connections, ports, what))
        self._ready.add(created)
        return created.group
