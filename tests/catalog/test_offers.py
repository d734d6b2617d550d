"""What the AWS Price List is asked for."""

from __future__ import annotations

import pytest

from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.offers import endpoint, offer, page
from trainium_cdk.settings.storage import FSX_THROUGHPUT

HOUR, GIB = ("Hrs", "Hours"), ("GB-Mo", "GB-month")


@pytest.mark.parametrize(
    ("name", "service", "usage", "units", "filters"),
    [
        ("trn1.32xlarge", "AmazonEC2", "BoxUsage:trn1.32xlarge", HOUR, {"instanceType": "trn1.32xlarge", "tenancy": "Shared"}),
        ("nat-gateway-gb", "AmazonEC2", "NatGateway-Bytes", ("GB",), {"productFamily": "NAT Gateway"}),
        ("eks-extended-support-cluster-hour", "AmazonEKS", "AmazonEKS-Hours:extendedSupport", HOUR, {"productFamily": "Compute"}),
        ("fsx-scratch-2-gib-month", "AmazonFSx", "Storage", GIB, {"fileSystemType": "Lustre", "throughputCapacity": "N/A"}),
        ("fsx-persistent-2-1000-gib-month", "AmazonFSx", "Storage.SSD.1000", GIB, {"storageType": "SSD", "throughputCapacity": "1000"}),
        ("kms-key-month", "awskms", "KMS-Keys", (), {}),
        ("pcs-node-hour", "", "", HOUR, {}),
    ],
)  # fmt: skip
def test_an_offer(name: str, service: str, usage: str, units: tuple[str, ...], filters: dict[str, str]) -> None:
    found = offer(name)
    assert found is not None
    assert (found.service, found.usage, found.units) == (service, usage, units)
    assert filters.items() <= found.filters.items()
    assert page(name) == found.page
    assert bool(found.service) != bool(found.words)


def test_each_price_of_the_catalogue_has_one() -> None:
    """Except those of dashboards, which name no region; and so has each file system that can be chosen."""
    known = {name for prices in Catalog.load().service_prices.values() for name in prices}
    assert {name for name in known if offer(name) is None} == {"cloudwatch-dashboard-month"}
    assert page("cloudwatch-dashboard-month") == ""
    for deployment, steps in FSX_THROUGHPUT.items():
        for step in steps or ("",):
            assert offer("-".join(filter(None, ("fsx", deployment.lower().replace("_", "-"), str(step), "gib-month"))))


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("us-west-2", "us-east-1"), ("sa-east-1", "us-east-1"), ("ca-central-1", "us-east-1"), ("eu-north-1", "eu-central-1"),
        ("me-south-1", "eu-central-1"), ("af-south-1", "eu-central-1"), ("il-central-1", "eu-central-1"), ("ap-southeast-4", "ap-south-1"),
    ],
)  # fmt: skip
def test_the_closest_endpoint(region: str, expected: str) -> None:
    assert endpoint(region) == expected
