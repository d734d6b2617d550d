"""Variables whose values are kept in AWS: `secretsmanager:ID`, `secretsmanager:ID#KEY` of a secret that is JSON, or `ssm:NAME`.

Only the reference is on disk. The job reads the value with its own right, where its program starts, by the AWS CLI or by the boto3 of its Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from .errors import Refused

BEGINS = ("secretsmanager:", "ssm:")
"""How a value that is such a reference begins."""
FORM = re.compile(
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


def resolve(variables: Mapping[str, str], region: str, path: str | None = None) -> dict[str, str]:
    """The variables with the values that they refer to.

    Args:
        region: of what has no ARN.
        path: PATH of the job's programs. Default: this process's.

    Raises:
        Refused: one cannot be read; the message has no value.
    """
    return {
        name: _read(name, value, region, path or os.environ.get("PATH", os.defpath))
        if value.startswith(BEGINS)
        else value
        for name, value in variables.items()
    }


def _read(name: str, reference: str, region: str, path: str) -> str:
    found = FORM.fullmatch(reference)
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
