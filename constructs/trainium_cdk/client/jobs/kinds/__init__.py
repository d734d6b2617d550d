"""The kinds of jobs: one module each in this folder, and modules of other packages.

A package adds a kind with an entry point in the group `trainium_cdk.job_kinds` that names its class:

    [project.entry-points."trainium_cdk.job_kinds"]
    my-kind = "my_package.my_kind:MyKind"

The class is a subclass of `trainium_cdk.jobs.Job`; see there for what it defines.
"""

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module, metadata
from inspect import isabstract
from types import MappingProxyType

from trainium_cdk.client.jobs.models import Job
from trainium_cdk.errors import JobError

GROUP = "trainium_cdk.job_kinds"


@cache
def kinds() -> Mapping[str, type[Job]]:
    """All kinds by name, built-in kinds first.

    Raises:
        JobError: an installed package's kind cannot be loaded, is not a kind, or has a name that already exists.
    """
    found: dict[str, type[Job]] = {}
    for kind in _built_in():
        found[name_of(kind)] = kind
    for entry in sorted(metadata.entry_points(group=GROUP)):
        try:
            kind = entry.load()
        except Exception as e:
            raise JobError(
                f"job kind {entry.name} ({entry.value}) cannot be loaded: {e}. Fix or uninstall its package"
            ) from e
        if not (isinstance(kind, type) and issubclass(kind, Job)):
            raise JobError(
                f"job kind {entry.name} ({entry.value}) is not a subclass of trainium_cdk.jobs.Job. Fix its package"
            )
        if isabstract(kind):
            raise JobError(f"job kind {entry.name} ({entry.value}) does not define the method program. Fix its package")
        if name_of(kind) in found:
            raise JobError(
                f"job kind {name_of(kind)} ({entry.value}) already exists. Give it another name in its package"
            )
        found[name_of(kind)] = kind
    return MappingProxyType(found)


def name_of(kind: type[Job]) -> str:
    """The name of a kind in `trn submit`."""
    return str(kind.model_fields["kind"].default)


def _built_in() -> Iterator[type[Job]]:
    for module in pkgutil.iter_modules(__path__):
        yield import_module(f"{__name__}.{module.name}").KIND


def submittable() -> list[str]:
    """Names of the kinds that are submitted by name, with options only."""
    return [name for name, kind in kinds().items() if not any(f.is_required() for f in kind.model_fields.values())]


def by_name(name: str) -> type[Job] | None:
    """The kind of that name, if it can be submitted by name; else None.

    Raises:
        JobError: the kind was replaced by another one.
    """
    for heir in kinds().values():
        if reason := heir.REPLACES.get(name):
            raise JobError(f"{name} cannot run: {reason}. Use {name_of(heir)} ({heir.TITLE})")
    return kinds()[name] if name in submittable() else None
