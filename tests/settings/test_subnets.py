"""The address plan: always inside, never over each other, and the same for the zones that were there before."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainium_cdk.description.settings import Network, plan_subnets

ZONES = tuple(f"use1-az{i}" for i in range(1, 7))


def test_the_default_plan_is_readable() -> None:
    plan = plan_subnets(Network(), ZONES[:3])
    assert [(z.zone_id, str(z.public), str(z.private)) for z in plan] == [
        ("use1-az1", "10.0.0.0/24", "10.0.240.0/20"),
        ("use1-az2", "10.0.1.0/24", "10.0.224.0/20"),
        ("use1-az3", "10.0.2.0/24", "10.0.208.0/20"),
    ]


@given(
    vpc=st.integers(16, 28),
    public=st.integers(16, 28),
    private=st.integers(16, 28),
    zones=st.integers(1, 6),
    where=st.integers(0, 2**32 - 1),
)
def test_a_plan_exists_whenever_the_sizes_add_up(vpc: int, public: int, private: int, zones: int, where: int) -> None:
    block = IPv4Network((where, vpc), strict=False)
    network = Network(cidr=str(block), public_prefix=public, private_prefix=private)
    fits = zones * (2 ** (32 - public) + 2 ** (32 - private)) <= block.num_addresses
    if not fits:
        with pytest.raises(ValueError, match="has room for"):
            plan_subnets(network, ZONES[:zones])
        return
    plan = plan_subnets(network, ZONES[:zones])
    subnets = [s for z in plan for s in (z.public, z.private)]
    assert all(s.subnet_of(block) for s in subnets)
    assert {s.prefixlen for s in subnets} == {public, private}
    assert not [(a, b) for i, a in enumerate(subnets) for b in subnets[i + 1 :] if a.overlaps(b)]
    for fewer in range(1, zones):
        assert plan_subnets(network, ZONES[:fewer]) == plan[:fewer], "an appended zone moved a subnet"


@pytest.mark.parametrize(
    ("network", "zones", "message"),
    [
        (Network(), (), "no availability zone for the network: set network.zone_ids"),
        (Network(), ("use1-az4", "use1-az6", "use1-az4"), "contains use1-az4 twice"),
        (Network(cidr="10.0.0.0/8"), ("use1-az4",), "10.0.0.0/8 is not a valid size for a VPC"),
        (Network(cidr="10.0.0.0/20"), ("use1-az4",), "4096 addresses, but 1 zone(s) .* need 4352; it has room for 0"),
        (Network(cidr="10.0.0.0/18"), ZONES, "has room for 3 zone"),
    ],
)
def test_subnets_that_do_not_fit_are_refused(network: Network, zones: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("zone(s)", r"zone\(s\)")):
        plan_subnets(network, zones)
