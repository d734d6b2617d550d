"""The form of each output. Anybody who may create a stack chooses its outputs, and `trn` runs commands by them with an administrator's rights."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

UNKNOWN = "not-deployed"
"""Stands for what AWS names, where a stack is only described."""

_INSTANCE = rf"i-[0-9a-f]{{8,17}}|{UNKNOWN}"
_LABEL, _ID = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"
_FOLDER, _VERSION = r"(/[A-Za-z0-9_][A-Za-z0-9_-]*)+", r"[0-9][A-Za-z0-9_.+-]{0,99}"
_IMAGE = r"[a-z0-9][A-Za-z0-9._:/@-]{0,511}"
_SYSTEM = "root|daemon|bin|sys|sync|adm|nobody|slurm|munge|slurmrestd|pcluster-admin|ssm-user|dbus|sshd|systemd-.*|_.*"
_USER = rf"(?!({_SYSTEM})$)[A-Za-z][A-Za-z0-9_.@-]{{0,63}}"

FORMS: Mapping[str, str] = {
    "cluster_name": r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}",
    "shared_dir": _FOLDER,
    "folder": r"trn(-users/[A-Za-z_][A-Za-z0-9_.@-]{0,63})?",
    "users": "|local|directory",
    "mount_dirs": _FOLDER,
    "kernel": _VERSION,
    "neuron_driver": f"|{_VERSION}",
    "neuron_release": _VERSION,
    "framework": _LABEL,
    "os": f"|{_LABEL}",
    "image": f"|{_IMAGE}",
    "health": r"|[a-z]{1,20}=[a-z]{1,20}( [a-z]{1,20}=[a-z]{1,20}){0,9}",
    "bucket": r"|[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
    "registry_uri": f"|{_IMAGE}",
    "head_node_id": f"|{_INSTANCE}",
    "job_user": _USER,
    "image_user": _USER,
    "venv": r"(/|~[A-Za-z_][A-Za-z0-9_.@-]{0,63}/)?[A-Za-z0-9_](?!.*(^|/)\.\.(/|$))[A-Za-z0-9_./-]{0,255}",
    "cluster_id": rf"pcs_[a-z0-9]{{1,60}}|{UNKNOWN}",
    "login_group_id": rf"pcs_[a-z0-9]{{1,60}}|{UNKNOWN}",
    "namespace": _LABEL,
    "service_account": _LABEL,
    "claims": _LABEL,
    "shell_image": f"|{_IMAGE}",
    "build_project": f"|{_ID}",
    "endpoint": "private|public",
    "bastion_host_id": f"|{_INSTANCE}",
    "kubernetes_version": r"|1\.[0-9]{1,3}",
    "access_role": rf"|arn:aws[a-z-]*:iam::[0-9]{{12}}:role/[!-~]{{1,512}}|{UNKNOWN}",
    "queue": _ID,
    "resource": _ID,
    "instance_type": r"[a-z][a-z0-9-]{0,39}\.[a-z0-9-]{1,40}",
    "family": "[a-z][a-z0-9-]{0,39}",
    "capacity_type": "[a-z][a-z-]{0,39}",
    "reservation": "|cr-[0-9a-f]{8,17}",
}
"""Field -> a regular expression of all of its text, or of each of its texts. An empty one: the cluster has none."""
_MOST = 10**7
"""Of any number."""


def wrong(model: BaseModel) -> Iterator[tuple[str, Any]]:
    """The fields, and their values, that do not have their form, in a cluster and in what it consists of."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        for one in value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else (value,):
            if isinstance(one, BaseModel):
                yield from wrong(one)
            elif (isinstance(one, str) and name in FORMS and not re.fullmatch(FORMS[name], one, re.ASCII)) or (
                isinstance(one, int) and not 0 <= one <= _MOST
            ):
                yield name, one
