"""`TrnStorage`: the file systems that every node mounts."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk import settings as trn
from trainium_cdk.groups import ClosedGroup
from trainium_cdk.network import TrnNetwork
from trainium_cdk.removal import OnDestroy, removal_policy
from trainium_cdk.storage import efs, fsx
from trainium_cdk.storage.mounts import FileSystemMount


class TrnStorage(Construct):
    """EFS, FSx for Lustre, or both; made here or existing. It belongs to the stack, so it outlives any cluster.

    Only members of `client_security_group` can reach it (or whom `allow_from` lets in), only through TLS (EFS), and only as
    an IAM identity that may mount it (EFS, see `grant_mount`): mount with `tls,iam`.

    Args:
        settings: The `storage` part of an environment. Default: one elastic EFS at /efs.
        network: Where the file systems stand: a mount target in each zone (EFS); the first zone (Lustre).
        zone_ids: Zones of the nodes, the fleet's first. Default: every zone of the network.
        encryption_key: Default: the key AWS manages for the service. Lustre's SCRATCH_2 always uses FSx's own.
        on_destroy: What becomes of the file systems, data and all, on `cdk destroy`. Default: deleted. A Lustre file system
            that is kept keeps its subnet, its security group and the VPC; EFS keeps nothing but itself.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: trn.Storage | None = None,
        network: TrnNetwork,
        zone_ids: Sequence[str] | None = None,
        encryption_key: kms.IKey | None = None,
        on_destroy: OnDestroy = "delete",
    ) -> None:
        super().__init__(scope, id)
        settings = settings or trn.Storage()
        self.file_systems: list[FileSystemMount] = []
        """What to mount, EFS first."""
        clients = ClosedGroup(
            self, "Clients", vpc_id=network.vpc.vpc_id, description="Members may mount the shared file systems"
        )
        self.client_security_group = clients.group
        """Attach it to every node: its members may mount."""
        self._ready = DependencyGroup(clients)
        self._servers: list[tuple[ec2.ISecurityGroup, Sequence[ec2.Port], str]] = []
        self._efs_arn: str | None = None
        self._network, self._on_destroy, self._key = network, on_destroy, encryption_key
        zones = list(zone_ids or network.zone_ids)
        if settings.efs:
            self._add_efs(settings.efs, zones)
        if settings.fsx:
            self._add_fsx(settings.fsx, zones)
        self.allow_from(self.client_security_group)

    @property
    def ready(self) -> IDependable:
        """Everything a node needs to mount: mount targets, file systems, links to S3, security group rules."""
        return self._ready

    def allow_from(self, peer: ec2.IConnectable) -> None:
        """Let a security group, or whatever has one, reach the file systems."""
        # Both ways: Lustre's servers call their clients, and ParallelCluster refuses an EFS mount target whose group does not
        # let NFS out to the nodes as well.
        for group, ports, what in self._servers:
            for port in ports:
                group.connections.allow_from(peer, port, what)
                group.connections.allow_to(peer, port, what)

    def grant_mount(self, grantee: iam.IGrantable) -> None:
        """Let an identity mount the EFS file system (ParallelCluster grants this to its nodes by itself)."""
        if self._efs_arn:
            iam.Grant.add_to_principal(grantee=grantee, actions=list(efs.CLIENT_ACTIONS), resource_arns=[self._efs_arn])

    def _add_efs(self, settings: trn.Efs, zones: Sequence[str]) -> None:
        if settings.existing:
            there = settings.existing
            self._existing_group("Efs", there.security_group, efs.PORTS, "NFS")
            self._efs_arn = efs.arn_of(self, there.id)
            self.file_systems.append(
                FileSystemMount(
                    kind="efs",
                    id=there.id,
                    mount_dir=settings.mount_dir,
                    dns_name=efs.dns_name(self, there.id),
                    owned=False,
                )
            )
            return
        made = efs.EfsFileSystem(
            self,
            "Efs",
            settings=settings,
            subnets={zone: self._network.private_subnet(zone) for zone in zones},
            security_group=self._group("Efs", "EFS: NFS from its clients", efs.PORTS, "NFS"),
            encryption_key=self._key,
            on_destroy=self._on_destroy,
        )
        self._efs_arn = made.arn
        self._ready.add(made.ready)
        self.file_systems.append(made.mount)

    def _add_fsx(self, settings: trn.Fsx, zones: Sequence[str]) -> None:
        if settings.existing:
            there, stack = settings.existing, Stack.of(self)
            self._existing_group("Fsx", there.security_group, fsx.PORTS, "Lustre")
            self.file_systems.append(
                FileSystemMount(
                    kind="fsx",
                    id=there.id,
                    mount_dir=settings.mount_dir,
                    dns_name=f"{there.id}.fsx.{stack.region}.{stack.url_suffix}",
                    mount_name=there.mount_name,
                    owned=False,
                )
            )
            return
        # a kept file system's network interfaces stay where they are, and hold what they stand in
        keep = self._on_destroy == "keep"
        if keep:
            self._network.keep_subnet(zones[0])
        group = self._group(
            "Fsx", "FSx for Lustre: Lustre among its servers and clients", fsx.PORTS, "Lustre", keep=keep
        )
        for port in fsx.PORTS:
            group.connections.allow_internally(port, "Lustre among its servers")
        made = fsx.LustreFileSystem(
            self,
            "Fsx",
            settings=settings,
            subnet=self._network.private_subnet(zones[0]),
            security_group=group,
            encryption_key=self._key,
            on_destroy=self._on_destroy,
        )
        self._ready.add(made.ready)
        self.file_systems.append(made.mount)

    def _group(
        self, id: str, description: str, ports: Sequence[ec2.Port], what: str, *, keep: bool = False
    ) -> ec2.ISecurityGroup:
        made = ClosedGroup(self, f"{id}Group", vpc_id=self._network.vpc.vpc_id, description=description)
        if keep:
            made.resource.apply_removal_policy(removal_policy("keep"))
        self._servers.append((made.group, ports, what))
        self._ready.add(made)
        return made.group

    def _existing_group(self, id: str, group_id: str | None, ports: Sequence[ec2.Port], what: str) -> None:
        """The group of a file system that exists gets the same rules; where none is named, it must let the nodes in already."""
        if group_id:
            group = ec2.SecurityGroup.from_security_group_id(self, f"{id}Group", group_id, allow_all_outbound=False)
            self._servers.append((group, ports, what))
            self._ready.add(group)
