"""AWS ParallelCluster's validation: reads requests and writes responses, one JSON line each.

Runs in the environment `.venvs/pcluster`, started by `sandbox.pcluster_validator.PclusterValidator`. Requests:

- `{"op": "validate", "name": ..., "config": {...}, "env": {"AWS_...": ...}}`: the dry run of `create-cluster`
  through pcluster's library, that is its schema and every validator, against the AWS that `env` selects.
- `{"op": "typed", "name": ..., "config": {...}}`: the configuration with its values in the schema's types
  (CloudFormation passes numbers and booleans as strings).
- `{"op": "check_update", "name": ..., "old": {...}, "new": {...}, "fleet_running": bool, "login_running": bool, "env": {...}}`:
  pcluster's update policies (`ConfigPatch`).

Each response is `{"findings": [...]}`, `{"config": {...}}` or `{"changes": [...]}`; `{"error": ...}` when pcluster itself failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any, TextIO

Message = dict[str, Any]


def _private_stdout() -> TextIO:
    """A response to the caller; output of libraries goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def _validate(name: str, config: Message) -> Message:
    import pcluster.lib as pcluster
    from pcluster.api.errors import exception_message

    region = config.get("Region") or os.environ["AWS_DEFAULT_REGION"]
    try:
        # A dry run without errors raises an exception too, which is handled in the same way.
        answer = pcluster.create_cluster(cluster_name=name, cluster_configuration=config, dryrun=True, region=region)
    except Exception as error:
        answer = exception_message(error).to_dict()
    failures = answer.get("configuration_validation_errors") or answer.get("configurationValidationErrors") or []
    notes = answer.get("validation_messages") or answer.get("validationMessages") or []
    findings = [
        {"level": item["level"], "type": item["type"], "message": item["message"]} for item in [*failures, *notes]
    ]
    passed = "DryRun flag is set" in str(answer.get("message", ""))
    if not passed and not any(finding["level"] == "ERROR" for finding in findings):
        text = str(answer.get("message", answer))
        findings.append({"level": "ERROR", "type": "BadRequest", "message": text})
    return {"findings": findings}


def _typed(name: str, config: Message) -> Message:
    from pcluster.schemas.cluster_schema import ClusterSchema

    schema = ClusterSchema(cluster_name=name)
    schema.context = {"delete_defaults_when_dump": True}
    return {"config": schema.dump(schema.load(config))}


def _check_update(name: str, old: Message, new: Message, fleet_running: bool, login_running: bool) -> Message:
    from pcluster.config.config_patch import ConfigPatch

    cluster = SimpleNamespace(
        name=name,
        stack_name=name,
        stack=SimpleNamespace(scheduler="slurm"),
        has_running_capacity=lambda *_, **__: fleet_running,
        has_running_login_nodes=lambda *_, **__: login_running,
    )
    allowed, rows = ConfigPatch(cluster, old, new).check()
    head, *changes = rows
    return {
        "allowed": allowed,
        "changes": [
            {
                "path": ".".join([*row["param_path"], row["parameter"]]),
                "old": row["old value"],
                "new": row["new value"],
                "allowed": row["check"] == "SUCCEEDED",
                "reason": row["reason"] or "",
                "action_needed": row["action_needed"] or "",
            }
            for row in (dict(zip(head, change, strict=True)) for change in changes)
        ],
    }


def answer(request: Message) -> Message:
    """Process a request. pcluster caches AWS's responses per process, so its caches are cleared first."""
    from pcluster.aws.aws_api import AWSApi
    from pcluster.aws.common import Cache

    os.environ.update(request.get("env") or {})
    AWSApi.reset()
    Cache.clear_all()
    if request["op"] == "validate":
        return _validate(request["name"], request["config"])
    if request["op"] == "typed":
        return _typed(request["name"], request["config"])
    if request["op"] == "check_update":
        running = (bool(request[key]) for key in ("fleet_running", "login_running"))
        return _check_update(request["name"], request["old"], request["new"], *running)
    raise ValueError(f"unknown operation {request['op']!r}")


def _patient() -> None:
    """pcluster's check of a script's address times out after 5 s, which a busy machine must not turn into a finding."""
    wait_for: Any = asyncio.wait_for
    asyncio.wait_for = lambda awaited, timeout: wait_for(awaited, timeout and max(timeout, 600))  # type: ignore[assignment]


def main() -> None:
    """Process requests until standard input ends."""
    _patient()
    channel = _private_stdout()
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        channel.write(json.dumps(reply, default=str) + "\n")


if __name__ == "__main__":
    main()
