"""Slurm, on AWS ParallelCluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainium_cdk.engines.base import Engine, Image, Key, Nodes, Server

if TYPE_CHECKING:
    from trainium_cdk.catalog import InstanceType, Need, Stack
    from trainium_cdk.jobs import Backend
    from trainium_cdk.outputs import ClusterOutputs
    from trainium_cdk.settings import Environment


class SlurmEngine(Engine):
    name = "slurm"
    title = "Slurm"
    section = "pcluster"
    stack = "TrnPclusterStack"
    stack_class = "stacks.pcluster:TrnPclusterStack"
    cluster_resource = "Custom::PclusterCluster"
    nodes_noun = "compute resource"
    own_tag = "parallelcluster:cluster-name"
    services = frozenset({"parallelcluster"})
    shared_with_others = (
        "ParallelCluster's bucket parallelcluster-...-v1-do-not-delete (a few small objects of each cluster)"
    )
    scales_itself = (
        "starts and stops nodes automatically, as jobs need them. Its bounds are min_nodes and max_nodes of a compute resource: "
        "change them in the environment, and deploy"
    )
    queue_has_one_type = False
    static_capacity_blocks = True
    deployment_waits_for_nodes = True
    cluster_is_a_stack = True
    addresses_of_nodes = "because nodes without EFA need one for each network card"
    version_fix = "Deploy with another bootstrap: {neuron_release: ...}, or replace the node if its driver is not that of the release"

    def cluster_name(self, env: Environment) -> str:
        return env.cluster_name

    def nodes(self, env: Environment) -> Iterator[Nodes]:
        for i, queue in enumerate(env.pcluster.queues):
            at: Key = ("pcluster", "queues", i)
            for j, resource in enumerate(queue.compute_resources):
                yield Nodes((*at, "compute_resources", j), at, queue, resource)

    def need(self, env: Environment, families: tuple[str, ...]) -> Need:
        from trainium_cdk.catalog import Need

        return Need(self.name, families, env.pcluster.os, env.pcluster.version)

    def versions(self, env: Environment, release: str, families: tuple[str, ...]) -> Stack | None:
        from trainium_cdk.catalog import Stack

        os = env.pcluster.os
        if os not in env.catalog.parallelcluster.operating_systems:
            return None
        return Stack.slurm(env.catalog, families, release=release, framework=env.framework, system=os)

    def node_addresses(self, env: Environment, nodes: Nodes, kind: InstanceType, efa: bool) -> int:  # noqa: ARG002
        """With EFA one ENA interface and EFA-only ones, which have no address; without it one interface for each network card."""
        return 1 if efa else kind.network_cards

    def other_addresses(self, env: Environment, first: bool) -> dict[str, int]:
        login = env.pcluster.login_nodes
        return {
            "the head node": int(first and env.pcluster.head.subnet == "private"),
            # and the load balancer before them
            "login nodes": login.count + 1 if first and login and login.subnet == "private" else 0,
        }

    def public_addresses(self, env: Environment) -> dict[str, int]:
        return {"the head node": int(env.pcluster.head.subnet == "public")}

    def servers(self, env: Environment) -> Iterator[Server]:
        yield Server("head node", env.pcluster.head.instance_type, 1, ("pcluster", "head", "instance_type"), 1)
        if login := env.pcluster.login_nodes:
            at: Key = ("pcluster", "login_nodes", "instance_type")
            yield Server("login node", login.instance_type, login.count, at, login.count)

    def volumes(self, env: Environment) -> dict[str, int]:
        return {"head node: root volume": env.pcluster.head.root_volume_gib}

    def service_roles(self, env: Environment) -> tuple[str, ...]:
        return ("scaling", "balancer") if env.pcluster.login_nodes else ()

    def key_pair(self, env: Environment) -> str | None:
        ssh = env.pcluster.head.ssh
        return ssh.key_name if ssh else None

    def images(self, env: Environment) -> list[Image]:
        p = env.pcluster
        everyone: Key = ("pcluster", "custom_ami")
        found = [
            Image(
                q.custom_ami or p.custom_ami or "",
                q.root_volume_gib,
                ("pcluster", "queues", i, "custom_ami") if q.custom_ami else everyone,
            )
            for i, q in enumerate(p.queues)
        ]
        at = ("pcluster", "head", "custom_ami") if p.head.custom_ami else everyone
        found.append(Image(p.head.custom_ami or p.custom_ami or "", p.head.root_volume_gib, at))
        return [image for image in found if image.id]

    def tags(self, cluster: str) -> dict[str, str]:
        return {self.own_tag: cluster}

    def log_groups(self, cluster: str) -> dict[str, str]:
        # ParallelCluster appends the time of the cluster's creation to its name
        return {rf"/aws/parallelcluster/{re.escape(cluster)}-\d{{12}}": "the log of the cluster's nodes"}

    def cluster(self, outputs: Mapping[str, str]) -> dict[str, Any]:
        from trainium_cdk.outputs.contract import fields
        from trainium_cdk.outputs.slurm import SLURM_KEYS

        return fields(SLURM_KEYS, outputs)

    def cluster_model(self) -> type[ClusterOutputs]:
        from trainium_cdk.outputs.slurm import SlurmCluster

        return SlurmCluster

    def connect(
        self, cluster: ClusterOutputs, *, local: bool | None = None, say: Callable[[str], None] | None = None
    ) -> Backend[Any]:
        from trainium_cdk.jobs.slurm import connect
        from trainium_cdk.outputs.slurm import SlurmCluster

        assert isinstance(cluster, SlurmCluster)  # noqa: S101  `engines.get` found this engine by its name
        return connect(cluster, local=local, say=say)
