"""`trn image bake`: the image file, and the command that it prints, which ParallelCluster's own command accepts against the local AWS."""

from __future__ import annotations

import json
import shlex
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
from trainium_cdk.description.node.image import bake

BIN = Path(sys.executable).parent
BUCKET = "bake-files"
KEY = "arn:aws:kms:us-east-1:111122223333:key/0f0f0f0f-0000-4000-8000-000000000000"
"""Of the bucket, as with `encryption: customer-key`. ParallelCluster's role of the build may not use it."""
UVX = """#!/bin/sh
[ "$1 $2" = "--from aws-parallelcluster==3.16.1" ] && shift 2 && exec "$@"
"""
"""Runs the installed command instead of one that it would fetch."""
Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(local_aws: LocalAws, tmp_path: Path) -> Run:
    """Run a line of a shell with `trn` and ParallelCluster's command on the PATH, for a cluster whose bucket exists."""
    need_pcluster()
    s3 = local_aws.client("s3")
    if BUCKET not in {b["Name"] for b in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=BUCKET)
        with_a_key = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}}
        s3.put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": [with_a_key]})
    cluster = tmp_path / "cluster.json"
    cluster.write_text(make_cluster().model_copy(update={"bucket": BUCKET}).model_dump_json())
    uvx = tmp_path / "bin/uvx"
    uvx.parent.mkdir()
    uvx.write_text(UVX)
    uvx.chmod(0o755)
    path = f"{uvx.parent}:{PCLUSTER_PYTHON.parent}:{BIN}:/usr/bin:/bin"
    env = {**local_aws.env, "PATH": path, "HOME": str(tmp_path), "TRN_CLUSTER": str(cluster)}
    return lambda line: completed(["sh", "-c", line], env=env, cwd=tmp_path, timeout=600)


def baked(run: Run) -> str:
    """Write the image file; the command that is printed."""
    done = run("trn image bake > image.yaml")
    assert done.returncode == 0, done.stderr
    before, _, command = " ".join(done.stderr.split()).partition("write this to image.yaml, and build it: ")
    assert command, before
    return command


def test_parallelcluster_accepts_what_is_printed(run: Run, local_aws: LocalAws, tmp_path: Path) -> None:
    done = run(f"{baked(run)} --dryrun true")
    assert "DryRun flag is set" in done.stdout, done.stdout + done.stderr
    build = YAML(typ="safe").load(tmp_path / "image.yaml")["Build"]
    [component] = build["Components"]
    key = component["Value"].removeprefix(f"s3://{BUCKET}/")
    found = local_aws.client("s3").get_object(Bucket=BUCKET, Key=key)
    script = bake(settings.Environment(), parent_image=build["ParentImage"], bucket=BUCKET).script
    assert found["Body"].read().decode() == script
    assert found["ServerSideEncryption"] == "AES256"


@pytest.mark.sweep
def test_a_subnet_is_written_into_the_file(run: Run, tmp_path: Path) -> None:
    """As docs/guides/images.md says: ParallelCluster reads it there."""
    command = baked(run)
    file = tmp_path / "image.yaml"
    more = "Build:\n  SubnetId: subnet-0123456789abcdef0\n  SecurityGroupIds: [sg-0123456789abcdef0]\n"
    file.write_text(file.read_text().replace("Build:\n", more))
    done = run(f"{command} --dryrun true")
    [error] = json.loads(done.stdout)["configurationValidationErrors"]
    assert error["message"] == 'Invalid id: "sg-0123456789abcdef0"'


def test_only_parallelcluster_has_such_an_image(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "pcs.json"
    pcs = {"engine": "pcs", "cluster_id": "pcs_0123456789", "login_group_id": "pcs_abcdef0123"}
    other.write_text(json.dumps({**json.loads(make_cluster().model_dump_json()), **pcs}))
    done = run(f"trn image bake --cluster {shlex.quote(str(other))}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no ParallelCluster, whose command builds the image. Name another stack" in done.stderr
