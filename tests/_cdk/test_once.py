"""What does not change is asked of the CDK's Node process only once."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_ec2 as ec2
from jsii._runtime import kernel

from trainium_cdk import settings
from trainium_cdk._cdk.once import group_id, once
from trainium_cdk.stacks.eks import TrnEksStack


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many requests of each kind the Node process gets."""
    process = kernel.provider._process
    send, found = process.send, Counter[str]()

    def counted(request: object, kind: object) -> object:
        found[type(request).__name__] += 1
        return send(request, kind)

    monkeypatch.setattr(process, "send", counted)
    return found


def test_an_attribute_is_read_once_for_each_object(requests: Counter[str]) -> None:
    stack = Stack(App(), "Once")
    vpc = ec2.Vpc(stack, "Vpc")
    first, second = (ec2.SecurityGroup(stack, name, vpc=vpc) for name in ("First", "Second"))
    requests.clear()
    assert group_id(first) == group_id(first) == first.security_group_id
    assert requests["GetRequest"] == 2
    assert group_id(second) not in {group_id(first), ""}
    assert requests["GetRequest"] == 3


def test_nothing_is_kept_of_an_object_that_is_gone() -> None:
    class Read:
        pass

    reads: list[int] = []
    read = once(lambda each: reads.append(id(each)) or len(reads))
    one = Read()
    assert (read(one), read(one)) == (1, 1)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
    assert read(Read()) == 2


def test_each_further_node_group_takes_few_requests(requests: Counter[str]) -> None:
    def counted(groups: int) -> int:
        data = {"eks": {"node_groups": [{"name": f"g{i}"} for i in range(groups)]}}
        app = App(builtin_cloud_formation_validation=False)
        requests.clear()
        TrnEksStack(app, "Groups", environment=settings.validate(data))
        return sum(requests.values())

    counted(1)  # of what a process does only once
    assert counted(12) - counted(2) <= 10 * 20
