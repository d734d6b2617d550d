"""The kind ProvisioningRequest (autoscaling.x-k8s.io), with which Kueue asks for nodes. No chart has its definition. Pure.
Fields and limits: Kubernetes' cluster-autoscaler, module apis, 2024-08-30 (the version that Kueue 0.18.3 uses); a test compares them.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

GROUP = "autoscaling.x-k8s.io"
_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_FIXED = {"x-kubernetes-validations": [{"message": "Value is immutable", "rule": "self == oldSelf"}]}


def definition() -> Schema:
    """The CustomResourceDefinition."""
    names = {
        "kind": "ProvisioningRequest",
        "listKind": "ProvisioningRequestList",
        "plural": "provisioningrequests",
        "shortNames": ["provreq", "provreqs"],
        "singular": "provisioningrequest",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"provisioningrequests.{GROUP}",
        },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [_version("v1", storage=True), _version("v1beta1", storage=False)],
        },
    }


def _version(name: str, *, storage: bool) -> Schema:
    age = {"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}
    metadata = {"apiVersion": _text(), "kind": _text(), "metadata": {"type": "object"}}
    whole = _object({**metadata, "spec": _spec(), "status": _status()}, required=["spec"])
    return {
        "additionalPrinterColumns": [age],
        "name": name,
        "schema": {"openAPIV3Schema": whole},
        "served": True,
        "storage": storage,
        "subresources": {"status": {}},
    }


def _spec() -> Schema:
    name = _text(maxLength=253, pattern=f"^{_NAME}$")
    pod_set = _object(
        {"count": _number("int32", minimum=1), "podTemplateRef": _object({"name": name}, required=["name"])},
        required=["count", "podTemplateRef"],
    )
    fields = {
        "parameters": _map(_text(maxLength=255), maxProperties=100, **_FIXED),
        "podSets": {"type": "array", "items": pod_set, "minItems": 1, "maxItems": 32, **_FIXED},
        "provisioningClassName": {**name, **_FIXED},
    }
    return _object(fields, required=["podSets", "provisioningClassName"])


def _status() -> Schema:
    condition = {
        "lastTransitionTime": _text(format="date-time"),
        "message": _text(maxLength=32768),
        "observedGeneration": _number("int64", minimum=0),
        "reason": _text(minLength=1, maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        "status": _text(enum=["True", "False", "Unknown"]),
        "type": _text(maxLength=316, pattern=f"^({_NAME}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"),
    }
    conditions = {
        "type": "array",
        "items": _object(condition, required=["lastTransitionTime", "message", "reason", "status", "type"]),
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map",
    }
    details = _map(_text(maxLength=32768), maxProperties=64)
    return _object({"conditions": conditions, "provisioningClassDetails": details})


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _map(values: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": values, **more}


def _text(**more: Any) -> Schema:
    return {"type": "string", **more}


def _number(width: str, **more: Any) -> Schema:
    return {"type": "integer", "format": width, **more}
