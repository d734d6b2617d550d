"""The CDK's whole round, by its real command line, in the local AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws, SandboxError
from sandbox.__main__ import main
from sandbox.leftovers import beyond, inventory
from sandbox.pcluster_validator import PCLUSTER_PYTHON, installed_version
from tests.support import need, need_local_aws

APP = Path(__file__).parent / "app/app.py"
Synthesize = Callable[..., str]

# Lambda makes a function's log group at its first run, and nothing owns the one of CDK's own helper: as on AWS.
HELPERS_LOG = "/aws/lambda/SandboxTest-CustomS3AutoDeleteObjects"


@pytest.fixture(scope="module")
def aws(local_aws: LocalAws) -> LocalAws:
    need(installed_version(), f"aws-parallelcluster is not installed ({PCLUSTER_PYTHON}): make setup")
    return local_aws


@pytest.fixture
def synthesize(aws: LocalAws, tmp_path: Path) -> Synthesize:
    """The test's app with some context -> its cloud assembly."""

    def run(**context: str) -> str:
        out = tmp_path / "-".join(["out", *context, *context.values()])
        environment = {
            **aws.env,
            "CDK_OUTDIR": str(out),
            "CDK_CONTEXT_JSON": json.dumps({"version": installed_version(), **context}),
            "CDK_VALIDATION": "false",
        }
        subprocess.run([sys.executable, str(APP)], env=environment, check=True, capture_output=True)
        return str(out)

    return run


@pytest.fixture
def left(aws: LocalAws) -> Iterator[Callable[[], dict[str, list[str]]]]:
    """What exists beyond what existed when the test began; the stack is cleared away after it."""
    before = inventory(aws.client)
    yield lambda: beyond(inventory(aws.client), before)
    if "SandboxTest" in stacks(aws):
        aws.client("cloudformation").delete_stack(StackName="SandboxTest")
        aws.client("cloudformation").get_waiter("stack_delete_complete").wait(
            StackName="SandboxTest", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )


def stacks(aws: LocalAws) -> dict[str, str]:
    found = aws.client("cloudformation").describe_stacks()["Stacks"]
    return {stack["StackName"]: stack["StackStatus"] for stack in found}


def outputs(aws: LocalAws) -> dict[str, str]:
    stack = aws.client("cloudformation").describe_stacks(StackName="SandboxTest")["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def deploy(aws: LocalAws, out: str, check: bool = True) -> str:
    return aws.cdk("deploy", "--require-approval", "never", "-a", out, cwd=out, check=check).stdout


def cluster_file(aws: LocalAws, name: str = "trn") -> Any:
    return json.loads((aws.directory / "clusters" / name / "config.yaml").read_text())


@pytest.mark.sweep
def test_round_trip(aws: LocalAws, synthesize: Synthesize, left: Callable[[], dict[str, list[str]]]) -> None:
    first = synthesize()
    deploy(aws, first)
    made = outputs(aws)

    head = aws.client("ec2").describe_instances(InstanceIds=[made["HeadNode"]])["Reservations"][0]["Instances"][0]
    tags = {tag["Key"]: tag["Value"] for tag in head["Tags"]}
    assert (tags["Name"], tags["parallelcluster:cluster-name"]) == ("HeadNode", "trn")
    assert made["HeadAddress"].count(".") == 3
    resource = cluster_file(aws)["Scheduling"]["SlurmQueues"][0]["ComputeResources"][0]
    assert (resource["MaxCount"], resource["Efa"]) == (4, {"Enabled": True})  # in their own types again
    lustre = aws.client("fsx").describe_file_systems(FileSystemIds=[made["Lustre"]])["FileSystems"][0]
    assert lustre["LustreConfiguration"]["MountName"] == made["LustreMount"]
    assert [subnet["AvailabilityZoneId"] for subnet in
            aws.client("ec2").describe_subnets(Filters=[{"Name": "vpc-id", "Values": [made["Vpc"]]}])["Subnets"]
            ] == ["use1-az6"] * 2  # fmt: skip

    assert "There were no differences" in aws.cdk("diff", "-a", first, cwd=first).stdout
    before = inventory(aws.client)
    assert "(no changes)" in deploy(aws, first)

    deploy(aws, synthesize(nodes="8", note="second", throughput="500"))
    assert inventory(aws.client) == before, "an update in place must neither make nor remove anything"
    assert outputs(aws) == made
    assert aws.client("ssm").get_parameter(Name="/sandbox-test/note")["Parameter"]["Value"] == "second"
    updated = aws.client("fsx").describe_file_systems(FileSystemIds=[made["Lustre"]])["FileSystems"][0]
    assert updated["LustreConfiguration"]["PerUnitStorageThroughput"] == 500
    assert cluster_file(aws)["Scheduling"]["SlurmQueues"][0]["ComputeResources"][0]["MaxCount"] == 8

    refused = deploy(aws, synthesize(nodes="8", head="c5.9xlarge"), check=False)
    assert "Update actions are not currently supported for the 'InstanceType' parameter" in refused
    assert stacks(aws)["SandboxTest"] == "UPDATE_ROLLBACK_COMPLETE"
    aws.set_compute_fleet("trn", running=False)  # without nodes running, fewer of them are allowed
    deploy(aws, first)
    assert cluster_file(aws)["Scheduling"]["SlurmQueues"][0]["ComputeResources"][0]["MaxCount"] == 4

    aws.client("s3").put_object(Bucket=made["Bucket"], Key="data/part-0", Body=b"not kept")
    aws.cdk("destroy", "-f", "-a", first, cwd=first)
    rest = left()
    assert [name[: len(HELPERS_LOG)] for name in rest.pop("log groups")] == [HELPERS_LOG]
    assert rest == {}
    assert not (aws.directory / "clusters/trn").exists()


@pytest.mark.sweep
def test_a_configuration_pcluster_refuses_rolls_everything_back(
    aws: LocalAws, synthesize: Synthesize, left: Callable[[], dict[str, list[str]]]
) -> None:
    out = synthesize(type="trn1.2xlarge")
    printed = deploy(aws, out, check=False)
    assert "Instance type 'trn1.2xlarge' does not support EFA" in " ".join(printed.split())
    assert stacks(aws)["SandboxTest"] == "ROLLBACK_COMPLETE"
    assert {kind for kind in left() if kind != "log groups"} == {"CloudFormation stacks"}
    aws.cdk("destroy", "-f", "-a", out, cwd=out)
    assert {kind for kind in left() if kind != "log groups"} == set()


def test_the_command_line_gives_a_shell_its_aws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_local_aws()
    where = ["--dir", str(tmp_path / "aws")]
    assert main(["env", *where]) == 2
    assert "python -m sandbox up" in capsys.readouterr().err
    assert main(["up", *where]) == 0
    assert main(["up", *where]) == 0
    first, again = [line for line in capsys.readouterr().out.splitlines() if line.startswith("local AWS")]
    assert first == again, "a second `up` finds the one that runs"
    try:
        assert main(["env", *where]) == 0
        shell = capsys.readouterr().out + "env"
        seen = subprocess.run(
            ["sh", "-c", shell], env={**os.environ, "AWS_PROFILE": "real"}, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert f"AWS_ENDPOINT_URL={first.split()[3]}" in seen
        assert not [line for line in seen if line.startswith("AWS_PROFILE=")]
        assert main(["leftovers", *where]) == 0
        running = LocalAws.attach(tmp_path / "aws")
        assert running is not None
        running.client("s3").create_bucket(Bucket="forgotten")
        assert main(["leftovers", *where]) == 1
        assert "S3 buckets: forgotten" in capsys.readouterr().out
    finally:
        assert main(["down", *where]) == 0
    assert LocalAws.attach(tmp_path / "aws") is None


def test_an_emulator_that_does_not_start_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ModuleNotFoundError: ministack'\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sandbox.local_aws.EMULATOR_PYTHON", broken)
    with pytest.raises(SandboxError, match=r"ended with 7(.|\n)*ModuleNotFoundError: ministack"):
        LocalAws.start(tmp_path / "aws")


def test_what_was_started_ends_with_it(tmp_path: Path) -> None:
    """The emulator ends when the process that started it is killed, and ends a running command as well."""
    need_local_aws()
    script = """
import json, os, signal, sys, time
from sandbox import LocalAws
aws = LocalAws.start()
ec2 = aws.client("ec2")
head = ec2.run_instances(InstanceType="c5.large", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
tags = {"parallelcluster:cluster-name": "c", "parallelcluster:node-type": "HeadNode"}
ec2.create_tags(Resources=[head], Tags=[{"Key": k, "Value": v} for k, v in tags.items()])
(aws.directory / "clusters/c").mkdir()
(aws.directory / "clusters/c/node.json").write_text(json.dumps({"cwd": sys.argv[1]}))
aws.client("ssm").send_command(
    InstanceIds=[head], DocumentName="AWS-RunShellScript",
    Parameters={"commands": ["echo $$ > pid.new; mv pid.new pid; exec sleep 600"]},
)
while not os.path.exists(sys.argv[1] + "/pid"):
    time.sleep(0.05)
print(aws.pid, open(sys.argv[1] + "/pid").read().strip(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        cwd=APP.parents[3],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # a killed process removes nothing
        capture_output=True,
        text=True,
        check=False,
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    deadline = time.monotonic() + 600
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"still running: {pids}"
        time.sleep(0.1)
