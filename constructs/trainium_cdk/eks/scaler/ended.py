"""Jobs of `trn` that have ended: a line of the function's log for each, which `TrnJobNotices` sends on. Pure, but for the list of JobSets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import after, observe

Object = dict[str, Any]

_OURS = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dtrn"
_CANCELLED = "Cancelled"
"""Reason of a JobSet's condition that `trn cancel` sets."""


def lines(kubernetes: Any, cluster: str, since: float, now: float) -> Iterator[str]:
    """A line for each job that has ended between two runs. Members of an array count together.

    Args:
        kubernetes: the cluster's API, with `list`.
        cluster: its name.
        since: when the function ran before, seconds since 1970.
        now: of this run.
    """
    jobs: dict[tuple[str, str], list[tuple[Object | None, str, str]]] = {}
    for one in kubernetes.list(f"{after.SETS}/jobsets", _OURS):
        metadata = one["metadata"]
        labels = metadata.get("labels") or {}
        how = observe.is_true(one, "Completed", "Failed")
        queue = (metadata.get("annotations") or {}).get(after.QUEUE, "")
        found = jobs.setdefault((metadata["namespace"], labels.get(after.ARRAY) or metadata["name"]), [])
        found.append((how, metadata["creationTimestamp"], queue))
    for (namespace, id), members in jobs.items():
        ends = [how for how, _, _ in members if how]
        at = max((observe.seconds(how["lastTransitionTime"]) for how in ends), default=0.0)
        # times are whole seconds, so only those that are over
        if len(ends) < len(members) or not int(since) - 1 < at <= int(now) - 1:
            continue
        states = [_state(how) for how in ends]
        several = len(ends) > 1
        told = [f"{states.count(s)} {s}" if several else s for s in dict.fromkeys(sorted(states))]
        bad = next((how for how in ends if how["type"] == "Failed"), None)
        yield json.dumps({
            "JobEnded": id, "State": ", ".join(told), "Queue": members[0][2], "Namespace": namespace,
            "Seconds": int(at - min(observe.seconds(created) for _, created, _ in members)),
            **({"Reason": str(bad.get("message") or "")[:200]} if bad else {}), "Cluster": cluster,
        })  # fmt: skip


def _state(how: Object) -> str:
    if how["type"] == "Completed":
        return "COMPLETED"
    return "CANCELLED" if how.get("reason") == _CANCELLED else "FAILED"
