"""Shared and local storage, homes on a shared file system, and file systems in `pcluster.overrides`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from trainium_cdk.description import engines
from trainium_cdk.description.checks.rule import Rules, error, info, join_words, queues, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.problems import KeyPath
from trainium_cdk.runner import PEOPLE

HOME = "/home"
_OVERRIDES: KeyPath = ("SharedStorage",)
RULES, SHARED_RULES = Rules(), Rules()
"""Rules of storage, and those that Slurm has besides: homes on a shared file system, and file systems in `pcluster.overrides`."""


def _overlap(a: str, b: str) -> bool:
    """Return whether one directory is the other, or in it."""
    return PurePosixPath(a).is_relative_to(b) or PurePosixPath(b).is_relative_to(a)


@RULES.refuse("ParallelCluster, OverlappingMountDirValidator: not in each other")
def local_storage_over_shared(env: Environment) -> Iterator[Problem]:
    for at, queue in queues(env):
        if not queue.local_storage_dir:
            continue
        for shared in env.storage.mount_dirs:
            if _overlap(queue.local_storage_dir, shared):
                yield error(
                    (*at, "local_storage_dir"),
                    f"it overlaps with the mount directory of the shared file system, {shared}",
                    "choose another directory, for example /local_storage",
                )


@RULES.refuse("ParallelCluster, OverlappingMountDirValidator: not in each other")
def shared_mount_directory(env: Environment) -> Iterator[Problem]:
    taken = dict.fromkeys(env.storage.mount_dirs, "storage")
    for queue in env.pcluster.queues:
        if queue.local_storage_dir:
            taken[queue.local_storage_dir] = f"local_storage_dir of queue {queue.name}"
    for i, volume in enumerate(env.pcluster.shared_storage):
        for other, owner in taken.items():
            if _overlap(volume.mount_dir, other):
                yield error(
                    ("pcluster", "shared_storage", i, "mount_dir"),
                    f"it overlaps with {other} ({owner})",
                    f"choose another directory, for example /{volume.name}",
                )
        taken[volume.mount_dir] = volume.name


@RULES.add
def settings_of_existing_storage(env: Environment) -> Iterator[Problem]:
    for name in ("efs", "fsx"):
        file_system = getattr(env.storage, name)
        if not file_system or not file_system.existing:
            continue
        for key in sorted(file_system.model_fields_set - {"existing", "mount_dir"}):
            yield warning(
                ("storage", name, key),
                f"it has no effect on {file_system.existing.id}, which already exists",
                "remove it, or remove `existing` to create a new file system",
            )


_ASSETS = re.compile(r"cdk-[a-z0-9]{1,10}-assets-\d{12}-[a-z0-9-]+")


def assets_bucket(name: str) -> bool:
    """Return whether this is the name of a bucket that `cdk bootstrap` creates, with any qualifier.

    >>> assets_bucket("cdk-hnb659fds-assets-111122223333-us-east-1")
    True
    """
    return _ASSETS.fullmatch(name) is not None


@RULES.refuse("promise: no job changes what is deployed")
def data_among_assets(env: Environment) -> Iterator[Problem]:
    fsx = env.storage.fsx
    named: list[tuple[KeyPath, str]] = [
        (("eks", "data_buckets", i), name) for i, name in enumerate(env.eks.data_buckets)
    ]
    named += [(("jobs", key), address) for key, address in env.jobs.addresses.items()]
    for i, link in enumerate(fsx.s3_links if fsx else ()):
        named.append((("storage", "fsx", "s3_links", i, "uri"), link.uri))
    for key, value in named:
        if assets_bucket(value.removeprefix("s3://").split("/")[0]):
            yield error(
                key,
                "this bucket contains the CDK's deployment files: a job that can write to it controls what is deployed into the account",
                "create a bucket for data, and use that",
            )


@RULES.add
def data_deleted(env: Environment) -> Iterator[Problem]:
    fsx = env.storage.fsx
    if env.on_destroy == "keep" and fsx and not fsx.existing and fsx.deployment == "SCRATCH_2":
        yield warning(
            ("storage", "fsx", "deployment"),
            "on_destroy is keep, but SCRATCH_2 is not replicated: data is lost if a server fails",
            "choose PERSISTENT_2 for data to keep",
        )


@RULES.add
def data_kept(env: Environment) -> Iterator[Problem]:
    if env.on_destroy != "keep":
        return
    storage = env.storage
    stays = [name for name, f in (("EFS", storage.efs), ("FSx for Lustre", storage.fsx)) if f and not f.existing]
    if env.registry.enabled:
        stays.append("the ECR repository")
    stays.append("the bucket and the logs")
    yield info(
        ("on_destroy",),
        f"`cdk destroy` leaves {join_words(stays)} in the account, which are charged until you delete them",
        "write on_destroy: delete to leave nothing",
    )


def in_overrides(environment: Environment) -> Iterator[Problem]:
    """Check the file systems in `pcluster.overrides`. Keys of problems are paths in the overrides."""
    overrides = environment.pcluster.overrides
    if "SharedStorage" not in overrides:
        return
    items = overrides["SharedStorage"]
    if not isinstance(items, list | tuple) or not items:
        yield error(_OVERRIDES, "it would remove the stack's file systems, for which every node waits", "remove it")
        return
    settings = _settings(environment)
    for i, item in enumerate(items):
        name = item.get("Name") if isinstance(item, Mapping) else None
        if not isinstance(name, str):
            reason = "it has no Name, so that the list would replace the stack's own file systems"
            yield error((*_OVERRIDES, i), reason, f"add Name: {join_words(settings, 'or')}")
        elif name in settings:
            yield from _of_ours((*_OVERRIDES, i), item, settings[name])
        else:
            yield from _new((*_OVERRIDES, i), item)


def _settings(env: Environment) -> dict[str, str]:
    """Name of a file system in the cluster configuration -> the settings' key of it."""
    found = {name: f"storage.{name}" for name in ("efs", "fsx") if getattr(env.storage, name)}
    return found | {volume.name: "pcluster.shared_storage[]" for volume in env.pcluster.shared_storage}


def _of_ours(at: KeyPath, item: Mapping[str, Any], setting: str) -> Iterator[Problem]:
    """Check overrides of the stack's own file system. The node scripts also get its mount directory, and wait for it there."""
    own = setting.endswith("[]")
    for key, value in item.items():
        if key == "MountDir":
            fix = f"use {setting}.mount_dir: {value}" if isinstance(value, str) else f"use {setting}.mount_dir"
            yield error((*at, key), "the stack sets MountDir itself: every node waits for the file system there", fix)
        elif key == "StorageType":
            yield error((*at, key), "the stack sets StorageType itself", f"use {setting}{'.type' if own else ''}")
        elif isinstance(value, Mapping):
            for id in sorted({"FileSystemId", "VolumeId"} & value.keys()):
                reason = "the stack sets it itself: the rules of its security groups are for this file system"
                yield error((*at, key, id), reason, f"use {setting}{'' if own else '.existing'}.id")
        elif value is None:
            yield error((*at, key), "it would remove what the stack sets", "remove it")


def _new(at: KeyPath, item: Mapping[str, Any]) -> Iterator[Problem]:
    settings = [value for value in item.values() if isinstance(value, Mapping)]
    if any({"FileSystemId", "VolumeId", "FileCacheId"} & one.keys() for one in settings):
        reason = "the stack makes no rule for access to it, and `trn` does not know its directory"
        yield warning(at, reason, "use pcluster.shared_storage, or allow the nodes' access yourself")
    else:
        reason = "ParallelCluster creates it with the cluster and may delete it with it, and `trn` does not know its directory"
        yield warning(at, reason, "use storage, or pcluster.shared_storage for a file system of yours")


@SHARED_RULES.refuse("stack: folders of these names are made there")
def hidden_homes(env: Environment) -> Iterator[Problem]:
    """A container's home is in /home. No user's home may have the name of a folder of the jobs there."""
    for name in ("efs", "fsx"):
        file_system = getattr(env.storage, name)
        if not file_system or file_system.mount_dir != HOME:
            continue
        at: KeyPath = ("storage", name, "mount_dir")
        fix = f"write mount_dir: /{name}, or for Slurm alone use pcluster.shared_storage"
        yield warning(at, "on Kubernetes it hides what images have there", fix, engine="eks")
        if env.storage.shared_dir == HOME:
            yield from _folders_are_free(env)


def _folders_are_free(env: Environment) -> Iterator[Problem]:
    for engine, section in env.slurm_sections.items():
        key = engines.ENGINES[engine].section
        for i, user in enumerate(section.users):
            if user.name in ("trn", PEOPLE):
                reason = f"the jobs' folder is /home/{user.name}, as {HOME} is the shared directory"
                yield error((key, "users", i, "name"), reason, "choose another name", engine=engine)


@SHARED_RULES.add
def venv_in_shared_homes(env: Environment) -> Iterator[Problem]:
    """ParallelCluster can move the default user's home to each node's own disk (DefaultUserHome, since 3.9)."""
    deployment = env.pcluster.overrides.get("DeploymentSettings")
    local = isinstance(deployment, Mapping) and deployment.get("DefaultUserHome") == "Local"
    if local and not env.bootstrap.venv.startswith("/"):
        yield warning(
            ("pcluster", "overrides", "DeploymentSettings", "DefaultUserHome"),
            f"the virtual environment is in the user's home (~/{env.bootstrap.venv}), which compute nodes would not share",
            f"write bootstrap.venv: {env.storage.shared_dir}/{env.bootstrap.venv}",
            value="Local",
        )
