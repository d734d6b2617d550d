"""FSx for OpenZFS and for NetApp ONTAP: as much as a cluster that mounts their volumes asks for. Requests are checked with botocore's
model; a file system has one network interface in each subnet, and everything is available at once."""

from __future__ import annotations

import secrets
import time
from typing import Any

from ministack.core.responses import AccountRegionScopedDict, get_account_id, get_region
from ministack.services import ec2

from sandbox.emulator import service_model
from sandbox.emulator.query import ApiError, call_ec2

Data = dict[str, Any]
KINDS = ("OPENZFS", "ONTAP")

volumes = AccountRegionScopedDict()
machines = AccountRegionScopedDict()
"""ONTAP's storage virtual machines."""


def _id(prefix: str) -> str:
    return f"{prefix}-0{secrets.token_hex(8)}"


def _of(kind: str, system: Data, id: str) -> Data:
    arn = f"arn:aws:fsx:{get_region()}:{get_account_id()}:{kind}/{system['FileSystemId']}/{id}"
    return {
        "FileSystemId": system["FileSystemId"],
        "ResourceARN": arn,
        "CreationTime": time.time(),
        "Lifecycle": "CREATED",
    }


def file_system(request: Data) -> Data:
    """The record of a new file system."""
    data = service_model.checked("fsx", "CreateFileSystem", request)
    if unknown := [s for s in data["SubnetIds"] if s not in ec2._subnets]:
        raise ApiError("InvalidNetworkSettings", f"The subnet ID '{unknown[0]}' does not exist")
    id, kind = _id("fs"), data["FileSystemType"]
    interfaces = [
        call_ec2("CreateNetworkInterface", SubnetId=s, SecurityGroupId=data.get("SecurityGroupIds") or None, Description=id).findtext(
            ".//networkInterfaceId"
        )
        for s in data["SubnetIds"]
    ]  # fmt: skip
    arn = f"arn:aws:fsx:{get_region()}:{get_account_id()}:file-system/{id}"
    record = {
        "OwnerId": get_account_id(), "CreationTime": time.time(), "FileSystemId": id, "FileSystemType": kind, "Lifecycle": "AVAILABLE",
        "StorageCapacity": data.get("StorageCapacity", 64), "VpcId": ec2._subnets[data["SubnetIds"][0]]["VpcId"], "ResourceARN": arn,
        "SubnetIds": data["SubnetIds"], "NetworkInterfaceIds": interfaces, "Tags": data.get("Tags") or [],
    }  # fmt: skip
    if kind == "OPENZFS":
        record["DNSName"] = f"{id}.fsx.{get_region()}.amazonaws.com"
    return record


def storage_virtual_machine(request: Data, system: Data) -> Data:
    """A new machine of an ONTAP file system."""
    data, id = service_model.checked("fsx", "CreateStorageVirtualMachine", request), _id("svm")
    name = f"{id}.{system['FileSystemId']}.fsx.{get_region()}.amazonaws.com"
    record = {**_of("storage-virtual-machine", system, id), "StorageVirtualMachineId": id, "Name": data["Name"]}
    machines[id] = record | {"Endpoints": {"Nfs": {"DNSName": name, "IpAddresses": ["198.19.255.2"]}}}
    return dict(machines[id])


def volume(request: Data, system: Data) -> Data:
    """A new volume. OpenZFS names its path after its parent and itself; ONTAP's is the junction path."""
    data, id = service_model.checked("fsx", "CreateVolume", request), _id("fsvol")
    kind = data["VolumeType"]
    given = dict(data["OntapConfiguration" if kind == "ONTAP" else "OpenZFSConfiguration"])
    if kind == "OPENZFS":
        given["VolumePath"] = f"/fsx/{data['Name']}"
    record = {**_of("volume", system, id), "VolumeId": id, "VolumeType": kind, "Name": data["Name"]}
    volumes[id] = record | {("OntapConfiguration" if kind == "ONTAP" else "OpenZFSConfiguration"): given}
    return dict(volumes[id])


def described(known: Any, ids: list[str] | None, code: str) -> list[Data]:
    """Those of the ids, or all."""
    if unknown := [i for i in ids or () if i not in known]:
        raise ApiError(code, f"{unknown[0]} does not exist")
    return [known[i] for i in ids or known]


def delete(system: str) -> None:
    """What belongs to a file system that is deleted."""
    for known in (volumes, machines):
        for id in [i for i, record in known.items() if record["FileSystemId"] == system]:
            del known[id]
