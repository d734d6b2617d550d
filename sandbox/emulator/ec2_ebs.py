"""The account's default key of EBS, by region, and the zone id of volumes, which ministack leaves out."""

from __future__ import annotations

from typing import Any

from ministack.core.responses import AccountRegionScopedDict
from ministack.services import ec2, kms

from sandbox.emulator import service_model
from sandbox.emulator.query import ApiError, Response, ec2_response

AWS_OWN = "alias/aws/ebs"
_defaults: Any = AccountRegionScopedDict()


def get_default_key(params: dict[str, Any]) -> Response:  # noqa: ARG001
    """AWS's own key until another one is set."""
    return ec2_response("GetEbsDefaultKmsKeyId", {"KmsKeyId": _defaults.get("key", AWS_OWN)})


def modify_default_key(params: dict[str, Any]) -> Response:
    """Set a key by its id, ARN or alias."""
    name = service_model.of_query("ModifyEbsDefaultKmsKeyId", params)["KmsKeyId"]
    key = kms._resolve_key(name)
    if not key:
        raise ApiError("InvalidKmsKey.NotFound", f"The KMS key {name} does not exist")
    _defaults["key"] = key["Arn"]
    return ec2_response("ModifyEbsDefaultKmsKeyId", {"KmsKeyId": key["Arn"]})


def reset_default_key(params: dict[str, Any]) -> Response:  # noqa: ARG001
    """AWS's own key again."""
    _defaults.pop("key", None)
    return ec2_response("ResetEbsDefaultKmsKeyId", {"KmsKeyId": AWS_OWN})


def install() -> None:
    """Volumes are described with the id of their zone from now on."""
    described = ec2._volume_inner_xml

    def with_zone(volume: dict[str, Any]) -> str:
        zone = ec2._az_id_for_zone_name(volume["AvailabilityZone"])
        return f"{described(volume)}<availabilityZoneId>{zone}</availabilityZoneId>"

    ec2._volume_inner_xml = with_zone


ACTIONS = {
    "GetEbsDefaultKmsKeyId": get_default_key,
    "ModifyEbsDefaultKmsKeyId": modify_default_key,
    "ResetEbsDefaultKmsKeyId": reset_default_key,
}
