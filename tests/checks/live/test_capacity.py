"""Whether the nodes can be had: quotas, zones, reservations, blocks."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.checks.live.cases import NOW, Case, verify
from trainium_cdk.description.checks.live.capacity import Offering
from trainium_cdk.description.checks.live.groups import Groups, ReservationGroup
from trainium_cdk.description.checks.live.quotas import ADDRESSES, STANDARD_VCPUS, TRN, VPCS, QuotaUse, is_standard

FLEET = "pcluster:\n  queues:\n    - capacity_type: {}\n      compute_resources: [{{max_nodes: 4}}]\n"
RESERVED = """\
network: {zone_ids: [use1-az4]}
pcluster:
  queues:
    - compute_resources:
        - max_nodes: 4
          reservation: cr-0123456789abcdef0
"""
BLOCK = RESERVED.replace("    - compute", "    - capacity_type: capacity-block\n      compute")
EKS_BLOCK = """\
network: {zone_ids: [use1-az4, use1-az6]}
eks:
  node_groups: [{capacity_type: capacity-block, min_nodes: 2, max_nodes: 4, reservation: cr-0123456789abcdef0}]
"""
NO_BLOCK = BLOCK.replace("          reservation: cr-0123456789abcdef0\n", "")
ID = "cr-0123456789abcdef0"
MAX = ("pcluster", "queues", 0, "compute_resources", 0, "max_nodes")


def need(limit: float, used: int = 0, wanted: int = 512) -> QuotaUse:
    return QuotaUse(TRN["on-demand"], limit, used, wanted, "4 x trn1.32xlarge", 128, MAX)


def reservation(**other: Any) -> dict[str, dict[str, Any]]:
    plain = {
        "CapacityReservationId": ID, "InstanceType": "trn1.32xlarge", "AvailabilityZoneId": "use1-az4",
        "TotalInstanceCount": 4, "AvailableInstanceCount": 4, "State": "active", "ReservationType": "default",
    }  # fmt: skip
    return {ID: {**plain, **other}}


def at(hours: float) -> dt.datetime:
    return NOW + dt.timedelta(hours=hours)


def offering(price: str, zone: str = "use1-az4") -> Offering:
    return Offering(f"cb-{price}", "trn1.32xlarge", 4, zone, at(24), at(48), price, "USD")


POOL = "arn:aws:resource-groups:us-east-1:111122223333:group/mine"
GROUPED = RESERVED.replace(ID, POOL)
IN_GROUP = GROUPED.replace("    - compute", "    - placement_group: near\n      compute")
NEAR = "arn:aws:ec2:us-east-1:111122223333:placement-group/near"
PLACED = RESERVED.replace("    - compute", "    - placement_group: near\n      compute")


def pooled(*members: dict[str, Any], absent: tuple[str, ...] = (), pool: bool = True) -> dict[str, ReservationGroup]:
    """A group with reservations that differ from that of `reservation`."""
    found = [reservation(**{"CapacityReservationId": f"cr-{i}", **m})[ID] for i, m in enumerate(members)]
    return {POOL: ReservationGroup(pool, tuple(found), absent)}


def near(group: dict[str, Any] | None, **held: Any) -> Groups:
    return Groups({"near": group}, reservation(**held) if held else {})


ALL = dict.fromkeys(("trn1.32xlarge", "c5.4xlarge", "c5.2xlarge"), frozenset({"use1-az4"}))
SYSTEM = {"trn1.32xlarge": frozenset({"use1-az4"}), "t3.micro": frozenset({"use1-az4"})}
SEEN = {
    "VCpuInfo": {"DefaultVCpus": 128},
    "NetworkInfo": {"MaximumNetworkCards": 8, "EfaInfo": {"MaximumEfaInterfaces": 8}},
}
TABLE = [
    Case("trn-quota-on-demand", "", need(512), [("ok", "L-2C3B7624", "512 vCPUs")]),
    Case("trn-quota-on-demand", FLEET.format("on-demand"), need(256),
         [("error", "= 256", "--desired-value 512 --region us-east-1", "2 fit now", "[environment.yaml:4]")]),
    Case("trn-quota-on-demand", FLEET.format("on-demand"), need(640, used=256),
         [("error", "and 256 are in use", "--desired-value 768", "3 fit now")]),
    Case("trn-quota-on-demand", FLEET.format("on-demand"), need(0, used=256), [("error", "0 fit now")]),
    Case("trn-quota-spot", FLEET.format("spot"), QuotaUse(TRN["spot"], 0, 0, 512, "4 x trn1.32xlarge", 128, MAX),
         [("error", "L-6B0D517C", "--quota-code L-6B0D517C")]),
    Case("standard-quota", "", QuotaUse(STANDARD_VCPUS, 5, 0, 16, "1 x c5.4xlarge"), [("error", "L-1216C47A", "16 vCPUs")]),
    Case("address-quota", "", QuotaUse(ADDRESSES, 5, 5, 1, "1 for NAT gateways"), [("error", "L-0263D0A3", "1 for NAT gateways: 1 address, and 5 are in use")]),
    Case("address-quota", "", QuotaUse(ADDRESSES, 5, 4, 1, "1 for NAT gateways"), [("ok",)]),
    Case("vpc-quota", "", QuotaUse(VPCS, 5, 5, 1, "a new VPC"), [("error", "L-F678F1CE", "--service-code vpc")]),
    Case("zones", "", {"use1-az4": "available"}, [("ok", "use1-az4")]),
    Case("zones", "", {"use1-az4": "impaired", "use1-az6": "available"}, [("error", "impaired", "choose from use1-az6")]),
    Case("zones", "network: {zone_ids: [use1-az5]}", {"use1-az6": "available"}, [("error", "none", "[environment.yaml:1]")]),
    Case("offering", "", ALL, [("ok",), ("ok",), ("ok",)]),
    Case("offering", "", {**ALL, "trn1.32xlarge": frozenset({"use1-az5", "use1-az6"})},
         [("error", "trn1.32xlarge for compute1/trn = use1-az4", "zone_id: use1-az5 or use1-az6"), ("ok",), ("ok",)]),
    Case("offering", "", {k: ALL[k] for k in ("c5.4xlarge", "c5.2xlarge")},
         [("error", "no zone of us-east-1 offers it to this account"), ("ok",), ("ok",)]),
    Case("offering", "", {"trn1.32xlarge": ALL["trn1.32xlarge"]},
         [("ok",), ("error", "c5.4xlarge for the head node"), ("error", "c5.2xlarge for the cpu node")]),
    Case("offering", "", {**SYSTEM, "r5.large": frozenset({"use1-az4"})},
         [("ok",), ("warning", "r5.large for the system node = use1-az1", "in the other zones"), ("ok",)], "eks"),
    Case("offering", "", SYSTEM, [("ok",), ("error", "use1-az4 and use1-az1"), ("ok",)], "eks"),
    Case("instance-types", "", {"trn1.32xlarge": SEEN}, []),
    Case("instance-types", "", {}, []),
    Case("instance-types", "", {"trn1.32xlarge": {**SEEN, "NetworkInfo": {"MaximumNetworkCards": 8}}},
         [("warning", "efa_interfaces of trn1.32xlarge = 8", "EC2 reports 0", "catalog.instances.trn1.32xlarge.efa_interfaces: 0")]),
    Case("reservations", RESERVED, reservation(), [("ok", "4 instances of trn1.32xlarge in use1-az4, without an end date")]),
    Case("reservations", RESERVED, {ID: None}, [("error", "it does not exist in us-east-1, in this account or shared with it", "[environment.yaml:6]")]),
    Case("reservations", RESERVED, reservation(ReservationType="capacity-block"),
         [("error", "a capacity block, but capacity_type is on-demand", "capacity_type: capacity-block")]),
    Case("reservations", BLOCK, reservation(), [("error", "an on-demand reservation, but capacity_type is capacity-block")]),
    Case("reservations", RESERVED, reservation(InstanceType="trn1n.32xlarge"), [("error", "instance_type: trn1n.32xlarge")]),
    Case("reservations", RESERVED, reservation(AvailabilityZoneId="use1-az6"), [("error", "it is not in the zone of compute1/trn (use1-az4)", "zone_id: use1-az6")]),
    Case("reservations", RESERVED, reservation(TotalInstanceCount=1, AvailableInstanceCount=1),
         [("error", "1 instance:", "compute1/trn has up to 4 nodes: those beyond the reservation cannot start", "max_nodes: 1")]),
    Case("reservations", RESERVED, reservation(AvailableInstanceCount=1), [("warning", "1 free instance:"), ("ok",)]),
    Case("reservations", RESERVED, reservation(State="expired", EndDate=at(-1)), [("error", "no instance can start in it any more")]),
    Case("reservations", BLOCK, reservation(ReservationType="capacity-block", State="scheduled", StartDate=at(48), EndDate=at(96)),
         [("warning", "it starts 2026-11-22 12:00 UTC: its nodes cannot start before that"), ("ok", "until 2026-11-24 12:00 UTC")]),
    Case("reservations", EKS_BLOCK, reservation(ReservationType="capacity-block", State="scheduled", StartDate=at(48), EndDate=at(96)),
         [("error", "it starts 2026-11-22 12:00 UTC", "the deployment waits for min_nodes: 2 of trn and fails", "write min_nodes: 0 until it starts")], "eks"),
    Case("reservations", EKS_BLOCK.replace("min_nodes: 2, ", ""), reservation(ReservationType="capacity-block", State="scheduled", StartDate=at(48)),
         [("warning", "its nodes cannot start before that", "deploy now or later"), ("ok",)], "eks"),
    Case("reservations", BLOCK, reservation(ReservationType="capacity-block", EndDate=at(5)),
         [("warning", "it ends in 5 h", "30 minutes before"), ("ok",)]),
    Case("reservations", BLOCK, reservation(ReservationType="capacity-block", EndDate=at(0.4)), [("error", "it has ended, or its instances are being terminated")]),
    Case("reservations", RESERVED, reservation(PlacementGroupArn=NEAR),
         [("warning", "near: it was made in this placement group, and compute1/trn names none", "placement_group: near"), ("ok",)]),
    Case("reservation-groups", GROUPED, pooled({"TotalInstanceCount": 3, "AvailableInstanceCount": 3}, {"TotalInstanceCount": 1}),
         [("ok", "2 reservations: 4 instances of trn1.32xlarge in use1-az4 in the group")]),
    Case("reservation-groups", GROUPED, {POOL: None}, [("error", "there is no such group", "[environment.yaml:6]")]),
    Case("reservation-groups", GROUPED, pooled({}, pool=False), [("error", "no instance can be started in this group", "CapacityReservationPool")]),
    Case("reservation-groups", GROUPED, pooled(), [("error", "it is empty. EC2 starts the nodes on demand")]),
    Case("reservation-groups", GROUPED, pooled({"State": "expired"}, {"InstanceType": "trn2.48xlarge"}, {"AvailabilityZoneId": "use1-az6"},
                                               {"ReservationType": "capacity-block"}, absent=("cr-9",)),
         [("error", "none of its 5 reservations is for compute1/trn", "cr-0: it is expired", "cr-1: it is for trn2.48xlarge", "cr-2: it is in use1-az6",
           "cr-3: capacity_type is on-demand", "cr-9: it is not of this account")]),
    Case("reservation-groups", GROUPED, pooled({}, {"State": "cancelled"}), [("info", "1 other reservation", "cr-1: it is cancelled"), ("ok",)]),
    Case("reservation-groups", GROUPED, pooled({"State": "scheduled"}), [("warning", "scheduled: no reservation of the group has started"), ("ok",)]),
    Case("reservation-groups", GROUPED, pooled({"TotalInstanceCount": 2}), [("warning", "EC2 starts those beyond the reservations on demand", "max_nodes: 2"), ("ok",)]),
    Case("reservation-groups", GROUPED, pooled({"AvailableInstanceCount": 1}), [("warning", "1 free instance", "Values=cr-0"), ("ok",)]),
    Case("reservation-groups", IN_GROUP, pooled({"PlacementGroupArn": NEAR}), [("ok",)]),
    Case("reservation-groups", IN_GROUP, pooled({"PlacementGroupArn": NEAR.replace("near", "far")}), [("error", "cr-0: it is in the placement group far")]),
    Case("placement-groups", PLACED, near(None), [("error", "it does not exist in us-east-1", "[environment.yaml:4]")]),
    Case("placement-groups", PLACED, near({"GroupName": "near", "Strategy": "spread"}), [("error", "with the strategy cluster")]),
    Case("placement-groups", PLACED, near({"GroupName": "near", "Strategy": "cluster", "State": "available"}), [("ok", "compute1/trn is in it")]),
    Case("placement-groups", PLACED, near({"GroupName": "near", "Strategy": "cluster"}, PlacementGroupArn=NEAR), [("ok", f"the reservation {ID} was made in it")]),
    Case("placement-groups", PLACED, near({"GroupName": "near", "Strategy": "cluster"}, PlacementGroupArn=NEAR.replace("near", "far")),
         [("error", "was made in another placement group, far: no node starts", "placement_group: far")]),
    Case("placement-groups", PLACED, near({"GroupName": "near", "Strategy": "cluster"}, State="active"), [("warning", "was made in no placement group")]),
    Case("block-offerings", NO_BLOCK, {("trn1.32xlarge", 4): []}, [("warning", "no block of 4 x trn1.32xlarge for 24 h")]),
    Case("block-offerings", NO_BLOCK, {("trn1.32xlarge", 4): [offering("960"), offering("1200"), offering("1300"), offering("2000")]},
         [("info", "960 USD", "4 x trn1.32xlarge in use1-az4 from 2026-11-21 12:00 UTC", "10.00 USD for an instance and hour",
           "--capacity-block-offering-id cb-960", "[environment.yaml:6]"), ("info",), ("info",)]),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda c: f"{c.check}: {c.expected[:1]}")
def test_responses_are_evaluated(case: Case) -> None:
    verify(case)


@pytest.mark.parametrize(
    ("name", "standard"),
    [("t3.micro", True), ("trn1.2xlarge", False), ("m5.large", True), ("inf2.xlarge", False), ("i4i.large", True),
     ("dl1.24xlarge", False), ("d3.xlarge", True), ("hpc7a.12xlarge", False), ("p5.48xlarge", False), ("mac1.metal", False)],
)  # fmt: skip
def test_trainium_types_are_not_in_the_t_family(name: str, standard: bool) -> None:
    assert is_standard(name) is standard
