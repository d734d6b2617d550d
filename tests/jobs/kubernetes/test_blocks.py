"""What a submission and a status on EKS say of the end of a capacity block."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any, NoReturn

import boto3
import pytest
from botocore.stub import Stubber

from tests.jobs.kubernetes.conftest import fleet, make_cluster
from trainium_cdk.cdk.eks.scaler import observe
from trainium_cdk.client.jobs import blocks
from trainium_cdk.client.jobs.kubernetes.backend import KubernetesBackend
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.status import JobStatus, Stage
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.jobs import Script

ID = "cr-0fffffffffffffff1"


def not_asked() -> NoReturn:
    raise AssertionError("Kubernetes is not asked")


@pytest.fixture
def end() -> dt.datetime:
    """In two hours."""
    return dt.datetime.fromtimestamp(int(time.time()) + 7200, dt.UTC)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, end: dt.datetime) -> EksCluster:
    """A cluster in a block that EC2 knows, by botocore's own model of the answer."""
    stubbed = Stubber(boto3.client("ec2", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x"))
    answer = {"CapacityReservations": [{"CapacityReservationId": ID, "EndDate": end}]}
    stubbed.add_response("describe_capacity_reservations", answer, {"CapacityReservationIds": [ID]})
    stubbed.activate()
    monkeypatch.setattr("trainium_cdk._aws.client", lambda *_: stubbed.client)
    return make_cluster(fleet(capacity_type="capacity-block", reservation=ID))


def status(state: str, **changes: Any) -> JobStatus:
    return JobStatus("x-1", "script", "trn", "trn1.32xlarge", 1, None, (Stage("train", "1", state, **changes),))


def test_the_times_are_those_of_the_function_that_starts_nodes(cluster: EksCluster, end: dt.datetime) -> None:
    [block], why = blocks.ask(cluster)
    assert why == ""
    times = [(end - early).timestamp() for early in (observe._JOBS_LEAVE, observe._EKS_STOPS)]
    assert [block.saves, block.stops] == times


def test_a_submission_says_what_the_job_gets(cluster: EksCluster, end: dt.datetime) -> None:
    made = plan(Script(filename="x.sh", content=b"true", precompile=False, image="i", time_limit="3h"), cluster)
    said = blocks.line(made, *blocks.ask(cluster))
    assert said.startswith(f"capacity block {ID} ends at {end:%Y-%m-%d %H:%M} UTC, its nodes from ")
    assert "; you asked for 3 h 0 min. If it starts now it has 7" in said
    assert said.endswith("then it saves, waits for the next block, and continues there")


def test_a_status_says_when_the_block_of_a_running_job_ends(cluster: EksCluster) -> None:
    backend = KubernetesBackend(cluster, not_asked)
    running = backend._in_block(status("RUNNING"))
    assert running.current.reason.startswith(f"capacity block {ID} ends at ")
    for other in (status("PENDING"), status("RUNNING", reason="it hangs")):
        assert backend._in_block(other) == other


def test_other_clusters_ask_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainium_cdk._aws.client", lambda *_: not_asked())
    assert KubernetesBackend(make_cluster(), not_asked).blocks == ([], "")
