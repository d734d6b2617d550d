"""All of a cluster in one request, on a real Slurm: the same as the requests one by one tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend, clusters
from trainium_cdk.jobs.clusters import Overview, ask
from trainium_cdk.jobs.slurm.transport import Result
from trainium_cdk.jobs.status import JobStatus
from trainium_cdk.outputs.read import Deployed


class Counted(LocalTransport):
    sent = 0

    def ask(self, *args: Any, **options: Any) -> Result:
        self.sent += 1
        return super().ask(*args, **options)


def script(text: str, **fields: Any) -> Script:
    return Script(filename="w.sh", content=text.encode(), **fields)


def by_id(jobs: Iterable[JobStatus]) -> dict[str, JobStatus]:
    return {job.id: job for job in jobs}


def test_one_request_tells_all(slurm: LocalSlurm) -> None:
    transport = Counted(env=slurm.node_env(), interval=0.2)
    backend = SlurmBackend(make_cluster(fleet(nodes=4)), transport)
    nothing = backend.activity()  # before the first job there is no directory of jobs
    assert (len(nothing.nodes), nothing.jobs, nothing.foreign) == (4, (), ())
    runs = backend.submit(script("sleep 600", nodes=2)).id
    ended = backend.submit(script("exit 3")).id
    waits = backend.submit(script("true", nodes=3)).id
    other = slurm.run(["sbatch", "--parsable", "-p", "compute1", "-N", "3", "--wrap", "sleep 600"])
    assert other.returncode == 0, other.stderr
    number = other.stdout.strip()
    assert wait_until(lambda: backend.status(runs).state == "RUNNING" and backend.status(ended).state == "FAILED", 300)
    transport.sent = 0
    found = backend.activity()
    assert transport.sent == 1
    assert found.nodes == backend.nodes()
    assert found.foreign == backend.others()
    assert {job.id: job.state for job in found.jobs} == {runs: "RUNNING", waits: "PENDING", ended: "FAILED"}
    # Slurm's reason of the one that waits changes once more
    assert wait_until(lambda: by_id(backend.activity().jobs) == by_id(backend.list()), 60)
    assert [s.reason for s in backend.status(waits).stages] in (["waits for nodes"], ["waits behind other jobs"])
    few = backend.activity(1).jobs  # the queue has what is left out of the newest
    assert {job.id for job in few} == {runs, waits}
    assert next(job for job in few if job.id == runs).submitted is not None
    seen = ask({"": backend}, Overview("us-east-1", "T", "slurm", "CREATE_COMPLETE"), Catalog.load())
    assert (seen.busy, seen.idle, seen.failed, seen.running, seen.waiting) == (2, 2, 0, 1, 2)
    assert (seen.usd_per_hour, seen.usd_per_hour_idle) == (86.0, 43.0)
    assert [(job.id, job.client) for job in seen.jobs if job.state == "PENDING"] == [(waits, "trn"), (number, "sbatch")]
    assert [job.nodes for job in seen.jobs if job.state == "PENDING"] == [3, 3]
    assert seen.longest_wait is not None
    assert seen.problems == (f"1 job failed within a day ({ended}): {backend.status(ended).current.reason}",)
    slurm.run(["scontrol", "update", "NodeName=compute1-dy-trn-4", "State=DRAIN", "Reason=EFA lost"])
    seen = ask({"": backend}, replace(seen), Catalog.load())
    assert (seen.idle, seen.failed, seen.usd_per_hour_idle) == (1, 1, 43.0)
    assert seen.problems[0].startswith("1 node failed (compute1-dy-trn-4): EFA lost")
    slurm.run(["scontrol", "update", "NodeName=compute1-dy-trn-4", "State=RESUME"])
    slurm.run(["scancel", number])
    for id in (runs, waits):
        backend.cancel(id)


def test_alarms_are_of_the_stack_with_the_longest_name_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = [Deployed("us-east-1", name, "CREATE_COMPLETE", {}) for name in ("Trn", "Trn-b", "TrnQuiet")]
    cloudwatch = boto3.client("cloudwatch", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    monkeypatch.setattr(clusters, "aws_client", lambda *_: cloudwatch)
    names = {
        "Trn-Scaler0": "no nodes",
        "Trn-b-Scaler1": "",
        "Trn-b-Disk2": "full",
        "Other-Disk": "theirs",
        "Trn": "theirs",
    }
    raised = [{"AlarmName": name, **({"AlarmDescription": text} if text else {})} for name, text in names.items()]
    with Stubber(cloudwatch) as answers:
        answers.add_response("describe_alarms", {"MetricAlarms": raised}, {"StateValue": "ALARM"})
        answers.add_client_error("describe_alarms", "AccessDenied")
        found = clusters.with_alarms(stacks, "us-east-1")
        denied = clusters.with_alarms(stacks, "us-east-1")
    assert found == list(zip(stacks, [("no nodes",), ("Trn-b-Scaler1", "full"), ()], strict=True))
    assert denied == [(stack, None) for stack in stacks]
    assert clusters.with_alarms([], "us-east-1") == []
