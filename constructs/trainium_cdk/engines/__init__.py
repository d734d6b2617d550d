"""The engines that run jobs: one manifest each, which names the places of everything in which they differ.

Three are built in. A package brings another one as an entry point in the group `trainium_cdk.engines`, which names its manifest:

    [project.entry-points."trainium_cdk.engines"]
    process = "my_package.process:PROCESS"

The manifest is an `Engine`; see there for its facets.

>>> from trainium_cdk import engines
>>> engines.names()[:3], engines.get("eks").title
(('slurm', 'eks', 'pcs'), 'Kubernetes')
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from trainium_cdk.engines import plugins
from trainium_cdk.engines.eks import EKS
from trainium_cdk.engines.manifest import Engine, load
from trainium_cdk.engines.pcs import PCS
from trainium_cdk.engines.slurm import SLURM
from trainium_cdk.errors import EngineError

__all__ = ["EKS", "PCS", "SLURM", "Engine", "every", "get", "load", "names", "of_stack"]

GROUP = "trainium_cdk.engines"
DEFAULT = SLURM.stack
"""The stack that commands use where none is named."""


@cache
def every() -> Mapping[str, Engine]:
    """Every engine by its name, the built-in ones first.

    Raises:
        EngineError: an installed package's engine cannot be loaded, or has a name that exists already.
    """
    found = {e.name: e for e in (SLURM, EKS, PCS)}
    for entry in plugins.entry_points(GROUP):
        try:
            engine = entry.load()
        except Exception as e:
            raise EngineError(
                f"engine {entry.name} ({entry.value}) cannot be loaded: {e}. Fix or uninstall its package"
            ) from e
        if not isinstance(engine, Engine):
            raise EngineError(f"engine {entry.name} ({entry.value}) is not an Engine. Fix its package")
        for key in ("name", "section", "stack"):
            if getattr(engine, key) in {getattr(other, key) for other in found.values()}:
                raise EngineError(
                    f"the {key} {getattr(engine, key)} of engine {entry.name} ({entry.value}) already exists. Change it in its package"
                )
        found[engine.name] = engine
    return MappingProxyType(found)


def names() -> tuple[str, ...]:
    return tuple(every())


def get(name: str) -> Engine:
    """An engine by its name.

    Raises:
        EngineError: there is none of that name.
    """
    try:
        return every()[name]
    except KeyError:
        raise EngineError(f"unknown engine {name!r}. Choose one of {', '.join(every())}") from None


def of_stack(id: str) -> Engine | None:
    """The engine whose stack has this id in the app."""
    return next((e for e in every().values() if e.stack == id), None)
