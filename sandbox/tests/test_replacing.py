"""What a change replaces in the local AWS: CloudFormation's own schemas, for every type that it carries."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox import paths, replacing
from sandbox.testing import need


def described(path: str, value: str) -> dict[str, Any]:
    """Properties with a value at a path."""
    first, _, rest = path.partition(".")
    return {first: described(rest, value) if rest else value}


def test_a_change_at_each_path_of_each_type_replaces_and_a_tag_does_not() -> None:
    for name, path in [(name, path) for name, found in replacing.data().items() for path in found]:
        first, other, tags = described(path, "first"), described(path, "other"), [{"Key": "a", "Value": "b"}]
        assert path in replacing.changed(name, first, other)
        assert path in replacing.changed(name, {}, first)
        assert set(replacing.changed(name, first, {**first, "Tags": tags, "NotInAnySchema": "c"})) <= {"Tags"}


def test_the_data_are_those_of_cloudformations_schemas_for_all_types() -> None:
    need(paths.environment("aws").is_dir(), "the environment of the local AWS")
    known = {name: list(found) for name, found in replacing.data().items()}
    assert known == replacing.read(), "python -m sandbox.replacing"


@pytest.mark.parametrize(
    ("name", "old", "new", "replaced"),
    [
        ("AWS::FSx::FileSystem", {"LustreConfiguration": {"DeploymentType": "SCRATCH_2", "WeeklyMaintenanceStartTime": "1:00:00"}},
         {"LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "WeeklyMaintenanceStartTime": "1:00:00"}}, ["LustreConfiguration.DeploymentType"]),
        ("AWS::FSx::FileSystem", {"LustreConfiguration": {"WeeklyMaintenanceStartTime": "1:00:00"}}, {"LustreConfiguration": {"WeeklyMaintenanceStartTime": "2:00:00"}}, []),
        ("AWS::FSx::FileSystem", {"KmsKeyId": "a"}, {}, ["KmsKeyId"]),
        ("AWS::FSx::FileSystem", {"StorageCapacity": 1200}, {"StorageCapacity": 2400}, []),
        ("AWS::EKS::Cluster", {"ResourcesVpcConfig": {"SubnetIds": ["a"], "EndpointPublicAccess": True}},
         {"ResourcesVpcConfig": {"SubnetIds": ["a"], "EndpointPublicAccess": False}}, []),
        ("AWS::EC2::Instance", {"BlockDeviceMappings": [{"Ebs": {"KmsKeyId": "a"}}]}, {"BlockDeviceMappings": [{"Ebs": {"KmsKeyId": "b"}}]},
         ["BlockDeviceMappings.Ebs.KmsKeyId"]),
        ("AWS::Nothing::AtAll", {"Name": "a"}, {"Name": "b"}, []),
    ],
)  # fmt: skip
def test_only_what_the_schema_names_replaces(
    name: str, old: dict[str, Any], new: dict[str, Any], replaced: list[str]
) -> None:
    assert replacing.changed(name, old, new) == replaced
