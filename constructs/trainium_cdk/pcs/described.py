"""The environment of a cluster of AWS PCS that is described by keyword arguments, and its subnets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IDependable

from trainium_cdk import settings as trn
from trainium_cdk._cdk.rules import REGION_NAMES, Arguments
from trainium_cdk._cdk.subnets import queue_subnets, routes_of, selected
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks import capacity, pcs, shared_storage, zones
from trainium_cdk.network import TrnNetwork
from trainium_cdk.settings import Environment
from trainium_cdk.storage import TrnStorage

_RULES = (*capacity.RULES, *pcs.RULES, shared_storage.hidden_homes, zones.type_not_in_region)
_NAMES = {
    **REGION_NAMES,
    "os": "operating_system",
    "login": "login_node",
    "scale_down_idle_minutes": "scale_down_idle_time",
}


@dataclass(frozen=True)
class ClusterSubnets:
    """The subnet ids of a cluster's controller and nodes, and what must exist before the nodes reach the internet."""

    controller: str
    queues: Mapping[str, str]
    ready: Sequence[IDependable]


def environment_of(
    construct: Construct,
    *,
    storage: TrnStorage,
    queues: Sequence[trn.PcsQueue],
    catalog: Catalog,
    rules: bool,
    **values: Any,
) -> Environment:
    """The environment of a cluster in any app.

    Args:
        catalog: has the instance types of the queues.
        rules: whether to register problems that the rules find.
        values: of `trn.Pcs`.

    Raises:
        SettingsError: a value is not valid.
    """
    arguments = Arguments(construct, ("pcs",), _NAMES, engine="pcs")
    environment = arguments.of_slurm({m.kind: m.mount_dir for m in storage.file_systems}, queues, catalog, values)
    arguments.require(environment, pcs.system_without_image)
    if rules:
        arguments.check_environment(environment, _RULES)
    return environment


def chosen_subnets(
    scope: Construct,
    vpc: ec2.IVpc,
    candidates: ec2.SubnetSelection | None,
    queues: Sequence[trn.PcsQueue],
    given: Mapping[str, ec2.ISubnet],
    cpu: str | None,
) -> ClusterSubnets:
    """For each queue the given subnet, or one of the candidates in a zone that offers its types; the controller and the CPU queue (`cpu`, its name) are in the first.

    Raises:
        ValueError: `given` names something that is no queue.
    """
    subnets = selected(vpc, candidates)
    return ClusterSubnets(
        controller=subnets[0].subnet_id,
        queues=queue_subnets(scope, subnets, queues, given, cpu),
        ready=routes_of([*subnets, *given.values()]),
    )


def environments_subnets(environment: Environment, network: TrnNetwork) -> ClusterSubnets:
    """The subnets that an environment names, in its network."""
    return ClusterSubnets(
        controller=network.private_subnet(None).subnet_id,
        queues={q.name: network.private_subnet(q.zone_id).subnet_id for q in environment.pcs.queues}
        | {q.name: network.private_subnet(None).subnet_id for q in environment.pcs.cpu_queues},
        ready=[network.internet_ready],
    )
