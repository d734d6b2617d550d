"""AWS::FSx::FileSystem (Lustre) and AWS::FSx::DataRepositoryAssociation."""

from __future__ import annotations

from typing import Any

from sandbox.emulator import fsx
from sandbox.emulator.cfn.registry import Made, Properties, resource
from sandbox.emulator.query import ApiError

_NUMBERS = ("PerUnitStorageThroughput", "AutomaticBackupRetentionDays", "ImportedFileChunkSize", "Iops")
_FLAGS = ("CopyTagsToBackups", "BatchImportMetaDataOnCreate")


def _typed(properties: Any) -> Any:
    """Convert numbers and booleans, which templates may have as strings, to the API's types."""
    if not isinstance(properties, dict):
        return properties
    typed = {}
    for key, value in properties.items():
        if key in _NUMBERS:
            typed[key] = int(value)
        elif key in _FLAGS:
            typed[key] = str(value).lower() == "true"
        else:
            typed[key] = _typed(value)
    return typed


def _file_system(record: dict[str, Any]) -> Made:
    return record["FileSystemId"], {
        "DNSName": record["DNSName"],
        "LustreMountName": record["LustreConfiguration"]["MountName"],
        "ResourceARN": record["ResourceARN"],
    }


def _create(_logical: str, properties: Properties, _stack: str) -> Made:
    wanted = _typed(properties)
    wanted.setdefault("StorageCapacity", 1200)
    return _file_system(fsx.create_file_system(wanted)["FileSystem"])


def _update(physical_id: str, old: Properties, new: Properties) -> Made:
    change: dict[str, Any] = {"FileSystemId": physical_id}
    if new.get("StorageCapacity") != old.get("StorageCapacity"):
        change["StorageCapacity"] = int(new["StorageCapacity"])
    before, after = _typed(old.get("LustreConfiguration") or {}), _typed(new.get("LustreConfiguration") or {})
    change["LustreConfiguration"] = {key: after[key] for key in after if after[key] != before.get(key)}
    record = fsx.update_file_system(change)["FileSystem"]
    fsx.file_systems[physical_id]["Tags"] = list(new.get("Tags") or [])
    return _file_system(record)


def _delete(physical_id: str, _properties: Properties) -> None:
    try:
        fsx.delete_file_system({"FileSystemId": physical_id})
    except ApiError as error:
        if error.code != "FileSystemNotFound":
            raise


resource(
    "AWS::FSx::FileSystem",
    create=_create,
    update=_update,
    delete=_delete,
)


def _association(record: dict[str, Any]) -> Made:
    return record["AssociationId"], {
        "AssociationId": record["AssociationId"],
        "ResourceARN": record["ResourceARN"],
    }


def _link(_logical: str, properties: Properties, _stack: str) -> Made:
    return _association(fsx.create_data_repository_association(_typed(properties))["Association"])


def _relink(physical_id: str, _old: Properties, new: Properties) -> Made:
    change = {key: value for key, value in _typed(new).items() if key in ("ImportedFileChunkSize", "S3")}
    record = fsx.update_data_repository_association({"AssociationId": physical_id, **change})["Association"]
    record["Tags"] = list(new.get("Tags") or [])
    return _association(record)


def _unlink(physical_id: str, _properties: Properties) -> None:
    try:
        fsx.delete_data_repository_association({"AssociationId": physical_id})
    except ApiError as error:
        if error.code != "DataRepositoryAssociationNotFound":
            raise


resource(
    "AWS::FSx::DataRepositoryAssociation",
    create=_link,
    update=_relink,
    delete=_unlink,
)
