"""`trn clusters`: a Slurm and a Kubernetes cluster of one account, and one that does not answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm
from tests.jobs.kubernetes.conftest import NAME, NODES, Running
from tests.support import TRN, completed, head_node
from tests.test_outputs import exported
from trainium_cdk import settings
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
from trainium_cdk.description.outputs import parse
from trainium_cdk.jobs import LocalTransport, SlurmBackend

REGION = "us-east-1"
ACTIONS = [
    "cloudformation:DescribeStacks", "ec2:DescribeInstances", "ssm:SendCommand", "ssm:GetCommandInvocation",
]  # fmt: skip


@pytest.fixture
def stacks(running: Running, slurm: LocalSlurm, local_aws: LocalAws) -> Iterator[dict[str, dict[str, str]]]:
    """Outputs of three stacks, which the user may read."""
    cloudformation, iam = local_aws.client("cloudformation"), local_aws.client("iam")
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
        iam.delete_user_policy(UserName="jobs-editor", PolicyName="clusters")
        for name in made:
            cloudformation.delete_stack(StackName=name)
            cloudformation.get_waiter("stack_delete_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        (local_aws.directory / "clusters/listed/node.json").unlink()


def trn(running: Running, *words: str) -> subprocess.CompletedProcess[str]:
    return completed([TRN, "clusters", *words], env=running.variables)


def test_two_engines_and_one_that_is_silent(
    stacks: dict[str, dict[str, str]], running: Running, backend: KubernetesBackend, slurm: LocalSlurm
) -> None:
    cluster = parse("TrnPclusterStack-listed", REGION, stacks["TrnPclusterStack-listed"])
    far = SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))  # type: ignore[arg-type]
    done = trn(running, "--json")
    assert done.returncode == 0, done.stderr
    silent, on_slurm, on_eks = (
        next(one for one in json.loads(done.stdout) if one["stack"] == name)
        for name in ("TrnPclusterStack-silent", "TrnPclusterStack-listed", "TrnEksStack-listed")
    )
    assert all(one["sandbox"] for one in json.loads(done.stdout))
    assert (on_slurm["engine"], on_slurm["region"], on_slurm["state"]) == ("slurm", REGION, "CREATE_COMPLETE")
    assert (on_slurm["nodes"], on_slurm["note"]) == (sum(node.on for node in far.nodes()), "")
    assert on_slurm["nodes"] > 0
    assert (on_eks["engine"], on_eks["nodes"], on_eks["note"]) == ("eks", NODES, "")
    assert "nothing was run on i-0123456789abcdef0: by AWS's own tags it is not the head node" in silent["note"]
    assert silent["nodes"] is None
    assert f"{REGION}\tTrnEksStack-listed\teks\tCREATE_COMPLETE\t{NODES}\t" in trn(running).stdout


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
