"""A fix that a construct prints works: it is followed, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Size, Stack
from aws_cdk import aws_eks_v2 as eks

from tests.foreign.foreign import cluster, errors, template, vpc, warnings
from trainium_cdk import (
    TrnBastionHost,
    TrnEksCluster,
    TrnNodeGroup,
    TrnPcluster,
    TrnPcsCluster,
    TrnPlugins,
    TrnSystemNodes,
    settings,
)

Given = dict[str, Any]
RESERVED = "cr-0123456789abcdef0"


def group(scope: Stack, nodes: Given, **given: Any) -> None:
    TrnNodeGroup(scope, "It", cluster=cluster(scope), nodes=nodes, **given)  # type: ignore[arg-type]


def system(scope: Stack, nodes: Given) -> None:
    TrnSystemNodes(scope, "It", cluster=cluster(scope), nodes=nodes)  # type: ignore[arg-type]


def control_plane(scope: Stack, given: Given) -> None:
    TrnEksCluster(scope, "It", vpc=vpc(scope), control_plane=given)  # type: ignore[arg-type]


def host(scope: Stack, given: Given) -> None:
    TrnBastionHost(scope, "It", vpc=vpc(scope), host=given)  # type: ignore[arg-type]


def slurm(scope: Stack, nodes: Given) -> None:
    queue = settings.Queue(name="q", compute_resources=(settings.ComputeResource(name="r", **nodes),))
    TrnPcluster(scope, "It", vpc=vpc(scope), queues=[queue])


def pcs(scope: Stack, nodes: Given) -> None:
    queue = settings.PcsQueue(name="queue", compute_resources=(settings.PcsResource(name="resource", **nodes),))
    TrnPcsCluster(scope, "It", vpc=vpc(scope), queues=[queue])


def plugins(scope: Stack, given: Given) -> None:
    mine = cluster(scope, kubectl=True)
    nodes = TrnNodeGroup(scope, "Nodes", cluster=mine, nodes=settings.NodeGroup(max_nodes=4))
    TrnPlugins(scope, "It", cluster=mine, node_groups=[nodes], **given)


Build = Callable[[Stack, Given], None]
WHOLE: list[tuple[Build, Given, str, Given]] = [
    (group, {"instance_type": "trn1.2xlarge", "efa": True, "max_nodes": 1}, "write efa: auto", {"instance_type": "trn1.2xlarge", "efa": "auto", "max_nodes": 1}),
    (group, {"capacity_type": "spot", "reservation": RESERVED}, "write capacity_type: on-demand", {"capacity_type": "on-demand", "reservation": RESERVED}),
    (group, {"capacity_type": eks.CapacityType.CAPACITY_BLOCK, "instance_type": "trn1.32xlarge"}, "for example cr-0123456789abcdef0", {"capacity_type": "capacity-block", "reservation": RESERVED}),
    (group, {"name": "system"}, "write another name, for example trn", {"name": "trn"}),
    (group, {"labels": {"kubernetes.io/purpose": "x"}}, "write purpose", {"labels": {"purpose": "x"}}),
    (system, {"instance_type": "m7g.large"}, "an x86_64 type", {"instance_type": "m7i.large"}),
    (host, {"instance_type": "t4g.micro"}, "an x86_64 type", {"instance_type": "t3.micro"}),
    (control_plane, {"namespace": "kube-system"}, "write another name, for example training", {"namespace": "training"}),
    (control_plane, {"endpoint": "public", "public_cidrs": ["8.0.0.0/6"]}, "for example 203.0.113.0/24", {"endpoint": "public", "public_cidrs": ["203.0.113.0/24"]}),
]  # fmt: skip
"""What the rules refuse, the words of the fix, and the arguments of who follows it."""


WARNED: list[tuple[Build, Given, str, Given]] = [
    (group, {"placement_group": "on", "reservation": RESERVED}, "write placement_group: auto", {"placement_group": "auto", "reservation": RESERVED}),
    (plugins, {"plugins": {"node_recovery": True}}, "node_monitoring: false", {"plugins": {"node_recovery": True, "node_monitoring": False}}),
    (plugins, {"queues": [{"namespace": "speech", "nodes": {"trn": 5}}]}, "write at most 4", {"queues": [{"namespace": "speech", "nodes": {"trn": 4}}]}),
]  # fmt: skip
"""What the rules warn of."""


@pytest.mark.parametrize(("build", "given", "fix", "followed"), WARNED, ids=[fix for _, _, fix, _ in WARNED])
def test_the_fix_of_a_warning_ends_it(build: Build, given: Given, fix: str, followed: Given) -> None:
    found = warnings(lambda s: build(s, given))
    assert [line for line in found if fix in line], found
    assert not [line for line in warnings(lambda s: build(s, followed)) if fix in line]


@pytest.mark.parametrize(("build", "given", "fix", "followed"), WHOLE, ids=[fix for _, _, fix, _ in WHOLE])
def test_a_rule_s_fix_works(build: Build, given: Given, fix: str, followed: Given) -> None:
    found = errors(lambda s: build(s, given))
    assert [line for line in found if line.startswith("It] ") and fix in line.partition("Fix: ")[2]], found
    template(lambda s: build(s, followed))


ALONE: list[tuple[Build, Given, str, str, Given]] = [
    (group, {"min_nodes": 3, "nodes": 1}, "nodes = (this section): min_nodes 3", "write min_nodes <= nodes <= max_nodes", {"min_nodes": 1, "nodes": 2}),
    (group, {"min_node": 3}, "nodes.min_node = 3", "write min_nodes", {"min_nodes": 2}),
    (group, {"capacity_type": "spott"}, "nodes.capacity_type = spott", "write 'on-demand', 'spot' or 'capacity-block'", {"capacity_type": "spot"}),
    (group, {"root_volume_gib": Size.gibibytes(2)}, "nodes.root_volume_gib = 2", "write 40 or more", {"root_volume_gib": Size.gibibytes(40)}),
    (group, {"custom_ami": "ami-foo"}, "nodes.custom_ami = ami-foo", "for example ami-0123456789abcdef0", {}),
    (group, {"instance_type": "trn1.32xlarg"}, "nodes.instance_type = trn1.32xlarg", "write trn1.32xlarge", {"instance_type": "trn1.32xlarge"}),
    (slurm, {"instance_type": "trn1.32xlarg"}, "queues[0].compute_resources[0].instance_type = trn1.32xlarg", "write trn1.32xlarge", {"instance_type": "trn1.32xlarge"}),
    (pcs, {"instance_type": "trn1.32xlarg"}, "queues[0].compute_resources[0].instance_type = trn1.32xlarg", "write trn1.32xlarge", {"instance_type": "trn1.32xlarge"}),
    (group, {"name": "Büro"}, "nodes.name = Büro", "for example research", {"name": "research"}),
    (system, {"min_nodes": 3, "nodes": 2}, "nodes = (this section): min_nodes 3", "write min_nodes <= nodes <= max_nodes", {"min_nodes": 2, "nodes": 2}),
    (control_plane, {"endpoint": "public"}, "control_plane = (this section): endpoint is public", "add public_cidrs: [203.0.113.0/24]", {"endpoint": "public", "public_cidrs": ["203.0.113.0/24"]}),
    (control_plane, {"endpoint": "public", "public_cidrs": ["0.0.0.0/0"]}, "control_plane.public_cidrs[0] = 0.0.0.0/0", "write endpoint: private", {"endpoint": "private"}),
    (control_plane, {"version": eks.KubernetesVersion.of("1")}, "control_plane.version = 1", 'for example "1.36"', {"version": "1.36"}),
    (plugins, {"scaling": {"retry_minutes": 0}}, "scaling.retry_minutes = 0", "write 1 or more", {"scaling": {"retry_minutes": 1}}),
]  # fmt: skip
"""What cannot be built: the argument with its value, the fix, and the arguments of who follows it."""


@pytest.mark.parametrize(
    ("build", "given", "named", "fix", "followed"), ALONE, ids=[named for _, _, named, _, _ in ALONE]
)
def test_a_value_s_fix_works(build: Build, given: Given, named: str, fix: str, followed: Given) -> None:
    with pytest.raises(settings.SettingsError) as caught:
        template(lambda s: build(s, given))
    text = str(caught.value)
    assert text.startswith("Foreign/It: error: ")
    assert named in text
    assert fix in text.partition("Fix: ")[2]
    assert "pydantic" not in text
    template(lambda s: build(s, followed))


def test_pairs_of_arguments() -> None:
    own: Given = {"custom_ami": "ami-0123456789abcdef0"}
    for given, more, message, followed in (
        (own, {}, "nodes.custom_ami = ami-.* Fix: give service_cidr", {"service_cidr": "172.20.0.0/16"}),
        ({"lnc": 2}, {}, "nodes.lnc = 2: trn1.32xlarge does not support it. Fix: write lnc: 1, or remove it", {}),
        ({"zone_id": "usw2-az1"}, {}, "nodes.zone_id = usw2-az1: .* Fix: give vpc_subnets", {"vpc_subnets": {"one_per_az": True}}),
        (own, {"service_cidr": "172.20.0.0/16", "neuron_driver": "2.31.7.0"}, "neuron_driver = 2.31.7.0: .* Fix: remove one", {"service_cidr": "172.20.0.0/16"}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^Foreign/It: {message}"):
            template(lambda s, given=given, more=more: group(s, given, **more))
        right = {"lnc": 1} if "lnc" in given else given
        template(lambda s, right=right, followed=followed: group(s, right, **followed))


def test_two_groups_of_one_cluster_have_two_names() -> None:
    def build(scope: Stack, name: str) -> None:
        mine = cluster(scope)
        TrnNodeGroup(scope, "One", cluster=mine)
        TrnNodeGroup(scope, "It", cluster=mine, nodes=settings.NodeGroup(name=name))

    with pytest.raises(
        ValueError, match=r"^Foreign/It: nodes.name = trn: Foreign/One of the same cluster .* Fix: write another name"
    ):
        template(lambda s: build(s, "trn"))
    template(lambda s: build(s, "other"))
