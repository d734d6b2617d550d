"""EKS's public data: cluster versions, add-on versions, and the SSM parameters of the Neuron node images.

They come from the project's catalogue, through the file `eks-versions.json` in the sandbox's folder, written at start and
read for each request: `{"versions": {version: {standard, extended}}, "addons": {name: [versions]}, "images": [...]}`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ministack.core.responses import get_region
from ministack.services import eks, ssm

from sandbox.emulator.query import Response


def _facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(os.environ["SANDBOX_DIR"]) / "eks-versions.json").read_text())
    return found


def _json(answer: dict[str, Any]) -> Response:
    return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


def _stamp(day: str) -> float:
    return dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC).timestamp()


def describe_cluster_versions() -> Response:
    """Every version, with its support status today."""
    today, listed = dt.datetime.now(dt.UTC).date().isoformat(), []
    for version, ends in sorted(_facts()["versions"].items()):
        standard, extended = ends["standard"], ends["extended"]
        status = "STANDARD_SUPPORT" if today <= standard else "EXTENDED_SUPPORT" if today <= extended else "UNSUPPORTED"
        listed.append(
            {
                "clusterVersion": version, "clusterType": "eks", "versionStatus": status,
                "status": status.lower().replace("_", "-"), "endOfStandardSupportDate": _stamp(standard),
                "endOfExtendedSupportDate": _stamp(extended),
            }
        )  # fmt: skip
    return _json({"clusterVersions": listed})


def describe_addon_versions(query: dict[str, Any]) -> Response:
    """The versions of one add-on, or of all."""
    name, kubernetes = (str((query.get(key) or [""])[0]) for key in ("addonName", "kubernetesVersion"))
    addons = [
        {
            "addonName": addon,
            "addonVersions": [
                {"addonVersion": v, "compatibilities": [{"clusterVersion": kubernetes}]} for v in versions
            ],
        }
        for addon, versions in _facts()["addons"].items()
        if name in ("", addon)
    ]
    return _json({"addons": addons})


def image_of(parameter: str) -> str:
    """An invented image id, the same for the same parameter."""
    return "ami-" + hashlib.sha256(parameter.encode()).hexdigest()[:17]


def install() -> None:
    """Add the two calls that ministack's EKS lacks, and the public parameters."""
    answer, parameter = eks.handle_request, ssm._public_parameter

    async def handle_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        if method == "GET" and path == "/cluster-versions":
            return describe_cluster_versions()
        if method == "GET" and path == "/addons/supported-versions":
            return describe_addon_versions(query)
        return await answer(method, path, headers, body, query)

    def public_parameter(name: str) -> Any:
        found = parameter(next(iter(ssm._PUBLIC_AMI_PARAMETERS))) if name in _facts()["images"] else None
        arn = f"arn:aws:ssm:{get_region()}::parameter{name}"
        return {**found, "Name": name, "Value": image_of(name), "ARN": arn} if found else parameter(name)

    eks.handle_request, ssm._public_parameter = handle_request, public_parameter
