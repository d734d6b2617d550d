"""The FSx API for Lustre (other types: `fsx_volumes`): file systems, data repository associations, tags.

ministack has no FSx. moto's file systems have neither data repository associations nor updates, and no network
interfaces, through which pcluster's validators find their security groups. This is therefore a separate service
next to ministack's, with its records next to the EC2 resources that it refers to.
Everything is available immediately.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

from ministack.core.responses import AccountRegionScopedDict, get_account_id, get_region
from ministack.services import ec2, s3

from sandbox.emulator import fsx_volumes
from sandbox.emulator.query import ApiError, Response, call_ec2

Data = dict[str, Any]
TARGET = "AWSSimbaAPIService_v20180301."

file_systems = AccountRegionScopedDict()
associations = AccountRegionScopedDict()

_THROUGHPUT = {"PERSISTENT_1": (12, 40, 50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000)}
MOST_LINKS = 8
"""Data repository associations of a file system (FSx API reference, CreateDataRepositoryAssociation)."""
_DEPLOYMENTS = ("SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2")


def _arn(kind: str, identifier: str) -> str:
    return f"arn:aws:fsx:{get_region()}:{get_account_id()}:{kind}/{identifier}"


def _check_lustre(capacity: int, deployment: str, throughput: int | None) -> None:
    if deployment not in _DEPLOYMENTS:
        raise ApiError("BadRequest", f"Invalid deployment type {deployment}: use one of {_DEPLOYMENTS}")
    if capacity != 1200 and (capacity % 2400 or capacity <= 0):
        raise ApiError(
            "BadRequest",
            f"Invalid storage capacity {capacity} GiB for {deployment}: it must be 1200 or a multiple of 2400",
        )
    allowed = _THROUGHPUT.get(deployment)
    if allowed and throughput not in allowed:
        raise ApiError(
            "BadRequest", f"Invalid PerUnitStorageThroughput {throughput} for {deployment}: use one of {allowed}"
        )
    if not allowed and throughput is not None:
        raise ApiError("BadRequest", f"PerUnitStorageThroughput is not supported by {deployment}")


def _check_metadata(lustre: Data, version: str) -> None:
    """FSx API reference, CreateFileSystemLustreMetadataConfiguration."""
    metadata = lustre.get("MetadataConfiguration")
    if not metadata:
        return
    if lustre.get("DeploymentType") != "PERSISTENT_2" or version != "2.15":
        raise ApiError(
            "BadRequest", "MetadataConfiguration is supported by PERSISTENT_2 file systems with Lustre 2.15 only"
        )
    mode, iops = metadata.get("Mode"), metadata.get("Iops")
    if mode not in ("AUTOMATIC", "USER_PROVISIONED") or (iops is not None) != (mode == "USER_PROVISIONED"):
        raise ApiError("BadRequest", f"MetadataConfiguration: Iops {iops} and Mode {mode} do not fit")
    if iops is not None and int(iops) not in (1500, 3000, 6000, *range(12000, 192001, 12000)):
        raise ApiError("BadRequest", f"MetadataConfiguration: {iops} is not a valid number of Iops")


def _check_import(lustre: Data) -> None:
    if lustre.get("DeploymentType") == "PERSISTENT_2" and lustre.get("ImportPath"):
        raise ApiError(
            "BadRequest",
            "Linking a Persistent 2 file system to an S3 bucket using the LustreConfiguration is not supported",
        )


def create_file_system(data: Data) -> Data:
    """A Lustre file system with one network interface in its subnet."""
    if data.get("FileSystemType") in fsx_volumes.KINDS:
        other = fsx_volumes.file_system(data)
        file_systems[other["FileSystemId"]] = other
        return {"FileSystem": other}
    if data.get("FileSystemType") != "LUSTRE":
        raise ApiError("BadRequest", f"the sandbox has no FSx of type {data.get('FileSystemType')}")
    token = data.get("ClientRequestToken")
    for known in file_systems.values():
        if token and known.get("_token") == token:
            return {"FileSystem": _public(known)}
    subnets = data.get("SubnetIds") or []
    if len(subnets) != 1 or subnets[0] not in ec2._subnets:
        raise ApiError("InvalidNetworkSettings", f"Lustre needs one existing subnet, not {subnets}")
    for group in data.get("SecurityGroupIds") or []:
        if group not in ec2._security_groups:
            raise ApiError("InvalidNetworkSettings", f"The security group ID '{group}' does not exist")
    lustre = dict(data.get("LustreConfiguration") or {})
    deployment = lustre.get("DeploymentType", "SCRATCH_1")
    throughput = lustre.get("PerUnitStorageThroughput")
    _check_lustre(int(data["StorageCapacity"]), deployment, throughput)
    _check_metadata(lustre, data.get("FileSystemTypeVersion", "2.10"))
    _check_import(lustre)

    identifier = "fs-0" + uuid.uuid4().hex[:16]
    interface = call_ec2(
        "CreateNetworkInterface",
        SubnetId=subnets[0],
        SecurityGroupId=data.get("SecurityGroupIds") or None,
        Description=f"Interface for FSx file system {identifier}",
    ).findtext(".//networkInterfaceId")
    mount_name = "fsx" if deployment == "SCRATCH_1" else uuid.uuid4().hex[:8]
    record = {
        "OwnerId": get_account_id(), "CreationTime": time.time(), "FileSystemId": identifier,
        "FileSystemType": "LUSTRE", "Lifecycle": "AVAILABLE", "StorageCapacity": int(data["StorageCapacity"]),
        "StorageType": data.get("StorageType", "SSD"), "VpcId": ec2._subnets[subnets[0]]["VpcId"],
        "SubnetIds": subnets, "NetworkInterfaceIds": [interface], "ResourceARN": _arn("file-system", identifier),
        "DNSName": f"{identifier}.fsx.{get_region()}.amazonaws.com", "Tags": data.get("Tags") or [],
        "FileSystemTypeVersion": data.get("FileSystemTypeVersion", "2.15"),
        "LustreConfiguration": {
            "WeeklyMaintenanceStartTime": "1:05:00", "DataCompressionType": "NONE", "CopyTagsToBackups": False,
            "AutomaticBackupRetentionDays": 0, **lustre, "DeploymentType": deployment, "MountName": mount_name,
        },
        "_token": token,
    }  # fmt: skip
    file_systems[identifier] = record
    return {"FileSystem": _public(record)}


def _public(record: Data) -> Data:
    return {key: value for key, value in record.items() if not key.startswith("_")}


def _known_file_system(identifier: str) -> Data:
    if identifier not in file_systems:
        raise ApiError("FileSystemNotFound", f"File system '{identifier}' does not exist.")
    found: Data = file_systems[identifier]
    return found


def describe_file_systems(data: Data) -> Data:
    """File systems by id, or all."""
    ids = data.get("FileSystemIds")
    chosen = [_known_file_system(key) for key in ids] if ids else list(file_systems.values())
    return {"FileSystems": [_public(record) for record in chosen]}


def update_file_system(data: Data) -> Data:
    """Grow the capacity, or change another mutable property."""
    record = _known_file_system(data["FileSystemId"])
    if "StorageCapacity" in data:
        wanted = int(data["StorageCapacity"])
        if wanted < record["StorageCapacity"]:
            raise ApiError(
                "BadRequest", f"storage capacity can only grow ({record['StorageCapacity']} -> {wanted} GiB)"
            )
        record["StorageCapacity"] = wanted
    changed = {**record["LustreConfiguration"], **(data.get("LustreConfiguration") or {})}
    _check_metadata(changed, record["FileSystemTypeVersion"])
    record["LustreConfiguration"].update(changed)
    return {"FileSystem": _public(record)}


def delete_file_system(data: Data) -> Data:
    """Delete a file system, its network interface and its associations."""
    record = _known_file_system(data["FileSystemId"])
    for key, association in list(associations.items()):
        if association["FileSystemId"] == record["FileSystemId"]:
            del associations[key]
    for interface in record["NetworkInterfaceIds"]:
        call_ec2("DeleteNetworkInterface", NetworkInterfaceId=interface)
    fsx_volumes.delete(record["FileSystemId"])
    del file_systems[record["FileSystemId"]]
    return {"FileSystemId": record["FileSystemId"], "Lifecycle": "DELETING"}


def create_storage_virtual_machine(data: Data) -> Data:
    """A machine of an ONTAP file system."""
    system = _known_file_system(data["FileSystemId"])
    return {"StorageVirtualMachine": fsx_volumes.storage_virtual_machine(data, system)}


def describe_storage_virtual_machines(data: Data) -> Data:
    """By id, or all."""
    ids = data.get("StorageVirtualMachineIds")
    return {"StorageVirtualMachines": fsx_volumes.described(fsx_volumes.machines, ids, "StorageVirtualMachineNotFound")}


def create_volume(data: Data) -> Data:
    """A volume of an ONTAP machine, or below another volume of OpenZFS; the root volume has the file system's id."""
    if machine := data.get("OntapConfiguration", {}).get("StorageVirtualMachineId"):
        [found] = fsx_volumes.described(fsx_volumes.machines, [machine], "StorageVirtualMachineNotFound")
        system = found["FileSystemId"]
    else:
        system = data["OpenZFSConfiguration"]["ParentVolumeId"].replace("fsvol-", "fs-")
    return {"Volume": fsx_volumes.volume(data, _known_file_system(system))}


def describe_volumes(data: Data) -> Data:
    """By id, or all."""
    return {"Volumes": fsx_volumes.described(fsx_volumes.volumes, data.get("VolumeIds"), "VolumeNotFound")}


def create_data_repository_association(data: Data) -> Data:
    """Link a path of the file system to an S3 prefix. Not supported by SCRATCH_1."""
    system = _known_file_system(data["FileSystemId"])
    if system["LustreConfiguration"]["DeploymentType"] == "SCRATCH_1":
        raise ApiError("BadRequest", "data repository associations need SCRATCH_2 or PERSISTENT_2")
    path = data.get("DataRepositoryPath", "")
    match = re.match(r"s3://([^/]+)(/.*)?$", path)
    if not match:
        raise ApiError("BadRequest", f"DataRepositoryPath '{path}' is not an s3:// URI")
    if s3._bucket_owner_account(match[1]) is None:
        raise ApiError("BadRequest", f"The S3 bucket '{match[1]}' of DataRepositoryPath does not exist")
    if system["LustreConfiguration"].get("ImportPath"):
        raise ApiError(
            "BadRequest", "the file system is linked by its ImportPath, and cannot have data repository associations"
        )
    if sum(other["FileSystemId"] == data["FileSystemId"] for other in associations.values()) >= MOST_LINKS:
        raise ApiError("ServiceLimitExceeded", f"a file system can have {MOST_LINKS} data repository associations")
    for other in associations.values():
        if other["FileSystemId"] == data["FileSystemId"]:
            _refuse_overlap("file system", data.get("FileSystemPath", "/"), other["FileSystemPath"])
            _refuse_overlap("data repository", path, other["DataRepositoryPath"])
    identifier = "dra-0" + uuid.uuid4().hex[:16]
    associations[identifier] = {
        "AssociationId": identifier, "ResourceARN": _arn("association", identifier),
        "FileSystemId": data["FileSystemId"], "Lifecycle": "AVAILABLE", "CreationTime": time.time(),
        "FileSystemPath": data.get("FileSystemPath", "/"), "DataRepositoryPath": path,
        "BatchImportMetaDataOnCreate": bool(data.get("BatchImportMetaDataOnCreate", False)),
        "ImportedFileChunkSize": int(data.get("ImportedFileChunkSize", 1024)), "S3": data.get("S3") or {},
        "Tags": data.get("Tags") or [],
    }  # fmt: skip
    return {"Association": associations[identifier]}


def _refuse_overlap(what: str, path: str, other: str) -> None:
    """Each association has its own directory and prefix (FSx API reference, CreateDataRepositoryAssociation)."""
    a, b = f"{path.rstrip('/')}/", f"{other.rstrip('/')}/"
    if a.startswith(b) or b.startswith(a):
        raise ApiError("BadRequest", f"The {what} path '{path}' overlaps with another data repository association's")


def _known_association(identifier: str) -> Data:
    if identifier not in associations:
        raise ApiError("DataRepositoryAssociationNotFound", f"No data repository association '{identifier}' exists.")
    found: Data = associations[identifier]
    return found


def describe_data_repository_associations(data: Data) -> Data:
    """Associations by id or by the file-system-id filter, or all."""
    ids = data.get("AssociationIds")
    chosen = [_known_association(key) for key in ids] if ids else list(associations.values())
    for condition in data.get("Filters") or []:
        if condition["Name"] == "file-system-id":
            chosen = [entry for entry in chosen if entry["FileSystemId"] in condition["Values"]]
    return {"Associations": chosen}


def update_data_repository_association(data: Data) -> Data:
    """Change the chunk size or the S3 policies."""
    record = _known_association(data["AssociationId"])
    record.update({key: data[key] for key in ("ImportedFileChunkSize", "S3") if key in data})
    return {"Association": record}


def delete_data_repository_association(data: Data) -> Data:
    """Remove the link; data on both sides is kept."""
    record = _known_association(data["AssociationId"])
    del associations[record["AssociationId"]]
    return {"AssociationId": record["AssociationId"], "Lifecycle": "DELETING"}


def _by_arn(arn: str) -> Data:
    for record in [*file_systems.values(), *associations.values()]:
        if record["ResourceARN"] == arn:
            found: Data = record
            return found
    raise ApiError("ResourceNotFound", f"No resource '{arn}' exists.")


def tag_resource(data: Data) -> Data:
    """Set tags."""
    record = _by_arn(data["ResourceARN"])
    new = {tag["Key"]: tag["Value"] for tag in data["Tags"]}
    merged = {tag["Key"]: tag["Value"] for tag in record["Tags"]} | new
    record["Tags"] = [{"Key": key, "Value": value} for key, value in merged.items()]
    return {}


def untag_resource(data: Data) -> Data:
    """Remove tags."""
    record = _by_arn(data["ResourceARN"])
    record["Tags"] = [tag for tag in record["Tags"] if tag["Key"] not in data["TagKeys"]]
    return {}


def list_tags_for_resource(data: Data) -> Data:
    """The tags of a resource."""
    return {"Tags": _by_arn(data["ResourceARN"])["Tags"]}


ACTIONS: dict[str, Callable[[Data], Data]] = {
    "".join(part.capitalize() for part in function.__name__.split("_")): function
    for function in (
        create_file_system, describe_file_systems, update_file_system, delete_file_system,
        create_data_repository_association, describe_data_repository_associations,
        update_data_repository_association, delete_data_repository_association,
        create_storage_virtual_machine, describe_storage_virtual_machines, create_volume, describe_volumes,
        tag_resource, untag_resource, list_tags_for_resource,
    )
}  # fmt: skip


async def handle_request(
    _method: str, _path: str, headers: dict[str, str], body: bytes, _query: dict[str, Any]
) -> Response:
    """Respond to a request in FSx's JSON protocol."""
    action = headers.get("x-amz-target", "").removeprefix(TARGET)
    reply = {"Content-Type": "application/x-amz-json-1.1"}
    try:
        function = ACTIONS.get(action)
        if function is None:
            raise ApiError("UnsupportedOperation", f"the sandbox's FSx has no {action}")
        return 200, reply, json.dumps(function(json.loads(body or b"{}"))).encode()
    except ApiError as error:
        return error.status, reply, json.dumps({"__type": error.code, "Message": error.message}).encode()
