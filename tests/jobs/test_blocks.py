"""A capacity block that ends, from the submission on: the client asks EC2 of the local AWS, and the job runs on a real Slurm."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.stub import Stubber

from sandbox import LocalAws
from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.test_ssm import BUCKET as BUCKET
from tests.jobs.test_ssm import CLUSTER
from tests.jobs.test_ssm import head as head
from tests.jobs.test_ssm import remote as remote
from tests.jobs.test_ssm import ssm as ssm
from tests.support import until
from trainium_cdk.client.jobs import blocks
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.jobs import Script, SlurmBackend, SsmTransport
from trainium_cdk.runner.blocks import Block, clock

SAVES = b"""import os, pathlib, signal, sys, time
place = pathlib.Path(os.environ["TRN_CHECKPOINTS"])
def save(*_):
    (place / "step-7").write_text("x")
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begins with", sorted(one.name for one in place.iterdir()), flush=True)
if not list(place.iterdir()):
    time.sleep(600)
"""
NOW = 1_795_865_400.0  # 2026-11-28 11:30 UTC
ENDS = Block("compute1", "trn", "cr-1", saves=NOW + 7200, stops=NOW + 7500, ends=NOW + 9300)


class Bought:
    """Capacity blocks of the local AWS, whose ends can be moved."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws, self.changes = aws, dict[str, Any]()

    def new(self, **left: float) -> str:
        ec2 = self.aws.client("ec2")
        wanted = {"InstanceType": "trn1.32xlarge", "InstanceCount": 4, "CapacityDurationHours": 24}
        [offer, *_] = ec2.describe_capacity_block_offerings(**wanted)["CapacityBlockOfferings"]
        bought = ec2.purchase_capacity_block(
            CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
        )
        id = str(bought["CapacityReservation"]["CapacityReservationId"])
        self.end(id, **left)
        return id

    def end(self, id: str, **left: float) -> dt.datetime:
        """Let it end in so much time."""
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(**left)
        self.changes[id] = {"EndDate": f"{ends:%Y-%m-%dT%H:%M:%S.000Z}"}
        self.aws.set_answers("reservations", self.changes)
        return ends


@pytest.fixture
def bought(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bought]:
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    yield Bought(local_aws)
    local_aws.set_answers("reservations", {})


def seen(ssm: SsmTransport, id: str) -> tuple[SlurmBackend, list[str]]:
    """The cluster as a command sees it; a deployment has put this block into its queue."""
    block = fleet(nodes=4, capacity_type="capacity-block", reservation=id)
    backend, lines = SlurmBackend(make_cluster(block, cluster_name=CLUSTER), ssm), list[str]()
    backend.say = lines.append
    return backend, lines


def test_a_job_saves_before_its_block_ends_waits_and_resumes_in_the_next(ssm: SsmTransport, bought: Bought) -> None:
    id = bought.new(hours=10)
    backend, lines = seen(ssm, id)
    job = Script(filename="train.py", content=SAVES, nodes=2, precompile=False, time_limit="48h")
    sent = backend.submit(job).id
    assert re.fullmatch(
        rf"capacity block {id} ends at \S+ \S+ UTC, its nodes from \S+ \S+ UTC; you asked for 48 h 0 min\. If it starts now it has 9 h 2\d min, "
        r"until \S+ \S+ UTC: then it saves, waits for the next block, and continues there",
        lines[0],
    )
    assert until(lambda: "begins with []" in log(backend, sent))
    assert backend.status(sent).current.reason.startswith(f"capacity block {id} ends at ")
    ends = bought.end(id, minutes=34, seconds=50)
    backend, _ = seen(ssm, id)
    backend.status(sent)  # from now on the cluster knows the new end
    assert until(lambda: backend.status(sent).state == "PENDING")
    assert "saved" in log(backend, sent)
    waits = f"capacity block {id} ends at {clock(ends.timestamp())}: it waits for the next one (reservation of queue compute1)"
    assert backend.status(sent).current.reason.startswith(waits)
    backend, lines = seen(ssm, bought.new(hours=20))
    assert until(lambda: backend.status(sent).done)
    assert backend.status(sent).ok, log(backend, sent)
    assert "begins with ['step-7']" in log(backend, sent)


def log(backend: SlurmBackend, id: str) -> str:
    return b"".join(one.data for one in backend.logs(id)).decode()


@pytest.mark.usefixtures("bought")
def test_a_job_is_submitted_though_ec2_does_not_tell(ssm: SsmTransport) -> None:
    backend, lines = seen(ssm, "cr-0fffffffffffffff1")
    job = backend.submit(Script(filename="x.sh", content=b"true", nodes=1, precompile=False))
    [line] = lines
    assert line.startswith("when the capacity block of queue compute1 ends is not known: An error occurred (Invalid")
    assert line.endswith("does not exist. The job does not save before it")
    assert backend.wait(job.id, 600).ok


def test_a_missing_right_is_named(bought: Bought, monkeypatch: pytest.MonkeyPatch) -> None:
    with Stubber(bought.aws.client("ec2")) as stubbed:
        stubbed.add_client_error("describe_capacity_reservations", "UnauthorizedOperation")
        monkeypatch.setattr("trainium_cdk._aws.client", lambda *_: stubbed.client)
        made = make_cluster(fleet(capacity_type="capacity-block", reservation="cr-0fffffffffffffff1"))
        assert blocks.ask(made) == ([], "you lack ec2:DescribeCapacityReservations")


@pytest.mark.parametrize(
    ("given", "now", "expected"),
    [
        ({"time_limit": "1h"}, NOW, ENDS.text),
        ({}, NOW, f"{ENDS.text}; you gave no --time-limit. If it starts now it has 2 h 0 min, until {clock(ENDS.saves)}: then it saves, waits"),
        ({"time_limit": "3h", "past_block_end": True}, NOW, f"{ENDS.text}; you asked for 3 h 0 min. If it starts now it has 2 h 5 min, until"),
        ({}, ENDS.saves, f"{ENDS.text}: the job waits for the next block"),
        ({"compute_resource": "more"}, NOW, "when the capacity block of queue compute1 ends is not known: it has none that EC2 tells"),
    ],
)  # fmt: skip
def test_what_a_submission_says(
    given: dict[str, Any], now: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks.time, "time", lambda: now)
    fleets = [fleet(capacity_type="capacity-block", resource=name) for name in ("trn", "more")]
    made = plan(Script(filename="x.sh", content=b"true", precompile=False, **given), make_cluster(*fleets))
    assert blocks.line(made, [ENDS], "").startswith(expected)


def test_other_queues_say_nothing() -> None:
    assert blocks.line(plan(Script(filename="x.sh", content=b"true"), make_cluster()), [ENDS], "") == ""
