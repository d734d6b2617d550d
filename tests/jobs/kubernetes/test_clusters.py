"""`trn clusters`: a Slurm and a Kubernetes cluster of one account, both with jobs, and one that does not answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.kubernetes.conftest import NAME, NODES, Running, script
from tests.support import TRN, completed, head_node
from tests.test_outputs import exported
from trainium_cdk import settings
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.jobs.kubernetes import KubernetesBackend
from trainium_cdk.outputs import parse

REGION = "us-east-1"
ACTIONS = [
    "cloudformation:DescribeStacks", "cloudwatch:DescribeAlarms", "ec2:DescribeInstances", "ssm:SendCommand", "ssm:GetCommandInvocation",
]  # fmt: skip
ALARM = {
    "AlarmName": "TrnEksStack-listed-IdleNodes1A2B", "AlarmDescription": "listed: nodes cost money without work", "Namespace": "Trainium",
    "MetricName": "NodesIdle", "Statistic": "Minimum", "Period": 300, "EvaluationPeriods": 12, "Threshold": 0.0,
    "ComparisonOperator": "GreaterThanThreshold",
}  # fmt: skip


@pytest.fixture
def stacks(running: Running, slurm: LocalSlurm, local_aws: LocalAws) -> Iterator[dict[str, dict[str, str]]]:
    """Outputs of three stacks, which the user may read."""
    cloudformation, iam = local_aws.client("cloudformation"), local_aws.client("iam")
    cloudwatch = local_aws.client("cloudwatch")
    cloudwatch.put_metric_alarm(**ALARM)
    cloudwatch.set_alarm_state(AlarmName=ALARM["AlarmName"], StateValue="ALARM", StateReason="a test")
    with head_node(local_aws, "listed") as head:
        slurm.attach(local_aws.directory / "clusters/listed")
        eks = settings.Environment.model_validate({"eks": {"cluster_name": NAME}})
        named = settings.Environment.model_validate({"pcluster": {"cluster_name": "listed"}})
        made = {
            "TrnPclusterStack-listed": exported(named, head_node_id=head),
            "TrnEksStack-listed": exported(eks, bastion_host_id=""),
            "TrnPclusterStack-silent": exported(settings.Environment(), head_node_id="i-0123456789abcdef0"),
        }
        for name, values in made.items():
            note = {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "x"}}
            template = {
                "Resources": {"Note": note},
                "Outputs": {key: {"Value": value} for key, value in values.items()},
            }
            cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
            cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ACTIONS, "Resource": "*"}]}
        iam.put_user_policy(UserName="jobs-editor", PolicyName="clusters", PolicyDocument=json.dumps(policy))
        yield made
        cloudwatch.delete_alarms(AlarmNames=[ALARM["AlarmName"]])
        iam.delete_user_policy(UserName="jobs-editor", PolicyName="clusters")
        for name in made:
            cloudformation.delete_stack(StackName=name)
            cloudformation.get_waiter("stack_delete_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        (local_aws.directory / "clusters/listed/node.json").unlink()


def trn(running: Running, *words: str) -> subprocess.CompletedProcess[str]:
    return completed([TRN, "clusters", *words], env=running.variables)


def count_requests(backend: KubernetesBackend) -> list[str]:
    """The paths of what it asks from now on."""
    sent: list[str] = []
    send = backend.api._send

    def counted(method: str, path: str, *more: Any, **how: Any) -> Any:
        sent.append(f"{method} {path}")
        return send(method, path, *more, **how)

    backend.api._send = counted  # type: ignore[method-assign]
    return sent


def test_two_engines_and_one_that_is_silent(
    stacks: dict[str, dict[str, str]], running: Running, backend: KubernetesBackend, slurm: LocalSlurm
) -> None:
    cluster = parse("TrnPclusterStack-listed", REGION, stacks["TrnPclusterStack-listed"])
    far = SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))  # type: ignore[arg-type]
    first = far.submit(Script(filename="w.sh", content=b"sleep 600", nodes=2)).id
    waiting = far.submit(Script(filename="w.sh", content=b"true", nodes=4, cache="other")).id
    there = backend.submit(script(b"sleep 600", nodes=1)).id
    assert wait_until(lambda: far.status(first).state == backend.status(there).state == "RUNNING", 300)
    done = trn(running, "--json")
    assert done.returncode == 0, done.stderr
    silent, on_slurm, on_eks = (
        next(one for one in json.loads(done.stdout) if one["stack"] == name)
        for name in ("TrnPclusterStack-silent", "TrnPclusterStack-listed", "TrnEksStack-listed")
    )
    assert all(one["sandbox"] for one in json.loads(done.stdout))
    assert (on_slurm["engine"], on_slurm["region"], on_slurm["state"]) == ("slurm", REGION, "CREATE_COMPLETE")
    assert [on_slurm[key] for key in ("busy", "running", "waiting", "note")] == [2, 1, 1, ""]
    assert [on_eks[key] for key in ("engine", "busy", "running", "waiting", "note")] == ["eks", 1, 1, 0, ""]
    assert on_slurm["nodes"] >= 2
    assert on_slurm["usd_per_hour"] == pytest.approx(21.5 * on_slurm["nodes"])
    assert "nothing was run on i-0123456789abcdef0: by AWS's own tags it is not the head node" in silent["note"]
    assert (silent["nodes"], silent["usd_per_hour"]) == (None, None)
    assert [on_eks[key] for key in ("idle", "alarms")] == [NODES - 1, [ALARM["AlarmDescription"]]]
    by_id = {job["id"]: job for one in (on_slurm, on_eks) for job in one["jobs"]}
    assert [by_id[id]["state"] for id in (first, waiting, there)] == ["RUNNING", "PENDING", "RUNNING"]
    assert all(by_id[id]["usd"] > 0 and by_id[id]["nodes"] for id in (first, there))
    assert 0 < by_id[waiting]["waiting"] <= on_slurm["longest_wait"]
    plain = subprocess.Popen([TRN, "clusters"], env=running.variables, stdout=subprocess.PIPE, text=True)
    sent = count_requests(backend)
    backend.activity()
    assert 5 <= len(sent) <= 15, sent
    assert f"{REGION}\tTrnEksStack-listed\teks\tCREATE_COMPLETE\t" in plain.communicate(timeout=300)[0]
    for id in (first, waiting):
        far.cancel(id)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--regions", "mars-1"), 1, "'mars-1' is not a region of the catalogue. Use all, or "),
        (("--regions", ","), 1, "it is empty. Give regions with commas between them, or all"),
        ((), 1, f"cannot read the stacks in {REGION}: "),
    ],
)
def test_errors(words: tuple[str, ...], code: int, message: str, running: Running) -> None:
    """The last: a user who may not read stacks."""
    done = trn(running, *words)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
