"""The scaler's decisions, as a table and as properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainium_cdk.eks.scaler.decide import Attempt, Change, Gang, Group, Limits, Node, Plan, decide

LIMITS = Limits(idle=600, capacity=600, start=1200, retry=1800)
NOW = 1_800_000_000.0
DEVICES = 16


def nodes(count: int, *, first: int = 0, **fields: Any) -> tuple[Node, ...]:
    """Nodes that have just joined, with changes."""
    return tuple(Node(f"i-{n}", **{"name": f"n-{n}", "since": NOW, **fields}) for n in range(first, first + count))


def busy(count: int) -> tuple[Node, ...]:
    return nodes(count, busy=True, used=DEVICES, since=NOW - 9999)


def group(*there: Node, maximum: int = 16, desired: int | None = None, **fields: Any) -> Group:
    return Group(
        **{"name": "trn", "devices": DEVICES, "minimum": 0, "maximum": maximum,
           "desired": len(there) if desired is None else desired, "nodes": there, **fields}
    )  # fmt: skip


def gang(pods: int, name: str = "a", *, asked: float = 0, devices: int = DEVICES, **fields: Any) -> Gang:
    """A gang whose nodes were requested so many seconds ago."""
    attempt = {"attempt": Attempt(asked=NOW - asked)} if asked else {}
    return Gang(**{"key": f"training/{name}", "groups": ("trn",), "needs": (devices,) * pods, **attempt, **fields})


IDLE = NOW - 600
TABLE: list[tuple[str, Group, list[Gang], Change, dict[str, str]]] = [
    ("nothing to do", group(), [], Change(), {}),
    ("from zero", group(), [gang(16)], Change(desired=16), {"a": "waits for 16 nodes of trn, since "}),
    ("while instances are launched, no more", group(*nodes(3), desired=16), [gang(16, asked=60)], Change(), {"a": "waits for 16"}),
    ("while devices are announced, no more", group(*nodes(16)), [gang(16, asked=60)], Change(), {"a": "waits for 16"}),
    ("idle nodes are used first", group(*nodes(2, since=IDLE)), [gang(4)], Change(desired=4), {"a": "waits for 4"}),
    ("beyond the largest size", group(*busy(2), maximum=4), [gang(4)], Change(), {"a": "waits for room: trn has at most 4 nodes, of which 2 in use"}),
    ("a smaller one beside a larger one that does not fit", group(*busy(2), maximum=4), [gang(4), gang(2, "b", created=1)], Change(desired=4), {"a": "waits for room", "b": "waits for 2"}),
    ("by age", group(maximum=4), [gang(3, "b", created=2), gang(3, created=1)], Change(desired=3), {"a": "waits for 3", "b": "waits for room"}),
    ("by priority", group(maximum=4), [gang(3, "b", created=2, priority=1), gang(3, created=1)], Change(desired=3), {"b": "waits for 3", "a": "waits for room"}),
    ("not before all pods are there", group(), [gang(3, complete=False)], Change(), {}),
    ("pods that share a node", group(), [gang(6, devices=8)], Change(desired=3), {"a": "waits for 3"}),
    ("a pod too large for a node", group(), [gang(1, devices=17)], Change(), {"a": "waits for room"}),
    ("idle nodes are removed", group(*nodes(1), *nodes(2, first=1, since=IDLE)), [], Change(remove=("i-1", "i-2")), {}),
    ("but not below the smallest size", group(*nodes(3, since=IDLE), minimum=1), [], Change(remove=("i-0", "i-1")), {}),
    ("nor those that a gang waits for", group(*nodes(2, since=IDLE), desired=4), [gang(4, asked=60)], Change(), {"a": "waits for 4"}),
    ("nor busy ones", group(*busy(2)), [], Change(), {}),
    ("cordoned nodes hold no gang, and are removed when idle", group(*nodes(2, since=IDLE, cordoned=True), maximum=4), [gang(2)], Change(desired=4, remove=("i-0", "i-1")), {"a": "waits for 2"}),
    ("what began to be removed is removed", group(*nodes(1, leaving=True)), [gang(1)], Change(desired=2, remove=("i-0",)), {"a": "waits for 1 node of"}),
    ("an instance that has not joined has more time", group(*nodes(1, name="", since=IDLE)), [], Change(), {}),
    ("but not for ever", group(*nodes(1, name="", since=NOW - 1200)), [], Change(remove=("i-0",)), {}),
    ("launches requested manually continue", group(desired=4), [], Change(), {}),
    ("launches for a deleted gang are cancelled", group(*nodes(1), desired=4, requested=4), [], Change(desired=1), {}),
    (
        "11 of 16: released", group(*nodes(11), desired=16, requested=16, trouble="InsufficientInstanceCapacity"), [gang(16, asked=600)], Change(desired=11),
        {"a": "11 of 16 nodes of trn came within 10 minutes; idle nodes are removed after 10 minutes; next attempt at 2027-01-15 08:30 UTC. AWS: InsufficientInstanceCapacity"},
    ),
    ("11 of 16: idle ones are removed", group(*nodes(11, since=IDLE), desired=16, requested=16), [gang(16, asked=600)], Change(desired=11, remove=tuple(f"i-{n}" for n in sorted(range(11), key=lambda n: f"i-{n}"))), {"a": "11 of 16"}),
    ("none of 16: the pause does not grow", group(desired=16, requested=16), [gang(16, attempt=Attempt(asked=NOW - 600, tries=3))], Change(desired=0), {"a": "0 of 16 nodes of trn came within 10 minutes; next attempt at 2027-01-15 10:00 UTC"}),
    ("all there, but not placed", group(*nodes(2)), [gang(2, asked=1200)], Change(), {"a": "its pods were not placed on trn within 20 minutes"}),
    ("released: until it is tried again, nothing", group(), [gang(16, attempt=Attempt(tries=1, retry=NOW + 1, why="x"))], Change(), {}),
    ("tried again", group(), [gang(16, attempt=Attempt(tries=1, retry=NOW, why="x"))], Change(desired=16), {"a": "waits for 16"}),
    ("a released one leaves its nodes to the next", group(*nodes(2), desired=4), [gang(4, asked=600), gang(2, "b", created=1)], Change(), {"a": "2 of 4", "b": "waits for 2"}),
    ("a young one's missing nodes do not release an older one", group(*nodes(2), desired=4), [gang(2, asked=900), gang(2, "b", created=1, asked=60)], Change(), {"a": "waits for 2", "b": "waits for 2"}),
    ("one that runs starts again", group(*busy(2)), [gang(0, asked=900)], Change(), {"a": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("there", "gangs", "change", "why"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_decisions(there: Group, gangs: list[Gang], change: Change, why: dict[str, str]) -> None:
    plan = decide([there], gangs, NOW, LIMITS)
    found = plan.groups.get("trn", Change())
    assert (found.desired, found.remove) == (change.desired, change.remove)
    before = {g.key: g.attempt.why for g in gangs}
    reasons = {key: attempt.why for key, attempt in plan.attempts.items()}
    assert set(reasons) <= set(before)
    for name, expected in why.items():
        assert reasons[f"training/{name}"].startswith(expected), reasons


def test_a_gang_that_fits_no_group_of_its_first_choice_takes_the_next() -> None:
    small, large = group(maximum=2), group(maximum=4, name="big")
    plan = decide([small, large], [gang(4, groups=("trn", "big"))], NOW, LIMITS)
    assert plan.groups == {"big": Change(desired=4, requested=4)}


@pytest.mark.parametrize(("tries", "pause"), [(0, 1), (1, 2), (2, 4), (3, 8), (4, 8), (9, 8)])
def test_the_pause_after_failed_attempts_doubles_up_to_a_limit(tries: int, pause: int) -> None:
    there = group(*nodes(11), desired=16)
    waits = gang(16, attempt=Attempt(asked=NOW - 600, tries=tries))
    after = decide([there], [waits], NOW, LIMITS).attempts["training/a"]
    assert (after.tries, after.retry) == (tries + 1, NOW + pause * LIMITS.retry)


# --- properties ---

some_node = st.builds(
    Node,
    instance=st.uuids().map(str),
    name=st.sampled_from(["", "node"]),
    since=st.floats(NOW - 2000, NOW),
    busy=st.booleans(),
    cordoned=st.booleans(),
    leaving=st.booleans(),
).flatmap(lambda n: st.integers(0, DEVICES).map(lambda used: replace(n, used=used if n.busy else 0)))


@st.composite
def some_group(draw: st.DrawFn) -> Group:
    there = draw(st.lists(some_node, max_size=8))
    maximum = draw(st.integers(max(1, len(there)), 20))
    minimum = draw(st.integers(0, min(3, maximum)))
    desired = draw(st.integers(max(len(there), minimum), maximum))
    requested = draw(st.sampled_from([None, desired, 7]))
    return group(*there, maximum=maximum, minimum=minimum, desired=desired, requested=requested)


some_attempt = st.builds(
    Attempt,
    asked=st.one_of(st.just(0.0), st.floats(NOW - 2000, NOW)),
    tries=st.integers(0, 5),
    retry=st.one_of(st.just(0.0), st.floats(NOW - 100, NOW + 100)),
)
some_gangs = st.lists(
    st.builds(
        Gang,
        key=st.uuids().map(str),
        groups=st.just(("trn",)),
        needs=st.lists(st.sampled_from([0, 1, 8, DEVICES]), max_size=10).map(tuple),
        created=st.floats(0, 100),
        priority=st.integers(0, 2),
        complete=st.booleans(),
        attempt=some_attempt,
    ),
    max_size=4,
    unique_by=lambda g: g.key,
)


def carried_out(there: Group, change: Change) -> Group:
    left = tuple(n for n in there.nodes if n.instance not in change.remove)
    desired = (there.desired if change.desired is None else change.desired) - len(change.remove)
    requested = there.requested if change == Change() else change.requested
    return replace(there, nodes=left, desired=desired, requested=requested)


@given(some_group(), some_gangs)
def test_only_idle_surplus_nodes_are_removed(there: Group, gangs: list[Gang]) -> None:
    change = decide([there], gangs, NOW, LIMITS).groups.get("trn", Change())
    after = carried_out(there, change)
    assert there.minimum <= after.desired <= there.maximum
    assert not {n.instance for n in there.nodes if n.busy} & set(change.remove)
    # never more than each pod on a node of its own beside what is there
    pods = sum(len(g.needs) for g in gangs if g.complete)
    assert change.desired is None or change.desired <= max(there.desired, len(there.nodes) + pods)
    if not any(g.needs and g.complete for g in gangs):
        assert change.desired is None or change.desired < there.desired
    for node in there.nodes:
        if node.instance in change.remove:
            assert node.leaving or NOW - node.since >= LIMITS.idle


@given(some_group(), some_gangs)
def test_applied_decisions_are_not_repeated(there: Group, gangs: list[Gang]) -> None:
    plan = decide([there], gangs, NOW, LIMITS)
    change = plan.groups.get("trn", Change())
    then = [replace(g, attempt=plan.attempts.get(g.key, g.attempt)) for g in gangs]
    again = decide([carried_out(there, change)], then, NOW, LIMITS)
    if not change.remove:  # a node that is removed makes room for a gang
        assert again == Plan()
