"""What outlives a cluster, from deployment to removal: a training is cancelled, its cluster destroyed, and one in another region goes on from S3. The bucket's
content is all that the two have in common."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.testing import sandbox_up
from tests.sandbox import on_aws
from tests.support import need_kubernetes, need_slurm, until
from trainium_cdk.description.engines import ENGINES

BUCKET = "outlives"
KEEP, CACHE = f"s3://{BUCKET}/runs", f"s3://{BUCKET}/compiled"
REGIONS = {"first": "us-east-1", "other": "us-east-2"}
TRAIN = "trn submit bert-large --optimizer adamw --accumulation 2 --steps 40"


def deploy(shell: on_aws.Shell, engine: str, name: str) -> str:
    """Deploy the smallest cluster in its region. Returns the option of its commands."""
    file, stack = shell.checkout / f"{name}.yaml", ENGINES[engine].stack
    options = f"--name {name} --engine {engine} --region {REGIONS[name]} --instance-type trn1.2xlarge --nodes 1"
    shell.run(f"trn init {file.name} {options} --force")
    described = file.read_text().replace("trn1.2xlarge, max_nodes", "trn1.2xlarge, min_nodes: 1, max_nodes")  # of EKS
    file.write_text(f"{described}\njobs:\n  keep: {KEEP}\n  cache: {CACHE}\n")
    shell.run(f'cdk bootstrap aws://ACCOUNT/{REGIONS[name]} --app ""')
    shell.run(f"cdk deploy {stack} -c env={file.name}")
    return f"--environment {file.name}"


def ended(log: str) -> list[str]:
    """The last step and its loss; and the parameters' checksum."""
    return [re.findall(r"\((\d+, \d+)\) (step_loss : \S+)", log)[-1], re.findall(r"parameters sha256 (\w+)", log)[-1]]


@pytest.mark.timeout(3600)  # hangs only
@pytest.mark.parametrize("engine", ENGINES)
def test_a_training_outlives_its_cluster(engine: str, tmp_path: Path) -> None:
    need_kubernetes() if engine == "eks" else need_slurm()
    directory, folder = tmp_path / "sandbox", tmp_path / "checkout"
    for path in (directory, folder):
        path.mkdir()
    shell = on_aws.Shell(directory, on_aws.checkout(folder))
    with sandbox_up(directory, "--kubernetes" if engine == "eks" else "--slurm") as aws:
        s3 = aws.client("s3")
        s3.create_bucket(Bucket=BUCKET)

        first = deploy(shell, engine, "first")
        job = shell.run(f"{TRAIN} --env TRN_SANDBOX_HOLD=25:/efs/go-on {first}").strip()
        look = f"trn status {job} --json {first}"
        assert until(lambda: f'"ckpt_20.pt in {KEEP}/{job}"' in shell.run(look), 300), shell.run(
            f"trn logs {job} {first}"
        )
        shell.run(f"trn cancel {job} {first}")
        whole = shell.run(f"{TRAIN} --keep no --no-precompile {first}").strip()
        undisturbed = shell.run(f"trn logs -f {whole} {first}")
        shell.run(f"trn destroy {first}")
        assert {kind for kind in aws.leftovers() if not kind.startswith("log groups")} == {"S3 buckets"}

        other = deploy(shell, engine, "other")
        again = shell.run(f"{TRAIN} --resume-from {KEEP}/{job} --no-precompile {other}").strip()
        log = shell.run(f"trn logs -f {again} {other}")
        assert re.search(rf"fetching {KEEP}/{job}/\w+/ckpt_20.pt.*It is in us-east-1: AWS charges", log), log[-9000:]
        assert "/ckpt_20.pt at step 20" in log
        assert ended(log) == ended(undisturbed)
        assert "Using a cached neff" in log
        assert "Call compiler" not in log
        shell.run(f"trn destroy {other}")
        for one in s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
            s3.delete_object(Bucket=BUCKET, Key=one["Key"])
        s3.delete_bucket(Bucket=BUCKET)
        assert {kind for kind in aws.leftovers() if not kind.startswith("log groups")} == set()
