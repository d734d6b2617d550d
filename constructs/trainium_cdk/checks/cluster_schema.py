"""A cluster configuration against ParallelCluster's own schema, and its lines of slurm.conf against Slurm's own names.

The schema is data of the catalogue: aws-parallelcluster's, as JSON Schema (`sandbox/pcluster_validator/schema.py` writes it).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from trainium_cdk.catalog.files import DATA
from trainium_cdk.catalog.slurm import Line, check_line, release_of
from trainium_cdk.checks.rule import error, join_words, near
from trainium_cdk.problems import KeyPath, Problem
from trainium_cdk.settings import Environment

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

_WORDS = {
    "object": "a section, with keys below it",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


@cache
def schema() -> dict[str, Any]:
    """ParallelCluster's schema of a cluster configuration."""
    found: dict[str, Any] = json.loads((DATA / "parallelcluster.schema.json").read_text("utf-8"))
    return found


def schema_faults(config: Mapping[str, Any]) -> Iterator[Problem]:
    """What ParallelCluster's schema refuses in a cluster configuration; `key` is the path in it."""
    for fault in _validator().iter_errors(config):
        yield from _worded(fault)


def slurm_release(environment: Environment) -> str:
    """The Slurm release of the environment's ParallelCluster, for example 25.11; that of the default version where it is not known."""
    facts = environment.catalog.parallelcluster
    known = [facts.releases.get(version) for version in (environment.parallelcluster_version, facts.default)]
    return release_of(next((one.slurm for one in known if one and one.slurm), None))


def slurm_faults(config: Mapping[str, Any], release: str) -> Iterator[Problem]:
    """Lines of slurm.conf at which Slurm would stop: of the cluster, of a queue (its partition), of a compute resource (its nodes).

    Args:
        release: of Slurm, for example 25.11.
    """
    scheduling = config.get("Scheduling") or {}
    own: KeyPath = ("Scheduling", "SlurmSettings", "CustomSlurmSettings")
    for i, line in enumerate(_list((scheduling.get("SlurmSettings") or {}).get("CustomSlurmSettings"))):
        yield from _line((*own, i), line, release, None)
    for i, queue in enumerate(_list(scheduling.get("SlurmQueues"))):
        at: KeyPath = ("Scheduling", "SlurmQueues", i)
        yield from _line((*at, "CustomSlurmSettings"), queue.get("CustomSlurmSettings"), release, "PartitionName")
        for j, resource in enumerate(_list(queue.get("ComputeResources"))):
            place = (*at, "ComputeResources", j, "CustomSlurmSettings")
            yield from _line(place, resource.get("CustomSlurmSettings"), release, "NodeName")


def _line(at: KeyPath, line: Any, release: str, of: Line | None) -> Iterator[Problem]:
    if isinstance(line, Mapping) and (wrong := check_line(release, line, of)):
        yield error((*at, wrong.name), wrong.reason, wrong.fix, value=line[wrong.name])


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


@cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    lists = Draft202012Validator.TYPE_CHECKER.redefine("array", lambda _, value: isinstance(value, list | tuple))
    return extend(Draft202012Validator, type_checker=lists)(schema())


def _worded(fault: ValidationError) -> Iterator[Problem]:
    at: KeyPath = tuple(fault.absolute_path)
    if fault.validator == "additionalProperties":
        known = fault.schema["properties"]
        for name in fault.instance:
            if name not in known:
                yield error(
                    (*at, name),
                    "ParallelCluster does not know this key",
                    f"write {near(name, known)}",
                    value=fault.instance[name],
                )
    elif fault.validator == "required":
        absent = [name for name in fault.validator_value if name not in fault.instance]
        yield error(at, f"ParallelCluster needs {join_words(absent)} here", f"add {join_words(absent)}")
    else:
        yield error(at, "ParallelCluster does not take this value", f"write {_expected(fault)}", value=fault.instance)


def _expected(fault: ValidationError) -> str:
    rule, value = fault.validator, fault.validator_value
    if rule == "enum":
        return join_words(map(str, value), "or")
    if rule in ("minimum", "minItems"):
        return f"at least {value}{' items' if rule == 'minItems' else ''}"
    if rule in ("maximum", "maxItems"):
        return f"at most {value}{' items' if rule == 'maxItems' else ''}"
    kinds: Sequence[str] = [fault.schema["type"]] if isinstance(fault.schema.get("type"), str) else fault.schema["type"]
    return _WORDS[kinds[0]]
