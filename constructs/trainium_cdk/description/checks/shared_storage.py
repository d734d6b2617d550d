"""Homes on a shared file system, and file systems in `pcluster.overrides`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainium_cdk.description import engines
from trainium_cdk.description.checks.rule import Rules, error, join_words, warning
from trainium_cdk.description.outputs.slurm import PEOPLE
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.problems import KeyPath

RULES = Rules()
HOME = "/home"
_AT: KeyPath = ("SharedStorage",)


def in_overrides(environment: Environment) -> Iterator[Problem]:
    """Check the file systems in `pcluster.overrides`. Keys of problems are paths in the overrides."""
    overrides = environment.pcluster.overrides
    if "SharedStorage" not in overrides:
        return
    items = overrides["SharedStorage"]
    if not isinstance(items, list | tuple) or not items:
        yield error(_AT, "it would remove the stack's file systems, for which every node waits", "remove it")
        return
    settings = _settings(environment)
    for i, item in enumerate(items):
        name = item.get("Name") if isinstance(item, Mapping) else None
        if not isinstance(name, str):
            reason = "it has no Name, so that the list would replace the stack's own file systems"
            yield error((*_AT, i), reason, f"add Name: {join_words(settings, 'or')}")
        elif name in settings:
            yield from _of_ours((*_AT, i), item, settings[name])
        else:
            yield from _new((*_AT, i), item)


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


@RULES.refuse("stack: folders of these names are made there")
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


@RULES.add
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
