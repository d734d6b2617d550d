"""The environment of a Slurm cluster that is described by keyword arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jsii
from aws_cdk import Names, Stack
from constructs import Construct, IValidation

from trainium_cdk import settings as trn
from trainium_cdk._cdk.rules import REGION_NAMES, Arguments
from trainium_cdk._cdk.tags import InheritedTags
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks import capacity, network, nodes, overrides, pcluster, pcluster_capacity, shared_storage, zones
from trainium_cdk.checks.storage import local_storage_over_shared, shared_mount_directory
from trainium_cdk.errors import SettingsError
from trainium_cdk.settings import Environment
from trainium_cdk.storage import TrnStorage

_RULES = (
    *capacity.RULES,
    *pcluster.RULES,
    *pcluster_capacity.RULES,
    *overrides.RULES,
    *shared_storage.RULES,
    *nodes.RULES,
    network.open_ssh,
    local_storage_over_shared,
    shared_mount_directory,
    zones.type_not_in_region,
)
_NAMES = {
    **REGION_NAMES,
    "os": "operating_system",
    "head": "head_node",
    "use head.": "use head_node.",
    "scale_down_idle_minutes": "scale_down_idle_time",
}


def environment_of(
    construct: Construct,
    *,
    storage: TrnStorage,
    queues: Sequence[trn.Queue],
    catalog: Catalog,
    rules: bool,
    **values: Any,
) -> Environment:
    """The environment of a cluster in any app.

    Args:
        catalog: has the instance types of the queues.
        rules: whether to register problems that the rules find.
        values: of `trn.Pcluster`.

    Raises:
        SettingsError: a value is not valid.
    """
    arguments = _arguments(construct)
    environment = arguments.of_slurm({m.kind: m.mount_dir for m in storage.file_systems}, queues, catalog, values)
    name = Stack.of(construct).stack_name
    arguments.require(environment, lambda e: _stacks_name_is_free(e, name))
    if rules:
        arguments.check_environment(environment, _RULES)
    return environment


def _arguments(construct: Construct) -> Arguments:
    return Arguments(construct, ("pcluster",), _NAMES, engine="slurm")


def default_name(construct: Construct) -> str:
    """From the construct's path, and not the stack's: ParallelCluster creates a stack of the cluster's name."""
    name = Names.unique_resource_name(construct, max_length=40, separator="-")
    return f"{name}-slurm" if name == Stack.of(construct).stack_name else name


def refuse_unknown_system(construct: Construct, environment: Environment) -> None:
    """The scripts of the nodes can be written only for a known operating system.

    Raises:
        SettingsError: the catalogue does not have it.
    """
    _arguments(construct).require(environment, pcluster.unknown_system)


def refuse_the_stacks_name(environment: Environment, stack_name: str) -> None:
    """ParallelCluster creates a stack of the cluster's name.

    Raises:
        SettingsError: the stack of the construct has that name already.
    """
    if found := list(_stacks_name_is_free(environment, stack_name)):
        raise SettingsError(found, environment.source)


@jsii.implements(IValidation)
class TagsFit:
    """Fails the synthesis if the cluster's tags with those of its stack, which ParallelCluster's function adds, are too many. Tags of
    `cdk deploy --tags` are not known here."""

    def __init__(self, construct: Construct, environment: Environment, own: InheritedTags):
        self._construct, self._own = construct, own
        self._most = environment.catalog.parallelcluster.limits.tags

    def validate(self) -> list[str]:
        stack = Stack.of(self._construct)
        count = len({*self._own.values, *stack.tags.tag_values()})
        if count <= self._most:
            return []
        return [
            f"the stack {stack.stack_name} and its cluster have {count} tags; a cluster can have at most {self._most}. Fix: remove some."
        ]


def _stacks_name_is_free(environment: Environment, stack_name: str) -> Iterator[trn.Problem]:
    if environment.cluster_name == stack_name:
        yield trn.Problem(
            ("pcluster", "cluster_name"),
            stack_name,
            "the stack has this name, and ParallelCluster creates a stack of the cluster's name",
            f"write another name, for example {stack_name}-slurm",
        )
