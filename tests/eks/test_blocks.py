"""What the function that starts nodes does before a capacity block ends. The scene is in `test_scenes_of_failures.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from trainium_cdk.cdk.eks.scaler import aside, observe
from trainium_cdk.cdk.eks.scaler.function import ScalerSettings, Supplier
from trainium_cdk.cdk.eks.scaler.labels import ASIDE
from trainium_cdk.cdk.eks.scaler.model import Group, GroupNode, Limits
from trainium_cdk.client.jobs.kubernetes.reasons import why_no_nodes

END = datetime(2026, 11, 28, 11, 30, tzinfo=UTC)
BLOCK = {"CapacityReservationId": "cr-1", "State": "active", "ReservationType": "capacity-block", "EndDate": END}
TEXT = "capacity block cr-1 ends at 2026-11-28 11:30 UTC, and EKS starts no nodes in it after 2026-11-28 10:50 UTC"


class Recorder:
    """An API that has one Workload, and keeps what is sent."""

    def __init__(self, **spec: Any) -> None:
        self.workload = {
            "metadata": {"name": "w", "namespace": "training", "uid": "1", "resourceVersion": "1"},
            "spec": spec,
        }
        self.sent: list[tuple[str, Any]] = []

    def list(self, *_: str) -> list[Any]:
        return [self.workload]

    def patch(self, path: str, body: Any) -> None:
        self.sent.append((path, body))

    def create(self, path: str, body: Any) -> None:
        self.sent.append((path, body))


def without_ending(api: Recorder, minutes: float, block: dict[str, Any] | None) -> dict[str, Group]:
    """The groups that jobs may still use, so many minutes before the block's end."""
    now = END.timestamp() - 60 * minutes
    node = GroupNode("i-1", "n-1", "usable", busy=True, holders=frozenset({"training/r", "training/gone"}))
    closed = observe.closed(block, now) if block else ""
    group = Group("trn", (16,), 0, 4, 1, (node,), closed=closed)
    supplier = Supplier(ScalerSettings("c", "training", ("n",), "l", True, Limits(), ()), api, lambda _: None)
    request = {"metadata": {"name": "r", "namespace": "training", "ownerReferences": [{"name": "w"}]}}
    found: Any = {"trn": SimpleNamespace(reservation=block)}
    cluster: Any = SimpleNamespace(provisioning={"training/r": request})
    return supplier._without_ending({"trn": group}, found, cluster)


@pytest.mark.parametrize(("minutes", "leaves"), [(46, False), (45, True), (39, True), (1, True)])
def test_jobs_leave_a_block_45_minutes_before_its_end(minutes: float, leaves: bool) -> None:
    api = Recorder()
    assert bool(without_ending(api, minutes, BLOCK)) is not leaves
    assert [body["spec"] for path, body in api.sent if path.endswith("/workloads/w")] == [{"active": False}] * leaves


def test_a_job_that_left_is_tried_again_once_the_block_has_ended() -> None:
    api = Recorder()
    without_ending(api, 44, BLOCK)
    notes = api.sent[0][1]["metadata"]["annotations"]
    assert notes[ASIDE] == TEXT
    assert not aside._again(notes, END.timestamp() - 1, "digest")
    assert aside._again(notes, END.timestamp(), "digest")
    [why] = why_no_nodes({"metadata": {"annotations": notes}, "spec": {"active": False}})
    assert why == f"{TEXT}; it waits for the next one, and continues there from its checkpoint"


def test_a_job_that_leaves_is_not_told_twice() -> None:
    api = Recorder(active=False)
    assert not without_ending(api, 44, BLOCK)
    assert api.sent == []


@pytest.mark.parametrize("block", [None, {**BLOCK, "ReservationType": "default"}, {**BLOCK, "State": "expired"}])
def test_other_groups_stay(block: dict[str, Any] | None) -> None:
    api = Recorder()
    assert without_ending(api, 10, block)
    assert api.sent == []
