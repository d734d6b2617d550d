"""File systems and node groups that are not ours, under all parts of an EKS cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk.assertions import Template

from tests.cdk import app, findings, properties, resources
from tests.foreign.foreign import cluster, template, vpc
from trainium_cdk import (
    TrnAddons,
    TrnBucket,
    TrnNodeGroup,
    TrnNodeRole,
    TrnOutputs,
    TrnPlugins,
    TrnScaler,
    TrnStorage,
    TrnSystemNodes,
    outputs,
    settings,
)
from trainium_cdk.description.outputs.contract import UNKNOWN

ROOT_ACCESS = [f"elasticfilesystem:Client{verb}" for verb in ("Mount", "Write", "RootAccess")]


def parts(scope: Stack, within: ec2.IVpc, files: Any) -> None:
    mine = cluster(scope, within=within, kubectl=True)
    TrnAddons(scope, "Addons", cluster=mine, storage=files)
    system = TrnSystemNodes(scope, "System", cluster=mine, storage=files)
    role = TrnNodeRole(scope, "Role", storage=files).role
    group = TrnNodeGroup(scope, "Trn", cluster=mine, storage=files, node_role=role)
    TrnPlugins(scope, "Plugins", cluster=mine, node_groups=[group], storage=files, system_nodes=[system])
    TrnOutputs(scope, "Outputs", cluster=mine, node_groups=[group], bucket=TrnBucket(scope, "Files").bucket)


def lustre(scope: Stack, within: ec2.IVpc) -> fsx.LustreFileSystem:
    return fsx.LustreFileSystem(
        scope, "Fast", vpc=within, vpc_subnet=within.private_subnets[0], storage_capacity_gib=1200,
        lustre_configuration=fsx.LustreConfiguration(deployment_type=fsx.LustreDeploymentType.SCRATCH_2),
    )  # fmt: skip


def clients(found: Template) -> list[str]:
    return [
        name for name, group in resources(found, "EC2::SecurityGroup").items()
        if group["Properties"]["GroupDescription"].startswith("Members may mount")
    ]  # fmt: skip


def objects(found: Template) -> str:
    return json.dumps(found.find_resources("Custom::AWSCDK-EKS-KubernetesResource"))


def test_an_efs_file_system_of_the_cdk_is_storage_for_every_part() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        parts(scope, within, efs.FileSystem(scope, "Theirs", vpc=within))

    found = template(build, "")
    assert findings(found) == []
    [theirs] = resources(found, "EFS::FileSystem")
    [group] = clients(found)
    templates = json.dumps(properties(found, "EC2::LaunchTemplate"))
    # system nodes have one interface, trn1.32xlarge eight
    assert templates.count(group) == 9
    into = [r for r in properties(found, "EC2::SecurityGroupIngress") if group in str(r["SourceSecurityGroupId"])]
    assert [r["FromPort"] for r in into] == [2049]
    roles = [p for p in properties(found, "IAM::Policy") if str(ROOT_ACCESS)[1:-1] in str(p)]
    assert len(roles) == 2, "the given role, and that of the system nodes: theirs may have files, anywhere"
    assert all(theirs in str(p) for p in roles)
    assert theirs in objects(found)
    assert "aws-efs-csi-driver" in str(properties(found, "EKS::Addon"))


def test_lustre_of_the_cdk_is_storage_for_every_part() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        parts(scope, within, lustre(scope, within))

    found = template(build)
    assert findings(found) == []
    [theirs], [_] = resources(found, "FSx::FileSystem"), clients(found)
    assert f'\\"{theirs}\\", \\"LustreMountName\\"' in objects(found) or f'"{theirs}", "LustreMountName"' in objects(
        found
    )
    assert str(properties(found, "EC2::LaunchTemplate")).count("dnf install -y lustre-client") == 2
    assert found.to_json()["Outputs"]["SharedDir"]["Value"] == "/fsx"


def test_a_file_system_of_another_stack() -> None:
    """Its security group is changed from the stack of the clients: no circle."""
    found: App = app()
    env = Environment(account="111122223333", region="us-west-2")
    data, use = (Stack(found, name, env=env) for name in ("Data", "Use"))
    within = vpc(data)
    files = efs.FileSystem(data, "Theirs", vpc=within)
    TrnNodeGroup(use, "Trn", cluster=cluster(use, within=within), storage=files)
    found.synth()
    assert [stack.stack_name for stack in use.dependencies] == ["Data"]
    assert data.dependencies == []
    assert len(clients(Template.from_stack(use))) == 1


def test_imported_lustre_needs_its_mount_name() -> None:
    def build(scope: Stack) -> None:
        group = ec2.SecurityGroup.from_security_group_id(scope, "Group", "sg-0123456789abcdef0")
        files: Any = fsx.LustreFileSystem.from_lustre_file_system_attributes(
            scope, "Fast", file_system_id="fs-0123456789abcdef0", dns_name="", security_group=group
        )
        TrnNodeGroup(scope, "Trn", cluster=cluster(scope), storage=files)

    with pytest.raises(
        ValueError,
        match=r"Foreign/Trn: the mount name of an imported FSx.*give TrnStorage\(lustre=..., lustre_mount_name=...\)",
    ):
        template(build)


def test_a_node_group_that_exists_has_a_queue_and_is_scaled() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        mine = cluster(scope, within=within, kubectl=True)
        storage = TrnStorage(scope, "S", vpc=within)
        theirs = TrnNodeGroup.from_nodegroup_attributes(
            cluster=mine,
            nodegroup_name="theirs",
            nodes=settings.NodeGroup(max_nodes=4),
            storage=storage,
        )
        plugins = TrnPlugins(scope, "Plugins", cluster=mine, node_groups=[theirs], storage=storage)
        TrnScaler(scope, "Scaler", cluster=mine, node_groups=[theirs], plugins=plugins)
        TrnOutputs(scope, "Outputs", cluster=mine, node_groups=[theirs], bucket=TrnBucket(scope, "Files").bucket)

    found = template(build)
    assert findings(found) == []
    assert resources(found, "EKS::Nodegroup") == {}
    assert '\\"kind\\":\\"LocalQueue\\"' in objects(found)
    [given] = (
        f["Environment"] for f in properties(found, "Lambda::Function") if "SETTINGS" in str(f.get("Environment"))
    )
    assert '\\"groups\\":{\\"trn\\":\\"theirs\\"}' in json.dumps(given)
    [policy] = (p for p in properties(found, "IAM::ManagedPolicy") if "eks:DescribeNodegroup" in str(p))
    assert "/theirs/*" in str(policy)
    assert "autoScalingGroupName/eks-theirs-*" in str(policy)
    values = {k: v["Value"] if isinstance(v["Value"], str) else UNKNOWN for k, v in found.to_json()["Outputs"].items()}
    [fleet] = outputs.parse("Foreign", "us-west-2", values).fleets
    assert (fleet.queue, fleet.resource, fleet.nodes, fleet.efa) == ("trn", "trn", 4, 8)
