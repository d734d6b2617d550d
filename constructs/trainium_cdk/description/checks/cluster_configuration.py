"""The cluster configuration as it is deployed, ours with `pcluster.overrides` merged in: its security, what ParallelCluster's validators and
schema refuse, and its lines of slurm.conf.

The schema is data of the catalogue: aws-parallelcluster's, as JSON Schema (`sandbox/pcluster_validator/schema.py` writes it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from trainium_cdk.description.catalog.lookup import DATA
from trainium_cdk.description.catalog.slurm import Line, Wrong, check_line, check_together, release_of
from trainium_cdk.description.checks.network import WIDEST_SSH
from trainium_cdk.description.checks.nodes import is_arm
from trainium_cdk.description.checks.rule import error, join_words, near, warning, with_values
from trainium_cdk.description.checks.storage import assets_bucket
from trainium_cdk.description.cluster_configuration import ClusterIds, render
from trainium_cdk.description.settings import Environment
from trainium_cdk.problems import KeyPath, Problem

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

Config = Mapping[str, Any]

ALL_ADDRESSES = "0.0.0.0/0"
"""ParallelCluster's default of every `AllowedIps`."""
_OWNS_ACCOUNT = re.compile(
    r":policy/(AdministratorAccess(-\w+)?|PowerUserAccess|IAMFullAccess|job-function/(SystemAdministrator|PowerUserAccess|AdministratorAccess))$"
)
_READS_ACCOUNT = re.compile(
    r"::aws:policy/(ReadOnlyAccess|job-function/ViewOnlyAccess|SecurityAudit|SecretsManagerReadWrite)$"
)
_S3 = re.compile(r"::aws:policy/AmazonS3FullAccess$")
_FULL = re.compile(r"::aws:policy/.*FullAccess(_?[Vv]\d+)?$")
_OWN: KeyPath = ("Scheduling", "SlurmSettings", "CustomSlurmSettings")
_WORDS = {
    "object": "a section, with keys below it",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
"""JSON Schema's types in words."""


def faults(config: Config) -> list[Problem]:
    """Every problem of a cluster configuration; `key` is the path in it, `value` the current value or the effective default. Values
    may be CloudFormation references, which cannot be checked."""
    problems = list(_metadata(config))
    for path, section in _nodes(config):
        for part in (_doors, _rights, _disks, _actions):
            problems += part(path, section)
    return list(with_values([*problems, *_whole(config), *_architecture(config), *_several_subnets(config)], config))


def _nodes(config: Config) -> Iterator[tuple[KeyPath, Config]]:
    """The head node, the login nodes' pools and the queues."""
    yield ("HeadNode",), _section(config, "HeadNode")
    for parent, items in (("LoginNodes", "Pools"), ("Scheduling", "SlurmQueues")):
        for i, item in enumerate(_list(_section(config, parent), items)):
            yield (parent, items, i), item


def _metadata(config: Config) -> Iterator[Problem]:
    support, secured = _section(config, "Imds").get("ImdsSupport"), _section(config, "HeadNode", "Imds").get("Secured")
    if support == "v1.0":
        yield error(
            ("Imds", "ImdsSupport"),
            "with version 1, anyone who can make a node send a request can get its credentials",
            "write v2.0",
        )
    if secured is False:
        yield error(
            ("HeadNode", "Imds", "Secured"),
            "every user of the head node can get its credentials, which allow creating and changing nodes",
            "remove it",
        )


def _doors(path: KeyPath, node: Config) -> Iterator[Problem]:
    # Pools without AllowedIps inherit the head node's, which is checked separately.
    if path == ("HeadNode",) or "AllowedIps" in _section(node, "Ssh"):
        yield from _open((*path, "Ssh", "AllowedIps"), _section(node, "Ssh").get("AllowedIps", ALL_ADDRESSES), "SSH")
    if (dcv := _section(node, "Dcv")).get("Enabled"):
        yield from _open((*path, "Dcv", "AllowedIps"), dcv.get("AllowedIps", ALL_ADDRESSES), "remote desktops (DCV)")
    network = _section(node, "Networking")
    if network.get("AssignPublicIp") is True:
        yield warning(
            (*path, "Networking", "AssignPublicIp"),
            "these nodes get public addresses but do not need them: use the head node or SSM to connect to them",
            "remove it",
        )
    if network.get("SecurityGroups"):
        yield warning(
            (*path, "Networking", "SecurityGroups"),
            "they replace all security groups of ParallelCluster, and their rules cannot be checked here",
            "use AdditionalSecurityGroups",
        )


def _open(path: KeyPath, source: Any, what: str) -> Iterator[Problem]:
    prefix = re.fullmatch(r"[0-9a-fA-F.:]+/(\d+)", source) if isinstance(source, str) else None
    if prefix and int(prefix[1]) < (WIDEST_SSH if ":" not in source else 2 * WIDEST_SSH):
        yield error(
            path,
            f"this opens {what} to a large part of the internet",
            "give your own network, for example 203.0.113.0/24, or use SSM",
            value=source,
        )


def wide_policy(key: KeyPath, arn: str) -> Iterator[Problem]:
    """A policy of nodes that allows more than any job needs."""
    if _OWNS_ACCOUNT.search(arn):
        what, fix = "full access to the account", "give a policy that allows only what the jobs need"
    elif _READS_ACCOUNT.search(arn):
        what, fix = (
            "access to all data or secrets of the account",
            "give your own policy that allows only what the jobs need",
        )
    elif _S3.search(arn):
        what = "full access to every bucket of the account"
        fix = "copy with `trn cp`, which needs no policy; or name your own policy with the buckets that jobs need"
        if key[0] != "pcs":
            fix += ", or Iam.S3Access with BucketName in pcluster.overrides"
    elif _FULL.search(arn):
        what, fix = "full access to that service", "give your own policy that allows only what the jobs need"
    else:
        return
    yield error(key, f"these nodes, and all jobs, would have {what}", fix)


def _rights(path: KeyPath, node: Config) -> Iterator[Problem]:
    iam, at = _section(node, "Iam"), (*path, "Iam")
    for i, item in enumerate(_list(iam, "AdditionalIamPolicies")):
        if isinstance(arn := item.get("Policy"), str):
            yield from wide_policy((*at, "AdditionalIamPolicies", i, "Policy"), arn)
    for name in ("InstanceRole", "InstanceProfile"):
        if name in iam:
            reason = "it replaces the stack's policies, and its permissions cannot be checked here"
            yield warning((*at, name), reason, "use AdditionalIamPolicies")
    for i, item in enumerate(_list(iam, "S3Access")):
        key, bucket = (*at, "S3Access", i, "BucketName"), item.get("BucketName")
        if not isinstance(bucket, str):
            continue
        if assets_bucket(bucket) or "*" in bucket:
            reason = (
                "it contains the CDK's deployment files"
                if assets_bucket(bucket)
                else "the pattern matches several buckets"
            )
            yield error(key, f"{reason}, and every job could read it", "name a bucket for data")


def _disks(path: KeyPath, node: Config) -> Iterator[Problem]:
    for above in ((), ("ComputeSettings",)):
        at = (*above, "LocalStorage", "RootVolume")
        if _section(node, *at).get("Encrypted") is False:
            yield warning((*path, *at, "Encrypted"), "the nodes' disks are not encrypted", "remove it")


def _actions(path: KeyPath, node: Config) -> Iterator[Problem]:
    for event, action in _section(node, "CustomActions").items():
        many = action.get("Sequence") if isinstance(action, Mapping) and "Sequence" in action else [action]
        for i, one in enumerate(many if isinstance(many, list) else []):
            script = one.get("Script") if isinstance(one, Mapping) else None
            if isinstance(script, str) and script.lower().startswith("http:"):
                at: KeyPath = (*path, "CustomActions", event, *(("Sequence", i) if many != [action] else ()), "Script")
                reason = "the script runs as root, and without encryption anyone on the network path can change it"
                yield error(at, reason, "give an s3:// or https:// address")


def _whole(config: Config) -> Iterator[Problem]:
    for i, system in enumerate(_list(config, "SharedStorage")):
        for kind, name, why in (
            ("EfsSettings", "EncryptionInTransit", "data is sent over the network unencrypted"),
            ("EfsSettings", "Encrypted", "its data is not encrypted"),
            ("EbsSettings", "Encrypted", "its data is not encrypted"),
        ):
            if _section(system, kind).get(name) is False:
                yield warning(("SharedStorage", i, kind, name), why, "remove it")
    head = _section(config, "HeadNode")
    if head.get("SharedStorageType") == "Efs" and not _section(head, "SharedStorageEfsSettings").get("Encrypted"):
        fix = "add HeadNode.SharedStorageEfsSettings: {Encrypted: true}"
        yield warning(("HeadNode", "SharedStorageType"), "ParallelCluster's own EFS is not encrypted", fix)
    for name in ("Cookbook", "NodePackage", "ClusterTemplate"):
        if _section(config, "DevSettings").get(name):
            reason = "it replaces ParallelCluster's own and runs with all of its permissions"
            yield warning(("DevSettings", name), reason, "remove it")


def _architecture(config: Config) -> Iterator[Problem]:
    """Arm types (`InstanceArchitectureCompatibilityValidator` of aws-parallelcluster 3.16.1)."""
    nodes = list(_nodes(config))
    for path, node in tuple(nodes):
        for i, resource in enumerate(_list(node, "ComputeResources")):
            at: KeyPath = (*path, "ComputeResources", i)
            nodes += [(at, resource), *(((*at, "Instances", j), t) for j, t in enumerate(_list(resource, "Instances")))]
    for path, node in nodes:
        if isinstance(name := node.get("InstanceType"), str) and is_arm(name):
            reason = "this is an Arm type, but Trainium nodes are x86_64 and a cluster has one architecture"
            yield error((*path, "InstanceType"), reason, "choose an x86_64 type, for example c5.4xlarge")


def _several_subnets(config: Config) -> Iterator[Problem]:
    """Subnets of a queue (`QueueSubnetsValidator`, `EfaMultiAzValidator`, `MultiAzPlacementGroupValidator` and
    `SingleInstanceTypeSubnetValidator` of aws-parallelcluster 3.16.1)."""
    for i, queue in enumerate(_list(_section(config, "Scheduling"), "SlurmQueues")):
        subnets, resources = _section(queue, "Networking").get("SubnetIds"), _list(queue, "ComputeResources")
        if not isinstance(subnets, list | tuple) or len(subnets) < 2:
            continue
        group, reason = _section(queue, "Networking", "PlacementGroup"), ""
        if len({str(subnet) for subnet in subnets}) < len(subnets):
            reason, fix = "a subnet is listed twice, and ParallelCluster refuses that", "list each once"
        elif any(_section(one, "Efa").get("Enabled") is True for one in resources):
            reason = "EFA does not cross zones, and ParallelCluster refuses several subnets for nodes that use it"
            fix = "make a queue for each zone with pcluster.queues[].zone_id, or write Efa: {Enabled: false}"
        elif group.get("Name") or group.get("Id") or group.get("Enabled") is True:
            reason = "a placement group does not cross zones, and ParallelCluster refuses several subnets with one"
            fix = "list one subnet, or write PlacementGroup: {Enabled: false}"
        elif any(one.get("InstanceType") for one in resources):
            reason = "ParallelCluster refuses several subnets for a compute resource with InstanceType"
            fix = "list one subnet, or write Instances: [{InstanceType: TYPE}] and InstanceType: null"
        if reason:
            yield error(("Scheduling", "SlurmQueues", i, "Networking", "SubnetIds"), reason, fix)


def _section(config: Any, *path: str) -> Config:
    for step in path:
        config = config.get(step) if isinstance(config, Mapping) else None
    return config if isinstance(config, Mapping) else {}


def _list(config: Config, name: str) -> list[Config]:
    items = config.get(name)
    return [item if isinstance(item, Mapping) else {} for item in items] if isinstance(items, list | tuple) else []


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
    own = _mappings(slurm.get("CustomSlurmSettings"))
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
    for i, queue in enumerate(_mappings(scheduling.get("SlurmQueues"))):
        at: KeyPath = ("Scheduling", "SlurmQueues", i)
        yield from judged((*at, "CustomSlurmSettings"), queue.get("CustomSlurmSettings"), "PartitionName")
        for j, resource in enumerate(_mappings(queue.get("ComputeResources"))):
            place = (*at, "ComputeResources", j, "CustomSlurmSettings")
            yield from judged(place, resource.get("CustomSlurmSettings"), "NodeName")
    yield from _partitions(_mappings(scheduling.get("SlurmQueues")), own)


def slurm_problem(at: KeyPath, wrong: Wrong, line: Mapping[str, Any]) -> Problem:
    """A fault of a line of slurm.conf: an error where Slurm's controller stops, else a warning."""
    level = error if wrong.stops else warning
    return level((*at, wrong.name), wrong.reason, wrong.fix, value=line[wrong.name])


def _partitions(queues: list[Mapping[str, Any]], own: list[Mapping[str, Any]]) -> Iterator[Problem]:
    """Partitions of one's own that have the name of another, or nodes that do not exist (ParallelCluster's names of nodes and node sets)."""
    from trainium_cdk.runner.slurm import hostnames

    most: dict[str, int] = {}
    for queue in queues:
        for resource in _mappings(queue.get("ComputeResources")):
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


def _mappings(value: Any) -> list[Mapping[str, Any]]:
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
