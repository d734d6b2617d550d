"""What exists already: networks, peers, buckets, file systems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.checks.live import test_account, test_capacity, test_keys
from tests.checks.live.cases import BY_NAME, Case, verify
from trainium_cdk.description.checks.live.data import FileSystem
from trainium_cdk.description.checks.live.network import Existing, Peer
from trainium_cdk.description.settings.network import InterfaceEndpoint

VPC, SUBNET, TABLE_ID = "vpc-0123456789abcdef0", "subnet-0123456789abcdef0", "rtb-0123456789abcdef0"
EXISTING = f"""\
network:
  existing:
    vpc_id: {VPC}
    cidr: 172.31.0.0/16
    private_subnets:
      - {{id: {SUBNET}, zone_id: use1-az4, cidr: 172.31.0.0/20}}
"""
OTHER = "subnet-0123456789abcdef1"
SECOND = f"      - {{id: {OTHER}, zone_id: use1-az4, cidr: 172.31.16.0/28}}\n"
PEERED = f"""\
network:
  peerings:
    - vpc_id: {VPC}
      cidr: 172.31.0.0/16
      route_tables: [{TABLE_ID}]
"""
FOREIGN = "network: {peerings: [{vpc_id: vpc-0123456789abcdef1, cidr: 10.9.0.0/16, account: '444455556666', accepter_role: 'arn:aws:iam::444455556666:role/x'}]}"
LINKED = "storage: {fsx: {s3_links: [{uri: 's3://speech/train'}]}}"
BUCKET = "eks: {data_buckets: [speech]}"
KEPT = "jobs: {keep: s3://speech/runs, cache: s3://graphs}\n"
EFS = EXISTING + "storage: {efs: {existing: {id: fs-0123456789abcdef0}}}"
FSX = EXISTING + "storage: {fsx: {existing: {id: fs-0123456789abcdef1, mount_name: abcd}}}"


def vpc(*networks: str) -> dict[str, Any]:
    return {"VpcId": VPC, "CidrBlock": networks[0], "CidrBlockAssociationSet": [{"CidrBlock": n} for n in networks]}


def subnet(**other: Any) -> dict[str, Any]:
    plain = {
        "VpcId": VPC,
        "AvailabilityZoneId": "use1-az4",
        "CidrBlock": "172.31.0.0/20",
        "AvailableIpAddressCount": 4000,
    }
    return {SUBNET: {**plain, **other}}


def peer(*networks: str, table: dict[str, Any] | None = None, exists: bool = False) -> tuple[dict[int, Peer], bool]:
    return {0: Peer(vpc(*networks) if networks else None, {TABLE_ID: table})}, exists


OURS = vpc("172.31.0.0/16")
GONE_NETWORK = {"CidrBlock": "100.64.0.0/16", "CidrBlockState": {"State": "disassociating"}}
LEAVING = {**OURS, "CidrBlockAssociationSet": [*OURS["CidrBlockAssociationSet"], GONE_NETWORK]}
ROUTES = {"VpcId": VPC, "Routes": [{"DestinationCidrBlock": "0.0.0.0/0"}]}
TAKEN = {"VpcId": VPC, "Routes": [{"DestinationCidrBlock": "10.0.0.0/16"}]}
DNS = {"enableDnsSupport": True, "enableDnsHostnames": True}
LOCAL = {
    "RouteTableId": TABLE_ID,
    "Routes": [{"DestinationCidrBlock": "172.31.0.0/16", "GatewayId": "local", "State": "active"}],
}
NAT, IGW, GONE = (
    {**LOCAL, "Routes": [*LOCAL["Routes"], {"DestinationCidrBlock": "0.0.0.0/0", **target}]}
    for target in (
        {"NatGatewayId": "nat-1", "State": "active"},
        {"GatewayId": "igw-1", "State": "active"},
        {"NatGatewayId": "nat-1", "State": "blackhole"},
    )
)
TRANSIT = {
    "Routes": [*LOCAL["Routes"], {"DestinationCidrBlock": "10.0.0.0/8", "TransitGatewayId": "tgw-1", "State": "active"}]
}
ROUTED = EXISTING.replace("/20}", f"/20, route_table: {TABLE_ID}}}")
CLOSED = EXISTING + "    internet: false\n"
MIRRORED = CLOSED + "eks:" + Path("tests/environments/eks/no-internet.yaml").read_text("utf-8").partition("\neks:")[2]
EVERY_ENDPOINT = [
    {"ServiceName": "com.amazonaws.us-east-1.s3", "RouteTableIds": [TABLE_ID]} if name == "s3" else
    {"ServiceName": f"com.amazonaws.us-east-1.{name}", "PrivateDnsEnabled": True} for name in ("ec2", *sorted({"s3", *get_args(InterfaceEndpoint)} - {"ec2"}))
]  # fmt: skip
AT_EFS, AT_FSX, AT_SHARED = (
    ("storage", "efs", "existing"),
    ("storage", "fsx", "existing"),
    ("pcluster", "shared_storage", 0),
)
SHARED = EXISTING + "pcluster: {shared_storage: [{name: more, mount_dir: /more, type: TYPE}]}"
TWO_ZONES = EXISTING + SECOND.replace("az4", "az6") + EFS.removeprefix(EXISTING)
PUBLIC_HEAD = (
    EXISTING
    + f"    public_subnets: [{{id: {OTHER}, zone_id: use1-az6}}]\n"
    + (
        "pcluster: {head: {subnet: public}, shared_storage: [{name: more, mount_dir: /more, type: ebs, id: vol-0123456789abcdef0}]}"
    )
)
NFS = FileSystem("available", "efs", VPC, zones=frozenset({"use1-az4"}), closed={("sg-1",): ""})
LUSTRE = FileSystem("AVAILABLE", "fsx-lustre", VPC, "abcd")
DISK = FileSystem("available", "ebs", zones=frozenset({"use1-az4"}))
CLOSED_GROUP = {("sg-1", "sg-2"): "tcp 2049 from"}
TABLE = [
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(), DNS, {SUBNET: NAT}), [("ok", "172.31.0.0/16"), ("ok", "4,000 free", "up to 16 nodes")]),
    Case("existing-vpc", EXISTING, Existing(None, {SUBNET: None}), [("error", "this VPC does not exist in us-east-1", "[environment.yaml:3]")]),
    Case("existing-vpc", EXISTING, Existing(vpc("10.5.0.0/16"), subnet()), [("error", "write network.existing.cidr: 10.5.0.0/16"), ("ok",)]),
    Case("existing-vpc", EXISTING, Existing(vpc("172.31.0.0/16", "100.64.0.0/16"), subnet()),
         [("warning", "= 172.31.0.0/16 and 100.64.0.0/16", "overlaps with the others are not checked", "write network.existing.cidr: [172.31.0.0/16, 100.64.0.0/16]"), ("ok",)]),
    Case("existing-vpc", EXISTING.replace("cidr: 172.31.0.0/16", "cidr: [172.31.0.0/16, 100.64.0.0/16]"), Existing(vpc("172.31.0.0/16", "100.64.0.0/16"), subnet()),
         [("ok", "172.31.0.0/16 and 100.64.0.0/16", "matches"), ("ok",)]),
    Case("existing-vpc", EXISTING.replace("cidr: 172.31.0.0/16", "cidr: [172.31.0.0/16, 100.64.0.0/16]"), Existing(OURS, subnet()),
         [("error", "the environment has cidr: 172.31.0.0/16 and 100.64.0.0/16", "write network.existing.cidr: 172.31.0.0/16"), ("ok",)]),
    Case("existing-vpc", EXISTING, Existing(LEAVING, subnet()), [("ok", "172.31.0.0/16"), ("ok",)]),
    Case("existing-vpc", EXISTING, Existing(OURS, {SUBNET: None}), [("ok",), ("error", "this subnet does not exist", "[environment.yaml:6]")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(AvailabilityZoneId="use1-az6")), [("ok",), ("error", "write zone_id: use1-az6")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(VpcId="vpc-2", CidrBlock="172.31.16.0/20")),
         [("ok",), ("error", "vpc-2"), ("error", "write cidr: 172.31.16.0/20")]),
    Case("existing-vpc", ROUTED, Existing(OURS, subnet(), DNS, {SUBNET: NAT}), [("ok",), ("ok",)]),
    Case("existing-vpc", ROUTED.replace(TABLE_ID, "rtb-0123456789abcdef9"), Existing(OURS, subnet(), DNS, {SUBNET: NAT}),
         [("ok",), ("error", "= rtb-0123456789abcdef0", "the environment has route_table: rtb-0123456789abcdef9", "write route_table: rtb-0123456789abcdef0", "[environment.yaml:6]")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(AvailableIpAddressCount=7)), [("ok",), ("error", "7 free addresses", "16 nodes")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(AvailableIpAddressCount=7), deployed=True),
         [("ok",), ("warning", "7 free addresses", "16 nodes", "nodes of this stack that run now have theirs already")]),
    Case("existing-vpc", EXISTING + SECOND, Existing(OURS, subnet() | {OTHER: {**subnet()[SUBNET], "CidrBlock": "172.31.16.0/28", "AvailableIpAddressCount": 7}}),
         [("ok",), ("ok", "up to 16 nodes"), ("ok", "7 free addresses", "in use1-az4, whose nodes are in the first of its subnets")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(), {**DNS, "enableDnsHostnames": False}, {SUBNET: NAT}),
         [("ok",), ("error", "enableDnsHostnames: false", "--enable-dns-hostnames"), ("ok",)]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}),
         [("ok",), ("ok",), ("error", "no default route", "network.existing.internet: false", "[environment.yaml:6]")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(), DNS, {SUBNET: None}), [("ok",), ("ok",), ("error", "no default route")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(), DNS, {SUBNET: IGW}), [("ok",), ("ok",), ("error", "an internet gateway")]),
    Case("existing-vpc", EXISTING, Existing(OURS, subnet(), DNS, {SUBNET: GONE}), [("ok",), ("ok",), ("error", "route 0.0.0.0/0 to a NAT gateway, a transit gateway or a firewall, or write "
    "network.existing.internet: false")]),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}, EVERY_ENDPOINT), [("ok",), ("ok",)]),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}, EVERY_ENDPOINT), [("ok",), ("ok",)], "pcs"),
    Case("existing-vpc", MIRRORED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}, EVERY_ENDPOINT), [("ok",), ("ok",)], "eks"),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}),
         [("ok",), ("ok",), ("error", "VPC endpoints = none", "cannot reach cloudformation, dynamodb, ec2, logs, ", "create them in this VPC, with private DNS names", "[environment.yaml:7]"), ("error", "need the S3 endpoint")]),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}), [("ok",), ("ok",), ("error", "cannot reach "), ("error", "need the S3 endpoint")], "pcs"),
    Case("existing-vpc", MIRRORED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}), [("ok",), ("ok",), ("error", "the cluster cannot reach ", "eks-auth")], "eks"),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}, EVERY_ENDPOINT[1:]), [("ok",), ("ok",), ("error", "cannot reach ec2")]),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: LOCAL}, [{**EVERY_ENDPOINT[0], "PrivateDnsEnabled": False}, *EVERY_ENDPOINT[1:]]), [("ok",), ("ok",), ("error", "cannot reach ec2")]),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: {**LOCAL, "RouteTableId": "rtb-2"}}, EVERY_ENDPOINT), [("ok",), ("ok",), ("error", "need the S3 endpoint")]),
    Case("existing-vpc", CLOSED, Existing(OURS, subnet(), DNS, {SUBNET: TRANSIT}), [("ok",), ("ok",), ("warning", "cannot reach "), ("warning", "need the S3 endpoint")]),
    Case("peerings", PEERED, peer("172.31.0.0/16", table=ROUTES), [("ok", "does not overlap with 10.0.0.0/16")]),
    Case("peerings", PEERED, peer(), [("error", "this VPC does not exist in us-east-1", "[environment.yaml:3]")]),
    Case("peerings", PEERED.replace("cidr: 172.31.0.0/16", "cidr: [172.31.0.0/16, 100.64.0.0/16]"), peer("172.31.0.0/16", "100.65.0.0/16", table=ROUTES),
         [("error", "the environment has cidr: 100.64.0.0/16, so that routes would not lead to this VPC", "write cidr: [172.31.0.0/16, 100.65.0.0/16]")]),
    Case("peerings", PEERED.replace("cidr: 172.31.0.0/16", "cidr: [172.31.0.0/16, 100.64.0.0/16]"), peer("172.31.0.0/16", "100.64.0.0/16", table=ROUTES), [("ok",)]),
    Case("peerings", PEERED, peer("172.31.0.0/16", "10.0.128.0/20", table=ROUTES),
         [("error", "10.0.128.0/20", "it overlaps with this environment's 10.0.0.0/16: AWS rejects the peering", "[environment.yaml:4]")]),
    Case("peerings", PEERED, peer("172.30.0.0/16", table=ROUTES), [("error", "the environment has cidr: 172.31.0.0/16, so that routes would not lead to this VPC", "write cidr: 172.30.0.0/16")]),
    Case("peerings", PEERED, peer("172.31.0.0/16"), [("error", "it is not a route table of vpc-0123456789abcdef0")]),
    Case("peerings", PEERED, peer("172.31.0.0/16", table={"VpcId": "vpc-2"}), [("error", "= vpc-2", "[environment.yaml:5]")]),
    Case("peerings", PEERED, peer("172.31.0.0/16", table=TAKEN), [("error", "it already has a route to this environment's network, left from another peering", "delete-route")]),
    Case("peerings", PEERED, peer("172.31.0.0/16", table=TAKEN, exists=True), [("ok",)]),
    Case("peerings", FOREIGN, ({}, False), [("info", "it is in account 444455556666, which these credentials cannot read")]),
    Case("buckets", LINKED, {"speech": "us-east-1"}, [("ok",)]),
    Case("buckets", LINKED, {"speech": "none"}, [("error", "this bucket does not exist", "[environment.yaml:1]")]),
    Case("buckets", LINKED, {"speech": "denied"}, [("warning", "could not be checked: needs s3:ListBucket, or the bucket belongs to another account")]),
    Case("buckets", LINKED, {"speech": "us-west-2"}, [("error", "FSx cannot link it")]),
    Case("buckets", BUCKET, {"speech": "us-west-2"}, [("warning", "AWS charges for the data transfer")], "eks"),
    *(
        Case("buckets", KEPT, {"speech": "us-west-2", "graphs": "none"},
             [("warning", "bucket speech", "AWS charges for the data transfer"), ("error", "bucket graphs", "does not exist")], engine)
        for engine in ("slurm", "eks", "pcs")
    ),
    Case("buckets", KEPT + "network: {nat: none}", {"speech": "us-west-2", "graphs": "us-east-1"},
         [("warning", "VPC endpoints lead to S3 of their own region alone"), ("ok", "bucket graphs")]),
    Case("buckets", KEPT + LINKED, {"speech": "us-west-2", "graphs": "us-east-1"}, [("error", "FSx cannot link it"), ("ok",)]),
    Case("efs", EFS, {AT_EFS: NFS}, [("ok", "the nodes can mount it")]),
    Case("efs", EFS, {AT_EFS: None}, [("error", "it does not exist in us-east-1", "[environment.yaml:7]")]),
    Case("efs", EFS, {AT_EFS: replace(NFS, zones=frozenset({"use1-az6"}))}, [("error", "no mount target in use1-az4")]),
    Case("efs", EFS, {AT_EFS: replace(NFS, state="deleting")}, [("error", "deleting")]),
    Case("efs", EFS, {AT_EFS: replace(NFS, state="updating")}, [("ok",)]),
    Case("efs", EFS, {AT_EFS: replace(NFS, vpc="vpc-2")}, [("warning", "= vpc-2", "it is not in the VPC vpc-0123456789abcdef0", "peer the two VPCs")]),
    Case("efs", EFS, {AT_EFS: replace(NFS, closed=CLOSED_GROUP)}, [("error", "= sg-1 and sg-2", "its security groups do not allow tcp 2049 from the nodes", "write security_group: sg-1,")]),
    Case("efs", EFS.replace("cdef0}}}", "cdef0, security_group: sg-0123456789abcdef2}}}"), {AT_EFS: replace(NFS, closed={("sg-1", "sg-0123456789abcdef2"): "tcp 2049 from"})}, [("ok",)]),
    Case("efs", EFS.replace("cdef0}}}", "cdef0, security_group: sg-0123456789abcdef2}}}"), {AT_EFS: replace(NFS, closed=CLOSED_GROUP)}, [("warning", "= sg-0123456789abcdef2", "it is not a security group of the file system"), ("error", "write security_group: sg-1,")]),
    Case("efs", EFS.replace("cdef0}}}", "cdef0, security_group: sg-0123456789abcdef2}}}"), {AT_EFS: NFS}, [("warning", "rules in it would change nothing there")]),
    Case("efs", EFS, {AT_EFS: replace(NFS, closed=CLOSED_GROUP)}, [("error", "do not allow tcp 2049 from the nodes")], "eks"),
    Case("efs", TWO_ZONES, {AT_EFS: NFS}, [("ok",)]),
    Case("efs", TWO_ZONES, {AT_EFS: NFS}, [("error", "no mount target in use1-az6")], "eks"),
    Case("efs", TWO_ZONES + "\npcluster: {queues: [{zone_id: use1-az6}]}", {AT_EFS: NFS}, [("error", "no mount target in use1-az6")]),
    Case("efs", "storage: {efs: {existing: {id: fs-0123456789abcdef0}}}\nnetwork: {zone_ids: [use1-az4]}", {AT_EFS: NFS}, [("warning", "it is not in the VPC of the nodes, which is new")]),
    Case("efs", "storage: {efs: {existing: {id: fs-0123456789abcdef0}}}\nnetwork: {zone_ids: [use1-az4]}", {AT_EFS: replace(NFS, vpc="")}, [("ok",)]),
    Case("efs", SHARED.replace("TYPE", "efs, id: fs-0123456789abcdef0"), {AT_SHARED: replace(NFS, zones=frozenset())}, [("error", "no mount target in use1-az4", "[environment.yaml:7]")]),
    Case("fsx", FSX, {AT_FSX: LUSTRE}, [("ok",)]),
    Case("fsx", FSX, {AT_FSX: None}, [("error",)]),
    Case("fsx", FSX, {AT_FSX: replace(LUSTRE, type="fsx-openzfs")}, [("error", "it is not of type fsx-lustre")]),
    Case("fsx", FSX, {AT_FSX: replace(LUSTRE, mount_name="efgh")}, [("error", "write mount_name: efgh")]),
    Case("fsx", FSX, {AT_FSX: replace(LUSTRE, vpc="vpc-2")}, [("error", "it is not in the VPC vpc-0123456789abcdef0", "use one of that VPC")]),
    Case("fsx", FSX, {AT_FSX: replace(LUSTRE, vpc="vpc-2")}, [("warning", "it is not in the VPC vpc-0123456789abcdef0", "peer the two VPCs")], "eks"),
    Case("fsx", FSX, {AT_FSX: replace(LUSTRE, closed={("sg-1",): "tcp 988 from and tcp 988 to"})}, [("error", "tcp 988 from and tcp 988 to the nodes")]),
    Case("fsx", SHARED.replace("TYPE", "fsx-openzfs, id: fsvol-0123456789abcdef0"), {AT_SHARED: replace(LUSTRE, type="fsx-openzfs")}, [("ok",)]),
    Case("fsx", SHARED.replace("TYPE", "fsx-ontap, id: fsvol-0123456789abcdef0"), {AT_SHARED: replace(LUSTRE, type="fsx-openzfs")}, [("error", "it is not of type fsx-ontap")]),
    Case("ebs", SHARED.replace("TYPE", "ebs, id: vol-0123456789abcdef0"), {AT_SHARED: DISK}, [("ok", "volume vol-0123456789abcdef0 = available")]),
    Case("ebs", SHARED.replace("TYPE", "ebs, id: vol-0123456789abcdef0"), {AT_SHARED: None}, [("error", "it does not exist")]),
    Case("ebs", SHARED.replace("TYPE", "ebs, id: vol-0123456789abcdef0"), {AT_SHARED: replace(DISK, state="in-use")}, [("error", "= in-use", "it cannot be mounted in this state")]),
    Case("ebs", SHARED.replace("TYPE", "ebs, id: vol-0123456789abcdef0"), {AT_SHARED: replace(DISK, zones=frozenset({"use1-az6"}))}, [("error", "= use1-az6", "the head node is in use1-az4", "through a snapshot")]),
    Case("ebs", PUBLIC_HEAD, {AT_SHARED: replace(DISK, zones=frozenset({"use1-az6"}))}, [("ok",)]),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda c: f"{c.check}: {c.expected[0]}")
def test_responses_are_evaluated(case: Case) -> None:
    verify(case)


def test_every_check_has_its_table() -> None:
    tables = (*TABLE, *test_account.TABLE, *test_capacity.TABLE, *test_keys.TABLE)
    assert {case.check for case in tables} == set(BY_NAME)
    levels: dict[str, set[str]] = {name: set() for name in BY_NAME}
    for case in tables:
        levels[case.check] |= {parts[0] for parts in case.expected}
    assert [n for n, found in levels.items() if not found & {"error", "warning"}] == []
