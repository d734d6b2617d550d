"""What CloudFormation tells of a rollback that failed, and its limit for responses of custom resources.

ministack gives a resource whose rollback failed the status of its last success.
"""

from __future__ import annotations

import json
from typing import Any

from ministack.services.cloudformation import custom_resource, handlers, stacks

_revert, _continue, _deliver = (
    stacks._revert_update,
    stacks._continue_update_rollback_async,
    custom_resource.deliver_response,
)
RESPONSE_BYTES = 4096
"""CloudFormation user guide, "Custom resource response objects": "The maximum size is 4 KB"."""


async def _revert_update(*arguments: Any) -> None:
    record = arguments[-1]
    try:
        await _revert(*arguments)
    except Exception:
        if record:
            record["ResourceStatus"] = "UPDATE_FAILED"
        raise


async def _continue_update_rollback(name: str, stack_id: str, skipped: Any) -> None:
    await _continue(name, stack_id, skipped)
    resources = handlers._stacks[name].get("_resources", {})
    for logical_id in skipped:
        resources[logical_id]["ResourceStatus"] = "UPDATE_COMPLETE"


def _deliver_response(token: str, response: dict[str, Any]) -> bool:
    if len(json.dumps(response).encode()) > RESPONSE_BYTES:
        response = {**response, "Status": "FAILED", "Reason": "Response object is too long.", "Data": {}}
    return bool(_deliver(token, response))


stacks._revert_update = _revert_update
stacks._continue_update_rollback_async = handlers._continue_update_rollback_async = _continue_update_rollback
custom_resource.deliver_response = _deliver_response
