"""`TrnPeering`: routes on both sides, or the command that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Aws, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template

from tests.cdk import IN_US_EAST_1, findings, only, properties, resources, synth
from trainium_cdk import settings as trn
from trainium_cdk.cdk.network import TrnNetwork, TrnPeering

PEER = "vpc-0123456789abcdef0"
ROLE = "arn:aws:iam::444455556666:role/AcceptPeering"


def peered(*peers: trn.Peering, env: Environment | None = None, existing: trn.ExistingVpc | None = None) -> Template:
    zones = () if existing else ("use1-az6", "use1-az4")
    settings = trn.Network(peerings=peers, existing=existing, zone_ids=zones)

    def build(stack: Stack) -> None:
        TrnNetwork(stack, "Network", network=settings)

    return synth(build, env=env)


def peer_routes(template: Template) -> set[tuple[str, str]]:
    """Routes through a peering connection: the table's id or Name, and where it leads."""
    names = {
        k: next(t["Value"] for t in r["Properties"]["Tags"] if t["Key"] == "Name")
        for k, r in resources(template, "EC2::RouteTable").items()
    }
    return {
        (names[t["Ref"]] if isinstance(t := r["RouteTableId"], dict) else t, r["DestinationCidrBlock"])
        for r in properties(template, "EC2::Route")
        if "VpcPeeringConnectionId" in r
    }


def commands(template: Template) -> list[str]:
    """The commands in the outputs, with tokens as <Name>."""
    return [_text(o["Value"]) for o in template.to_json().get("Outputs", {}).values()]


def _text(value: Any) -> str:
    parts = value["Fn::Join"][1] if isinstance(value, dict) else [value]
    return "".join(p if isinstance(p, str) else f"<{p['Ref'].removeprefix('AWS::')[:14]}>" for p in parts)


OURS = {("trn-public", "172.31.0.0/16"), ("trn-private-use1-az6", "172.31.0.0/16"), ("trn-private-use1-az4", "172.31.0.0/16")}  # fmt: skip


def test_same_account_and_region_is_routed_on_both_sides() -> None:
    tables = ("rtb-0123456789abcdef0", "rtb-0123456789abcdef1")
    template = peered(trn.Peering(vpc_id=PEER, cidr="172.31.0.0/16", route_tables=tables))
    assert peer_routes(template) == OURS | {(t, "10.0.0.0/16") for t in tables}
    connection = only(template, "EC2::VPCPeeringConnection")
    assert connection["PeerVpcId"] == PEER
    assert not {"PeerOwnerId", "PeerRegion", "PeerRoleArn"} & set(connection)
    assert commands(template) == []
    assert findings(template) == []


def test_the_route_back_is_a_command_where_the_other_tables_are_not_named() -> None:
    template = peered(trn.Peering(vpc_id=PEER, cidr="172.31.0.0/16"))
    assert peer_routes(template) == OURS
    assert commands(template) == [
        "aws ec2 create-route --region <Region> --route-table-id <THEIR_ROUTE_TABLE> "
        "--destination-cidr-block 10.0.0.0/16 --vpc-peering-connection-id <NetworkPeering>"
    ]


@pytest.mark.parametrize(
    ("peer", "env", "owner", "region"),
    [
        ({"account": "444455556666", "accepter_role": ROLE}, IN_US_EAST_1, "444455556666", None),
        ({"region": "us-west-2"}, IN_US_EAST_1, None, "us-west-2"),
        ({"account": "444455556666", "accepter_role": ROLE, "region": "us-west-2"}, None, "444455556666", "us-west-2"),
    ],
)
def test_another_account_or_region_gets_the_command_for_its_side(
    peer: dict[str, str], env: Any, owner: str | None, region: str | None
) -> None:
    table = "rtb-0123456789abcdef0"
    template = peered(trn.Peering(vpc_id=PEER, cidr="172.31.0.0/16", route_tables=(table,), **peer), env=env)
    assert peer_routes(template) == OURS
    connection = only(template, "EC2::VPCPeeringConnection")
    assert (connection.get("PeerOwnerId"), connection.get("PeerRegion")) == (owner, region)
    assert connection.get("PeerRoleArn") == peer.get("accepter_role")
    assert commands(template) == [
        f"aws ec2 create-route --region {region or 'us-east-1'} --route-table-id {table} "
        "--destination-cidr-block 10.0.0.0/16 --vpc-peering-connection-id <NetworkPeering>"
    ]
    assert findings(template) == []


def test_this_account_and_region_by_name_are_not_another() -> None:
    peer = trn.Peering(
        vpc_id=PEER,
        cidr="172.31.0.0/16",
        account="111122223333",
        region="us-east-1",
        route_tables=("rtb-0123456789abcdef0",),
    )
    template = peered(peer, env=IN_US_EAST_1)
    assert ("rtb-0123456789abcdef0", "10.0.0.0/16") in peer_routes(template)
    assert commands(template) == []


@pytest.mark.parametrize(
    "ours",
    [
        lambda _: {"account": Aws.ACCOUNT_ID},
        lambda stack: {"account": stack.account},
        lambda _: {"region": Aws.REGION},
        lambda stack: {"region": stack.region},
    ],
)
@pytest.mark.parametrize("env", [None, IN_US_EAST_1], ids=["agnostic", "known"])
def test_our_own_account_and_region_may_be_tokens(ours: Callable[[Stack], dict[str, str]], env: Environment) -> None:
    def build(stack: Stack) -> None:
        mine = ec2.Vpc(stack, "V", max_azs=1)
        peer: dict[str, Any] = {"vpc_id": PEER, "cidr": "172.31.0.0/16", "route_tables": ["rtb-0123456789abcdef0"]}
        TrnPeering(stack, "P", vpc=mine, peer=trn.Peering(**peer, **ours(stack)))

    template = synth(build, env=env)
    assert commands(template) == []
    back = [r for r in properties(template, "EC2::Route") if r["RouteTableId"] == "rtb-0123456789abcdef0"]
    assert len(back) == 1


def test_isolated_subnets_are_routed_where_there_are_no_private_ones() -> None:
    def build(stack: Stack) -> None:
        isolated = ec2.SubnetConfiguration(name="Inner", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
        mine = ec2.Vpc(stack, "V", max_azs=2, subnet_configuration=[isolated])
        TrnPeering(stack, "P", vpc=mine, peer=trn.Peering(vpc_id=PEER, cidr="172.31.0.0/16"))

    routes = [r["DestinationCidrBlock"] for r in properties(synth(build), "EC2::Route")]
    assert routes == ["172.31.0.0/16"] * 2


@pytest.mark.parametrize("network", [{}, {"cidr": "10.0.0.0/16"}], ids=["of the VPC", "given"])
def test_a_vpc_that_is_not_looked_up_yet_can_be_peered(network: dict[str, str]) -> None:
    def build(stack: Stack) -> None:
        mine = ec2.Vpc.from_lookup(stack, "V", vpc_id="vpc-0123456789abcdef1")
        other = ec2.Vpc.from_lookup(stack, "Other", vpc_id=PEER)
        peer = trn.Peering(vpc_id=other.vpc_id, cidr=other.vpc_cidr_block)
        TrnPeering(stack, "P", vpc=mine, peer=peer, **network)

    assert len(resources(synth(build, env=IN_US_EAST_1), "EC2::VPCPeeringConnection")) == 1


def test_another_account_without_an_accepter_role_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^Test/Network/Peering\S+: .*belongs to account 444455556666.*give peer.accepter_role"
    ):
        peered(trn.Peering(vpc_id=PEER, cidr="172.31.0.0/16", account="444455556666"), env=IN_US_EAST_1)


def test_several_peers() -> None:
    template = peered(
        trn.Peering(vpc_id=PEER, cidr="172.31.0.0/16", route_tables=("rtb-0123456789abcdef0",)),
        trn.Peering(vpc_id="vpc-0123456789abcdef1", cidr="10.40.0.0/16", route_tables=("rtb-0123456789abcdef1",)),
    )
    assert len(properties(template, "EC2::VPCPeeringConnection")) == 2
    assert len(peer_routes(template)) == 2 * 3 + 2
    assert findings(template) == []


@pytest.mark.parametrize("table", [None, "rtb-0123456789abcdef5"])
def test_an_existing_vpc_is_routed_where_its_tables_are_named(table: str | None) -> None:
    existing = trn.ExistingVpc(
        vpc_id="vpc-0123456789abcdef5",
        cidr="10.9.0.0/16",
        private_subnets=(
            trn.ExistingSubnet(id="subnet-0123456789abcdef0", zone_id="use1-az6", route_table=table),
            trn.ExistingSubnet(id="subnet-0123456789abcdef1", zone_id="use1-az4", route_table=table),
        ),
    )
    peer = trn.Peering(vpc_id=PEER, cidr="172.31.0.0/16", route_tables=("rtb-0123456789abcdef0",))
    template = peered(peer, existing=existing)
    theirs = {("rtb-0123456789abcdef0", "10.9.0.0/16")}
    assert peer_routes(template) == theirs | ({(table, "172.31.0.0/16")} if table else set())
    assert commands(template) == (
        []
        if table
        else [
            "aws ec2 create-route --region <Region> --route-table-id <OUR_ROUTE_TABLE> "
            "--destination-cidr-block 172.31.0.0/16 --vpc-peering-connection-id <NetworkPeering>"
        ]
    )


def test_every_network_of_both_sides_is_routed() -> None:
    """A second network keeps the routes of the first."""
    ours, theirs, table = ("10.9.0.0/16", "100.64.0.0/16"), ("172.31.0.0/16", "172.30.0.0/16"), "rtb-0123456789abcdef5"

    def template(own: tuple[str, ...], peers: tuple[str, ...]) -> Template:
        subnet = trn.ExistingSubnet(id="subnet-0123456789abcdef0", zone_id="use1-az6", route_table=table)
        existing = trn.ExistingVpc(vpc_id="vpc-0123456789abcdef5", cidr=own, private_subnets=(subnet,))
        return peered(trn.Peering(vpc_id=PEER, cidr=peers, route_tables=("rtb-0123456789abcdef0",)), existing=existing)

    both = template(ours, theirs)
    back = {("rtb-0123456789abcdef0", cidr) for cidr in ours}
    assert peer_routes(both) == back | {(table, cidr) for cidr in theirs}
    assert template(ours[:1], theirs[:1]).to_json()["Resources"].items() <= both.to_json()["Resources"].items()
    assert findings(both) == []
