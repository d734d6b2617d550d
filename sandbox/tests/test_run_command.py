"""SSM Run Command really runs on this machine, in the surroundings that node.json gives."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.testing import head_node

pytestmark = pytest.mark.sweep

Invocation = dict[str, Any]
FINAL = ("Success", "Failed", "Cancelled", "TimedOut")


@pytest.fixture(name="head_node")
def attached(local_aws: LocalAws) -> Iterator[str]:
    """A head node of cluster `commands`, attached to a shell with one variable of its own."""
    with head_node(local_aws, "commands") as instance:
        folder = local_aws.directory / "clusters/commands"
        folder.mkdir(parents=True, exist_ok=True)
        node = {"env": {"PARTITION": "trn1 queue"}, "cwd": str(folder)}
        (folder / "node.json").write_text(json.dumps(node))
        yield instance
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def send(aws: LocalAws, instance: str, *commands: str, **parameters: list[str]) -> str:
    sent = aws.client("ssm").send_command(
        InstanceIds=[instance],
        DocumentName="AWS-RunShellScript",
        Parameters={"commands": list(commands), **parameters},
    )
    identifier: str = sent["Command"]["CommandId"]
    return identifier


def wait(
    aws: LocalAws, command: str, instance: str, until: Callable[[Invocation], bool] | None = None, seconds: float = 600
) -> Invocation:
    """The invocation once it satisfies `until` (default: it has ended)."""
    ssm = aws.client("ssm")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found: Invocation = ssm.get_command_invocation(CommandId=command, InstanceId=instance)
        if (until or (lambda entry: entry["Status"] in FINAL))(found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"the command did not get there: {found}")


def test_a_command_runs_here_with_the_nodes_environment(local_aws: LocalAws, head_node: str) -> None:
    command = send(local_aws, head_node, 'echo "$PARTITION"', "pwd", "echo note >&2", "echo made > made.txt")
    done = wait(local_aws, command, head_node)
    folder = local_aws.directory / "clusters/commands"
    assert (done["Status"], done["ResponseCode"]) == ("Success", 0)
    assert done["StandardOutputContent"] == f"trn1 queue\n{folder}\n"
    assert done["StandardErrorContent"] == "note\n"
    assert (folder / "made.txt").read_text() == "made\n"


def test_a_failing_command_keeps_and_reports_its_exit_code(local_aws: LocalAws, head_node: str) -> None:
    done = wait(local_aws, send(local_aws, head_node, "exit 3"), head_node)
    assert (done["Status"], done["ResponseCode"]) == ("Failed", 3)
    assert "exit status 3" in done["StandardErrorContent"]


def test_output_is_cut_where_aws_cuts_it(local_aws: LocalAws, head_node: str) -> None:
    command = send(
        local_aws, head_node, "head -c 30000 /dev/zero | tr '\\0' x; head -c 9000 /dev/zero | tr '\\0' y >&2"
    )
    done = wait(local_aws, command, head_node)
    assert (len(done["StandardOutputContent"]), len(done["StandardErrorContent"])) == (24_000, 8_000)
    listed = local_aws.client("ssm").list_command_invocations(CommandId=command, Details=True)
    assert len(listed["CommandInvocations"][0]["CommandPlugins"][0]["Output"]) == 2_500


def test_a_node_runs_five_commands_at_a_time(local_aws: LocalAws, head_node: str) -> None:
    running = [send(local_aws, head_node, "sleep 3600") for _ in range(5)]
    ssm = local_aws.client("ssm")
    try:
        for command in running:
            wait(local_aws, command, head_node, lambda entry: entry["Status"] == "InProgress")
        late = send(local_aws, head_node, "echo late")
        with pytest.raises(AssertionError, match="Pending"):
            wait(local_aws, late, head_node, lambda entry: entry["Status"] != "Pending", seconds=1)
        ssm.cancel_command(CommandId=running[0])
        assert wait(local_aws, late, head_node)["StandardOutputContent"] == "late\n"
    finally:
        for command in running:
            ssm.cancel_command(CommandId=command)


def test_a_running_command_can_be_cancelled(local_aws: LocalAws, head_node: str) -> None:
    command = send(local_aws, head_node, "echo begun > begun.txt; sleep 3600")
    begun = local_aws.directory / "clusters/commands/begun.txt"
    wait(local_aws, command, head_node, lambda entry: entry["Status"] == "InProgress" and begun.exists())
    local_aws.client("ssm").cancel_command(CommandId=command)
    assert wait(local_aws, command, head_node)["Status"] == "Cancelled"
    commands = local_aws.client("ssm").list_commands(CommandId=command)["Commands"]
    assert [entry["Status"] for entry in commands] == ["Cancelled"]


def test_a_command_is_ended_at_its_timeout(local_aws: LocalAws, head_node: str) -> None:
    command = send(local_aws, head_node, "sleep 3600", executionTimeout=["1"])
    done = wait(local_aws, command, head_node)
    assert (done["Status"], done["StatusDetails"]) == ("TimedOut", "Execution Timed Out")


def test_without_slurm_the_command_fails_with_a_reason(local_aws: LocalAws, head_node: str) -> None:
    (local_aws.directory / "clusters/commands/node.json").unlink()
    done = wait(local_aws, send(local_aws, head_node, "sinfo"), head_node)
    assert done["Status"] == "Failed"
    assert "no Slurm is attached to cluster commands" in done["StandardErrorContent"]


def test_other_instances_are_not_managed(local_aws: LocalAws) -> None:
    ec2, ssm = local_aws.client("ec2"), local_aws.client("ssm")
    plain = ec2.run_instances(InstanceType="c5.4xlarge", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    with pytest.raises(ssm.exceptions.InvalidInstanceId):
        send(local_aws, plain, "true")
    ec2.terminate_instances(InstanceIds=[plain])
