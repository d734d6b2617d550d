"""The rules of `trn check` for the settings of a `TrnPcluster`."""

from __future__ import annotations

from collections.abc import Iterator

import jsii
from aws_cdk import Names
from constructs import Construct, IValidation

from trainium_cdk.cdk.helpers.stack_wide import once, stack_of
from trainium_cdk.cdk.helpers.tags import InheritedTags
from trainium_cdk.description.checks import capacity, network, nodes, overrides, pcluster, security, storage
from trainium_cdk.description.settings import Environment, Problem

RULES = (
    *capacity.RULES,
    *pcluster.RULES,
    *overrides.RULES,
    *storage.SHARED_RULES,
    *nodes.RULES,
    security.wide_node_policies,
    network.open_ssh,
    storage.local_storage_over_shared,
    storage.shared_mount_directory,
    capacity.type_not_in_region,
)


def default_name(construct: Construct) -> str:
    """Derive the name from the construct's path, and not the stack's: ParallelCluster creates a stack of the cluster's name."""
    name = Names.unique_resource_name(construct, max_length=40, separator="-")
    return f"{name}-slurm" if name == once(stack_of(construct), "stack_name") else name


@jsii.implements(IValidation)
class TagsFit:
    """Fails the synthesis if the cluster's tags and its stack's, which ParallelCluster's function adds, are too many. Tags of
    `cdk deploy --tags` are not known here."""

    def __init__(self, construct: Construct, environment: Environment, own: InheritedTags):
        self._construct, self._own = construct, own
        self._most = environment.catalog.parallelcluster.limits.tags

    def validate(self) -> list[str]:
        stack = stack_of(self._construct)
        count = len({*self._own.values, *once(stack, "tags").tag_values()})
        if count <= self._most:
            return []
        return [
            f"the stack {stack.stack_name} and its cluster have {count} tags; a cluster can have at most {self._most}. Fix: remove some."
        ]


def stacks_name_is_free(environment: Environment, stack_name: str) -> Iterator[Problem]:
    if environment.cluster_name == stack_name:
        yield Problem(
            ("pcluster", "cluster_name"),
            stack_name,
            "the stack has this name, and ParallelCluster creates a stack of the cluster's name",
            f"write another name, for example {stack_name}-slurm",
        )
