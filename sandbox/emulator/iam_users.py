"""Requests signed with the key of an IAM user, or in a session of one, are judged by that user's policies, and by the
session's end, as on AWS.

ministack judges either every request or none. Here the dummy key `test` stays the account's root, who may do anything, so
that nothing else needs a policy; and who makes a user with an access key sees what its policies allow.
"""

from __future__ import annotations

import contextvars
from typing import Any

from ministack import app
from ministack.core.router import extract_access_key_id
from ministack.services import sts

USER_KEY = "AKIA"
"""How the id of a user's long-term key begins."""
_judged = contextvars.ContextVar("_judged", default=False)


class _OfUsers:
    """Stands for the emulator's AUTH switch: on for the requests of users, else as before."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __bool__(self) -> bool:
        return _judged.get() or bool(self._before)


def install() -> None:
    """Judge users from now on. Call after whatever else takes hold of the switch."""
    dispatch = app._dispatch_service_request

    async def dispatch_service_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any], request_id: str
    ) -> Any:
        key = extract_access_key_id(headers, query) or ""
        source = str(sts._sessions.get(key, {}).get("SourceAccessKeyId") or key)
        switch = _judged.set(_judged.get() or source.startswith(USER_KEY))
        try:
            return await dispatch(method, path, headers, body, query, request_id)
        finally:
            _judged.reset(switch)

    app._dispatch_service_request = dispatch_service_request
    app.AUTH = _OfUsers(app.AUTH)
