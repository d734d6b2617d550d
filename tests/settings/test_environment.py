"""Values that an environment derives from its settings."""

from __future__ import annotations

import pytest

from trainium_cdk import settings
from trainium_cdk.description.settings import Environment


def environment(vpc: str, *peers: str, **eks: str) -> Environment:
    peerings = [
        {"vpc_id": f"vpc-{i:017x}", "cidr": cidr, "route_tables": [f"rtb-{i:017x}"]} for i, cidr in enumerate(peers)
    ]
    return settings.Environment.model_validate({"network": {"cidr": vpc, "peerings": peerings}, "eks": eks})


@pytest.mark.parametrize(
    ("vpc", "peers", "own"),
    [
        ("10.0.0.0/16", (), "172.20.0.0/16"),
        ("172.20.128.0/20", (), "10.100.0.0/16"),
        ("10.0.0.0/16", ("172.16.0.0/12",), "10.100.0.0/16"),
        ("172.20.0.0/16", ("10.100.0.0/16", "192.168.7.0/24"), "10.0.0.0/16"),
        ("192.168.0.0/16", ("10.0.0.0/8", "172.20.0.0/16"), "172.16.0.0/16"),
        ("100.64.0.0/16", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"), None),
    ],
)
def test_services_get_a_network_without_overlap(vpc: str, peers: tuple[str, ...], own: str | None) -> None:
    assert environment(vpc, *peers).service_cidr == own
    assert environment(vpc, *peers, service_cidr="10.1.0.0/20").service_cidr == "10.1.0.0/20"


def test_services_get_a_network_beside_every_network_of_the_vpc_and_its_peers() -> None:
    subnet = {"id": "subnet-0123456789abcdef0", "zone_id": "use1-az6"}
    existing = {
        "vpc_id": "vpc-0123456789abcdef0",
        "cidr": ["10.1.0.0/21", "172.20.0.0/16"],
        "private_subnets": [subnet],
    }
    peers = [{"vpc_id": "vpc-0123456789abcdef1", "cidr": ["192.168.7.0/24", "10.100.0.0/16"]}]
    network = {"existing": existing, "peerings": peers}
    assert settings.Environment.model_validate({"network": network}).service_cidr == "10.0.0.0/16"
