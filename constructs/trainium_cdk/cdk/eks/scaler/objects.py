"""Entry point of the function that removes Kubernetes objects which leave (`leaving`).

Environment: CLUSTER, OWNER (the value of the label).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import boto3

from .kubernetes import Kubernetes
from .leaving import Leaving


def handler(event: Mapping[str, Any], _context: object) -> dict[str, list[str]]:
    """Entry point of AWS Lambda. An event with `objects` is of a deployment; others are of the schedule."""
    session = boto3.Session()
    cluster = session.client("eks").describe_cluster(name=os.environ["CLUSTER"])["cluster"]
    run = Leaving(Kubernetes(cluster, session), os.environ["OWNER"])
    done = run.deployed(event["objects"]) if "objects" in event else run.finish()
    if any(done.values()):
        print(json.dumps(done))
    return done
