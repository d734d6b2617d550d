"""`trn cost`: the items of an environment, from dated prices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import golden_rows
from trainium_cdk import settings
from trainium_cdk.client.cli import app as cli
from trainium_cdk.description import engines
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks.live import CheckTarget
from trainium_cdk.description.checks.live.cost import cost as estimate
from trainium_cdk.errors import TrnError

TUTORIAL = ("--environment", "tests/environments/tutorial.yaml")
CATALOG = Catalog.load()
ENGINES = list(engines.ENGINES)


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
    assert captured.out.endswith(
        "\nall (see https://calculator.aws/)\tunknown (known so far: 8.83)\tunknown (known so far: 354.46)\na month\t\t\n"
    )
    for line in (
        "no price of Slurm controller: small, node management: 1 to 19 nodes; not found on 2026-11-26: copies of",
        "contradict each other. AWS publishes them at https://aws.amazon.com/pcs/pricing/",
        "* read on AWS's page by others, and quoted by them: cloudwatch-dashboard-month",
        "catalogue: list prices of 2024-07-18 to 2026-07-15; --json has the source of each. For others see https://calculator.aws/",
    ):
        assert line in captured.err
    found = json.loads("\n".join(cost("TrnPcsStack", *TUTORIAL, "--json")))
    quote = found["quotes"]["pcs-node-hour"]
    assert quote.pop("text").startswith("not found on 2026-11-26: copies of the Price List")
    assert quote == {"usd": None, "source": "", "date": "", "secondary": False, "capacity_block": False}


def test_every_region_of_the_catalogue(cost: Any) -> None:
    lines = {
        line.split("\t")[0]: line.split("\t")[1:]
        for line in cost("TrnEksStack", "--regions", "--environment", "examples/tutorial.yaml")[1:]
    }
    assert lines.keys() == set(CATALOG.zone_regions.values())
    assert lines["us-east-1"] == ["0.4224", "43.7840", ""]
    assert lines["us-west-2"] == lines["us-east-1"]
    assert lines["ap-south-1"] == ["0.4422", "unknown", "1 of 10 prices are unknown (see https://calculator.aws/)"]
    assert lines["ap-southeast-4"] == ["0.4892", "unknown", "1 of 10 prices are unknown (see https://calculator.aws/)"]
    assert lines["sa-east-1"] == [
        "unknown",
        "unknown",
        "trn1.32xlarge is not offered there, as far as the catalogue knows",
    ]


def of_init(
    capsys: pytest.CaptureFixture[str], folder: Path, kind: str, engine: str
) -> tuple[list[str], dict[str, Any]] | None:
    """Of the file that `trn init` writes for an instance type: the lines of `trn cost`, and its JSON. None: it offers another engine."""
    file = folder / "environment.yaml"
    try:
        cli.app(["init", str(file), "--force", "--instance-type", kind, "--engine", engine], standalone_mode=False)
    except TrnError:
        return None
    capsys.readouterr()
    stack = engines.get(engine).stack
    cli.app(["cost", stack, "--environment", str(file)], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    cli.app(["cost", stack, "--environment", str(file), "--json"], standalone_mode=False)
    return lines, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", CATALOG.instances)
def test_what_init_writes_has_a_known_cost(
    kind: str, engine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Beyond what the catalogue lists as looked for and not found. There the sum is unknown, with the address of AWS's calculator."""
    made = of_init(capsys, tmp_path, kind, engine)
    if made is None:
        return
    lines, found = made
    missing = {item["price"] for item in found["items"] if item["full"] is None}
    missing |= {name for name in found["rates"] if found["quotes"][name]["usd"] is None}
    assert not [name for name in missing if not any(u.covers(name, found["region"]) for u in CATALOG.unknown_prices)]
    [total] = [line for line in lines if line.startswith("all")]
    assert ("unknown" in total) == ("https://calculator.aws/" in total) == bool(missing)
    assert "at least" not in "\n".join(lines)
    assert (found["full_hour"] is None) == bool(missing)
    if kind.startswith("trn2."):
        block = next(item for item in found["items"] if item["price"] == kind)
        assert block["what"].endswith("(a capacity block's price)")
        assert f"{block['what']} *\t0.00\t" in "\n".join(lines)


def test_what_was_not_found_is_not_there() -> None:
    """Each entry of the list is of a name that `trn cost` asks for, and no entry hides a price."""
    names = {*CATALOG.instances, *(name for prices in CATALOG.service_prices.values() for name in prices)}
    for size in ("small", "medium", "large"):
        text = f"pcs: {{size: {size}, accounting: true}}\nstorage: {{fsx: {{capacity_gib: 1200, deployment: PERSISTENT_2, metadata_iops: 1500}}}}"
        names |= estimate(CheckTarget(settings.parse(text), "pcs"))["quotes"].keys()
    for entry in CATALOG.unknown_prices:
        assert entry.searched
        for name in entry.prices:
            assert name in names
            prices = CATALOG.prices if "." in name else CATALOG.service_prices
            assert not [r for r in prices if entry.covers(name, r) and name in prices[r]], name


def test_the_regions_of_each_type_are_priced_or_listed() -> None:
    for kind in CATALOG.instances:
        for region in CATALOG.regions_of(kind):
            listed = any(entry.covers(kind, region) for entry in CATALOG.unknown_prices)
            assert (CATALOG.price(kind, region) is None) == listed, (kind, region)


def test_what_each_type_costs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = []
    for kind in CATALOG.instances:
        cells, regions = dict[str, str](), dict[str, str]()
        for engine in ENGINES:
            title = engines.get(engine).title
            made = of_init(capsys, tmp_path, kind, engine)
            if made is None:
                cells[title] = "not offered"
                continue
            lines = made[0]
            regions.setdefault(made[1]["region"], title)
            [total] = [line.split("\t")[1:3] for line in lines if line.startswith("all")]
            cells[title] = ", ".join(total)
        region = next(iter(regions))
        where = region if len(regions) == 1 else ", ".join(f"{title}: {r}" for r, title in regions.items())
        usd, source = CATALOG.price(kind, region), CATALOG.price_source(kind, region)
        node = "unknown" if usd is None else f"{usd:,.2f}{' (block) *' if source and source.capacity_block else ''}"
        rows.append({"type": kind, "region": where, "a node": node, **cells})
    assert rows == golden_rows(Path(__file__).with_name("costs.yaml"), rows)
