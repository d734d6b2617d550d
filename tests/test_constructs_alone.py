"""The constructs in a foreign app: deployed into the local AWS and destroyed with the real CDK command line."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import trainium_cdk
from sandbox import LocalAws
from sandbox.leftovers import beyond
from tests.support import ROOT, completed

APP = Path(__file__).parent / "apps" / "constructs_alone.py"


def test_every_construct_is_found_in_the_package() -> None:
    for name in trainium_cdk.__all__:
        assert getattr(trainium_cdk, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'TrnNothing'"):
        trainium_cdk.TrnNothing  # noqa: B018


@pytest.mark.parametrize("package", ["trainium_cdk", "trainium_cdk.jobs", "trainium_cdk.stacks"])
def test_type_checkers_and_python_find_the_same_names(package: str) -> None:
    """The imports for type checkers in a package, against its table; also once a module that has such a name is imported."""
    found = import_module(package)
    tree = ast.parse(Path(str(found.__file__)).read_text("utf-8"))
    [typed] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [(node.module, node.names[0].name) for node in typed.body if isinstance(node, ast.ImportFrom)]
    modules = getattr(found, "_MODULES", {})
    assert sorted(name for _, name in imported) == sorted([*found.__all__, *modules])
    for module, name in imported:
        assert getattr(found, name) is (
            import_module(f"{module}.{name}") if name in modules else getattr(import_module(str(module)), name)
        )


def test_type_checkers_report_a_name_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from trainium_cdk import TrnBucket, TrnNodeGruop\nfrom trainium_cdk.jobs import conect\nfrom trainium_cdk.stacks import TrnEksStak\n"
    )
    packages = ("trainium_cdk", "trainium_cdk.jobs", "trainium_cdk.stacks")  # not the CDK's 200 MB
    sections = "".join(f"[mypy-{name}]\nfollow_imports = silent\n" for name in packages)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nfollow_imports = skip\n{sections}")
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "mine.py"]
    done = completed(command, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(ROOT / "constructs")})
    reported = re.findall(r'^mine.py:(\d): error: Module "\S+" has no attribute "(\w+)"', done.stdout, re.MULTILINE)
    assert reported == [("1", "TrnNodeGruop"), ("2", "conect"), ("3", "TrnEksStak")], done.stdout


def test_the_package_alone_does_not_load_the_cdk() -> None:
    code = "import sys, trainium_cdk; sys.exit('aws_cdk' in sys.modules or 'jsii' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=900).returncode == 0


class Deployed:
    """The foreign app in the local AWS."""

    def __init__(self, aws: LocalAws, folder: Path):
        self.aws, self.folder = aws, folder

    def cdk(self, *arguments: str) -> str:
        """Of the app as it was deployed last."""
        return self.aws.cdk(*arguments, "--app", str(self.folder / "cdk.out"), cwd=self.folder).stdout

    def deploy(self, **context: str) -> dict[str, str]:
        outputs = self.folder / "outputs.json"
        given = [word for key, value in context.items() for word in ("-c", f"{key}={value}")]
        app = ["--app", f"{sys.executable} {APP}", "-o", str(self.folder / "cdk.out"), *given]
        self.aws.cdk("deploy", *app, "--require-approval", "never", "--outputs-file", str(outputs), cwd=self.folder)
        found: dict[str, str] = json.loads(outputs.read_text())["Alone"]
        return {name.removesuffix("Out"): value for name, value in found.items()}

    def sweep(self, made: dict[str, str], stayed: dict[str, list[str]]) -> None:
        """Delete manually what was kept, as its owner would one day."""
        self.call("fsx", "delete_file_system", FileSystemId=made["Fsx"])
        self.call("efs", "delete_file_system", FileSystemId=made["Efs"])
        for bucket in stayed["S3 buckets"]:
            versions = self.call("s3", "list_object_versions", Bucket=bucket)
            for v in (*versions.get("Versions", []), *versions.get("DeleteMarkers", [])):
                self.call("s3", "delete_object", Bucket=bucket, Key=v["Key"], VersionId=v["VersionId"])
            self.call("s3", "delete_bucket", Bucket=bucket)
        [repository], [log] = stayed["ECR repositories"], stayed["log groups"]
        self.call("ecr", "delete_repository", repositoryName=repository, force=True)
        self.call("logs", "delete_log_group", logGroupName=log)
        [vpc], [subnet] = stayed["VPCs"], stayed["subnets"]
        for group in stayed["security groups"]:
            found = self.call("ec2", "describe_security_groups", GroupIds=[group])["SecurityGroups"][0]
            if found["GroupName"] != "default":
                self.call("ec2", "delete_security_group", GroupId=group)
        self.call("ec2", "delete_subnet", SubnetId=subnet)
        self.call("ec2", "delete_vpc", VpcId=vpc)

    def call(self, service: str, operation: str, **arguments: Any) -> Any:
        return getattr(self.aws.client(service), operation)(**arguments)


@pytest.mark.sweep
def test_deployed_updated_and_destroyed_completely(local_aws: LocalAws, tmp_path: Path) -> None:
    before = local_aws.leftovers()
    app = Deployed(local_aws, tmp_path)
    made = app.deploy()

    in_vpc = [{"Name": "vpc-id", "Values": [made["Vpc"]]}]
    subnets = app.call("ec2", "describe_subnets", Filters=in_vpc)["Subnets"]
    assert {(s["CidrBlock"], s["AvailabilityZoneId"]) for s in subnets} == {
        ("10.0.0.0/24", "use1-az6"),
        ("10.0.240.0/20", "use1-az6"),
    }
    efs = app.call("efs", "describe_file_systems", FileSystemId=made["Efs"])["FileSystems"][0]
    assert efs["Encrypted"] is True
    policy = json.loads(app.call("efs", "describe_file_system_policy", FileSystemId=made["Efs"])["Policy"])
    assert [s["Effect"] for s in policy["Statement"]] == ["Deny"]
    [group] = app.call("ec2", "describe_security_groups", GroupIds=[made["EfaGroup"]])["SecurityGroups"]
    for side in ("IpPermissions", "IpPermissionsEgress"):
        itself = [p for p in group[side] if p["IpProtocol"] == "-1" and p.get("UserIdGroupPairs", [])]
        assert [[g["GroupId"] for g in p["UserIdGroupPairs"]] for p in itself] == [[made["EfaGroup"]]], side

    assert "There were no differences" in app.cdk("diff")
    grown = app.deploy(zones="use1-az6,use1-az4")
    assert grown == made, "an appended zone replaced something"
    targets = app.call("efs", "describe_mount_targets", FileSystemId=made["Efs"])["MountTargets"]
    assert {t["AvailabilityZoneId"] for t in targets} == {"use1-az6", "use1-az4"}

    for body in (b"one", b"two"):  # two versions
        app.call("s3", "put_object", Bucket=made["Bucket"], Key="payloads/x", Body=body)
    app.cdk("destroy", "--force")
    assert local_aws.leftovers() == before


@pytest.mark.sweep
def test_only_kept_data_stays(local_aws: LocalAws, tmp_path: Path) -> None:
    before = local_aws.leftovers()
    app = Deployed(local_aws, tmp_path)
    made = app.deploy(on_destroy="keep")
    app.call("s3", "put_object", Bucket=made["Bucket"], Key="checkpoint", Body=b"weights")
    app.cdk("destroy", "--force")
    stayed = beyond(local_aws.leftovers(), before)
    try:
        assert {kind: len(names) for kind, names in stayed.items() if names} == {
            "EFS file systems": 1,
            "FSx file systems": 1,
            "network interfaces": 1,  # of the Lustre file system, which retain their network:
            "VPCs": 1,
            "subnets": 1,
            "route tables": 1,  # the VPC's main one, and its default group
            "security groups": 2,
            "ECR repositories": 1,
            "S3 buckets": 2,  # the other one has the access logs of the first
            "log groups": 1,
        }
        assert made["Bucket"] in stayed["S3 buckets"]
        assert {made["Efs"], made["Fsx"]} == {*stayed["EFS file systems"], *stayed["FSx file systems"]}
    finally:
        app.sweep(made, stayed)
    assert local_aws.leftovers() == before
