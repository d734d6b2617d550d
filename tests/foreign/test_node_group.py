"""`TrnNodeGroup` on a cluster and in a VPC that are not ours."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam

from tests.cdk import findings, needs, only, properties, resources
from tests.foreign.foreign import cluster, cluster_v1, template, vpc, warnings
from trainium_cdk import (
    TrnBastionHost,
    TrnEfaSecurityGroup,
    TrnEksCluster,
    TrnNetwork,
    TrnNodeGroup,
    TrnNodeRole,
    TrnStorage,
    settings,
)


def one(scope: Stack, **nodes: Any) -> TrnNodeGroup:
    return TrnNodeGroup(scope, "Trn", cluster=cluster(scope), nodes=settings.NodeGroup(**nodes))


@pytest.mark.parametrize("region", ["us-west-2", ""])
def test_a_cluster_is_all_that_it_needs(region: str) -> None:
    found = template(lambda s: one(s, instance_type="trn1.32xlarge", max_nodes=4), region)
    group, data = only(found, "EKS::Nodegroup"), only(found, "EC2::LaunchTemplate")["LaunchTemplateData"]
    assert group["AmiType"] == "AL2023_x86_64_NEURON"
    assert (group["ScalingConfig"]["MinSize"], group["ScalingConfig"]["MaxSize"]) == (0, 4)
    assert group["ClusterName"] == {"Ref": next(iter(resources(found, "EKS::Cluster")))}
    assert group["Labels"] == {"trainium-cdk/node-group": "trn", "trainium-cdk/role": "training"}
    interfaces = data["NetworkInterfaces"]
    assert [i["InterfaceType"] for i in interfaces] == ["efa"] + ["efa-only"] * 7
    [efa] = (k for k in resources(found, "EC2::SecurityGroup") if "Efa" in k)
    own = {"Fn::GetAtt": [next(iter(resources(found, "EKS::Cluster"))), "ClusterSecurityGroupId"]}
    assert all(i["Groups"] == [own, {"Fn::GetAtt": [efa, "GroupId"]}] for i in interfaces)
    assert len(resources(found, "EC2::PlacementGroup")) == 1
    # the one subnet is chosen on deployment, from the private ones, whose routes the nodes wait for
    [choice] = found.find_resources("Custom::TrnSubnetChoice")
    assert group["Subnets"] == [{"Fn::GetAtt": [choice, "SubnetId"]}]
    chosen = found.find_resources("Custom::TrnSubnetChoice")[choice]["Properties"]
    assert [s["Ref"][:16] for s in chosen["SubnetIds"]] == ["VpcPrivateSubnet"] * 2
    [node_group] = resources(found, "EKS::Nodegroup")
    assert set(resources(found, "EC2::NatGateway")) <= needs(found, node_group)
    assert findings(found) == []


def test_existing_resources_are_accepted() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        existing = eks.Cluster.from_cluster_attributes(
            scope,
            "Theirs",
            cluster_name=Token.as_string(scope.resolve("theirs")),
            vpc=within,
            cluster_security_group_id="sg-0123456789abcdef0",
            cluster_endpoint="https://example.com",
            cluster_certificate_authority_data="Q0E=",
        )
        role = TrnNodeRole(scope, "Role").role
        storage = TrnStorage(scope, "S", vpc=within)
        shared = TrnEfaSecurityGroup(scope, "Efa", vpc=within).security_group
        place = ec2.PlacementGroup(scope, "Place", strategy=ec2.PlacementGroupStrategy.CLUSTER)
        for id in ("A", "B"):
            TrnNodeGroup(
                scope,
                id,
                cluster=existing,
                nodes=settings.NodeGroup(
                    name=id.lower(), instance_type="trn1n.32xlarge", custom_ami="ami-0123456789abcdef0"
                ),
                vpc_subnets=ec2.SubnetSelection(subnets=within.private_subnets[:1]),
                efa_security_group=shared,
                placement_group=place,
                node_role=role,
                storage=storage,
                service_cidr="10.100.0.0/16",
            )

    found = template(build)
    groups = properties(found, "EKS::Nodegroup")
    assert [g["ClusterName"] for g in groups] == ["theirs", "theirs"]
    assert [g["Subnets"] for g in groups] == [[{"Ref": next(iter(s for s in resources(found, "EC2::Subnet") if "Private" in s))}]] * 2  # fmt: skip
    assert len(resources(found, "EC2::PlacementGroup")) == 1
    assert not found.find_resources("Custom::TrnSubnetChoice")
    assert len([r for r in properties(found, "IAM::Role") if "ec2.amazonaws.com" in str(r)]) == 1
    data = properties(found, "EC2::LaunchTemplate")[0]["LaunchTemplateData"]
    assert len(data["NetworkInterfaces"][0]["Groups"]) == 3, "the cluster's, the storage's, EFA's"
    assert findings(found) == []


def test_zones_and_file_systems_are_those_that_were_given() -> None:
    def build(scope: Stack) -> None:
        network = TrnNetwork(scope, "Net", network=settings.Network(zone_ids=("usw2-az3", "usw2-az4")))
        storage = TrnStorage(scope, "S", vpc=network.vpc, efs=None, lustre=settings.Fsx())
        TrnNodeGroup(scope, "Trn", cluster=cluster(scope, within=network.vpc), storage=storage)

    found = template(build)
    assert {s["AvailabilityZoneId"] for s in properties(found, "EC2::Subnet")} == {"usw2-az3", "usw2-az4"}
    assert "dnf install -y lustre-client" in str(only(found, "EC2::LaunchTemplate")["LaunchTemplateData"]["UserData"])


def test_grants_are_added_to_the_node_role() -> None:
    def build(scope: Stack) -> None:
        group = one(scope)
        for grantee in (group, TrnNodeRole(scope, "Shared")):
            granted = iam.Grant.add_to_principal(
                grantee=grantee, actions=["s3:GetObject"], resource_arns=["arn:aws:s3:::b/*"]
            )
            assert granted.success
        group.connections.allow_from(ec2.Peer.ipv4("10.9.0.0/16"), ec2.Port.tcp(22))

    found = template(build)
    roles = {str(p["Roles"]) for p in properties(found, "IAM::Policy") if "s3:GetObject" in str(p)}
    assert len(roles) == 2
    assert sum("Shared" in role for role in roles) == 1
    assert [r["CidrIp"] for r in properties(found, "EC2::SecurityGroupIngress") if "CidrIp" in r] == ["10.9.0.0/16"]


@pytest.mark.parametrize(
    ("made", "given"), [("ours", False), ("theirs", False), ("v1", False), ("imported", False), ("imported", True)]
)
def test_a_group_without_efa_has_the_groups_of_its_nodes(made: str, given: bool) -> None:
    """Rules of a database for the nodes have an effect: of a group that is given, else of the cluster's."""

    def build(scope: Stack) -> None:
        within = vpc(scope)
        own = [ec2.SecurityGroup.from_security_group_id(scope, "Own", "sg-0123456789abcdef1")] if given else []
        group = TrnNodeGroup(
            scope,
            "Trn",
            cluster={
                "ours": lambda: TrnEksCluster(scope, "Cluster", vpc=within),
                "theirs": lambda: cluster(scope, within=within),
                "v1": lambda: cluster_v1(scope, within),
                "imported": lambda: eks.Cluster.from_cluster_attributes(
                    scope, "Theirs", cluster_name="theirs", vpc=within, cluster_security_group_id="sg-0123456789abcdef0"
                ),
            }[made](),
            nodes=settings.NodeGroup(instance_type="trn1.2xlarge"),
            security_groups=own,
        )
        database = ec2.SecurityGroup(scope, "Database", vpc=within)
        database.connections.allow_from(group, ec2.Port.tcp(5432))

    found = template(build)
    [rule] = (r for r in properties(found, "EC2::SecurityGroupIngress") if r["FromPort"] == 5432)
    data = only(found, "EC2::LaunchTemplate")["LaunchTemplateData"]
    groups = data["SecurityGroupIds"]
    assert rule["SourceSecurityGroupId"] == groups[-1]
    assert len(groups) == 1 + given


def test_a_second_cluster_of_the_stack_keeps_its_sizes_too() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        for id in ("One", "Two"):
            TrnNodeGroup(scope, f"Trn{id}", cluster=cluster(scope, id, within=within))

    found = template(build)
    clusters = {r["Properties"]["Cluster"]["Ref"] for r in found.find_resources("Custom::TrnNodeGroupSize").values()}
    assert clusters == set(resources(found, "EKS::Cluster"))
    [allowed] = (p for p in properties(found, "IAM::ManagedPolicy") if "eks:ListNodegroups" in str(p))
    assert all(name in str(allowed) for name in clusters)


def test_nodes_install_a_driver_that_was_named() -> None:
    found = template(lambda s: TrnNodeGroup(s, "Trn", cluster=cluster(s), neuron_driver="2.31.7.0"), "us-west-2")
    data = only(found, "EC2::LaunchTemplate")["LaunchTemplateData"]["UserData"]["Fn::Base64"]
    assert "wanted=2.31.7.0\n" in data
    assert "baseurl=https://yum.repos.neuron.amazonaws.com\n" in data
    assert "wanted=" not in str(only(template(one, "us-west-2"), "EC2::LaunchTemplate"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"neuron_driver": "latest"},
            r"neuron_driver = latest: not a version\. Fix: write the version of aws-neuronx-dkms",
        ),
        (
            {
                "neuron_driver": "2.31.7.0",
                "nodes": {"custom_ami": "ami-0123456789abcdef0"},
                "service_cidr": "172.20.0.0/16",
            },
            "neuron_driver = 2.31.7.0: nodes.custom_ami is given, and your own image has its driver. Fix: remove one",
        ),
    ],
)
def test_a_driver_that_cannot_be_installed_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        template(lambda s: TrnNodeGroup(s, "Trn", cluster=cluster(s), **given), "us-west-2")


def test_a_capacity_reservation_may_be_a_token() -> None:
    def build(scope: Stack) -> None:
        reservation = ec2.CfnCapacityReservation(
            scope, "Odcr", availability_zone="us-west-2a", instance_count=4, instance_platform="Linux/UNIX",
            instance_type="trn1.32xlarge",
        )  # fmt: skip
        one(scope, reservation=reservation.ref, max_nodes=4)

    found = template(build)
    data = only(found, "EC2::LaunchTemplate")["LaunchTemplateData"]
    target = data["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert target == {"CapacityReservationId": {"Ref": "Odcr"}}
    assert "Placement" not in data


def test_a_bastion_host_reaches_the_api_of_any_cluster() -> None:
    def build(scope: Stack) -> None:
        mine = cluster(scope)
        mine.connections.allow_default_port_from(TrnBastionHost(scope, "Bastion", vpc=mine.vpc))

    found = template(build)
    [host] = resources(found, "EC2::Instance")
    assert set(resources(found, "EC2::NatGateway")) & needs(found, host), "that of its own subnet"
    group = only(found, "EC2::Instance")["NetworkInterfaces"][0]["GroupSet"][0]
    into = [r for r in properties(found, "EC2::SecurityGroupIngress") if r["SourceSecurityGroupId"] == group]
    assert {(r["FromPort"], r["ToPort"]) for r in into} == {(443, 443)}
    assert findings(found) == []


def test_costs_without_jobs_are_a_warning() -> None:
    [warning] = warnings(lambda s: one(s, min_nodes=1))
    assert "nodes.min_nodes = 1: 1 x trn1.32xlarge always run and are always charged" in warning
