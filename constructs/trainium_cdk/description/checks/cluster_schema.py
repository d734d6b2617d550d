"""A cluster configuration against ParallelCluster's own schema, and its lines of slurm.conf against Slurm's own names.

The schema is data of the catalogue: aws-parallelcluster's, as JSON Schema (`sandbox/pcluster_validator/schema.py` writes it).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from trainium_cdk.description.catalog.lookup import DATA
from trainium_cdk.description.catalog.slurm import Line, Wrong, check_line, check_together, release_of
from trainium_cdk.description.checks.rule import error, join_words, near, warning
from trainium_cdk.description.cluster_configuration.config import ClusterIds, render
from trainium_cdk.description.settings import Environment
from trainium_cdk.problems import KeyPath, Problem
from trainium_cdk.runner.slurm import hostnames

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

_OWN: KeyPath = ("Scheduling", "SlurmSettings", "CustomSlurmSettings")
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
    """Find faults in a cluster configuration by ParallelCluster's schema. `key` is the path in the configuration."""
    for fault in _validator().iter_errors(config):
        yield from _worded(fault)


def slurm_release(environment: Environment) -> str:
    """The Slurm release of the environment's ParallelCluster, for example 25.11; the default version's release where it is not known."""
    facts = environment.catalog.parallelcluster
    known = [facts.releases.get(version) for version in (environment.parallelcluster_version, facts.default)]
    return release_of(next((one.slurm for one in known if one and one.slurm), None))


def rendered(environment: Environment) -> Mapping[str, Any]:
    """The environment's cluster configuration, with made-up ids."""
    subnets = dict.fromkeys(environment.pcluster.queue_names, "subnet")
    return render(environment, ClusterIds("subnet", subnets, "s3://bucket/entry.sh", "s3://bucket/scripts", "/pointer"))


def slurm_faults(config: Mapping[str, Any], release: str) -> Iterator[Problem]:
    """Lines of slurm.conf at which Slurm would stop, or that it ignores: of the cluster, of a queue (its partition), of a compute resource
    (its nodes).

    Args:
        release: of Slurm, for example 25.11.
    """
    scheduling = config.get("Scheduling") or {}
    slurm = scheduling.get("SlurmSettings") or {}
    own = _list(slurm.get("CustomSlurmSettings"))
    settings = {name: value for line in own for name, value in line.items()}
    accounting = bool(slurm.get("Database") or slurm.get("ExternalSlurmdbd"))

    def judged(path: KeyPath, line: Any, of: Line | None = None) -> Iterator[Problem]:
        if isinstance(line, Mapping) and line:
            alone = check_line(release, line, of)
            together = check_together(release, settings, line, of, accounting=accounting)
            for wrong in [alone] if alone else together:
                yield slurm_problem(path, wrong, line)

    for i, line in enumerate(own):
        yield from judged((*_OWN, i), line)
    for i, queue in enumerate(_list(scheduling.get("SlurmQueues"))):
        at: KeyPath = ("Scheduling", "SlurmQueues", i)
        yield from judged((*at, "CustomSlurmSettings"), queue.get("CustomSlurmSettings"), "PartitionName")
        for j, resource in enumerate(_list(queue.get("ComputeResources"))):
            place = (*at, "ComputeResources", j, "CustomSlurmSettings")
            yield from judged(place, resource.get("CustomSlurmSettings"), "NodeName")
    yield from _partitions(_list(scheduling.get("SlurmQueues")), own)


def slurm_problem(at: KeyPath, wrong: Wrong, line: Mapping[str, Any]) -> Problem:
    """A fault of a line of slurm.conf: an error where Slurm's controller stops, else a warning."""
    level = error if wrong.stops else warning
    return level((*at, wrong.name), wrong.reason, wrong.fix, value=line[wrong.name])


def _partitions(queues: list[Mapping[str, Any]], own: list[Mapping[str, Any]]) -> Iterator[Problem]:
    """Partitions of one's own that have the name of another, or nodes that do not exist (ParallelCluster's names of nodes and node sets)."""
    most: dict[str, int] = {}
    for queue in queues:
        for resource in _list(queue.get("ComputeResources")):
            least, largest = (resource.get(key, default) for key, default in (("MinCount", 0), ("MaxCount", 10)))
            if isinstance(least, int) and isinstance(largest, int):
                most[f"{queue.get('Name')}-st-{resource.get('Name')}"] = least
                most[f"{queue.get('Name')}-dy-{resource.get('Name')}"] = largest - least
    lines = [{name.lower(): str(value) for name, value in line.items()} for line in own]
    taken = {str(queue.get("Name")) for queue in queues}
    sets = {"ALL", *(f"{name}_nodes" for name in taken), *(line["nodeset"] for line in lines if "nodeset" in line)}
    sets |= {node for line in lines for node in hostnames(line.get("nodename", ""))}
    for i, line in enumerate(lines):
        if (name := line.get("partitionname")) is None:
            continue
        if name in taken:
            reason = "there is a partition of this name: Slurm's controller stops"
            yield error((*_OWN, i, "PartitionName"), reason, "write another name", value=name)
        taken.add(name)
        for node in hostnames(line.get("nodes", "ALL")):
            prefix, _, number = node.rpartition("-")
            if node not in sets and not (number.isdecimal() and 0 < int(number) <= most.get(prefix, 0)):
                known = [f"{prefix}-[1-{count}]" for prefix, count in most.items() if count]
                key = next(key for key in own[i] if key.lower() == "nodes")
                reason = f"there is no node {node}: Slurm's controller stops"
                yield error((*_OWN, i, key), reason, f"write {join_words([*known, 'ALL'], 'or')}", value=own[i][key])
                break


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
