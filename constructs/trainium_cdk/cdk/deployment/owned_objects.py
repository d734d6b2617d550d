"""`Custom::TrnOwnedObjects` removes Kubernetes objects that the stack does not have any more, after those that it has were applied.

It has a function do it that reaches the Kubernetes API. A rollback is an update with the former list: the former objects were applied
again, and only the failed update's objects leave. When the stack is deleted, nothing is removed: the objects go with their cluster.

Properties: Function, Objects (by kind, a list of names).
Attribute: Stays (what could not be removed yet, and why; - if nothing).
"""

from __future__ import annotations

import json
from typing import Any

from botocore.config import Config

from .request import Client, Request, Response

_ONCE = Config(read_timeout=300, retries={"total_max_attempts": 1})
"""The function may wait for minutes; boto3 would call it again after one."""
_LONGEST = 2000
"""Characters. CloudFormation takes a response of 4096 bytes."""


def respond(request: Request, client: Client) -> Response:
    """Physical id: constant.

    Raises:
        RuntimeError: the function failed.
    """
    id = request.physical_id or "objects"
    if request.delete:
        return Response(id, {})
    wanted = request.properties
    payload = json.dumps({"objects": wanted["Objects"]}).encode()
    answer = client("lambda", config=_ONCE).invoke(FunctionName=wanted["Function"], Payload=payload)
    done: dict[str, Any] = json.loads(answer["Payload"].read())
    if "FunctionError" in answer:
        raise RuntimeError(f"objects that left could not be removed: {done.get('errorMessage', '')}")
    return Response(id, {"Stays": "; ".join(done["stays"])[:_LONGEST] or "-"})
