"""What a cluster configuration opens or gives away, whoever wrote it: ours with `pcluster.overrides` merged in, as it is deployed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_cdk.checks.network import WIDEST_SSH
from trainium_cdk.checks.rule import Rule
from trainium_cdk.checks.storage import assets_bucket
from trainium_cdk.settings import Environment, Problem
from trainium_cdk.settings.problems import KeyPath, Level

Config = Mapping[str, Any]

ALL_ADDRESSES = "0.0.0.0/0"
"""ParallelCluster's own default of every `AllowedIps`."""
_OWNS_ACCOUNT = re.compile(r":policy/(job-function/)?(AdministratorAccess|PowerUserAccess|IAMFullAccess)$")
_FULL = re.compile(r":policy/.*FullAccess(V\d+)?$")


@dataclass(frozen=True)
class Fault:
    """One thing in a cluster configuration.

    Attributes:
        path: keys and list places from its top.
        value: what is there, or the default that holds.
    """

    path: KeyPath
    value: Any
    level: Level
    reason: str
    fix: str


def faults(config: Config) -> list[Fault]:
    """All that is wrong with a cluster configuration. Values may be CloudFormation references, of which nothing is known."""
    found = list(_metadata(config))
    for path, section in _nodes(config):
        for part in (_doors, _rights, _disks, _actions):
            found += part(path, section)
    return [*found, *_whole(config)]


def merged_configuration_is_safe(env: Environment) -> Iterator[Problem]:
    """What the overrides bring; values of other settings have rules of their own."""
    if not env.pcluster.overrides:
        return
    before = faults(_rendered(env.model_copy(update={"pcluster": env.pcluster.model_copy(update={"overrides": {}})})))
    for fault in faults(_rendered(env)):
        if fault not in before:
            key = ("pcluster", "overrides", *_place(env.pcluster.overrides, _rendered(env), fault.path))
            yield Problem(key, fault.value, fault.reason, fault.fix, fault.level)


def _rendered(env: Environment) -> Config:
    from trainium_cdk.pcluster.config import ClusterIds, render

    subnets = {queue.name: "subnet" for queue in env.pcluster.queues}
    return render(env, ClusterIds("subnet", subnets, "s3://bucket/entry.sh", "s3://bucket/scripts", "/pointer"))


def _nodes(config: Config) -> Iterator[tuple[KeyPath, Config]]:
    """The head node, the login nodes' pools and the queues."""
    yield ("HeadNode",), _section(config, "HeadNode")
    for parent, items in (("LoginNodes", "Pools"), ("Scheduling", "SlurmQueues")):
        for i, item in enumerate(_list(_section(config, parent), items)):
            yield (parent, items, i), item


def _metadata(config: Config) -> Iterator[Fault]:
    support, secured = _section(config, "Imds").get("ImdsSupport"), _section(config, "HeadNode", "Imds").get("Secured")
    if support == "v1.0":
        yield Fault(
            ("Imds", "ImdsSupport"), support, "error",
            "version 1 hands out the nodes' credentials to whoever can make them send a request", "write v2.0",
        )  # fmt: skip
    if secured is False:
        yield Fault(
            ("HeadNode", "Imds", "Secured"), secured, "error",
            "every user of the head node gets its credentials, which may make and change nodes", "remove it",
        )  # fmt: skip


def _doors(path: KeyPath, node: Config) -> Iterator[Fault]:
    # Pools without AllowedIps have the head node's, which is looked at by itself.
    if path == ("HeadNode",) or "AllowedIps" in _section(node, "Ssh"):
        yield from _open((*path, "Ssh", "AllowedIps"), _section(node, "Ssh").get("AllowedIps", ALL_ADDRESSES), "SSH")
    if (dcv := _section(node, "Dcv")).get("Enabled"):
        yield from _open((*path, "Dcv", "AllowedIps"), dcv.get("AllowedIps", ALL_ADDRESSES), "remote desktops (DCV)")
    network = _section(node, "Networking")
    if network.get("AssignPublicIp") is True:
        yield Fault(
            (*path, "Networking", "AssignPublicIp"), True, "warning",
            "these nodes get public addresses, and need none: they are reached through the head node and SSM", "remove it",
        )  # fmt: skip
    if network.get("SecurityGroups"):
        yield Fault(
            (*path, "Networking", "SecurityGroups"), network["SecurityGroups"], "warning",
            "they take the place of all groups of ParallelCluster, whose rules nothing here can see",
            "use AdditionalSecurityGroups",
        )  # fmt: skip


def _open(path: KeyPath, source: Any, what: str) -> Iterator[Fault]:
    prefix = re.fullmatch(r"[0-9a-fA-F.:]+/(\d+)", source) if isinstance(source, str) else None
    if prefix and int(prefix[1]) < (WIDEST_SSH if ":" not in source else 2 * WIDEST_SSH):
        yield Fault(
            path, source, "error", f"this opens {what} to a large part of the internet",
            "give your own network, as 203.0.113.0/24, or use SSM",
        )  # fmt: skip


def _rights(path: KeyPath, node: Config) -> Iterator[Fault]:
    iam, at = _section(node, "Iam"), (*path, "Iam")
    for i, item in enumerate(_list(iam, "AdditionalIamPolicies")):
        arn = item.get("Policy")
        key = (*at, "AdditionalIamPolicies", i, "Policy")
        if isinstance(arn, str) and _OWNS_ACCOUNT.search(arn):
            reason = "every job on these nodes may then do anything in the account"
            yield Fault(key, arn, "error", reason, "give a policy that allows only what the jobs need")
        elif isinstance(arn, str) and _FULL.search(arn):
            reason = "every job on these nodes has all rights to that service"
            yield Fault(key, arn, "warning", reason, "give a policy that allows only what the jobs need")
    for name in ("InstanceRole", "InstanceProfile"):
        if name in iam:
            reason = "it takes the place of the stack's policies, and nothing here can see what it allows"
            yield Fault((*at, name), iam[name], "warning", reason, "use AdditionalIamPolicies")
    for i, item in enumerate(_list(iam, "S3Access")):
        key, bucket = (*at, "S3Access", i, "BucketName"), item.get("BucketName")
        if not isinstance(bucket, str):
            continue
        if assets_bucket(bucket) or "*" in bucket:
            reason = "it holds what the CDK deploys" if assets_bucket(bucket) else "these are all buckets of that name"
            yield Fault(key, bucket, "error", f"{reason}, and every job could read it", "name a bucket of data")


def _disks(path: KeyPath, node: Config) -> Iterator[Fault]:
    for above in ((), ("ComputeSettings",)):
        at = (*above, "LocalStorage", "RootVolume")
        if _section(node, *at).get("Encrypted") is False:
            yield Fault((*path, *at, "Encrypted"), False, "warning", "the nodes' disks are not encrypted", "remove it")


def _actions(path: KeyPath, node: Config) -> Iterator[Fault]:
    for event, action in _section(node, "CustomActions").items():
        many = action.get("Sequence") if isinstance(action, Mapping) and "Sequence" in action else [action]
        for i, one in enumerate(many if isinstance(many, list) else []):
            script = one.get("Script") if isinstance(one, Mapping) else None
            if isinstance(script, str) and script.lower().startswith("http:"):
                at: KeyPath = (*path, "CustomActions", event, *(("Sequence", i) if many != [action] else ()), "Script")
                reason = "whoever is on the way can change it, and it runs as root"
                yield Fault(at, script, "error", reason, "give an s3:// or https:// address")


def _whole(config: Config) -> Iterator[Fault]:
    for i, system in enumerate(_list(config, "SharedStorage")):
        for kind, name, why in (
            ("EfsSettings", "EncryptionInTransit", "data crosses the network in the clear"),
            ("EfsSettings", "Encrypted", "its data is not encrypted"),
            ("EbsSettings", "Encrypted", "its data is not encrypted"),
        ):
            if _section(system, kind).get(name) is False:
                yield Fault(("SharedStorage", i, kind, name), False, "warning", why, "remove it")
    directory = _section(config, "DirectoryService")
    if (asked := directory.get("LdapTlsReqCert")) in ("never", "allow"):
        yield Fault(
            ("DirectoryService", "LdapTlsReqCert"), asked, "warning",
            "whoever is on the way can be the directory, and let anybody in", "write hard",
        )  # fmt: skip
    for name in ("Cookbook", "NodePackage", "ClusterTemplate"):
        if given := _section(config, "DevSettings").get(name):
            reason = "it runs in the place of ParallelCluster's own, with all of its rights"
            yield Fault(("DevSettings", name), given, "warning", reason, "remove it")


def _place(overrides: Any, config: Any, path: KeyPath) -> KeyPath:
    """Where the overrides bring what is at a path of the merged configuration: the nearest key of theirs."""
    found: list[str | int] = []
    for step in path:
        place: str | int | None = None
        if isinstance(overrides, Mapping):
            place = step if step in overrides else None
            config = config.get(step) if isinstance(config, Mapping) else None
        elif isinstance(overrides, list | tuple) and isinstance(config, list | tuple) and isinstance(step, int):
            config = config[step]
            same = (i for i, item in enumerate(overrides) if item == config or _name(item) == _name(config) != "")
            place = next(same, None)
        if place is None:
            break
        found.append(place)
        overrides = overrides[place]
    return tuple(found)


def _name(item: Any) -> Any:
    return item.get("Name", "") if isinstance(item, Mapping) else ""


def _section(config: Any, *path: str) -> Config:
    for step in path:
        config = config.get(step) if isinstance(config, Mapping) else None
    return config if isinstance(config, Mapping) else {}


def _list(config: Config, name: str) -> list[Config]:
    found = config.get(name)
    return [item if isinstance(item, Mapping) else {} for item in found] if isinstance(found, list | tuple) else []


RULES: tuple[Rule, ...] = (merged_configuration_is_safe,)
