"""UpdateNodegroupConfig, which ministack has not: how node groups are scaled."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from ministack.services import eks

_ROUTE = re.compile(r"/clusters/([A-Za-z0-9_-]+)/node-groups/([A-Za-z0-9_-]+)/update-config")
_SIZES = ("minSize", "maxSize", "desiredSize")


def install() -> None:
    handle = eks._handle_request_sync

    def with_scaling(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        found = _ROUTE.fullmatch(path)
        if found and method == "POST":
            return update(found[1], found[2], json.loads(body or b"{}"))
        return handle(method, path, headers, body, query)

    eks._handle_request_sync = with_scaling


def update(cluster: str, name: str, asked: dict[str, Any]) -> Any:
    group = eks._nodegroups.get(f"{cluster}/{name}")
    if group is None:
        return eks._error(404, "ResourceNotFoundException", f"No node group found for name: {name}.")
    sizes = {**group["scalingConfig"], **asked.get("scalingConfig", {})}
    least, most, desired = (int(sizes[key]) for key in _SIZES)
    if desired < least:
        return _refused(f"Minimum capacity {least} can't be greater than desired size {desired}")
    if desired > most:
        return _refused(f"desired capacity {desired} can't be greater than max size {most}")
    group["scalingConfig"] = dict(zip(_SIZES, (least, most, desired), strict=True))
    params = [{"type": key[0].upper() + key[1:], "value": str(sizes[key])} for key in asked.get("scalingConfig", {})]
    said = {"id": str(uuid.uuid4()), "status": "Successful", "type": "ConfigUpdate", "params": params, "errors": []}
    return eks._json_resp(200, {"update": said})


def _refused(message: str) -> Any:
    return eks._error(400, "InvalidParameterException", message)
