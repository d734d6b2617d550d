"""`trn cost`: the items of an environment, from dated prices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainium_cdk.catalog import Catalog
from trainium_cdk.cli import app as cli

TUTORIAL = ("--env", "tests/environments/tutorial.yaml")
CATALOG = Catalog.load()


@pytest.fixture
def cost(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> list[str]:
        cli.app(["cost", *words], standalone_mode=False)
        return capsys.readouterr().out.splitlines()

    return run


def test_each_item_and_their_sum(cost: Any) -> None:
    lines = cost(*TUTORIAL)
    assert "compute1/queue1-i1: 0 to 16 x trn1.32xlarge\t0.00\t344.00" in lines
    assert "EFS: 1024 MiB/s provisioned\t8.4164\t8.4164" in lines
    assert lines[-2:] == ["all\t9.22\t354.85", "a month\t6,728\t259,041"]
    found = json.loads("\n".join(cost(*TUTORIAL, "--json")))
    assert found["prices"] == str(CATALOG.prices_date)
    assert sum(item["full"] or 0 for item in found["items"]) == pytest.approx(found["full_hour"], abs=1e-3)


def test_what_is_unknown_has_its_page(cost: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """PCS's own prices: no dated source of them could be read."""
    cli.app(["cost", "TrnPcsStack", *TUTORIAL], standalone_mode=False)
    captured = capsys.readouterr()
    assert "Slurm controller: small\tunknown\tunknown" in captured.out
    assert "\nall\tat least 8.83\tat least 354.46\n" in captured.out
    assert captured.err.endswith("; older: efs-provisioned-mibps-month 2024-07-01, efs-standard-gib-month 2024-07-01\n")
    for line in (
        "without Slurm controller: small, node management: 1 to 19 nodes: unknown; AWS publishes it at https://aws.amazon.com/pcs/pricing/",
        "`trn cost --live` asks the AWS Price List; or add prices under catalog.prices.us-east-1 or catalog.service_prices.us-east-1",
    ):
        assert line in captured.err
    found = json.loads("\n".join(cost("TrnPcsStack", *TUTORIAL, "--json")))
    assert found["quotes"]["pcs-node-hour"] == {
        "usd": None, "source": "", "date": "", "text": "", "why": "", "unit": "", "effective": "", "sku": "", "page": "https://aws.amazon.com/pcs/pricing/",
    }  # fmt: skip


def test_every_region_of_the_catalogue(cost: Any) -> None:
    lines = {line.split("\t")[0]: line.split("\t")[1:] for line in cost("TrnEksStack", "--regions")[1:]}
    assert lines.keys() == set(CATALOG.zone_regions.values())
    assert lines["us-east-1"] == ["0.3624", "43.6640", ""]
    assert lines["us-west-2"][1:] == ["43.00", "at least: 9 of 10 prices are unknown"]
    assert lines["ap-south-1"] == ["0.1610", "0.2859", "at least: 6 of 10 prices are unknown"]
    assert lines["ap-southeast-4"][:2] == ["unknown", "unknown"]
    assert lines["sa-east-1"] == [
        "unknown",
        "unknown",
        "trn1.32xlarge is not offered there, as far as the catalogue knows",
    ]
