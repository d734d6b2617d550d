"""Where commands go: to SSM from anywhere, to this machine where it is the head node."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import LocalAws
from tests.jobs.conftest import make_cluster
from tests.support import head_node
from trainium_cdk.errors import TransportError
from trainium_cdk.jobs import Backend, LocalTransport, SsmTransport, connect, is_head_node

HEAD = "stack_name=trn-slurm\ncfn_node_type=HeadNode\ncfn_cluster_user=ubuntu\n"


@pytest.mark.parametrize(
    ("text", "here"),
    [
        (HEAD, True),
        ('stack_name="trn-slurm"\ncfn_node_type="HeadNode"\n', True),
        (HEAD.replace("trn-slurm", "other"), False),
        (HEAD.replace("HeadNode", "ComputeFleet"), False),
        ("", False),
        ("\xff", False),
        (None, False),
    ],
)
def test_the_head_node_is_detected_by_parallelclusters_files(tmp_path: Path, text: str | None, here: bool) -> None:
    file = tmp_path / "cfnconfig"
    if text is not None:
        file.write_text(text, encoding="latin-1")
    assert is_head_node(make_cluster(), file) is here


def test_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert isinstance(connect(cluster=make_cluster(), local=True).transport, LocalTransport)
    assert isinstance(connect(cluster=make_cluster()).transport, SsmTransport)


def test_a_backend_without_all_operations_is_refused() -> None:
    class Mine(Backend):
        ordered_logs = True

    with pytest.raises(TypeError, match=r"abstract methods .*cancel.*nodes"):
        Mine()  # type: ignore[abstract]


def test_a_stacks_outputs_cannot_name_another_instance(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody who may create a stack, and tag instances, could let an administrator run commands as root on any of them."""
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    ec2 = local_aws.client("ec2")
    tags = {"parallelcluster:cluster-name": "theirs", "parallelcluster:node-type": "HeadNode"}
    [made] = ec2.run_instances(InstanceType="c5.large", MinCount=1, MaxCount=1)["Instances"]
    ec2.create_tags(Resources=[made["InstanceId"]], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    sent: list[str] = []
    cluster = make_cluster(cluster_name="theirs", region=local_aws.region)
    try:
        named = cluster.model_copy(update={"head_node_id": made["InstanceId"]})
        monkeypatch.setattr(SsmTransport, "_poll", lambda *given: sent.append(str(given[1])) or "")
        for ask in (lambda: connect(cluster=named).list(), lambda: connect(cluster=named).session()):
            with pytest.raises(TransportError, match="by AWS's own tags it is not the head node of theirs"):
                ask()  # type: ignore[no-untyped-call]
        assert sent == []
        with head_node(local_aws, "theirs") as head:
            assert connect(cluster=cluster.model_copy(update={"head_node_id": head})).transport.instance == head
            other = cluster.model_copy(update={"head_node_id": head, "cluster_name": "other"})
            with pytest.raises(TransportError, match=f"nothing was run on {head}"):
                connect(cluster=other).session()
    finally:
        ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
