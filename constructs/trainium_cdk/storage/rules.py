"""The rules of `trn check` for the file systems of a `TrnStorage`."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_efs, aws_fsx
from constructs import Construct

from trainium_cdk._cdk.described import Described
from trainium_cdk.checks.storage import RULES
from trainium_cdk.problems import KeyPath
from trainium_cdk.settings import Efs, Fsx

_ARGUMENTS: dict[KeyPath, str] = {("storage",): "", ("storage", "efs"): "efs", ("storage", "fsx"): "lustre"}


def check_storage(
    construct: Construct,
    efs: Efs | aws_efs.IFileSystem | None,
    lustre: Fsx | aws_fsx.IFileSystem | None,
    mount_dirs: Mapping[str, str | None],
    *,
    rules: bool,
) -> tuple[Efs | None, Fsx | None]:
    """The settings of both file systems; of one of the CDK, its mount directory alone. With `rules`, registers their problems.

    Args:
        mount_dirs: `efs_mount_dir` and `lustre_mount_dir`, for file systems of the CDK.
    """
    for (argument, given), settings in zip(mount_dirs.items(), (efs, lustre), strict=True):
        if given and isinstance(settings, Efs | Fsx):
            raise ValueError(
                f"{construct.node.path}: {argument} is for a file system of the CDK. Fix: give mount_dir to settings."
                f"{type(settings).__name__}"
            )
    if efs is None and lustre is None:
        raise ValueError(
            f"{construct.node.path}: efs and lustre are None, and multi-node jobs need a shared file system. "
            "Fix: give efs=settings.Efs()"
        )
    of_cdk: dict[KeyPath, str] = {
        ("storage", kind, "mount_dir"): name
        for kind, name in zip(("efs", "fsx"), mount_dirs, strict=True)
        if mount_dirs[name]
    }
    described = Described(construct, {**_ARGUMENTS, **of_cdk})
    at_efs, at_lustre = ({"mount_dir": given} if given else {} for given in mount_dirs.values())
    environment = described.environment(
        storage={
            "efs": efs if efs is None or isinstance(efs, Efs) else at_efs,
            "fsx": lustre if lustre is None or isinstance(lustre, Fsx) else at_lustre,
        }
    )
    if rules:
        described.check(environment, RULES)
    return environment.storage.efs, environment.storage.fsx
