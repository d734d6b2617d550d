"""`TrnStorage`: the file systems that every node mounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jsii
from aws_cdk import Annotations, RemovalPolicy, aws_efs, aws_fsx
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.described import Described
from trainium_cdk.cdk.helpers.groups import ClosedGroup, allow_among
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.helpers.subnets import ONE_PER_ZONE, keep, selected
from trainium_cdk.cdk.helpers.types import AnyKey
from trainium_cdk.cdk.storage import efs, fsx
from trainium_cdk.cdk.storage.connections import ServerConnections, Servers, ports_of
from trainium_cdk.cdk.storage.efs import from_settings as efs_from_settings
from trainium_cdk.cdk.storage.fsx import from_settings as lustre_from_settings
from trainium_cdk.cdk.storage.options import FileSystemMount, Placement
from trainium_cdk.description.checks.storage import RULES
from trainium_cdk.description.settings import Efs, Fsx
from trainium_cdk.problems import KeyPath


@jsii.implements(ec2.IConnectable)
class TrnStorage(Checked):
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
        efs: A new EFS file system, or one that exists: as settings, or of the CDK. None: no EFS. Default: a new one.
        efs_mount_dir: Where every node mounts an EFS file system of the CDK. Default: /efs.
        lustre: A new FSx for Lustre file system, or one that exists: as settings, or of the CDK. Default: none.
        lustre_mount_dir: Where every node mounts a Lustre file system of the CDK. Default: /fsx.
        lustre_mount_name: The mount name of an imported Lustre file system of the CDK, as FSx shows it. Default: the
            `fsx.LustreFileSystem`'s.
        encryption_key: Default: the key AWS manages for the service. Lustre's SCRATCH_2 always uses FSx's own.
        removal_policy: For new file systems and their data on `cdk destroy`. Default: DESTROY. A retained Lustre file
            system also retains its subnet, its security group and the VPC; a retained EFS only itself.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: there is no file system, or the directories of two overlap.
        ValueError: the mount name of a Lustre file system is not known, or a mount directory is given twice.
    """

    file_systems: list[FileSystemMount]
    """File systems to mount, EFS first."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        vpc_subnets: ec2.SubnetSelection | None = None,
        efs: Efs | aws_efs.IFileSystem | None = Efs.model_construct(),  # noqa: B008  frozen
        efs_mount_dir: str | None = None,
        lustre: Fsx | aws_fsx.IFileSystem | None = None,
        lustre_mount_dir: str | None = None,
        lustre_mount_name: str | None = None,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        mounts = {"efs_mount_dir": efs_mount_dir, "lustre_mount_dir": lustre_mount_dir}
        of_efs, of_lustre = check_storage(self, efs, lustre, mounts, rules=rules)
        self._vpc, self._key, self._removal_policy = vpc, encryption_key, removal_policy
        clients = ClosedGroup(
            self, "Clients", vpc_id=once(vpc, "vpc_id"), description="Members may mount the shared file systems"
        )
        self.client_security_group = clients.group
        """Attach it to every node: its members may mount."""
        self._ready = DependencyGroup(clients)
        self._servers: list[Servers] = []
        self._efs_arn: str | None = None
        self.file_systems = []
        new = any(isinstance(each, Efs | Fsx) and not each.existing for each in (efs, lustre))
        subnets = selected(vpc, vpc_subnets or ONE_PER_ZONE, nodes=False) if new else []
        if of_efs:
            theirs = efs_from_settings(scope, id, of_efs.existing) if of_efs.existing else efs
            self.file_systems.append(self._efs(of_efs, theirs, subnets))
        if of_lustre:
            existing = lustre_from_settings(scope, id, of_lustre.existing) if of_lustre.existing else lustre
            name = of_lustre.existing.mount_name if of_lustre.existing else lustre_mount_name
            self.file_systems.append(self._lustre(of_lustre, existing, name, subnets))
        given = [each.existing for each in (of_efs, of_lustre) if each and each.existing]
        self._closed = [each.id for each in given if not each.security_group]
        self._connections = ServerConnections(self._servers)
        self._connections.allow_clients(self.client_security_group)

    @property
    def connections(self) -> ec2.Connections:
        """Network access to the file systems: `storage.connections.allow_default_port_from(...)` opens the ports of all of them.

        Those rules are in the stack of the file systems. For clients in a stack that uses this one, see `allow_clients`. For an existing file
        system without `security_group` no rule is added, and the synthesis warns.
        """
        return self._opened()

    def allow_clients(self, clients: ec2.IConnectable) -> None:
        """Let clients use all file systems. The rules are in the clients' stack, which may be another one.

        Example:
            storage.allow_clients(instance)
        """
        self._opened().allow_clients(clients)

    def _opened(self) -> ServerConnections:
        """Its connections. Warns of file systems that they do not open."""
        for id in self._closed:
            text = f"{id} gets no rule, as its security group is not known. Fix: give security_group with its id"
            Annotations.of(self).add_warning_v2(f"trn:storage-without-group-{id}", text)
        return self._connections

    @property
    def has_lustre(self) -> bool:
        """True if one of the file systems is FSx for Lustre. Nodes then need its client."""
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
        """Let an identity mount the EFS file system, read and write, as the root user too: nodes of Slurm need it."""
        return self._grant(grantee, *efs.AS_ROOT)

    def grant_access_points(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity mount the EFS file system through its access points alone, read and write: nodes of EKS need it."""
        return self._grant(grantee, efs.MOUNT, efs.WRITE, conditions=efs.BY_ACCESS_POINT)

    def _grant(
        self, grantee: iam.IGrantable, *actions: str, conditions: Mapping[str, Mapping[str, str]] | None = None
    ) -> iam.Grant:
        if self._efs_arn is None:
            return iam.Grant.drop(grantee, "FSx for Lustre has no IAM permissions for mounting")
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=list(actions), resource_arns=[self._efs_arn], conditions=conditions
        )

    def _efs(
        self, settings: Efs, existing: Efs | aws_efs.IFileSystem | str | None, subnets: Sequence[ec2.ISubnet]
    ) -> FileSystemMount:
        if existing is None or isinstance(existing, Efs):
            group = self._group("Efs", "EFS: NFS from its clients", ports_of("efs"), "NFS")
            created = efs.EfsFileSystem(self, "Efs", settings, self._placement(subnets, group))
            self._efs_arn = created.arn
            self._ready.add(created.ready)
            return created.mount
        self._efs_arn = efs.arn_of(self, existing) if isinstance(existing, str) else existing.file_system_arn
        if not isinstance(existing, str):
            self._servers.append(Servers(existing.connections, ports_of("efs"), "NFS"))
            self._ready.add(existing, existing.mount_targets_available)
        return efs.mount_of(self, existing, settings.mount_dir)

    def _lustre(
        self,
        settings: Fsx,
        existing: Fsx | aws_fsx.IFileSystem | str | None,
        mount_name: str | None,
        subnets: Sequence[ec2.ISubnet],
    ) -> FileSystemMount:
        if existing is None or isinstance(existing, Fsx):
            # a retained file system's network interfaces remain, and block the deletion of what they are in
            retain = self._removal_policy in (RemovalPolicy.RETAIN, RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
            if retain:
                keep(self._vpc)
                keep(subnets[0])
            ports = ports_of("fsx-lustre")
            group = self._group(
                "Fsx",
                "FSx for Lustre: Lustre among its servers and clients",
                ports,
                "Lustre",
                retain=retain,
            )
            for port in ports:
                allow_among(group, port, "Lustre among its servers")
            created = fsx.LustreFileSystem(self, "Fsx", settings, self._placement(subnets, group))
            self._ready.add(created.ready)
            return created.mount
        mount = fsx.mount_of(self, existing, settings.mount_dir, mount_name)
        if not isinstance(existing, str):
            self._servers.append(Servers(existing.connections, ports_of("fsx-lustre"), "Lustre"))
            self._ready.add(existing)
        return mount

    def _placement(self, subnets: Sequence[ec2.ISubnet], group: ec2.ISecurityGroup) -> Placement:
        return Placement(subnets, group, self._key, self._removal_policy)

    def _group(
        self, id: str, description: str, ports: Sequence[ec2.Port], what: str, *, retain: bool = False
    ) -> ec2.ISecurityGroup:
        created = ClosedGroup(self, f"{id}Group", vpc_id=once(self._vpc, "vpc_id"), description=description)
        if retain:
            created.resource.apply_removal_policy(RemovalPolicy.RETAIN)
        self._servers.append(Servers(once(created.group, "connections"), ports, what))
        self._ready.add(created)
        return created.group


_ARGUMENTS: dict[KeyPath, str] = {("storage",): "", ("storage", "efs"): "efs", ("storage", "fsx"): "lustre"}


def check_storage(
    construct: Construct,
    efs: Efs | aws_efs.IFileSystem | None,
    lustre: Fsx | aws_fsx.IFileSystem | None,
    mount_dirs: Mapping[str, str | None],
    *,
    rules: bool,
) -> tuple[Efs | None, Fsx | None]:
    """The settings of both file systems; of one of the CDK, its mount directory alone. With `rules`, registers their problems.

    Args:
        mount_dirs: `efs_mount_dir` and `lustre_mount_dir`, for file systems of the CDK.
    """
    for (argument, given), settings in zip(mount_dirs.items(), (efs, lustre), strict=True):
        if given and isinstance(settings, Efs | Fsx):
            raise ValueError(
                f"{construct.node.path}: {argument} is for a file system of the CDK. Fix: give mount_dir to settings."
                f"{type(settings).__name__}"
            )
    if efs is None and lustre is None:
        raise ValueError(
            f"{construct.node.path}: efs and lustre are None, and multi-node jobs need a shared file system. "
            "Fix: give efs=settings.Efs()"
        )
    of_cdk: dict[KeyPath, str] = {
        ("storage", kind, "mount_dir"): name
        for kind, name in zip(("efs", "fsx"), mount_dirs, strict=True)
        if mount_dirs[name]
    }
    described = Described(construct, {**_ARGUMENTS, **of_cdk})
    at_efs, at_lustre = ({"mount_dir": given} if given else {} for given in mount_dirs.values())
    environment = described.environment(
        storage={
            "efs": efs if efs is None or isinstance(efs, Efs) else at_efs,
            "fsx": lustre if lustre is None or isinstance(lustre, Fsx) else at_lustre,
        }
    )
    if rules:
        described.check(environment, RULES)
    return environment.storage.efs, environment.storage.fsx
