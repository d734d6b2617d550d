"""A change of each resource type that our stacks make, which CloudFormation takes for an update."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.pcluster.examples import change

Properties = dict[str, Any]
Edits = Mapping[str, str | Mapping[str, Any]]
"""By resource type: values by path, or one of the changes that `edit` knows by name."""


def edit(p: Properties, what: str | Mapping[str, Any]) -> None:
    if what == "node":
        p["ScalingConfiguration"]["MaxInstanceCount"] += 1
    elif what == "permission":
        everyone = {"Principal": "*"} if "Bucket" in p else {}
        p["PolicyDocument"]["Statement"].append(
            {"Effect": "Deny", "Action": "s3:DeleteBucket", "Resource": "*", **everyone}
        )
    elif isinstance(what, str):
        tags = {"tag": "Tags", "file system tag": "FileSystemTags"}[what]
        p[tags] = [*p.get(tags, []), {"Key": "faults", "Value": "1"}]
    else:
        for path, value in what.items():
            change(p, path, value)


_FOUND = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text("utf-8"))


def _like_slurm(engine: str) -> Edits:
    return {**{k: v for k, v in _FOUND["slurm"].items() if k not in _FOUND["without"][engine]}, **_FOUND[engine]}


SLURM: Edits = _FOUND["slurm"]
EKS = _like_slurm("eks")
PCS: Edits = {**_like_slurm("pcs"), **{kind: EKS[kind] for kind in _FOUND["shared"]}}
NEVER_DELETED = {
    # They go with their cluster; uninstalling them first takes an API server that answers, and can hang for an hour.
    "Custom::AWSCDK-EKS-HelmChart",
    "Custom::AWSCDK-EKS-KubernetesResource",
}
