"""FSx for Lustre: links to S3 and metadata, as settings; CloudFormation's schema is the judge."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template
from botocore.exceptions import ClientError

from sandbox import LocalAws
from sandbox.pcluster_validator.seed import seed
from tests.cdk import findings, needs, only, properties, resources
from tests.foreign.foreign import template, vpc
from tests.storage.test_storage import made
from trainium_cdk import TrnStorage
from trainium_cdk import settings as trn

A, B = "s3://corpus/a", "s3://corpus/b"


def fsx_of(**given: Any) -> trn.Fsx:
    return trn.Fsx.model_validate(given)


def of_settings(given: dict[str, Any]) -> Template:
    return made(trn.Storage(efs=None, fsx=fsx_of(**given)))


PERSISTENT = {"deployment": "PERSISTENT_2"}


@pytest.mark.parametrize(
    ("given", "lustre", "links"),
    [
        ({**PERSISTENT, "metadata_iops": "automatic"}, {"MetadataConfiguration": {"Mode": "AUTOMATIC"}}, {}),
        (
            {**PERSISTENT, "metadata_iops": 24000},
            {"MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 24000}},
            {},
        ),
        ({"s3_links": [{"uri": A}]}, {}, {"/data": A}),
        ({"s3_links": [{"uri": A, "auto_export": True}, {"uri": B, "directory": "/b"}]}, {}, {"/data": A, "/b": B}),
        (
            {"deployment": "PERSISTENT_1", "s3_links": [{"uri": A, "directory": "/a"}, {"uri": B, "directory": "/b"}]},
            {},
            {"/a": A, "/b": B},
        ),
        ({**PERSISTENT, "s3_links": [{"uri": A}, {"uri": B, "directory": "/b"}]}, {}, {"/data": A, "/b": B}),
    ],
)
def test_every_form_is_rendered(given: dict[str, Any], lustre: dict[str, Any], links: dict[str, str]) -> None:
    found = of_settings(given)
    rendered = only(found, "FSx::FileSystem")["LustreConfiguration"]
    of = ("MetadataConfiguration", "ImportPath")
    assert {key: rendered[key] for key in of if key in rendered} == lustre
    assert links == {
        link["FileSystemPath"]: link["DataRepositoryPath"]
        for link in properties(found, "FSx::DataRepositoryAssociation")
    }
    assert findings(found) == []


def test_links_are_made_one_after_the_other() -> None:
    given = {"s3_links": [{"uri": f"s3://corpus/{i}", "directory": f"/d{i}"} for i in range(8)]}
    found = of_settings(given)
    made = list(resources(found, "FSx::DataRepositoryAssociation"))
    assert len(made) == 8
    assert sorted(len(set(made) & needs(found, id)) for id in made) == list(range(8))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"metadata_iops": 12000}, "SCRATCH_2 does not offer metadata_iops. Fix: remove metadata_iops, or choose PERSISTENT_2"),
        ({**PERSISTENT, "metadata_iops": 5000}, "metadata_iops is 5000, which FSx does not offer. Fix: write 6000, or automatic"),
        ({"s3_links": [{"uri": A}, {"uri": B}]}, "two links to S3 overlap (directory /data and /data)"),
        ({"s3_links": [{"uri": A, "directory": "/d"}, {"uri": B, "directory": "/d/e"}]}, "overlap (directory /d and /d/e)"),
        ({"s3_links": [{"uri": "s3://corpus", "directory": "/x"}, {"uri": "s3://corpus/y", "directory": "/y"}]}, "overlap (uri s3://corpus and s3://corpus/y)"),
        ({"s3_links": [{"uri": f"s3://corpus/{i}", "directory": f"/d{i}"} for i in range(9)]}, "9 links to S3: FSx has at most 8"),
        ({"deployment": "PERSISTENT_1", "backup_days": 3, "s3_links": [{"uri": A}]}, "a file system linked to S3 cannot have backups"),
    ],
)  # fmt: skip
def test_what_fsx_refuses_is_refused_before(given: dict[str, Any], told: str) -> None:
    with pytest.raises(trn.SettingsError) as refused:
        trn.validate({"storage": {"fsx": given}})
    assert told in str(refused.value)


def test_the_construct_refuses_it_too() -> None:
    def build(scope: Stack) -> None:
        TrnStorage(scope, "S", vpc=vpc(scope), lustre={"deployment": "PERSISTENT_1", "metadata_iops": 1500})  # type: ignore[arg-type]

    with pytest.raises(trn.SettingsError, match=r"^Foreign/S: error: lustre = .*: .* Fix: remove metadata_iops"):
        template(build)


@pytest.mark.parametrize(
    ("lustre", "told"),
    [
        ({"MetadataConfiguration": {"Mode": "AUTOMATIC", "Iops": 1500}}, "Iops 1500 and Mode AUTOMATIC do not fit"),
        ({"MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 2000}}, "2000 is not a valid number of Iops"),
        ({"ImportPath": "s3://b"}, "Linking a Persistent 2 file system"),
        ({"MetadataConfiguration": {"Mode": "AUTOMATIC"}}, ""),
    ],
)  # fmt: skip
def test_the_local_fsx_is_as_strict(local_aws: LocalAws, lustre: dict[str, Any], told: str) -> None:
    base = seed(local_aws.client)
    wanted = {
        "FileSystemType": "LUSTRE", "FileSystemTypeVersion": "2.15", "StorageCapacity": 1200, "SubnetIds": [base.private_subnet],
        "SecurityGroupIds": [base.security_group],
        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125, **lustre},
    }  # fmt: skip
    fsx = local_aws.client("fsx")
    if told:
        with pytest.raises(ClientError) as refused:
            fsx.create_file_system(**wanted)
        assert told in str(refused.value)
        return
    made = fsx.create_file_system(**wanted)["FileSystem"]["FileSystemId"]
    for i in range(8):
        fsx.create_data_repository_association(
            FileSystemId=made, FileSystemPath=f"/d{i}", DataRepositoryPath=f"s3://{base.bucket}/{i}/"
        )
    with pytest.raises(ClientError, match="can have 8 data repository associations"):
        fsx.create_data_repository_association(
            FileSystemId=made, FileSystemPath="/more", DataRepositoryPath=f"s3://{base.bucket}/more/"
        )
