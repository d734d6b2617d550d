"""Outputs of `TrnEksStack`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict

from trainium_cdk.description.outputs.contract import (
    COMMON_KEYS,
    ClusterOutputs,
    Exports,
    Fleet,
    Keys,
    block_of,
    export,
    numbered,
)
from trainium_cdk.errors import OutputsError

if TYPE_CHECKING:
    from trainium_cdk.description.catalog import InstanceType
    from trainium_cdk.description.settings import Environment, NodeGroup, TeamQueue

SERVICE_ACCOUNT = "trn-job"
"""The service account of jobs: EKS Pod Identity gives it the data buckets."""

GROUP_LABEL = "trainium-cdk/node-group"
"""Kubernetes label of a node group's nodes; its value is the group's name."""
DEVICES_LABEL = "trainium-cdk/devices"
"""Kubernetes label of nodes whose devices pods claim; its value is `claims`. Nodes of the device plug-in do not have it."""
ROLE_LABEL = "trainium-cdk/role"
"""Kubernetes label of nodes: `training` or `system`."""
JOB_USER = 10_001
"""The user that containers of jobs run as. Neuron's and EFA's devices are open to all users of a node."""
_TEAM = "Team"
_OWN_FOLDER = "efs-team-"
"""Begins the name of a claim of EFS where the namespace has its own folder."""


class Team(BaseModel):
    """A team's namespace, as its output carries it."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    namespace: str
    max_nodes: dict[str, int] = {}
    """Most nodes of a queue that it can have; of queues that are not named, all."""


class EksCluster(ClusterOutputs):
    """A deployed EKS cluster, as the jobs see it."""

    keys: ClassVar[Keys] = {
        **COMMON_KEYS,
        "Namespace": ("namespace", "Kubernetes namespace that jobs run in"),
        "ServiceAccount": ("service_account", "Kubernetes service account that jobs use"),
        "Claims": ("claims", "Kubernetes volume claims of the shared folders"),
        "Image": ("image", "Container image of jobs that name none; - if each job must name one"),
        "ShellImage": ("shell_image", "Container image of helper pods, for example to read files"),
        "BuildProject": (
            "build_project",
            "CodeBuild project that builds your images (trn image build); - if there is none",
        ),
        "Endpoint": (
            "endpoint",
            "Where the Kubernetes API can be reached from: public is the internet, private is the VPC",
        ),
        "BastionHostId": (
            "bastion_host_id",
            "EC2 instance id of the host that leads to a private Kubernetes API; - if there is none",
        ),
        "KubernetesVersion": ("kubernetes_version", "Version of Kubernetes"),
        "PrepareMemory": ("prepare_memory_gib", "Memory of pods that fetch data, packages or models, GiB"),
        "AccessRole": (
            "access_role",
            "IAM role that trn and kubectl take to use the Kubernetes API; - for your own credentials",
        ),
    }
    containers = True
    socket_interface = "eth0"  # the only one of a pod
    version_fix = "Use an image with another runtime (--image), or deploy with another eks: {ami_release: ...}"

    engine: Literal["eks"] = "eks"
    namespace: str
    """Where jobs run."""
    service_account: str
    claims: tuple[str, ...]
    """Persistent volume claims of the shared file systems, in the order of `mount_dirs`."""
    shell_image: str = ""
    """A small image with Python; empty for the catalogue's."""
    build_project: str
    """CodeBuild project that builds images into the registry; empty where there is no registry."""
    endpoint: str
    """private or public"""
    bastion_host_id: str
    """EC2 instance through which a private endpoint is reached; empty where there is none."""
    kubernetes_version: str
    prepare_memory_gib: int | None = None
    """Memory of pods that fetch data, packages or models; None for the catalogue's."""
    access_role: str = ""
    """IAM role to assume for using the Kubernetes API; empty if none."""
    teams: tuple[Team, ...] = ()
    team: str = ""
    """The team that sees it so (`of_team`); empty if none."""

    @classmethod
    def fields(cls, outputs: Mapping[str, str]) -> dict[str, Any]:
        data = super().fields(outputs)
        data["claims"] = [c for c in data.get("claims", "").split(",") if c]
        data["teams"] = [Team.model_validate_json(outputs[key]) for key in numbered(_TEAM, outputs)]
        return data

    def of_team(self, team: str) -> Self:
        """The cluster with a team's namespace and the nodes that it can have; without fleets if it can have none any more (a `max_nodes` of
        0), as it may still have jobs. Its members use their own credentials: the role that `trn` takes is for the jobs' namespace. Its claims
        of EFS are of its own folder."""
        found = {each.namespace: each for each in self.teams}
        if team not in found:
            has = f"it has {', '.join(found)}" if found else "it has none (eks.queues)"
            raise OutputsError(f"{self.stack} has no team {team!r}; {has}")
        most = found[team].max_nodes
        fleets = [
            f.model_copy(update={"nodes": n}) for f in self.fleets if (n := min(f.nodes, most.get(f.queue, f.nodes)))
        ]
        seen = {"namespace": team, "access_role": "", "fleets": tuple(fleets), "teams": (), "team": team}
        seen["claims"] = tuple(map(claim_of_folder, self.claims))
        return self.model_copy(update=seen)

    @property
    def own_folder(self) -> bool:
        """True if the namespace has its jobs in its own folder, on EFS."""
        return any(claim.startswith(_OWN_FOLDER) for claim in self.claims[:1])

    def needs_root(self, folder: str) -> bool:
        """Return whether only root can make a folder. Root owns the root of a file system. The jobs' user owns a namespace's own folder. Where a
        team has one, none of its pods may be root."""
        return not self.own_folder or not (self.team or f"{folder}/".startswith(f"{self.mount_dirs[0]}/"))

    def of_teams(self) -> Mapping[str, Self]:
        return {each.namespace: self.of_team(each.namespace) for each in self.teams}

    def queue(self, name: str | None = None) -> tuple[Fleet, ...]:
        """Return the fleets of a queue. Raises OutputsError for a team without nodes, too."""
        if not self.fleets:
            raise OutputsError(
                f"team {self.team} of {self.stack} has no nodes. Raise its max_nodes (eks.queues) and deploy again"
            )
        return super().queue(name)


def eks_outputs(
    env: "Environment",
    *,
    bucket: str,
    claims: Sequence[str] | None = None,
    registry_uri: str = "",
    build_project: str = "",
    bastion_host_id: str = "",
    access_role: str = "",
) -> Exports:
    """Return the outputs of an environment's stack. The arguments may be CDK tokens; the rest is plain text.

    Args:
        claims: of the file systems, in the order of their mount directories. Default: names that stand for them.
    """
    own = any(group.custom_ami for group in env.eks.node_groups)
    image = None if own else env.node_image
    return cluster_outputs(
        eks_fleets(env),
        env.eks.queues,
        cluster_name=env.eks_cluster_name,
        namespace=env.eks.namespace,
        claims=",".join(_unknown_claims(env) if claims is None else claims),
        image=env.eks.mirror.image(env.catalog.container(env.release, env.framework) or ""),
        shell_image=env.eks.mirror.image(env.catalog.eks.shell_image),
        build_project=build_project,
        endpoint=env.eks.endpoint,
        bastion_host_id=bastion_host_id,
        kubernetes_version=env.kubernetes_version,
        access_role=access_role,
        prepare_memory_gib=str(env.eks.prepare_memory_gib or ""),
        shared_dir=env.storage.shared_dir,
        mount_dirs=",".join(env.storage.mount_dirs),
        kernel=(image and image.kernel) or env.catalog.eks.kernel,
        neuron_driver="" if own else env.node_driver or (image.driver if image else ""),
        neuron_release=env.release.version,
        framework=env.framework,
        bucket=bucket,
        registry_uri=registry_uri,
        health=env.jobs.health.actions,
        **env.jobs.addresses,
    )


def cluster_outputs(fleets: Sequence[Fleet], teams: "Sequence[TeamQueue]" = (), **values: str) -> Exports:
    """Return the outputs of a stack with an EKS cluster.

    Args:
        teams: shares of the nodes, each with its own namespace.
        values: the fields of `EksCluster` that outputs carry; any may be a CDK token.
    """
    found = export("eks", EksCluster.keys, {"service_account": SERVICE_ACCOUNT, **values}, fleets)
    for i, team in enumerate(teams):
        made = Team(namespace=team.namespace, max_nodes=team.max_nodes)
        found[f"{_TEAM}{i}"] = (
            made.model_dump_json(),
            f"For the command trn: namespace and limits of the team {team.namespace}",
        )
    return found


def _unknown_claims(env: "Environment") -> tuple[str, ...]:
    """Names that stand for the claims, in the order of the file systems' mount directories: before a deployment, new file systems have no
    id."""
    found = {
        claim_of(kind, "claim"): there for kind, there in (("efs", env.storage.efs), ("fsx", env.storage.fsx)) if there
    }
    return tuple(claim if there.existing else claim_of_folder(claim) for claim, there in found.items())


def claim_of(kind: str, id: str, mount_name: str = "") -> str:
    """Name of the claim of a file system: a claim is for one, and cannot be changed.

    >>> claim_of("fsx", "fs-0123456789abcdef0", "abcdef12")
    'fsx-fs-0123456789abcdef0-abcdef12'
    >>> claim_of("fsx", "fs-0123456789abcdef0", "Ab_d-")
    'fsx-fs-0123456789abcdef0-ab-d'

    Args:
        kind: efs or fsx.
        mount_name: of Lustre.
    """
    if "${" not in mount_name:  # not a token: Kubernetes takes small letters, digits and hyphens
        mount_name = mount_name.lower().replace("_", "-").strip("-")
    return "-".join(filter(None, (kind, id, mount_name)))


def claim_of_folder(claim: str) -> str:
    """The claim of a namespace's own folder on the same file system. FSx for Lustre has none.

    >>> claim_of_folder("efs-fs-0123456789abcdef0"), claim_of_folder("fsx-fs-0123456789abcdef0-abcdef12")
    ('efs-team-fs-0123456789abcdef0', 'fsx-fs-0123456789abcdef0-abcdef12')
    """
    kind, _, rest = claim.partition("-")
    return f"{_OWN_FOLDER}{rest}" if kind == "efs" and not claim.startswith(_OWN_FOLDER) else claim


def eks_fleets(env: "Environment") -> tuple[Fleet, ...]:
    """The fleets of an environment's node groups, the first one first."""
    return tuple(
        fleet_of(env.catalog.instance(group.instance_type), group, claims=env.eks.claims(group))
        for group in env.eks.node_groups
    )


def fleet_of(kind: "InstanceType", nodes: "NodeGroup", *, claims: bool | None = None) -> Fleet:
    """The fleet of a node group, whose instance type is `kind`. `claims`: whether pods claim its devices; None: as the group itself says."""
    return Fleet(
        queue=nodes.name,
        resource=nodes.name,
        instance_type=kind.name,
        nodes=nodes.max_nodes,
        devices=kind.neuron_devices,
        cores=kind.logical_cores(nodes.lnc),
        lnc=nodes.lnc or 0,
        efa=kind.efa_of(nodes.efa),
        family=kind.family,
        ultraserver=kind.ultraserver or 0,
        capacity_type=nodes.capacity_type,
        reservation=block_of(nodes.capacity_type, nodes.reservation),
        claims=nodes.devices == "claims" if claims is None else claims,
        share=nodes.share,
    )
