"""What is taken from the documents of the Price List, in the form of recorded responses (2026-08-10)."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tests.checks.live.cases import target
from trainium_cdk.checks.live.model import Quote
from trainium_cdk.checks.live.price_list import ACTIONS, ask
from trainium_cdk.errors import Absent, AwsError, Denied, NoCredentials, Unreachable

NAT = "nat-gateway-hour"
WHAT = "(AmazonEC2, NatGateway-Hours, us-east-1)"


def document(
    usage: str, *steps: str, unit: str = "Hrs", currency: str = "USD", text: str = "per hour", term: str = "OnDemand"
) -> dict[str, Any]:
    rates = {
        f"S.T.{i}": {"unit": unit, "beginRange": str(i * 10), "pricePerUnit": {currency: price}, "description": f"{text} {i}"}
        for i, price in enumerate(steps)
    }  # fmt: skip
    return {
        "product": {"attributes": {"usagetype": usage, "regionCode": "us-east-1"}, "sku": "S"},
        "terms": {term: {"S.T": {"priceDimensions": dict(reversed(rates.items())), "effectiveDate": "2026-08-01T00:00:00Z"}}},
        "publicationDate": "2026-08-10T21:57:58Z",
    }  # fmt: skip


class Aws:
    """Responses of GetProducts by the usage type that is meant, or an error."""

    def __init__(self, *documents: Any, services: tuple[str, ...] = (), error: Exception | None = None) -> None:
        self.documents, self.services, self.error = documents, services, error
        self.requests = list[dict[str, Any]]()

    def limited_to(self, actions: Any) -> Aws:
        assert actions == ACTIONS
        return self

    def __call__(self, action: str, **request: Any) -> Any:
        self.requests.append({"action": action, **request})
        if self.error:
            raise self.error
        if action == "pricing:DescribeServices":
            return {"Services": [{"ServiceCode": code} for code in self.services]}
        return {"PriceList": [one if isinstance(one, str) else json.dumps(one) for one in self.documents]}


def quote(name: str, *documents: Any, text: str = "", engine: str = "eks", **more: Any) -> Quote:
    return ask(target(text, engine), cast("Any", Aws(*documents, **more))).live[name]


@pytest.mark.parametrize(
    ("documents", "usd", "text"),
    [
        ([document("NatGateway-Hours", "0.045")], 0.045, "per hour 0"),
        ([document("USE1-NatGateway-Hours", "0.045"), document("EU-NatGateway-Hours", "0.045")], 0.045, "per hour 0"),
        ([document("us-east-1-NatGateway-Hours", "0.045")], 0.045, "per hour 0"),
        ([document("NatGateway-Hours", "0.0000000000", "0.05", "0.04")], 0.05, "per hour 1"),
        ([document("NatGateway-Hours", "0.0")], 0.0, "per hour 0"),
        ([document("NatGateway-Hours", "0.045"), document("NatGateway-Hours", "9", unit="GB")], 0.045, "per hour 0"),
        ([document("NatGateway-Hours", "0.045", unit="hrs"), document("NatGateway-Hours", "0.01", term="Reserved")], 0.045, "per hour 0"),
    ],
)  # fmt: skip
def test_a_price(documents: list[Any], usd: float, text: str) -> None:
    found = quote(NAT, *documents)
    assert found == Quote(usd, "Price List", "2026-08-10", text, "", found.unit, "2026-08-01", "S")
    assert found.unit.lower() == "hrs"


@pytest.mark.parametrize(
    ("documents", "why"),
    [
        ([], f"the Price List has no such product {WHAT}"),
        ([document(f"{prefix}NatGateway-Hours", "0.05") for prefix in ("Regional", "USE1-Regional", "USE1-Regional-", "use1-", "x")],
         f"the Price List has no such product {WHAT}"),
        ([document("NatGateway-Hours-2", "0.05")], f"the Price List has no such product {WHAT}"),
        ([document("NatGateway-Hours", "0.3", currency="CNY")], f"the Price List has no such product {WHAT}"),
        ([document("NatGateway-Hours", "1", unit="GB"), document("NatGateway-Hours", "2", unit="Count")],
         f"the Price List quotes it in Count and GB, not in Hrs and Hours {WHAT}"),
        ([document("NatGateway-Hours", "0.045"), document("USE1-NatGateway-Hours", "0.05")],
         f"the Price List has several products that fit {WHAT}: NatGateway-Hours at 0.045 USD and USE1-NatGateway-Hours at 0.05 USD"),
        (["<html>"], "the Price List's response could not be read (JSONDecodeError: "),
        ([{"product": {}}], "the Price List's response could not be read (KeyError: 'attributes')"),
        (['"text"'], "the Price List's response could not be read (TypeError: "),
    ],
)  # fmt: skip
def test_none_and_why(documents: list[Any], why: str) -> None:
    found = quote(NAT, *documents)
    assert (found.usd, found.source, found.date) == (0.045, "catalogue", "2026-09-09") if found.usd else (None, "", "")
    assert found.why.startswith(why)


@pytest.mark.parametrize(
    ("error", "why", "requests"),
    [
        (
            NoCredentials("Unable to locate credentials"),
            "no credentials for the Price List: Unable to locate credentials. Sign in",
            1,
        ),
        (
            Denied("pricing:GetProducts"),
            "these credentials may not read the Price List: allow pricing:GetProducts on *",
            1,
        ),
        (Unreachable("pricing", "Could not connect"), "the Price List cannot be reached: Could not connect", 1),
        (
            AwsError("pricing:GetProducts failed with ThrottlingException: Rate exceeded"),
            "the Price List refused too many requests",
            12,
        ),
        (Absent("no such service"), "the Price List refused the request: no such service", 12),
    ],
)
def test_an_error(error: Exception, why: str, requests: int) -> None:
    """One that the other requests would meet too is met once."""
    aws = Aws(error=error)
    found = ask(target("", "eks"), cast("Any", aws))
    assert {q.why[: len(why)] for q in found.live.values() if "not asked" not in q.why} == {why}
    assert len(aws.requests) == requests


def test_a_request() -> None:
    aws = Aws()
    ask(
        target("region: ap-south-1\ncatalog: {service_prices: {ap-south-1: {nat-gateway-hour: 1}}}", "eks"),
        cast("Any", aws),
    )
    assert {one["region"] for one in aws.requests} == {"ap-south-1"}
    assert {
        "action": "pricing:GetProducts", "region": "ap-south-1", "ServiceCode": "AmazonEKS", "FormatVersion": "aws_v1", "Filters": [
            {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "ap-south-1"},
            {"Type": "TERM_MATCH", "Field": "productFamily", "Value": "Compute"},
        ],
    } in aws.requests  # fmt: skip
    groups = [f["Value"] for one in aws.requests for f in one["Filters"] if f["Field"] == "productFamily"]
    assert groups.count("NAT Gateway") == 1, "of its traffic; the price of an hour is the environment file's own"


def test_a_surcharge_is_added() -> None:
    cluster, support = document("AmazonEKS-Hours:perCluster", "0.1"), document("AmazonEKS-Hours:extendedSupport", "0.5")
    support["publicationDate"], name = "2026-07-01T00:00:00Z", "eks-extended-support-cluster-hour"
    text = "eks: {version: '1.33', support: extended}"
    assert quote(name, cluster, support, text=text) == Quote(
        0.6, "Price List", "2026-07-01", "per hour 0; per hour 0", "", "Hrs", "2026-08-01", "S; S"
    )  # fmt: skip
    assert "perCluster" in quote(name, support, text=text).why


@pytest.mark.parametrize(
    ("services", "documents", "usd"),
    [
        (("AmazonEC2", "AWSParallelComputingService"), [document("X-Small", "0.5", text="Slurm controller")], 0.5),
        (
            ("AWSPCS",),
            [document("X", "0.5", text="Small Slurm Controller"), document("Y", "1", text="large controller")],
            0.5,
        ),
        (("AWSPCS",), [document("X", "0.5", text="accounting of a small controller")], None),
        (("AmazonPCSX", "AmazonEC2"), [document("X", "0.5", text="small controller")], None),
    ],
)
def test_pcs(services: tuple[str, ...], documents: list[Any], usd: float | None) -> None:
    assert quote("pcs-small-controller-hour", *documents, engine="pcs", services=services).usd == usd
