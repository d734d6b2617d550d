"""Send Delete to a custom resource whose creation failed when the stack is rolled back, as CloudFormation does.

ministack sends Delete only after a successful creation, which would hide functions that delete what they did not create.
"""

from __future__ import annotations

from typing import Any

from ministack.core.concurrency import run_reentrant
from ministack.services.cloudformation import custom_resource, handlers, provisioners, stacks

_invoke, _deliver, _roll_back = (
    custom_resource.invoke_custom_resource,
    custom_resource.deliver_response,
    stacks._roll_back_operation,
)
_failed: dict[tuple[str, str], dict[str, Any]] = {}
"""(stack id, logical id) -> resource type, physical id and properties of a failed creation."""


def _deliver_response(token: str, response: dict[str, Any]) -> bool:
    key = (str(response.get("StackId")), str(response.get("LogicalResourceId")))
    if response.get("Status") == "FAILED" and key in _failed:
        _failed[key]["physical_id"] = response.get("PhysicalResourceId", "")
    return bool(_deliver(token, response))


def _invoke_custom_resource(
    request: str, logical_id: str, properties: dict[str, Any], stack_name: str, stack_id: str, kind: str, **more: Any
) -> Any:
    key = (stack_id, logical_id)
    if request == "Create":
        _failed[key] = {"type": kind, "properties": properties}
    made = _invoke(request, logical_id, properties, stack_name, stack_id, kind, **more)
    _failed.pop(key, None)
    return made


async def _roll_back_operation(
    stack_name: str, stack_id: str, stack: dict[str, Any], operation: dict[str, Any], *rest: Any, **more: Any
) -> None:
    logical_id = operation.get("failed_logical_id")
    failed = _failed.pop((stack_id, str(logical_id)), {})
    reason = ""
    if failed.get("physical_id"):
        stack["StackStatus"] = "UPDATE_ROLLBACK_IN_PROGRESS" if operation.get("is_update") else "ROLLBACK_IN_PROGRESS"
        about = (stack_id, stack_name, logical_id, failed["type"])
        stacks._add_event(*about, "DELETE_IN_PROGRESS", physical_id=failed["physical_id"])
        try:
            await run_reentrant(
                provisioners._delete_resource,
                failed["type"],
                failed["physical_id"],
                failed["properties"],
                stack_name,
                logical_id,
            )
            stacks._add_event(*about, "DELETE_COMPLETE", physical_id=failed["physical_id"])
        except Exception as error:
            reason = str(error)
            stacks._add_event(*about, "DELETE_FAILED", reason, failed["physical_id"])
    await _roll_back(stack_name, stack_id, stack, operation, *rest, **more)
    if reason and not operation.get("is_update"):
        stack["StackStatus"], stack["StackStatusReason"] = "ROLLBACK_FAILED", reason
        stacks._add_event(stack_id, stack_name, stack_name, "AWS::CloudFormation::Stack", "ROLLBACK_FAILED", reason)


custom_resource.deliver_response = _deliver_response
custom_resource.invoke_custom_resource = _invoke_custom_resource
for _module in (stacks, handlers):
    _module._roll_back_operation = _roll_back_operation
