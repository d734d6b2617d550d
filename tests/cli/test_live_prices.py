"""`trn cost --live`, with recorded responses of the Price List."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sandbox import LocalAws
from tests.checks.live.recorded import Document, PriceList, product
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks.live import aws as connection
from trainium_cdk.cli import app as cli

Run = Callable[..., tuple[int, list[str]]]
TUTORIAL = ("--environment", "tests/environments/tutorial.yaml")
EKS = ("TrnEksStack",)
PCS = "AWSParallelComputingService"
PCS_LOOKED_FOR = next(u for u in Catalog.load().unknown_prices if u.covers("pcs-node-hour", "us-east-1"))
CONTROLLER = product(PCS, "USE1-SlurmController-Small", "Hrs", "0.5", "for a small Slurm controller")
NODE = product(PCS, "USE1-NodeManagement", "Hrs", "0.0625", "for node management")


@pytest.fixture
def aws(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> LocalAws:
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    return local_aws


@pytest.fixture
def cost(aws: LocalAws, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*words: str, **answers: Any) -> tuple[int, list[str]]:
        with monkeypatch.context() as patch:
            PriceList(**answers).install(patch)
            code = cli.app(["cost", "--live", *words], standalone_mode=False) or 0
        captured = capsys.readouterr()
        return code, (captured.out + captured.err).splitlines()

    return run


def test_each_price_has_the_date_of_its_offer(cost: Run) -> None:
    """Of every engine's default environment; a price that changes changes the totals."""
    code, lines = cost(*TUTORIAL, prices={"NatGateway-Hours": "0.0550000000"}, page=2)
    assert code == 0
    for line in (
        "compute1/queue1-i1: 0 to 16 x trn1.32xlarge\t0.00\t344.00\tPrice List 2026-08-10",
        "1 x NAT gateway (without its traffic)\t0.0550\t0.0550\tPrice List 2026-08-10",
        "2 x public address\t0.01\t0.01\tPrice List 2026-09-17",
        "EFS: 1024 MiB/s provisioned\t8.4164\t8.4164\tPrice List 2026-07-13",
        "dashboard *\t0.0041\t0.0041\tcatalogue 2026-07-15",
        "all\t9.23\t354.86\t",
        "paid by use: traffic of the NAT gateway, a GB 0.0450 USD, data on EFS, a GiB and month 0.30 USD",
        "the Price List is not asked for it: cloudwatch-dashboard-month (catalogue 2026-07-15)",
    ):
        assert line in lines, line
    assert "EKS control plane: Kubernetes 1.35\t0.10\t0.10\tPrice List 2026-09-18" in cost(*EKS)[1]


def test_json_has_the_words_of_aws(cost: Run) -> None:
    found = json.loads("\n".join(cost(*TUTORIAL, "--json")[1]))["quotes"]
    assert found["trn1.32xlarge"] == {
        "usd": 21.5, "source": "Price List", "date": "2026-08-10", "why": "",
        "unit": "Hrs", "effective": "2026-08-01", "sku": found["trn1.32xlarge"]["sku"], "secondary": False, "capacity_block": False,
        "text": "$21.5 per Hrs of BoxUsage:trn1.32xlarge", "page": "https://aws.amazon.com/ec2/pricing/on-demand/",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "item", "hour"),
    [
        ("eks: {version: '1.33', support: extended}", "EKS control plane: Kubernetes 1.33", 0.6),
        ("storage: {fsx: {capacity_gib: 2400, deployment: SCRATCH_2}}", "FSx for Lustre: 2,400 GiB SCRATCH_2", 0.14 * 2400 / 730),
        ("storage: {fsx: {capacity_gib: 1200, deployment: PERSISTENT_1, throughput: 200}}", "FSx for Lustre: 1,200 GiB PERSISTENT_1", 0.29 * 1200 / 730),
        ("storage: {fsx: {capacity_gib: 1200, deployment: PERSISTENT_2}}", "FSx for Lustre: 1,200 GiB PERSISTENT_2", 0.145 * 1200 / 730),
        ("network: {interface_endpoints: [sts, ec2]}", "4 x interface endpoint (without its traffic)", 0.04),
        ("region: us-west-2", "1 x NAT gateway (without its traffic)", 0.045),
        ("catalog: {service_prices: {us-east-1: {nat-gateway-hour: 0.01}}}", "1 x NAT gateway (without its traffic)", 0.01),
    ],
)  # fmt: skip
def test_the_product_that_is_meant(text: str, item: str, hour: float, cost: Run, tmp_path: Any) -> None:
    """Not its neighbours in the list; a surcharge is added; an own price is kept."""
    file = tmp_path / "environment.yaml"
    file.write_text(text)
    found = json.loads("\n".join(cost(*EKS, "--json", "--environment", str(file))[1]))
    items = {one["what"]: one for one in found["items"]}
    assert items[item]["full"] == pytest.approx(hour)
    assert found["quotes"][items[item]["price"]]["source"] == ("environment file" if hour == 0.01 else "Price List")


DEARER = product("AmazonEC2", "NatGateway-Hours", "Hrs", "0.9", productFamily="NAT Gateway", group="NGW:NatGateway")
NAT = "nat-gateway-hour (catalogue 2025-10-28)"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"products": (DEARER,)}, "the Price List has several products that fit (AmazonEC2, NatGateway-Hours, us-east-1): "
         f"NatGateway-Hours at 0.045 USD and NatGateway-Hours at 0.9 USD: {NAT}"),
        ({"without": "NatGateway-Hours"}, f"the Price List has no such product (AmazonEC2, NatGateway-Hours, us-east-1): {NAT}"),
        ({"throttled": {"AmazonVPC": 1}}, ""),
    ],
)  # fmt: skip
def test_no_match_and_several(answers: dict[str, Any], message: str, cost: Run) -> None:
    code, lines = cost(*EKS, **answers)
    assert code == 0
    reasons = [line for line in lines if line.startswith("the Price List ") and "not asked" not in line]
    assert reasons == ([message] if message else [])


def test_a_type_that_is_sold_in_blocks_only(cost: Run, tmp_path: Any) -> None:
    """The Price List has it at 0 USD, as the block is paid for: no on-demand price."""
    file = tmp_path / "environment.yaml"
    file.write_text("region: us-west-2\neks: {node_groups: [{instance_type: trn2.48xlarge}]}\n")
    found = json.loads("\n".join(cost(*EKS, "--json", "--environment", str(file))[1]))
    assert found["quotes"]["trn2.48xlarge"]["usd"] is None
    assert "no such product" in found["quotes"]["trn2.48xlarge"]["why"]
    assert found["full_hour"] is None


def test_throttled_to_the_end(cost: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ATTEMPTS", 1)
    code, lines = cost(*EKS, throttled={"AmazonVPC": 99})
    assert code == 0
    assert (
        "the Price List refused too many requests (ThrottlingException): try again in a minute: "
        "public-address-hour (catalogue 2025-11-04)" in lines
    )


@pytest.mark.parametrize(
    ("products", "expected"),
    [
        ([], ["node management: 1 to 19 nodes\tunknown\tunknown\tunknown", "no price of Slurm controller: small, node management: 1 to 19 nodes; "
          f"AWS publishes it at https://aws.amazon.com/pcs/pricing/; not found on {PCS_LOOKED_FOR.date}: {PCS_LOOKED_FOR.searched}",
          "the Price List names no service for it; AWS publishes it at https://aws.amazon.com/pcs/pricing/: pcs-small-controller-hour "
          "(unknown), pcs-node-hour (unknown)"]),
        ([CONTROLLER, NODE, product(PCS, "USE1-Accounting-Small", "Hrs", "0.3", "for accounting of a small Slurm controller")],
         ["node management: 1 to 19 nodes\t0.0625\t1.1875\tPrice List 2026-07-13", "Slurm controller: small\t0.50\t0.50\tPrice List 2026-07-13"]),
        ([CONTROLLER, NODE, product(PCS, "USE1-NodeManagement-Large", "Hrs", "0.1", "for node management")],
         ["the Price List has several products that fit (AWSParallelComputingService, node management, us-east-1): USE1-NodeManagement at 0.0625 USD "
          "and USE1-NodeManagement-Large at 0.1 USD: pcs-node-hour (unknown)"]),
    ],
)  # fmt: skip
def test_pcs_by_its_words(products: list[Document], expected: list[str], cost: Run) -> None:
    lines = cost("TrnPcsStack", *TUTORIAL, products=tuple(products))[1]
    assert set(expected) <= set(lines), lines


def test_without_access(cost: Run, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The catalogue's prices, one reason, and exit code 1."""
    head = "compute1/queue1-i1: 0 to 16 x trn1.32xlarge\t0.00\t344.00\tcatalogue 2026-07-15"
    code, lines = cost(*TUTORIAL, allowed=())
    assert code == 1
    assert head in lines
    reason = "these credentials may not read the Price List: allow pricing:GetProducts on *: "
    assert sum(line.startswith(reason) for line in lines) == 1
    assert cost(*TUTORIAL, allowed=("GetProducts",))[0] == 0
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, lines = cost(*TUTORIAL)
    assert code == 1
    assert head in lines
    assert any(
        "no credentials for the Price List: Unable to locate credentials. Sign in (aws sso login)" in line
        for line in lines
    )


def test_every_region(cost: Run) -> None:
    printed = cost(*EKS, "--regions")[1]
    lines = {line.split("\t")[0]: line.split("\t")[1:] for line in printed}
    assert "us-east-1: the Price List is not asked for it" in printed
    assert (
        "ap-south-1: 12 of 12 prices are not the Price List's; with this region, `trn cost --live` names them"
        in printed
    )
    assert lines["us-west-2"] == ["0.4224", "43.7840", ""]
    assert lines["ap-south-1"][1:] == ["unknown", "1 of 10 prices are unknown"]  # that of the nodes
    quotes = {
        r: one["quotes"] for r, one in json.loads("\n".join(cost(*EKS, "--regions", "--json")[1]))["regions"].items()
    }
    nat = quotes["us-west-2"]["nat-gateway-hour"]
    assert (nat["usd"], nat["unit"], nat["effective"], nat["date"]) == (0.045, "Hrs", "2026-08-01", "2026-08-10")
    assert len({quotes[region]["nat-gateway-hour"]["sku"] for region in ("us-east-1", "us-west-2")} - {""}) == 2
    assert "no such product" in quotes["ap-south-1"]["nat-gateway-hour"]["why"]
