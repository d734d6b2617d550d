"""The manifest of an engine: its names, and where its facets are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What names an engine: the scheduler, and the AWS service that runs its nodes.

    Everything in which it differs is a facet of it: an object in the room that uses it, named here as `module:object` and imported
    only when that room needs it (`load`). The optional ones suit an engine without AWS parts.

    Attributes:
        name: in outputs (`TrnEngine`), options and messages of rules.
        title: in sentences.
        section: its key of the environment.
        stack: id of its stack in the app: `cdk deploy <stack>`.
        settings: the model of its section, a `settings.section.Section`.
        inventory: what its cluster consists of, a `settings.inventory.Inventory`.
        outputs: what its stack exports, an `outputs.ClusterOutputs`.
        jobs: the function that connects to its jobs, with the arguments of `jobs.connect.Connect`.
        stack_class: the stack's class. Nothing but the app imports it: it needs the CDK.
        rules: modules with `RULES` over its section.
        live_checks: modules with `CHECKS` of an account for it.
        traces: what marks resources that belong to its clusters, an `operations.teardown.owner.Traces`.
        queue_noun: what the environment names zone and capacity type for.
        example: its section as `trn init` writes it, commented, with {file}, {instance_type}, {nodes} and
            {size}, the size of a PCS controller for them; empty: it has none.
        nodes_noun: what the environment names an instance type for.
    """

    name: str
    title: str
    section: str
    stack: str
    settings: str
    inventory: str
    outputs: str
    jobs: str
    stack_class: str
    rules: tuple[str, ...] = ()
    live_checks: tuple[str, ...] = ()
    traces: str = ""
    queue_noun: str = "queue"
    example: str = ""
    nodes_noun: str = "node group"


def load(facet: str) -> Any:
    """The object that a facet names: `module:object`, or `module`.

    Raises:
        ImportError, AttributeError: there is no such module or object.
    """
    module, _, name = facet.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found
