"""The kinds of jobs: one module each in this folder, and modules of other packages.

A package adds a kind with an entry point in the group `trainium_cdk.job_kinds` that names its class:

    [project.entry-points."trainium_cdk.job_kinds"]
    my-kind = "my_package.my_kind:MyKind"

The class is a subclass of `trainium_cdk.jobs.Job`; see there for what it defines.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module, metadata
from inspect import isabstract
from types import MappingProxyType

from trainium_cdk.client.jobs.models import Job
from trainium_cdk.errors import JobError

GROUP = "trainium_cdk.job_kinds"
BUILT_IN: Mapping[str, str] = {
    "bert-large": "bert_large",
    "finetune": "finetune",
    "gpt-6.7b": "gpt_67b",
    "nccom": "nccom",
    "script": "script",
    "torchtitan": "torchtitan",
}
"""The module of each kind of this folder."""
FORMER: Mapping[str, str] = {"gpt3-6.7b": "gpt-6.7b", "llama3.1-8b": "torchtitan", "lora": "finetune"}
"""Names of former kinds, and the kind of this folder that replaces each (`Job.REPLACES`)."""


@cache
def kinds() -> Mapping[str, type[Job]]:
    """All kinds by name, built-in kinds first.

    Raises:
        JobError: an installed package's kind cannot be loaded, is not a kind, or has a name that already exists.
    """
    return MappingProxyType({name: _built_in(name) for name in BUILT_IN} | _installed())


def find(name: str) -> type[Job] | None:
    """The kind of that name; None without one. A kind of this folder needs its own module only, and no search in other packages.

    Raises:
        JobError: as `kinds`.
    """
    return _built_in(name) if name in BUILT_IN else _installed().get(name)


def _built_in(name: str) -> type[Job]:
    kind: type[Job] = import_module(f"{__name__}.{BUILT_IN[name]}").KIND
    return kind


@cache
def _installed() -> dict[str, type[Job]]:
    """The kinds of other packages. Raises as `kinds`."""
    found: dict[str, type[Job]] = {}
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
        if name_of(kind) in BUILT_IN or name_of(kind) in found:
            raise JobError(
                f"job kind {name_of(kind)} ({entry.value}) already exists. Give it another name in its package"
            )
        found[name_of(kind)] = kind
    return found


def name_of(kind: type[Job]) -> str:
    """The name of a kind in `trn submit`."""
    return str(kind.model_fields["kind"].default)


def submittable() -> list[str]:
    """Names of the kinds that are submitted by name, with options only."""
    return [name for name, kind in kinds().items() if _is_submittable(kind)]


def _is_submittable(kind: type[Job]) -> bool:
    return not any(field.is_required() for field in kind.model_fields.values())


def by_name(name: str) -> type[Job] | None:
    """The kind of that name, if it can be submitted by name; else None.

    Raises:
        JobError: the kind was replaced by another one.
    """
    heirs = [_built_in(FORMER[name])] if name in FORMER else [] if name in BUILT_IN else _installed().values()
    for heir in heirs:
        if reason := heir.REPLACES.get(name):
            raise JobError(f"{name} cannot run: {reason}. Use {name_of(heir)} ({heir.TITLE})")
    kind = find(name)
    return kind if kind and _is_submittable(kind) else None
