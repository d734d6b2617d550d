"""`trn image bake`: ParallelCluster's own command validates what is rendered, against the local AWS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from sandbox import LocalAws
from sandbox.pcluster_validator import PCLUSTER_PYTHON
from tests.jobs.conftest import make_cluster
from tests.support import completed, need_pcluster
from trainium_cdk import settings
from trainium_cdk.cluster_configuration.image import bake

BIN = Path(sys.executable).parent
BUCKET = "bake-files"
KEY = "arn:aws:kms:us-east-1:111122223333:key/0f0f0f0f-0000-4000-8000-000000000000"
"""Of the bucket, as with `encryption: customer-key`. ParallelCluster's role of the build may not use it."""
Trn = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def trn(local_aws: LocalAws, tmp_path: Path) -> Trn:
    """Run `trn image bake` with ParallelCluster's command on the PATH, for a cluster whose bucket exists."""
    need_pcluster()
    s3 = local_aws.client("s3")
    if BUCKET not in {b["Name"] for b in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=BUCKET)
        with_a_key = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}}
        s3.put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": [with_a_key]})
    cluster = tmp_path / "cluster.json"
    cluster.write_text(make_cluster().model_copy(update={"bucket": BUCKET}).model_dump_json())

    def run(
        *arguments: str, path: str = f"{PCLUSTER_PYTHON.parent}:{BIN}:/usr/bin:/bin"
    ) -> subprocess.CompletedProcess[str]:
        env = {**local_aws.env, "PATH": path, "HOME": str(tmp_path), "TRN_CLUSTER": str(cluster)}
        command = [BIN / "trn", "image", "bake", *arguments]
        return completed(command, env=env, cwd=tmp_path, timeout=600)

    return run


@pytest.mark.sweep
def test_parallelcluster_takes_the_configuration(trn: Trn, local_aws: LocalAws) -> None:
    printed = trn("--dry-run")
    assert printed.returncode == 0, printed.stderr
    configuration = YAML(typ="safe").load(printed.stdout)
    done = trn("--check")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ParallelCluster accepts the configuration\n"
    [component] = configuration["Build"]["Components"]
    key = component["Value"].removeprefix(f"s3://{BUCKET}/")
    found = local_aws.client("s3").get_object(Bucket=BUCKET, Key=key)
    uploaded = found["Body"].read().decode()
    image = configuration["Build"]["ParentImage"]
    assert uploaded == bake(settings.Environment(), parent_image=image, bucket=BUCKET).script
    assert found["ServerSideEncryption"] == "AES256"


@pytest.mark.sweep
def test_parallelclusters_refusal_is_reported(trn: Trn) -> None:
    done = trn("--check", "--subnet", "subnet-0123456789abcdef0", "--security-group", "sg-0123456789abcdef0")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("trn: ParallelCluster rejected it: ")
    assert 'Invalid id: "sg-0123456789abcdef0"' in done.stderr


FAILED = """#!/bin/sh
case "$1" in
  version) echo '{"version": "3.16.1"}' ;;
  describe-image) cat <<END
{"imageId": "$3", "imageBuildStatus": "BUILD_FAILED", "cloudformationStackStatusReason": "creation failed",
 "imageBuildLogsArn": "arn:aws:logs:us-east-1:111122223333:log-group:/aws/imagebuilder/ParallelClusterImage-$3",
 "imagebuilderImageStatusReason": "Step Execute failed"}
END
esac
"""
"""ParallelCluster's command, as it describes the stack of a failed build."""


def test_a_failed_build_says_why_and_how_to_go_on(trn: Trn, tmp_path: Path) -> None:
    program = tmp_path / "bin/pcluster"
    program.parent.mkdir()
    program.write_text(FAILED)
    program.chmod(0o755)
    done = trn(path=f"{program.parent}:/usr/bin:/bin")
    id = done.stdout.split("\t")[0]
    assert (done.returncode, done.stdout) == (1, f"{id}\tBUILD_FAILED\n")
    said = " ".join(done.stderr.split())
    assert (
        f"{id} failed: Step Execute failed. Its log is in CloudWatch, group /aws/imagebuilder/ParallelClusterImage-{id}."
        in said
    )
    assert f"run this command again: {program} delete-image --image-id {id} --region us-east-1" in said
    assert "to see the progress" not in said
    done = trn("--json", path=f"{program.parent}:/usr/bin:/bin")
    assert (done.returncode, json.loads(done.stdout)["imageBuildStatus"]) == (1, "BUILD_FAILED")


@pytest.mark.parametrize(
    ("arguments", "path", "message"),
    [
        (["--subnet", "subnet-0123456789abcdef0"], None, "give --subnet and --security-group together"),
        (["--check"], "/bin-that-is-not-there", "there is no `pcluster` 3.16.1 here, nor uvx or pipx to run it with"),
    ],
)
def test_refused(trn: Trn, arguments: list[str], path: str | None, message: str) -> None:
    done = trn(*arguments, **({"path": path} if path else {}))
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
