"""The words for fields of a job that are not valid."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pydantic import BaseModel, ValidationError

from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.client.jobs.words import shown
from trainium_cdk.errors import similar
from trainium_cdk.text import MISMATCH, fix_of

_RENAME = " Rename the file, or copy it, to a name of at most 100 letters, digits and . _ + -, with a letter, a digit or _ as the first"


def _copied(address: str) -> str:
    """How to get what is in S3 to a cluster."""
    target = f"/efs/{PurePosixPath(address).name}"
    return f" Copy it: {printed('trn', 'cp', address, f'cluster:{target}')}. Then give {target}"


def describe_errors(error: ValidationError, kind: type[BaseModel]) -> str:
    """What is wrong with the fields of a job of a kind, and what to write instead, in sentences."""
    sentences = []
    for found in error.errors():
        if found["type"] == "trn":
            sentences.append(str(found["ctx"]["message"]))
            continue
        key = str(found["loc"][0]) if found["loc"] else "job"
        fix = found["ctx"]["fix"] if found["type"] == MISMATCH else fix_of(kind, key)
        fix = f" Write {fix}" if fix else ""
        if key == "filename":
            key, fix = "the script's filename", _RENAME
        if found["type"] == "extra_forbidden":
            sentences.append(f"a {error.title} job has no {key}. Remove it")
        elif found["type"] == "missing":
            sentences.append(f"{key} is not given.{fix}")
        else:
            reason = found["msg"][0].lower() + found["msg"][1:]
            if found["type"] == MISMATCH:
                reason = "not in the right format"
                if "on the cluster" in fix and str(found["input"]).startswith("s3://"):
                    reason, fix = "it is read from the cluster, not from S3", _copied(found["input"])
            elif meant := similar(str(found["input"]).lower(), re.findall("'([^']+)'", found["msg"]), 0.8):
                fix = f" Write {meant}"
            sentences.append(f"{key} is {shown(found['input'])}: {reason}.{fix}")
    return " ".join(s.removesuffix(".") + "." for s in sentences).removesuffix(".")
