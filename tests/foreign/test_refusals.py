"""Arguments that cannot work in any app: the error comes at synthesis, with the argument and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import CfnParameter, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm

from tests.cdk import properties
from tests.foreign.foreign import cluster, errors, template, vpc
from trainium_cdk import (
    LustreOptions,
    TrnBootstrap,
    TrnBucket,
    TrnEksCluster,
    TrnNetwork,
    TrnNodeGroup,
    TrnOutputs,
    TrnPcluster,
    TrnPlugins,
    TrnStorage,
    settings,
)

LOOKUP = "is not looked up yet in the first synthesis, and must be known there: give value_from_lookup a default_value"
TOKEN = "is a token of the CDK, which has no value before the deployment: give a plain value"


def group(scope: Stack, **given: Any) -> TrnNodeGroup:
    return TrnNodeGroup(scope, "Trn", cluster=cluster(scope), **given)


def number(scope: Stack) -> Any:
    return CfnParameter(scope, "Number", type="Number").value_as_number


def text(scope: Stack) -> str:
    return CfnParameter(scope, "Text").value_as_string


def looked_up(scope: Stack) -> str:
    """What a lookup returns before the CDK's command line has read the value."""
    return ssm.StringParameter.value_from_lookup(scope, "/trn/value")


def networks(scope: Stack) -> None:
    within = vpc(scope)
    mine = cluster(scope, within=within, kubectl=True)
    wanted = CfnParameter(scope, "Networks", type="CommaDelimitedList").value_as_list
    group = TrnNodeGroup(scope, "Trn", cluster=mine, storage=TrnStorage(scope, "S", vpc=within))
    TrnPlugins(scope, "Plugins", cluster=mine, node_groups=[group], job_networks=wanted)


def slurm(scope: Stack, id: str = "Slurm", **scripts: Any) -> TrnPcluster:
    bootstrap = TrnBootstrap(scope, "Scripts", bucket=TrnBucket(scope, "B").bucket, **scripts) if scripts else None
    return TrnPcluster(scope, id, vpc=vpc(scope), bootstrap=bootstrap)


def outputs_twice(scope: Stack) -> None:
    one, bucket = slurm(scope), TrnBucket(scope, "Jobs").bucket
    for id in ("One", "Two"):
        TrnOutputs(scope, id, cluster=one, bucket=bucket)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: group(s, max_size=number(s)), f"Trn: max_size {TOKEN}"),
        (lambda s: group(s, desired_size=number(s)), f"Trn: desired_size {TOKEN}"),
        (lambda s: group(s, instance_type=text(s)), f"Trn: instance_type {TOKEN}"),
        (lambda s: group(s, instance_type=looked_up(s)), f"Trn: instance_type {LOOKUP}"),
        (lambda s: TrnNetwork(s, "Net", cidr=looked_up(s)), f"Net: cidr {LOOKUP}"),
        (lambda s: TrnEksCluster(s, "K", vpc=vpc(s), cluster_name=looked_up(s)), f"K: cluster_name {LOOKUP}"),
        (networks, f"Plugins: job_networks {TOKEN}"),
        (lambda s: settings.ComputeResource(max_nodes=number(s)), "max_nodes is a token of the CDK"),
        (outputs_twice, "Two: the stack has the outputs of a cluster already: .*One"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_refused(build: Callable[[Stack], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        template(build)


def ssh(scope: Stack, *cidrs: str) -> TrnPcluster:
    opened = settings.Ssh(from_cidrs=cidrs)
    return TrnPcluster(scope, "Slurm", vpc=vpc(scope), head_node=settings.HeadNode(ssh=opened))


@pytest.mark.parametrize(
    "build",
    [
        lambda s: group(s, capacity_reservation_id=looked_up(s), startup_script=looked_up(s)),
        lambda s: TrnEksCluster(s, "K", vpc=vpc(s), public_access_cidrs=[looked_up(s)], service_cidr=looked_up(s)),
        lambda s: TrnPcluster(s, "Slurm", vpc=vpc(s), custom_ami=looked_up(s)),
        lambda s: ssh(s, looked_up(s)),
    ],
    ids=["node group", "cluster", "Slurm cluster", "SSH"],
)
def test_the_first_synthesis_succeeds_so_that_the_lookup_follows(build: Callable[[Stack], Any]) -> None:
    assert template(build)


@pytest.mark.parametrize(
    ("scripts", "error"),
    [
        ({"operating_system": "alinux2023"}, "Slurm] bootstrap = operating_system alinux2023: the cluster's nodes have ubuntu2404"),
        ({"mount_dirs": ["/fsx"]}, "Slurm] bootstrap = mount_dirs /fsx: the cluster's nodes have /efs"),
        ({"framework": "torch-native"}, "Scripts] framework = torch-native: torch-native of Neuron 2.33.0 does not support training on trn1"),
        # fits trn2, but the queues are of trn1
        ({"framework": "torch-native", "instance_types": ["trn2.48xlarge"]}, "Slurm] framework = torch-native: torch-native of Neuron 2.33.0 does not support training on trn1"),
    ],
)  # fmt: skip
def test_scripts_for_other_nodes_are_refused(scripts: dict[str, Any], error: str) -> None:
    found = errors(lambda scope: slurm(scope, **scripts))
    assert any(line.startswith(error) for line in found), found
    assert not any("Fix: write bootstrap." in line for line in found)


def test_ssh_from_the_network_of_a_vpc() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        ssh = settings.Ssh(from_cidrs=(within.vpc_cidr_block, "203.0.113.0/24"))
        TrnPcluster(scope, "Slurm", vpc=within, head_node=settings.HeadNode(ssh=ssh))

    [listed] = properties(template(build), "EC2::PrefixList")
    assert [entry["Cidr"] for entry in listed["Entries"]][1:] == ["203.0.113.0/24"]


def test_the_cluster_of_a_default_construct_has_another_name_than_the_stack() -> None:
    made = template(lambda scope: slurm(scope, "Default"))
    [resource] = made.find_resources("Custom::PclusterCluster").values()
    assert resource["Properties"]["ClusterName"].endswith("-slurm")


def test_file_systems_of_several_ports_are_opened_from_their_own_side() -> None:
    def one_port(scope: Stack) -> None:
        storage = TrnStorage(scope, "S", vpc=vpc(scope))
        ec2.SecurityGroup(scope, "G", vpc=storage_vpc(scope)).connections.allow_to_default_port(storage)

    def storage_vpc(scope: Stack) -> ec2.IVpc:
        return ec2.Vpc.from_vpc_attributes(scope, "Same", vpc_id="vpc-0123456789abcdef0", availability_zones=["a"])

    ports = {r["FromPort"] for r in properties(template(one_port), "EC2::SecurityGroupIngress")}
    assert 2049 in ports

    def several(scope: Stack) -> None:
        storage = TrnStorage(scope, "S", vpc=vpc(scope), lustre=LustreOptions())
        ec2.SecurityGroup(scope, "G", vpc=storage_vpc(scope)).connections.allow_to_default_port(storage)

    with pytest.raises(RuntimeError, match="no default port"):
        template(several)
