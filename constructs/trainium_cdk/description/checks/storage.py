"""Shared and local storage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from trainium_cdk.description.checks.rule import Rules, error, info, join_words, queues, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.problems import KeyPath

RULES = Rules()


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
