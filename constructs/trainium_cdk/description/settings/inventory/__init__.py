"""Inventory of a cluster: one list of parts, from which zones, quotas, addresses and cost derive.

>>> from trainium_cdk import settings
>>> from trainium_cdk.description.settings.inventory import inventory
>>> [(part.name, part.most) for part in inventory(settings.load(), "slurm").parts]
[('compute1/trn', 16), ('head node', 1), ('cpu node', 2)]
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from trainium_cdk.description import engines
from trainium_cdk.description.settings.environment import Environment
from trainium_cdk.description.settings.inventory.base import Inventory, KnownNodes, MachineImage, Part
from trainium_cdk.description.settings.inventory.eks import EksInventory
from trainium_cdk.description.settings.inventory.slurm import PcsInventory, SlurmInventory

__all__ = ["Inventory", "KnownNodes", "MachineImage", "Part", "inventories", "inventory"]

INVENTORIES: Mapping[str, type[Inventory]] = {"slurm": SlurmInventory, "eks": EksInventory, "pcs": PcsInventory}


def inventory(env: Environment, engine: str, today: dt.date | None = None) -> Inventory:
    """The cluster of one engine, as the environment describes it.

    Args:
        engine: name of the engine.
        today: on which prices depend. Default: the current date, UTC.

    Raises:
        TrnError: there is no such engine.
    """
    found = engines.get(engine)
    return INVENTORIES[engine](found, env, today or dt.datetime.now(dt.UTC).date())


def inventories(env: Environment) -> tuple[Inventory, ...]:
    """The cluster of each engine, as the environment describes it."""
    return tuple(inventory(env, name) for name in INVENTORIES)
