"""`trn clusters`: a row for each cluster of an account."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.test_outputs import EKS, GOOD
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.jobs import connection
from trainium_cdk.client.jobs.status import Node
from trainium_cdk.description.outputs.read import Deployed
from trainium_cdk.errors import OutputsError, TransportError

SILENT = "SSM does not manage the head node: it is stopped, deleted, or has just started"
STACKS = {
    "us-east-1": [
        Deployed("us-east-1", "TrnPclusterStack", "UPDATE_COMPLETE", GOOD),
        Deployed("us-east-1", "TrnEksStack", "CREATE_COMPLETE", EKS),
    ],
    "us-west-2": [
        Deployed("us-west-2", "TrnPclusterStack-half", "DELETE_FAILED", GOOD),
        Deployed("us-west-2", "TrnPclusterStack-west", "CREATE_COMPLETE", GOOD),
    ],
    "us-east-2": [],
}
TRN1 = "trn1.32xlarge"
NODES = {
    "TrnPclusterStack": [
        Node("compute1-dy-trn-1", "compute1", TRN1, "allocated+cloud", "a-1:train"),
        Node("compute1-dy-trn-2", "compute1", TRN1, "idle+cloud"),
        Node("compute1-dy-trn-3", "compute1", TRN1, "idle+cloud+powered_down", on=False),
    ],
    "TrnEksStack": [Node("ip-1", "trn", TRN1, "ready"), Node("system", "", "m5.large", "ready")],
}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters in two regions: of one neither stack can be asked. A third region cannot be read."""

    def deployed(region: str) -> list[Deployed]:
        if region not in STACKS:
            raise OutputsError(f"cannot read the stacks in {region}: AccessDenied")
        return STACKS[region]

    def nodes(stack: str) -> list[Node]:
        if stack not in NODES:
            raise TransportError(SILENT)
        return NODES[stack]

    monkeypatch.setattr(connection, "deployed", deployed)
    monkeypatch.setattr(connection, "connect", lambda *, cluster: SimpleNamespace(nodes=lambda: nodes(cluster.stack)))


@pytest.mark.usefixtures("account")
def test_who_forgot_one_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.app(["clusters", "--regions", "us-west-2,us-east-1"], standalone_mode=False)
    assert capsys.readouterr().out.splitlines() == [
        "region\tstack\tengine\tstate\tnodes\tnote",
        "us-east-1\tTrnEksStack\teks\tCREATE_COMPLETE\t1\t",  # the system node is none for jobs
        "us-east-1\tTrnPclusterStack\tslurm\tUPDATE_COMPLETE\t2\t",
        "us-west-2\tTrnPclusterStack-half\tslurm\tDELETE_FAILED\t\tstack TrnPclusterStack-half is DELETE_FAILED, not deployed. Delete the rest "
        "of it: `trn destroy TrnPclusterStack-half`",
        f"us-west-2\tTrnPclusterStack-west\tslurm\tCREATE_COMPLETE\t\t{SILENT}",
    ]


@pytest.mark.usefixtures("account")
def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    cli.app(["clusters", "--regions", "us-east-1", "--json"], standalone_mode=False)
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [one.pop("nodes") for one in found] == [1, 2]
    assert found[1] == {
        "region": "us-east-1", "stack": "TrnPclusterStack", "engine": "slurm", "state": "UPDATE_COMPLETE", "note": "", "sandbox": False,
    }  # fmt: skip


@pytest.mark.usefixtures("account")
def test_regions_without_a_cluster_and_without_access(capsys: pytest.CaptureFixture[str]) -> None:
    cli.app(["clusters", "--region", "us-east-2"], standalone_mode=False)
    assert capsys.readouterr().err == "no cluster of trainium-cdk in us-east-2. Elsewhere: --regions all\n"
    assert cli.app(["clusters", "--regions", "us-east-2,ap-south-2"], standalone_mode=False) == 1
    assert "cannot read the stacks in ap-south-2: AccessDenied" in capsys.readouterr().err
