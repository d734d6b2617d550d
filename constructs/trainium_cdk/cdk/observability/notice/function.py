"""The function: publishes each ended job of a log group's lines to an SNS topic, and each that makes no progress.

Environment: TOPIC, the ARN of the topic. A line is a JSON object with `JobEnded` or `JobFound`, the id of a job. On Slurm the service `trn-metrics` of the head
node writes it, on EKS the scaler.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Mapping
from typing import Any

import boto3

_FOUND = {
    "hang": "hangs",
    "nan": "its loss is not a number",
    "straggler": "a node is behind",
    "silent": "a node sends no sign",
    "start": "has not begun to train",
    "budget": "has used most of its budget",
    "restarted": "hung, and was restarted",
    "unready": "needs attention",
}
_SUBJECT = 100
"""Characters of a subject of SNS (API reference of Publish, 2026-11)."""


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Entry point of AWS Lambda, called by a subscription of CloudWatch Logs."""
    found = json.loads(gzip.decompress(base64.b64decode(event["awslogs"]["data"])))
    sns = boto3.client("sns")
    for one in found["logEvents"] if found["messageType"] == "DATA_MESSAGE" else ():
        subject, text = notice(json.loads(one["message"]))
        sns.publish(TopicArn=os.environ["TOPIC"], Subject=subject, Message=text)


def notice(ended: Mapping[str, Any]) -> tuple[str, str]:
    """The subject and the text about a job that has ended, or makes no progress.

    Args:
        ended: `JobEnded`, `State` and `Cluster`; and if they are known `User`, `Queue`, `Nodes`, `Seconds` and `Reason`. Or `JobFound`, and what
            was found as `Found`.
    """
    said = {name: " ".join(str(value).split())[:200] for name, value in ended.items()}
    found = said.get("Found", "")
    id, state, cluster = said.get("JobEnded") or said["JobFound"], said["State"], said["Cluster"]
    state = f"{_FOUND.get(found, found)} ({state})" if found else state
    lines = [f"{id} on {cluster}: {state}"]
    names = {"User": "user", "Queue": "queue", "Nodes": "nodes", "Reason": "reason"}
    lines += [f"{word}: {said[name]}" for name, word in names.items() if said.get(name)]
    if "Seconds" in ended:
        hours, rest = divmod(int(ended["Seconds"]), 3600)
        lines.append(f"time: {hours} h {rest // 60} min {rest % 60} s")
    lines.append(f"More: trn status {id}")
    subject = f"{id}: {state} on {cluster}".encode("ascii", "replace").decode()
    return subject[:_SUBJECT], "\n".join(lines) + "\n"
