"""What a job has in AWS, with the role of jobs: objects in S3, by the AWS CLI of its programs; the mark of a checkpoint there, which `work.keep`
writes and `prepare.resume` reads; and the values of variables that are kept in AWS. An address is s3://BUCKET/KEY."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Refused


class Unreached(Exception):
    """S3 has refused a request, or does not answer; the message is the AWS CLI's."""


def run(variables: Mapping[str, str], *words: str, text: str = "") -> str:
    """Run the AWS CLI. Returns its output.

    Args:
        variables: of the process.
        text: its input.

    Raises:
        Refused: there is no AWS CLI on their PATH.
        Unreached: it has failed.
    """
    aws = shutil.which("aws", path=variables.get("PATH"))
    if aws is None:
        raise Refused("there is no AWS CLI here, which reads and writes S3. Use an image that has it")
    done = subprocess.run(
        [aws, *words], env=dict(variables), input=text, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise Unreached((lines or [f"aws ended with {done.returncode}"])[-1][:400])
    return done.stdout


def sizes(variables: Mapping[str, str], address: str) -> dict[str, int]:
    """The bytes of each object at an address or below it, by the rest of its address, the last written first. Raises as `run`."""
    bucket, _, key = address[len("s3://") :].partition("/")
    words = ("s3api", "list-objects-v2", "--output=json", f"--bucket={bucket}", f"--prefix={key}")
    found: Any = json.loads(run(variables, *words, "--query=Contents[].[Key,Size,LastModified]") or "null") or []
    there = {
        (name[len(key) :] if key else f"/{name}"): size
        for name, size, _ in sorted(found, key=lambda one: str(one[2]), reverse=True)
    }
    return {name: size for name, size in there.items() if name in ("", SUFFIX) or (name[0] == "/" and name[-1] != "/")}


def files(variables: Mapping[str, str], address: str) -> dict[str, int]:
    """`sizes` without the mark of a checkpoint."""
    return {name: size for name, size in sizes(variables, address).items() if name != SUFFIX}


def sync(variables: Mapping[str, str], source: str, target: str, *options: str) -> None:
    """Copy what differs from one folder to another one. Either is an address. Raises as `run`."""
    words = (source.rstrip("/") + "/", target.rstrip("/") + "/", "--only-show-errors", "--no-progress", *options)
    run(variables, "s3", "sync", *words)


def copy(variables: Mapping[str, str], source: str, target: str, text: str = "") -> str:
    """Copy an object or a file; `-`: to the output that is returned, or from `text`. Raises as `run`."""
    return run(variables, "s3", "cp", "--only-show-errors", source, target, text=text)


def remove(variables: Mapping[str, str], address: str, *options: str) -> None:
    """Delete an object; with `--recursive`, all whose addresses begin so. Raises as `run`."""
    run(variables, "s3", "rm", "--only-show-errors", address, *options)


# --- what says that a checkpoint is whole -----------------------------------------------------------------------------------------------

SUFFIX = ".trn-complete"
"""The end of a mark's address, after the checkpoint's own."""


@dataclass(frozen=True)
class Mark:
    """The mark of a whole checkpoint.

    Attributes:
        kind: of its job. same: what a job that continues from it must have in common with that one (`spec.Checkpoints`).
        files: their bytes, by the rest of their addresses; one that is a file itself has the empty rest.
    """

    kind: str
    same: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


def stats(checkpoint: Path) -> dict[str, tuple[int, int]]:
    """The bytes and the time of change, in nanoseconds, of each file of a checkpoint, as `Mark.files` names them.

    Raises:
        OSError: it has just been deleted.
        Refused: it has a link: S3 has none.
    """
    seen = {str(one)[len(str(checkpoint)) :]: one.lstat() for one in (checkpoint, *checkpoint.rglob("*"))}
    for name, one in seen.items():
        if stat.S_ISLNK(one.st_mode):
            raise Refused(f"{checkpoint.name}{name} is a link, which S3 does not have. Save a copy in its place")
    return {name: (one.st_size, one.st_mtime_ns) for name, one in sorted(seen.items()) if stat.S_ISREG(one.st_mode)}


def name_of(checkpoint: Path, stats: Mapping[str, tuple[int, int]]) -> str:
    """Where a checkpoint of this content is kept: `DIGEST/NAME`. Another content is kept elsewhere."""
    return f"{hashlib.sha256(json.dumps(stats).encode()).hexdigest()[:12]}/{checkpoint.name}"


# --- values of variables that are kept in AWS: `secretsmanager:ID`, `secretsmanager:ID#KEY` of a secret that is JSON, or `ssm:NAME` ------

# Only the reference is on disk. The job reads the value where its program starts, by the AWS CLI or by the boto3 of its Python.

SECRET_BEGINS = ("secretsmanager:", "ssm:")
"""How a value that is such a reference begins."""
SECRET_FORM = re.compile(
    r"(?P<service>secretsmanager|ssm):"
    r"(?P<id>arn:aws[a-z-]*:(?:secretsmanager|ssm):(?P<region>[a-z0-9-]{1,30}):[\w/+=.@:-]{1,2000}|[\w/+=.@][\w/+=.@-]{0,1000})"
    r"(?:#(?P<key>[\w.-]{1,256}))?"
)
_SECONDS = 60
_CLI = {
    "secretsmanager": ("secretsmanager", "get-secret-value", "--query", "SecretString", "--secret-id"),
    "ssm": ("ssm", "get-parameter", "--with-decryption", "--query", "Parameter.Value", "--name"),
}
_PYTHON = """
import json, sys
import boto3
service, id = sys.argv[1:]
client = boto3.client(service)
if service == "ssm":
    found = client.get_parameter(Name=id, WithDecryption=True)["Parameter"]["Value"]
else:
    found = client.get_secret_value(SecretId=id)["SecretString"]
print(json.dumps(found))
"""


def secret_values(variables: Mapping[str, str], region: str, path: str | None = None) -> dict[str, str]:
    """The variables with the values that they refer to.

    Args:
        region: of what has no ARN.
        path: PATH of the job's programs. Default: this process's.

    Raises:
        Refused: one cannot be read; the message has no value.
    """
    return {
        name: _read(name, value, region, path or os.environ.get("PATH", os.defpath))
        if value.startswith(SECRET_BEGINS)
        else value
        for name, value in variables.items()
    }


def _read(name: str, reference: str, region: str, path: str) -> str:
    found = SECRET_FORM.fullmatch(reference)
    if not found:
        raise Refused(f"env {name}: it is not a reference to a secret. Write secretsmanager:NAME or ssm:NAME")
    at = found["region"] or region
    where = {"PATH": path, **({"AWS_REGION": at, "AWS_DEFAULT_REGION": at} if at else {})}
    value = _ask(name, found["service"], found["id"], {**os.environ, **where})
    if not found["key"]:
        return value
    try:
        parts: Any = json.loads(value)
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, dict) or not isinstance(parts.get(found["key"]), (str, int, float)):
        raise Refused(f"env {name}: the secret has no key {found['key']}. Write one that its JSON has")
    return str(parts[found["key"]])


def _ask(name: str, service: str, id: str, variables: Mapping[str, str]) -> str:
    aws, python = (shutil.which(one, path=variables["PATH"]) for one in ("aws", "python3"))
    if aws:
        words = [aws, *_CLI[service], id, "--output", "json"]
    elif python:
        words = [python, "-c", _PYTHON, service, id]
    else:
        raise Refused(f"env {name}: neither the AWS CLI nor Python is here to read it. Use an image that has one")
    try:
        done = subprocess.run(
            words,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise Refused(f"env {name}: {service} did not answer within {_SECONDS} s") from None
    if done.returncode:
        said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no reason given")
        raise Refused(
            f"env {name}: {id[:200]} cannot be read: {said.strip()[:400]}. Let the role of jobs read it, and check the name"
        )
    try:
        value = json.loads(done.stdout)
    except ValueError:
        value = None
    if not isinstance(value, str):
        raise Refused(f"env {name}: {id[:200]} is not text")
    return value
