"""AWS ParallelCluster's own judgement, one JSON line in, one JSON line out.

Runs in the environment `.venvs/pcluster`, started by `sandbox.oracle.Oracle`. Requests:

- `{"op": "validate", "name": ..., "config": {...}, "env": {"AWS_...": ...}}`: the dry run of `create-cluster`
  through pcluster's library, that is its schema and every validator, against the AWS that `env` points at.
- `{"op": "typed", "name": ..., "config": {...}}`: the configuration with its values in the schema's types
  (CloudFormation hands numbers and booleans over as strings).
- `{"op": "judge", "name": ..., "old": {...}, "new": {...}, "fleet_running": bool, "login_running": bool, "env": {...}}`:
  pcluster's update policies (`ConfigPatch`).

Each answer is `{"findings": [...]}`, `{"config": {...}}` or `{"changes": [...]}`; `{"error": ...}` when pcluster itself broke.
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
    """Our own line to the caller; whatever a library prints goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def _validate(name: str, config: Message) -> Message:
    import pcluster.lib as pcluster
    from pcluster.api.errors import exception_message

    region = config.get("Region") or os.environ["AWS_DEFAULT_REGION"]
    try:
        # A dry run that finds no error answers by an exception too: the two outcomes are read alike.
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


def _judge(name: str, old: Message, new: Message, fleet_running: bool, login_running: bool) -> Message:
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
    """Answer one request. pcluster caches what AWS said per process, so its caches are emptied first."""
    from pcluster.aws.aws_api import AWSApi
    from pcluster.aws.common import Cache

    os.environ.update(request.get("env") or {})
    AWSApi.reset()
    Cache.clear_all()
    if request["op"] == "validate":
        return _validate(request["name"], request["config"])
    if request["op"] == "typed":
        return _typed(request["name"], request["config"])
    if request["op"] == "judge":
        running = (bool(request[key]) for key in ("fleet_running", "login_running"))
        return _judge(request["name"], request["old"], request["new"], *running)
    raise ValueError(f"unknown operation {request['op']!r}")


def _patient() -> None:
    """pcluster gives up on the check of a script's address after 5 s; a busy machine is not a finding."""
    wait_for: Any = asyncio.wait_for
    asyncio.wait_for = lambda awaited, timeout: wait_for(awaited, timeout and max(timeout, 600))  # type: ignore[assignment]


def main() -> None:
    """Serve until standard input ends."""
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
