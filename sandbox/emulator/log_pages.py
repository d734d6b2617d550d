"""GetLogEvents, forward: an empty page comes before each one with events, which CloudWatch Logs permits itself (API reference, 2026-11)."""

from __future__ import annotations

import json
from typing import Any

from ministack.services import cloudwatch_logs

_SECOND = "~"
"""Marks the token of an empty page: with it, the same events are returned."""


def install() -> None:
    """Return empty pages from now on."""
    get = cloudwatch_logs._get_log_events

    def events(data: dict[str, Any]) -> Any:
        token = str(data.get("nextToken") or "")
        if token.endswith(_SECOND):
            return get({**data, "nextToken": token.removesuffix(_SECOND)})
        answer = get(data)
        forward = token.startswith("f/") or (not token and data.get("startFromHead"))
        if not forward or answer[0] != 200 or not json.loads(answer[2])["events"]:
            return answer
        status, headers, body = get({**data, "limit": 0})
        page = json.loads(body)
        return status, headers, json.dumps({**page, "nextForwardToken": page["nextForwardToken"] + _SECOND}).encode()

    cloudwatch_logs._get_log_events = events
