"""`trn capacity`: what several regions offer, from the local AWS."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox import LocalAws
from tests.credentials import session
from trainium_cdk import settings
from trainium_cdk.client.cli import app as cli
from trainium_cdk.description import checks
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.regions import ACTIONS, SCORED, Wanted, ask
from trainium_cdk.errors import TrnError
from trainium_cdk.problems import errors

ON_DEMAND, SPOT = "L-2C3B7624", "L-6B0D517C"
KIND = "trn1.32xlarge"
BLOCK = {"InstanceType": KIND, "InstanceCount": 4, "Hours": 48, "AvailabilityZoneId": "use2-az3"}
ANSWERS: dict[str, Any] = {
    "regions": {"ap-southeast-4": "not-opted-in", "ap-south-2": None},
    "quotas": {ON_DEMAND: {"us-east-1": 128, "us-east-2": 0, "us-west-2": 640}, SPOT: {"us-west-2": 511, "ap-south-1": 512}},
    "block-offerings": [
        {**BLOCK, "StartInHours": 30, "UpfrontFee": "3000.50"}, {**BLOCK, "StartInHours": 50, "UpfrontFee": "1920"},
        {**BLOCK, "InstanceCount": 8, "StartInHours": 1, "UpfrontFee": "1"},
    ],
    "spot": [
        {"InstanceType": KIND, "AvailabilityZoneId": "use1-az6", "SpotPrice": "5.5", "Score": 2},
        {"InstanceType": KIND, "AvailabilityZoneId": "usw2-az1", "SpotPrice": "30", "Score": 9},
    ],
}  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def aws(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAws]:
    for name, value in {**local_aws.variables, "AWS_ACCESS_KEY_ID": "333333333333"}.items():  # an account of its own
        monkeypatch.setenv(name, value)
    yield local_aws
    for name in ANSWERS:
        local_aws.set_answers(name, None)


@pytest.fixture
def run(aws: LocalAws, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, **answers: Any) -> tuple[int, str, str]:
        for name in ANSWERS:
            aws.set_answers(name, answers.get(name.replace("-", "_")))
        kind = [] if "--environment" in words else ["--type", KIND]
        code = cli.app(["capacity", *kind, *words], standalone_mode=False) or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


EVERYWHERE = {name.replace("-", "_"): data for name, data in ANSWERS.items()}


def test_the_soonest_first_then_the_cheapest(run: Run) -> None:
    code, out, err = run("--regions", "all", "-N", "4", "--hours", "48", **EVERYWHERE)
    rows = [line.split("\t") for line in out.splitlines()]
    ids = [re.sub(r"[A-Z][a-z]{2} \d\d \d\d:\d\d", "LATER", " | ".join(row[:4])) for row in rows]
    assert ids == [
        "region | way | start (UTC) | USD/h",
        "us-east-1 | spot | now | 5.50",
        "ap-south-1 | spot | now | 6.40",
        "ap-southeast-2 | spot | now | 6.40",
        "us-east-2 | spot | now | 6.40",
        "us-west-2 | on-demand | now | 21.50",
        "ap-south-1 | on-demand | now | unknown",
        "ap-southeast-2 | on-demand | now | unknown",
        "us-east-2 | block | LATER | 10.00",
        "us-west-2 | spot | - | 6.40",
        "us-east-1 | on-demand | - | 21.50",
        "us-east-2 | on-demand | - | 21.50",
        "ap-south-1 | block | - | unknown",
        "ap-southeast-2 | block | - | unknown",
        "us-east-1 | block | - | unknown",
        "us-west-2 | block | - | unknown",
        "ap-south-2 | - | - | ",
        "ap-southeast-4 | - | - | ",
        "sa-east-1 | - | - | ",
    ]
    notes = {tuple(row[:2]): row[4] for row in rows}
    assert (
        notes["us-east-1", "spot"]
        == "use1-az6 5.50, use1-az4 6.40, use1-az5 6.40; score 2 of 10; 0 of 8,192 vCPUs used"
    )
    assert notes["us-west-2", "on-demand"] == "usw2-az1, usw2-az4; 0 of 640 vCPUs used"
    assert notes["us-west-2", "spot"].startswith(
        f"quota: 511 of 511 vCPUs are free, 512 wanted ({SPOT}); usw2-az4 6.40, usw2-az1 30.00"
    )
    assert notes["us-east-2", "block"] == "use2-az3: 4 x 48 h for 1,920.00 USD"
    assert notes["us-west-2", "block"] == "no block of 4 x 48 h is offered"
    assert notes["sa-east-1", "-"] == "not offered to this account"
    assert notes["ap-south-2", "-"] == "AWS names no such region to this account"
    assert notes["ap-southeast-4", "-"] == "not enabled: aws account enable-region --region-name ap-southeast-4"
    assert (code, "on-demand prices: catalogue 20" in err) == (0, True)


def test_one_region_has_every_block(run: Run, aws: LocalAws) -> None:
    """And what runs there counts. The size of a block is rounded up, as its hours are."""
    code, out, err = run(
        "--regions", "us-east-2", "-N", "3", "--hours", "25", **{**EVERYWHERE, "quotas": {SPOT: 0, ON_DEMAND: 0}}
    )
    blocks = [line.split("\t") for line in out.splitlines() if "\tblock\t" in line]
    assert [(row[3], row[4]) for row in blocks] == [
        ("15.63", "use2-az3: 4 x 48 h for 3,000.50 USD"), ("10.00", "use2-az3: 4 x 48 h for 1,920.00 USD"),
    ]  # fmt: skip
    assert "aws ec2 purchase-capacity-block --capacity-block-offering-id cb-0" in err
    assert err.endswith(f"trn init --instance-type {KIND} --nodes 3 --region us-east-2\n")  # there is no file to copy
    assert code == 0


def test_a_copy_with_what_it_says_is_valid(run: Run, tmp_path: Path) -> None:
    file, copy = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text("name: west\nregion: us-east-1\nnetwork: {zone_ids: [use1-az6]}\npcluster: {}\n")
    _, _, err = run("--regions", "us-east-2", "--environment", str(file), **EVERYWHERE)
    said = re.search(r"to use us-east-2: copy (.*), and write another name, (.*) and (.*) into the copy\. Leave", err)
    assert said
    assert said[1] == str(file)
    other = {"name: west": "name: east", "region: us-east-1": said[2], "network: {zone_ids: [use1-az6]}": said[3]}
    copy.write_text("".join(f"{other.get(line, line)}\n" for line in file.read_text().splitlines()))
    moved = settings.load(copy)
    assert (moved.region, moved.network.zone_ids) == ("us-east-2", ("use2-az3",))
    assert errors(checks.check(moved, "slurm")) == []


def test_json(run: Run, aws: LocalAws) -> None:
    ec2 = Aws("us-west-2")._client("ec2", "us-west-2")
    [started] = ec2.run_instances(InstanceType=KIND, MinCount=1, MaxCount=1)["Instances"]
    try:
        code, out, _ = run("--regions", "us-west-2,us-east-2", "--nodes", "4", "--json", **EVERYWHERE)
    finally:
        ec2.terminate_instances(InstanceIds=[started["InstanceId"]])
    found = {one["region"]: {way["capacity_type"]: way for way in one["ways"]} for one in json.loads(out)["regions"]}
    way = found["us-west-2"]["on-demand"]
    assert (code, way["quota"], way["used"], way["usd"], way["zone_ids"]) == (
        0,
        640,
        128,
        21.5,
        ["usw2-az1", "usw2-az4"],
    )
    assert found["us-west-2"]["spot"]["spot_prices"] == {"usw2-az1": 30.0, "usw2-az4": 6.4}
    assert list(found) == ["us-east-2", "us-west-2"], "what can start soonest, then the cheapest"


def test_prices_have_a_source(run: Run) -> None:
    """The catalogue's, with its date. Of a type that AWS sells in blocks alone there is no on-demand price."""
    _, out, err = run("--regions", "us-west-2", "--json")
    [one] = json.loads(out)["regions"]
    assert (one["quote"]["usd"], one["quote"]["source"], one["quote"]["date"]) == (21.5, "catalogue", "2026-07-15"), err
    assert "on-demand prices: catalogue 2026-07-15; a USD/h" in run("--regions", "us-west-2")[2]
    quote = json.loads(run("--type", "trn2.48xlarge", "--regions", "us-east-2", "--json")[1])["regions"][0]["quote"]
    assert (quote["usd"], quote["source"]) == (None, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--type", "trn1.3xlarge", "--regions", "us-east-2"],
            "no instance type 'trn1.3xlarge'. Did you mean trn1.32xlarge",
        ),
        (["--regions", "us-west-9"], "'us-west-9' is not a region of the catalogue. Did you mean us-west-2"),
        (["--regions", ","], "it is empty. Give regions with commas between them, or all"),
    ],
)
def test_refused(words: list[str], message: str, run: Run) -> None:
    """A value that is refused (exit code 1), where it is about regions."""
    with pytest.raises(TrnError, match=re.escape(message)):
        run(*words)


def test_nothing_anywhere(run: Run) -> None:
    code, out, err = run("--regions", "us-east-1,us-east-2", "--type", "trn2u.48xlarge")
    assert (code, out.count("not offered to this account")) == (1, 2)
    assert "1 x trn2u.48xlarge cannot start in us-east-1, us-east-2, as far as AWS tells" in err


def test_a_denied_region_is_a_row(run: Run, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a policy of an organisation, which allows some regions."""
    with session(aws, 900, *ACTIONS, condition={"StringNotEquals": {"aws:RequestedRegion": "us-east-2"}}) as keys:
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
        code, out, _ = run("--regions", "us-east-2,us-west-2")
    assert code == 0
    assert out.splitlines()[-1] == "us-east-2\t-\t-\t\tdenied: ec2:DescribeInstanceTypeOfferings"
    assert "us-west-2\ton-demand\tnow\t21.50" in out


@pytest.mark.parametrize("action", sorted({*ACTIONS} - {"ec2:DescribeInstanceTypes"}))  # of types the catalogue lacks
def test_each_permission_is_named(action: str, run: Run, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, the others' answers are there."""
    with session(aws, 900, *(other for other in ACTIONS if other != action)) as keys:
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
        code, out, err = run("--regions", "us-west-2", quotas={SPOT: None})
    assert f"denied: {action}" in out + err
    assert code == (1 if action == "ec2:DescribeInstanceTypeOfferings" else 0), out


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal(columns: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, out, _ = run("--regions", "all", "-N", "4", "--hours", "48", **EVERYWHERE)
    out = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert max(map(len, out.splitlines())) <= columns
    assert {"us-east-1", "ap-southeast-4", "on-demand", "5.50"} <= set(re.findall(r"[\w.-]+", out))


class Slow:
    """A connection whose region does not respond; it gets more regions than one request for scores may have."""

    region = "us-east-1"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.released = threading.Event()

    def in_region(self, region: str) -> Slow:
        other = Slow()
        other.region, other.asked, other.released = region, self.asked, self.released
        return other

    def __call__(self, action: str, **request: Any) -> dict[str, Any]:
        if action == "ec2:DescribeRegions":
            return {
                "Regions": [{"RegionName": f"us-east-{n}", "OptInStatus": "opt-in-not-required"} for n in range(1, 15)]
            }
        if action == "ec2:GetSpotPlacementScores":
            self.asked.append(request["RegionNames"])
            return {"SpotPlacementScores": []}
        self.released.wait()
        return {}


def test_a_region_that_does_not_respond() -> None:
    catalog, slow = Catalog.load(), Slow()
    wanted = Wanted(catalog, catalog.instance(KIND), 1, 24, dt.datetime.now(dt.UTC))
    found, notes = ask(cast(Aws, slow), wanted, [f"us-east-{n}" for n in range(1, 15)], seconds=0)
    slow.released.set()
    assert {supply.note for supply in found} == {"no response within 0 s"}
    assert [len(regions) for regions in slow.asked] == [SCORED, 4]
    assert notes == []
