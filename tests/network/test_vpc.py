"""`TrnNetwork`: subnets by zone id, ways out, endpoints, flow logs, and a VPC that exists."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from aws_cdk import CfnResource, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_logs as logs
from aws_cdk.assertions import Annotations, Match, Template

from tests.audit.principals import evaluate, filled
from tests.cdk import IN_US_EAST_1, app, findings, needs, only, properties, resources, synth
from trainium_cdk import settings as trn
from trainium_cdk.cdk.network import TrnNetwork
from trainium_cdk.description.settings.network import InterfaceEndpoint

TWO = ("use1-az6", "use1-az4")
EXISTING = trn.ExistingVpc(
    vpc_id="vpc-0123456789abcdef0",
    cidr="172.31.0.0/16",
    private_subnets=(
        trn.ExistingSubnet(id="subnet-0123456789abcdef0", zone_id="use1-az6"),
        trn.ExistingSubnet(id="subnet-0123456789abcdef1", zone_id="use1-az4"),
    ),
    public_subnets=(trn.ExistingSubnet(id="subnet-0123456789abcdef2", zone_id="use1-az6"),),
)


def network(
    settings: trn.Network | None = None, zones: tuple[str, ...] = TWO, env: Environment | None = None, **kwargs: Any
) -> Template:
    described = (settings or trn.Network()).model_copy(update={"zone_ids": zones})
    return synth(lambda stack: TrnNetwork(stack, "Network", network=described, **kwargs), env=env)


def name_of(properties: dict[str, Any]) -> str:
    return next(t["Value"] for t in properties["Tags"] if t["Key"] == "Name")


def routes(template: Template) -> list[str]:
    """Every route table with its subnets and where it leads, one line each."""
    tables = resources(template, "EC2::RouteTable")
    subnets = resources(template, "EC2::Subnet")
    gateways = resources(template, "EC2::NatGateway")
    lines = []
    for table, resource in tables.items():
        inside = [
            str(subnets[a["SubnetId"]["Ref"]]["Properties"]["CidrBlock"])
            for a in properties(template, "EC2::SubnetRouteTableAssociation")
            if a["RouteTableId"]["Ref"] == table
        ]
        leads = []
        for route in properties(template, "EC2::Route"):
            if route["RouteTableId"] == {"Ref": table}:
                nat = route.get("NatGatewayId", {}).get("Ref")
                leads.append(
                    f"{route['DestinationCidrBlock']} by "
                    + (name_of(gateways[nat]["Properties"]) if nat else "internet gateway")
                )
        lines.append(f"{name_of(resource['Properties'])} [{', '.join(inside)}] {'; '.join(leads) or 'nowhere'}")
    return sorted(lines)


PUBLIC = "trn-public [10.0.0.0/24, 10.0.1.0/24] 0.0.0.0/0 by internet gateway"


ZONES = {"use1-az4": "10.0.224.0/20", "use1-az6": "10.0.240.0/20"}


@pytest.mark.parametrize(
    ("nat", "leads"),
    [
        ("one", "0.0.0.0/0 by trn-nat-use1-az6"),
        ("per-zone", "0.0.0.0/0 by trn-nat-{zone}"),
        ("none", "nowhere"),
    ],
)
def test_internet_access(nat: Any, leads: str) -> None:
    template = network(trn.Network(nat=nat))
    private = [f"trn-private-{zone} [{cidr}] {leads.format(zone=zone)}" for zone, cidr in ZONES.items()]
    assert routes(template) == [*private, PUBLIC]
    assert findings(template) == []


def test_subnets_are_placed_by_zone_id_and_give_no_public_addresses() -> None:
    found = {
        (s["AvailabilityZoneId"], s["CidrBlock"], s["MapPublicIpOnLaunch"], "AvailabilityZone" in s)
        for s in properties(network(), "EC2::Subnet")
    }
    assert found == {
        ("use1-az6", "10.0.0.0/24", False, False),
        ("use1-az4", "10.0.1.0/24", False, False),
        ("use1-az6", "10.0.240.0/20", False, False),
        ("use1-az4", "10.0.224.0/20", False, False),
    }


@pytest.mark.parametrize("nat", ["one", "per-zone"])
def test_appending_a_zone_changes_nothing_that_is_there(nat: Any) -> None:
    settings = trn.Network(nat=nat, s3_endpoint=False)
    before = network(settings, TWO).to_json()["Resources"]
    after = network(settings, (*TWO, "use1-az5")).to_json()["Resources"]
    assert {k: after.get(k) for k in before} == before
    assert len(after) > len(before)


def test_one_nat_gateway_can_become_one_in_each_zone_without_replacing_subnets() -> None:
    one, each = (network(trn.Network(nat=n)).to_json()["Resources"] for n in ("one", "per-zone"))
    changed = {one[k]["Type"] for k in one if each.get(k) != one[k]}
    assert changed == {"AWS::EC2::Route"}


def test_depending_on_internet_access_includes_all_routes_and_subnets_wait_for_none() -> None:
    settings = trn.Network(nat="per-zone", interface_endpoints=("ssm",), zone_ids=TWO)

    def build(stack: Stack) -> None:
        made = TrnNetwork(stack, "Network", network=settings)
        node = CfnResource(stack, "Node", type="Custom::Node", properties={"Subnet": made.private_subnet().subnet_id})
        node.node.add_dependency(made.internet_ready)
        CfnResource(stack, "Control", type="Custom::Control", properties={"Subnet": made.private_subnet().subnet_id})

    template = synth(build)
    everything = template.to_json()["Resources"]
    waited = {everything[r]["Type"].removeprefix("AWS::EC2::") for r in needs(template, "Node")}
    all_of = {"InternetGateway", "VPCGatewayAttachment", "NatGateway", "EIP", "Route", "SubnetRouteTableAssociation"}
    assert waited >= {*all_of, "VPCEndpoint"}
    assert {r for r in everything if everything[r]["Type"] == "AWS::EC2::Route"} <= needs(template, "Node")
    assert {everything[r]["Type"] for r in needs(template, "Control")} == {"AWS::EC2::VPC", "AWS::EC2::Subnet"}


def test_nat_gateways_and_addresses_are_deleted_before_the_internet_gateway() -> None:
    template = network()
    attachment = next(iter(resources(template, "EC2::VPCGatewayAttachment")))
    for kind in ("EC2::EIP", "EC2::NatGateway"):
        assert all(attachment in needs(template, name) for name in resources(template, kind))


def test_endpoints() -> None:
    template = network(trn.Network(nat="none", interface_endpoints=("ssm", "ecr.dkr", "sts", "dynamodb", "route53")))
    found = {
        (e["ServiceName"]["Fn::Join"][1][-1] if isinstance(e["ServiceName"], dict) else e["ServiceName"]).strip("."): e
        for e in properties(template, "EC2::VPCEndpoint")
    }
    kinds = {name: e["VpcEndpointType"] for name, e in found.items()}
    assert kinds == {
        "s3": "Gateway",
        "dynamodb": "Gateway",
        "ssm": "Interface",
        "ecr.dkr": "Interface",
        "sts": "Interface",
        "com.amazonaws.route53": "Interface",
    }
    assert all(len(found[g]["RouteTableIds"]) == 3 for g in ("s3", "dynamodb"))
    for name, endpoint in found.items():
        if kinds[name] == "Interface":
            assert endpoint["PrivateDnsEnabled"] is True
            assert len(endpoint["SubnetIds"]) == 2
    group = only(template, "EC2::SecurityGroup")
    assert [(r["CidrIp"], r["FromPort"], r["ToPort"]) for r in group["SecurityGroupIngress"]] == [
        ("10.0.0.0/16", 443, 443)
    ]
    assert [r["CidrIp"] for r in group["SecurityGroupEgress"]] == ["255.255.255.255/32"]
    assert findings(template) == []


OWN, FOREIGN = "111122223333", "444455556666"
AS_OWN, AS_FOREIGN = {"aws:PrincipalAccount": OWN}, {"aws:PrincipalAccount": FOREIGN}
IN_OWN, IN_FOREIGN = {"aws:ResourceAccount": OWN}, {"aws:ResourceAccount": FOREIGN}
NOBODY: dict[str, str] = {}
PASSES = [
    ("s3", "s3:GetObject", "arn:aws:s3:::ours/data", AS_OWN | IN_OWN, True),
    ("s3", "s3:GetObject", "arn:aws:s3:::of-a-partner/data", AS_OWN | IN_FOREIGN, True),
    ("s3", "s3:PutObject", "arn:aws:s3:::attacker/stolen", AS_FOREIGN | IN_FOREIGN, False),
    ("s3", "s3:PutObject", "arn:aws:s3:::attacker/stolen", IN_FOREIGN, False),
    ("s3", "s3:GetObject", "arn:aws:s3:::prod-us-east-1-starport-layer-bucket/layer", AS_FOREIGN | IN_FOREIGN, True),
    ("s3", "s3:PutObject", "arn:aws:s3:::prod-us-east-1-starport-layer-bucket/layer", AS_FOREIGN | IN_FOREIGN, False),
    ("s3", "s3:GetObject", "arn:aws:s3:::al2023-repos-us-east-1-de612dc2/core", IN_FOREIGN, True),
    ("s3", "s3:PutObject", "arn:aws:s3:::cloudformation-custom-resource-response-useast1/x", AS_FOREIGN | IN_FOREIGN, True),
    ("dynamodb", "dynamodb:PutItem", f"arn:aws:dynamodb:us-east-1:{FOREIGN}:table/t", AS_FOREIGN | IN_FOREIGN, False),
    ("dynamodb", "dynamodb:PutItem", f"arn:aws:dynamodb:us-east-1:{OWN}:table/t", AS_OWN | IN_OWN, True),
    ("sts", "sts:AssumeRoleWithWebIdentity", f"arn:aws:iam::{OWN}:role/r", IN_OWN, True),
    ("sts", "sts:AssumeRoleWithWebIdentity", f"arn:aws:iam::{FOREIGN}:role/r", IN_FOREIGN, False),
    ("sts", "sts:AssumeRole", f"arn:aws:iam::{FOREIGN}:role/r", AS_FOREIGN | IN_FOREIGN, False),
    ("cloudformation", "cloudformation:SignalResource", f"arn:aws:cloudformation:us-east-1:{OWN}:stack/s/1", IN_OWN, True),
    ("cloudformation", "cloudformation:CreateStack", f"arn:aws:cloudformation:us-east-1:{FOREIGN}:stack/s/1", AS_FOREIGN | IN_FOREIGN, False),
    ("ecr.dkr", "ecr:PutImage", f"arn:aws:ecr:us-east-1:{FOREIGN}:repository/r", AS_FOREIGN | IN_FOREIGN, False),
    ("ecr.dkr", "ecr:BatchGetImage", f"arn:aws:ecr:us-east-1:{FOREIGN}:repository/r", AS_OWN | IN_FOREIGN, True),
    ("lambda", "lambda:InvokeFunction", f"arn:aws:lambda:us-east-1:{FOREIGN}:function:f", AS_FOREIGN | IN_FOREIGN, False),
    ("logs", "logs:PutLogEvents", f"arn:aws:logs:us-east-1:{FOREIGN}:log-group:g", AS_FOREIGN | IN_FOREIGN, False),
]  # fmt: skip


def test_credentials_of_another_account_carry_no_data_out_of_a_closed_network() -> None:
    """By the local AWS's IAM, for which an endpoint's policy is a principal's."""
    services = tuple(dict.fromkeys(one[0] for one in PASSES if one[0] != "s3"))
    template = network(trn.Network(nat="none", interface_endpoints=services), env=IN_US_EAST_1)
    policies = {
        json.dumps(one["ServiceName"]): filled(one["PolicyDocument"], template.to_json())
        for one in properties(template, "EC2::VPCEndpoint")
    }
    cases = []
    for service, action, resource, context, _ in PASSES:
        [policy] = [found for name, found in policies.items() if name.endswith(f'.{service}"')]
        statements = [{k: v for k, v in one.items() if k != "Principal"} for one in policy["Statement"]]
        account = context.get("aws:PrincipalAccount", FOREIGN)
        cases.append({
            "policies": [{"Version": "2012-10-17", "Statement": statements}], "action": action, "resource": resource, "context": context,
            "account": account, "caller": f"arn:aws:sts::{account}:assumed-role/r/s",
        })  # fmt: skip
    assert list(zip(PASSES, evaluate(cases), strict=True)) == [(one, one[-1]) for one in PASSES]


def test_every_endpoint_of_a_closed_network_has_a_policy() -> None:
    every = get_args(InterfaceEndpoint)
    found = properties(network(trn.Network(nat="none", interface_endpoints=every)), "EC2::VPCEndpoint")
    without = [one["ServiceName"] for one in found if "PolicyDocument" not in one]
    assert (len(found), without) == (len(every) + 1, ["com.amazonaws.route53"])
    opened = properties(network(trn.Network(interface_endpoints=("dynamodb", "sts"))), "EC2::VPCEndpoint")
    assert [one["VpcEndpointType"] for one in opened if "PolicyDocument" not in one] == ["Gateway", "Gateway"]


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("us-east-1", ["com.amazonaws.us-east-1.ec2", "com.amazonaws.us-east-1.ssm", "com.amazonaws.route53"]),
        ("cn-north-1", ["cn.com.amazonaws.cn-north-1.ec2", "com.amazonaws.cn-north-1.ssm", "com.amazonaws.route53"]),
    ],
)
def test_names_of_services(region: str, expected: list[str]) -> None:
    def build(stack: Stack) -> None:
        described = trn.Network(interface_endpoints=("ec2", "ssm", "route53"), s3_endpoint=False)
        TrnNetwork(stack, "Net", network=described)

    made = synth(build, env=Environment(region=region))
    assert [e["ServiceName"] for e in properties(made, "EC2::VPCEndpoint")] == expected


def test_only_the_vpc_by_default() -> None:
    template = network(trn.Network(nat="none", s3_endpoint=False, flow_logs=False), ("use1-az6",))
    assert {r["Type"] for r in template.to_json()["Resources"].values()} == {
        "AWS::EC2::VPC",
        "AWS::EC2::Subnet",
        "AWS::EC2::RouteTable",
        "AWS::EC2::Route",
        "AWS::EC2::SubnetRouteTableAssociation",
        "AWS::EC2::InternetGateway",
        "AWS::EC2::VPCGatewayAttachment",
    }


@pytest.mark.parametrize(("removal", "policy"), [(RemovalPolicy.DESTROY, "Delete"), (RemovalPolicy.RETAIN, "Retain")])
def test_flow_logs_go_to_a_group_that_the_stack_owns(removal: RemovalPolicy, policy: str) -> None:
    template = network(log_retention=logs.RetentionDays.THREE_MONTHS, removal_policy=removal)
    group = next(iter(resources(template, "Logs::LogGroup")))
    template.has_resource(
        "AWS::Logs::LogGroup",
        {"Properties": {"RetentionInDays": 90}, "DeletionPolicy": policy, "UpdateReplacePolicy": policy},
    )
    template.has_resource_properties("AWS::EC2::FlowLog", {"LogGroupName": {"Ref": group}, "TrafficType": "ALL"})
    [statement] = only(template, "IAM::Policy")["PolicyDocument"]["Statement"]
    assert statement["Resource"] == {"Fn::GetAtt": [group, "Arn"]}
    assert "logs:CreateLogGroup" not in statement["Action"]
    assert "AWS::Lambda::Function" not in {r["Type"] for r in template.to_json()["Resources"].values()}


def test_other_constructs_of_the_cdk_work_on_it() -> None:
    def build(stack: Stack) -> None:
        vpc = TrnNetwork(stack, "Network", network=trn.Network(zone_ids=TWO)).vpc
        assert len(vpc.private_subnets) == len(vpc.public_subnets) == len(vpc.availability_zones) == 2
        efs.FileSystem(stack, "Efs", vpc=vpc)
        ec2.Instance(
            stack,
            "Host",
            vpc=vpc,
            instance_type=ec2.InstanceType("t3.micro"),
            machine_image=ec2.MachineImage.generic_linux({"us-east-1": "ami-0123456789abcdef0"}),
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
        )

    template = synth(build, env=IN_US_EAST_1)
    private = [k for k, s in resources(template, "EC2::Subnet").items() if s["Properties"]["CidrBlock"].endswith("/20")]
    assert {t["SubnetId"]["Ref"] for t in properties(template, "EFS::MountTarget")} == set(private)
    zone = {"Fn::GetAtt": [Match.any_value(), "AvailabilityZone"]}
    template.has_resource_properties("AWS::EC2::Instance", {"AvailabilityZone": zone})
    assert findings(template) == []


@pytest.mark.parametrize("env", [None, IN_US_EAST_1])
def test_an_existing_vpc_adds_nothing_and_gives_its_subnets(env: Any) -> None:
    def build(stack: Stack) -> None:
        made = TrnNetwork(stack, "Network", network=trn.Network(existing=EXISTING))
        assert made.vpc.vpc_id == EXISTING.vpc_id
        assert made.cidr == "172.31.0.0/16"
        assert made.zone_ids == ["use1-az6", "use1-az4"]
        assert made.private_subnet().subnet_id == "subnet-0123456789abcdef0"
        assert made.private_subnet("use1-az4").subnet_id == "subnet-0123456789abcdef1"
        assert made.public_subnet("use1-az6").subnet_id == "subnet-0123456789abcdef2"
        assert [s.subnet_id for s in made.vpc.private_subnets] == [s.id for s in EXISTING.private_subnets]
        node = CfnResource(stack, "Node", type="Custom::Node")
        node.node.add_dependency(made.internet_ready)

    assert synth(build, env=env).to_json()["Resources"] == {"Node": {"Type": "Custom::Node"}}


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        (trn.Network(nat="none"), True),
        (trn.Network(nat="none", interface_endpoints=("ec2",)), False),
        (trn.Network(), False),
        (trn.Network(existing=EXISTING.model_copy(update={"internet": False})), False),  # it may have endpoints
    ],
)
def test_a_network_without_a_way_out_is_a_warning(given: trn.Network, warned: bool) -> None:
    stack = Stack(app(), "S", env=IN_US_EAST_1)
    TrnNetwork(stack, "Network", network=given)
    text = Match.string_like_regexp("nodes and functions in it reach neither AWS nor the internet")
    assert len(Annotations.from_stack(stack).find_warning("*", text)) == warned


def test_the_unknown_zone_name_of_an_existing_subnet_is_an_error_with_a_fix() -> None:
    def build(stack: Stack) -> None:
        made = TrnNetwork(stack, "Network", network=trn.Network(existing=EXISTING))
        CfnResource(stack, "Node", type="Custom::Node", properties={"Zone": made.private_subnet().availability_zone})

    with pytest.raises(RuntimeError, match="the name of an existing subnet's availability zone is not known"):
        synth(build)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda n: n.private_subnet("use1-az1"), r"no private subnet in zone use1-az1 \(zones with one: use1-az6, use1-az4\)"),
        (lambda n: n.public_subnet("use1-az4"), r"no public subnet in zone use1-az4 \(zones with one: use1-az6\)"),
    ],
)  # fmt: skip
def test_a_missing_subnet(ask: Any, message: str) -> None:
    def build(stack: Stack) -> None:
        ask(TrnNetwork(stack, "Network", network=trn.Network(existing=EXISTING)))

    with pytest.raises(ValueError, match=message):
        synth(build)
