"""`Custom::TrnOwnedObjects`: has the function remove what left, and reports what stays."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from trainium_cdk.cdk.deployment.clusters import remove_objects as respond
from trainium_cdk.cdk.deployment.request import Request

WANTED = {"Function": "removes", "Objects": {"Namespace": ["training"]}}


class Lambda:
    """The one call of Lambda's API that the resource makes."""

    def __init__(self, answer: dict[str, Any], *, failed: bool = False) -> None:
        self._answer, self._failed, self.calls = answer, failed, list[dict[str, Any]]()

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803  boto3's
        self.calls.append({"name": FunctionName, **json.loads(Payload)})
        error = {"FunctionError": "Unhandled"} if self._failed else {}
        return {"Payload": io.BytesIO(json.dumps(self._answer).encode()), **error}


@pytest.mark.parametrize(
    ("kind", "stays", "expected"),
    [
        ("Create", [], {"Stays": "-"}),
        ("Update", ["Namespace a: it has Pod b", "ClusterQueue c: d run"], {"Stays": "Namespace a: it has Pod b; ClusterQueue c: d run"}),
        ("Update", ["x" * 5000], {"Stays": "x" * 2000}),
    ],
)  # fmt: skip
def test_what_stays_is_reported(kind: str, stays: list[str], expected: dict[str, str]) -> None:
    function = Lambda({"removed": [], "stays": stays})
    assert respond(Request(kind, "stack", WANTED), lambda *_, **__: function).attributes == expected
    assert function.calls == [{"name": "removes", "objects": WANTED["Objects"]}]


def test_a_deletion_removes_nothing() -> None:
    function = Lambda({})
    respond(Request("Delete", "stack", WANTED, "objects"), lambda *_, **__: function)
    assert function.calls == []


def test_a_failure_fails_the_deployment() -> None:
    function = Lambda({"errorMessage": "no route to host"}, failed=True)
    with pytest.raises(RuntimeError, match="no route to host"):
        respond(Request("Update", "stack", WANTED, "objects"), lambda *_, **__: function)
