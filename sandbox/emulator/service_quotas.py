"""The Service Quotas API: GetServiceQuota and GetAWSDefaultServiceQuota, for the quotas that the project uses.

Values are generous, as in an account used for training. The file `quotas.json` in the sandbox's folder overrides them: an
object quota code -> value, or an object region -> value; read for each request. null: no increase was ever requested.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ministack.core.responses import get_account_id, get_region

from sandbox.emulator.query import ApiError, Response

TARGET = "ServiceQuotasV20190624."
# code -> service, name, value here, AWS's default for a new account
_QUOTAS: dict[str, tuple[str, str, float, float]] = {
    "L-1216C47A": ("ec2", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 1152.0, 5.0),
    "L-2C3B7624": ("ec2", "Running On-Demand Trn instances", 8192.0, 0.0),
    "L-6B0D517C": ("ec2", "All Trn Spot Instance Requests", 8192.0, 0.0),
    "L-0263D0A3": ("ec2", "EC2-VPC Elastic IPs", 100.0, 5.0),
    "L-F678F1CE": ("vpc", "VPCs per Region", 100.0, 5.0),
}


def _given() -> dict[str, float | None]:
    path = Path(os.environ["SANDBOX_DIR"]) / "quotas.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    here = {code: value.get(get_region(), value) if isinstance(value, dict) else value for code, value in found.items()}
    return {code: value for code, value in here.items() if not isinstance(value, dict)}


def _quota(data: dict[str, Any], *, default: bool) -> dict[str, Any]:
    code, service = data.get("QuotaCode", ""), data.get("ServiceCode", "")
    if code not in _QUOTAS or _QUOTAS[code][0] != service:
        raise ApiError("NoSuchResourceException", "The request failed because the specified quota does not exist.")
    _, name, here, new = _QUOTAS[code]
    given = _given()
    if not default and given.get(code, here) is None:  # as in an account that never requested an increase
        raise ApiError("NoSuchResourceException", f"No quota value is applied for {code}.")
    return {
        "Quota": {
            "ServiceCode": service, "QuotaCode": code, "QuotaName": name, "Adjustable": True, "Unit": "None",
            "GlobalQuota": False, "Value": new if default else given.get(code, here),
            "QuotaArn": f"arn:aws:servicequotas:{get_region()}:{get_account_id()}:{service}/{code}",
        }
    }  # fmt: skip


async def handle_request(
    _method: str, _path: str, headers: dict[str, str], body: bytes, _query: dict[str, Any]
) -> Response:
    """Respond to a request in the service's JSON protocol."""
    action = headers.get("x-amz-target", "").removeprefix(TARGET)
    reply = {"Content-Type": "application/x-amz-json-1.1"}
    try:
        if action not in ("GetServiceQuota", "GetAWSDefaultServiceQuota"):
            raise ApiError("UnsupportedOperation", f"the sandbox's Service Quotas has no {action}")
        answer = _quota(json.loads(body or b"{}"), default=action == "GetAWSDefaultServiceQuota")
        return 200, reply, json.dumps(answer).encode()
    except ApiError as error:
        return error.status, reply, json.dumps({"__type": error.code, "message": error.message}).encode()
