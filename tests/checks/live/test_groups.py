"""`trn check` with groups of reservations and with placement groups, against the local AWS."""

from __future__ import annotations

from functools import partial

from sandbox import LocalAws
from sandbox.pcluster_validator.seed import placement_group, reservation, reservation_group
from trainium_cdk import settings
from trainium_cdk.description.checks.live import Aws, CheckTarget, examine

ZONE = "use1-az6"


def wrong(text: str, local_aws: LocalAws) -> dict[str, str]:
    """What the three checks warn of or refuse, by check."""
    client = SessionOf(local_aws)
    found = examine(CheckTarget(settings.parse(text, "environment.yaml"), "slurm"), Aws("us-east-1", client))
    mine = ("reservations", "reservation-groups", "placement-groups")
    return {f.rule: f"{f.reason}. Fix: {f.fix}" for f in found.of("warning", "error") if f.rule in mine}


class SessionOf:
    """What `Aws` uses of a `boto3.Session`."""

    def __init__(self, local_aws: LocalAws) -> None:
        self._aws = local_aws

    def client(self, service: str, region_name: str, **_: object) -> object:
        return self._aws.client(service, region_name)


def in_group(name: str) -> str:
    return f"arn:aws:ec2:us-east-1:000000000000:placement-group/{name}"


def test_groups_of_reservations_and_placement_groups(local_aws: LocalAws) -> None:
    """Other states: test_capacity.py."""
    queue = "network: {{zone_ids: [{}]}}\npcluster: {{queues: [{{placement_group: {}, compute_resources: [{{max_nodes: {}, reservation: '{}'}}]}}]}}"
    near, far, apart = (
        placement_group(local_aws.client),
        placement_group(local_aws.client),
        placement_group(local_aws.client, "spread"),
    )
    make = partial(reservation, local_aws.client, "trn1.32xlarge", 1, "us-east-1f", block=False)
    inside, outside, other = make(placement=in_group(near)), make(), reservation(local_aws.client, "trn1n.32xlarge", 1, "us-east-1f", block=False)  # fmt: skip
    both, empty = reservation_group(local_aws.client, inside, outside), reservation_group(local_aws.client)
    for placement, named, check, words in (
        ("auto", both, "", ""),
        (near, both, "", ""),
        ("auto", reservation_group(local_aws.client, outside, other), "reservation-groups", "EC2 starts those beyond the reservations on demand"),
        ("auto", reservation_group(local_aws.client, other), "reservation-groups", "it is for trn1n.32xlarge"),
        ("auto", empty, "reservation-groups", "it is empty. EC2 starts the nodes on demand"),
        ("auto", reservation_group(local_aws.client, outside, pool=False), "reservation-groups", "made by tags or of a stack"),
        ("auto", f"{both}-gone", "reservation-groups", "there is no such group"),
        (far, inside, "placement-groups", f"write placement_group: {near}, or use a reservation that was made in {far}"),
        (near, outside, "placement-groups", "was made in no placement group"),
        ("auto", inside, "reservations", f"write placement_group: {near}"),
        (apart, outside, "placement-groups", "use a group with the strategy cluster"),
        ("missing", outside, "placement-groups", "it does not exist in us-east-1"),
    ):  # fmt: skip
        most = 1 if named.startswith("cr-") else 2
        found = wrong(queue.format(ZONE, placement, most, named), local_aws)
        assert (found.keys(), words in found.get(check, words)) == ({check} if check else set(), True), (words, found)
