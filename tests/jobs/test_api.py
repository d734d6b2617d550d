"""The Python API as its users import it."""

from __future__ import annotations

import sys

import trainium_cdk.jobs as jobs
from tests.jobs.conftest import make_cluster
from tests.support import completed
from trainium_cdk.client.jobs.backend import Changes
from trainium_cdk.client.jobs.status import JobStatus, Stage
from trainium_cdk.jobs import Backend, BertLarge, LocalTransport, SlurmBackend, Transport


def test_every_export_exists() -> None:
    assert sorted(jobs.__all__) == jobs.__all__
    assert [name for name in jobs.__all__ if not hasattr(jobs, name)] == []


def test_neither_the_cdk_nor_boto3_is_needed_to_describe_and_render() -> None:
    code = "import sys, trainium_cdk.jobs; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = completed([sys.executable, "-c", code], check=True).stdout.split()
    assert not {"aws_cdk", "jsii", "boto3", "botocore", "typer"} & set(loaded)


def test_backends_implement_the_protocol() -> None:
    transport: Transport = LocalTransport()
    backend: Backend = SlurmBackend(make_cluster(), transport)
    assert {"submit", "status", "list", "cancel", "logs"} <= set(dir(backend))


def test_a_status_is_passed_on_when_it_changes() -> None:
    stages = [Stage("train", "1", state) for state in ("PENDING", "RUNNING")]
    waits, runs = (JobStatus("a", "script", "trn", "trn1.32xlarge", 1, None, (stage,)) for stage in stages)
    seen: list[JobStatus] = []
    changes = Changes(seen.append)
    for status in (waits, waits, runs, runs, waits):
        changes(status)
    assert seen == [waits, runs, waits]


def test_jobs_are_values() -> None:
    assert BertLarge(nodes=2) == BertLarge(nodes=2) != BertLarge(nodes=4)
    assert BertLarge.model_validate_json(BertLarge(nodes=2, env={"A": "b"}).model_dump_json()) == BertLarge(
        nodes=2, env={"A": "b"}
    )
