"""One check that fails in whatever way does not hide the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.checks.live.cases import target
from trainium_cdk.description.checks.live import Aws, Check, CheckReport, examine, run
from trainium_cdk.description.checks.live.cost import cost, describe_least, findings
from trainium_cdk.description.checks.live.model import Subject
from trainium_cdk.errors import Absent, AwsError, Denied, NoCredentials, Unreachable
from trainium_cdk.problems import Problem

FINE = Subject("it").ok(1, "fine")


def check(name: str, outcome: Any) -> Check[Any]:
    def fetch(*_: Any) -> Any:
        if isinstance(outcome, threading.Event):
            outcome.wait(60)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def evaluate(_: Any, answer: Any) -> Iterator[Problem]:
        yield answer

    return Check(name, (), fetch, evaluate)


def find(*checks: Check[Any], seconds: float = 60) -> list[tuple[str, str, str]]:
    found = run(target(""), Aws("us-east-1", session=object()), checks, seconds)
    return [(f.level, f.rule, f.reason) for f in found]


def test_outcomes_are_reported_independently() -> None:
    outcomes: dict[str, Any] = {
        "fine": FINE, "denied": Denied("ec2:DescribeVpcs"), "expired": NoCredentials("expired"),
        "throttled": AwsError("ec2:DescribeVpcs failed with RequestLimitExceeded: slow down"),
        "absent": Absent("no such thing"), "bug": KeyError("State"), "also fine": FINE,
    }  # fmt: skip
    assert find(*(check(n, o) for n, o in outcomes.items())) == [
        ("ok", "fine", "fine"),
        ("warning", "denied", "could not be checked: needs ec2:DescribeVpcs"),
        ("warning", "expired", "could not be checked: expired"),
        ("warning", "throttled", "could not be checked: ec2:DescribeVpcs failed with RequestLimitExceeded: slow down"),
        ("warning", "absent", "could not be checked: no such thing"),
        ("error", "bug", "could not be checked: this is a bug in trn: KeyError: 'State'"),
        ("ok", "also fine", "fine"),
    ]


def test_a_service_out_of_reach_is_reported_once() -> None:
    lost = [check(f"c{i}", Unreachable("ec2", "Connect timeout")) for i in range(3)]
    assert find(check("fine", FINE), *lost) == [
        ("ok", "fine", "fine"),
        ("error", "connection", "Connect timeout. These checks could not run: c0, c1 and c2"),
    ]


@pytest.mark.parametrize("stuck", [1, 11])
def test_a_check_that_hangs_does_not_delay_the_others(stuck: int) -> None:
    never = threading.Event()
    try:
        found = find(check("fine", FINE), *(check(f"c{i}", never) for i in range(stuck)), seconds=0.3)
    finally:
        never.set()
    assert found[0] == ("ok", "fine", "fine")
    assert found[1:] == [("warning", f"c{i}", "could not be checked: no answer within 0 s") for i in range(stuck)]


def test_a_check_requests_only_what_it_declares() -> None:
    curious = Check("curious", ("ec2:DescribeVpcs",), lambda _, aws: aws("ec2:DescribeAddresses"), lambda *_: iter(()))
    found = find(curious)
    assert found[0][0] == "error"
    assert "ec2:DescribeAddresses is not among the actions" in found[0][2]


@pytest.mark.parametrize(
    ("levels", "strict", "code"),
    [((), True, 0), (("ok", "info"), True, 0), (("warning",), False, 0), (("warning",), True, 2),
     (("error", "warning"), False, 1), (("error", "warning"), True, 1)],
)  # fmt: skip
def test_exit_codes(levels: tuple[Any, ...], strict: bool, code: int) -> None:
    report = CheckReport("S", "trn", "us-east-1", "", tuple(Problem((), "", "", "", level) for level in levels), {})
    assert report.exit_code(strict=strict) == code


def test_no_connection_is_one_error_and_the_other_checks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed port. The offline rules and the cost are still reported."""
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:1", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    report = examine(target("pcluster: {queues: [{compute_resources: [{min_nodes: 1}]}]}"))
    assert [(f.level, f.rule) for f in report.findings] == [
        ("warning", "rule static-nodes"), ("error", "credentials"), *[("info", "cost")] * 3,
    ]  # fmt: skip
    assert "Could not connect to the endpoint" in report.findings[1].reason


KEY = 1 / 730
"""USD an hour."""
WATCHED = {"slurm": ((3 + 11 * 0.3) / 730, 8 * 17 * 0.3 / 730), "eks": ((3 + 11 * 0.3) / 730, 0.0)}
"""Dashboard and metrics: always, and those of all nodes."""
OWN_KEY = "encryption: arn:aws:kms:us-east-1:111122223333:key/12345678-1234-1234-1234-123456789012"
CPU = 2 * (0.34 + 100 * 0.08 / 730)
"""Two nodes of the CPU queue."""
RESERVED = "pcluster: {queues: [{compute_resources: [{reservation: cr-0123456789abcdef0}]}]}"
BLOCK = RESERVED.replace("[{c", "[{capacity_type: capacity-block, c").replace(
    "[{r", "[{min_nodes: 16, max_nodes: 16, r"
)
"""Instances of a reservation are paid always, those of a block before; root volumes while an instance runs."""
COSTS = [
    # environment, engine, USD an hour idle and full in addition to a key and to what is watched, what is not known
    (OWN_KEY, "slurm", 0.68 + 0.05 + 40 / 730 - KEY, 16 * (21.5 + 40 / 730) + CPU, []),
    ("", "slurm", 0.68 + 0.045 + 0.005 + 500 * 0.08 / 730, 16 * (21.5 + 500 * 0.08 / 730) + CPU, []),
    ("network: {nat: none}", "slurm", 0.68 + 500 * 0.08 / 730, 16 * (21.5 + 500 * 0.08 / 730) + CPU, []),
    ("storage: {fsx: {capacity_gib: 2400}}", "slurm", 0.68 + 0.05 + (40 + 336) / 730, 16 * (21.5 + 40 / 730) + CPU, []),
    ("storage: {efs: {throughput: provisioned, provisioned_mibps: 100}}", "slurm", 0.68 + 0.05 + (40 + 600) / 730, 16 * (21.5 + 40 / 730) + CPU, []),
    ("pcluster: {head: {instance_type: c7i.large}}", "slurm", 0.05 + 40 / 730, 16 * (21.5 + 40 / 730) + CPU, ["head node: c7i.large"]),
    ("pcluster: {cpu_queue: null}", "slurm", 0.68 + 0.05 + 40 / 730, 16 * (21.5 + 40 / 730), []),
    ("pcluster: {login_nodes: {instance_type: m5.large, count: 2}}", "slurm", 0.68 + 0.05 + 40 / 730 + 2 * 0.096 + 0.0225, 16 * (21.5 + 40 / 730) + CPU, []),
    (RESERVED, "slurm", 0.68 + 0.05 + 40 / 730 + 16 * 21.5, 16 * 40 / 730 + CPU, []),
    (BLOCK, "slurm", 0.68 + 0.05 + 40 / 730 + 16 * 40 / 730, CPU, []),
    ("eks: {bastion_host: null}", "eks", 0.10 + 2 * 0.126 + 0.05, 2 * (21.5 + 40 / 730) + 2 * 0.126, []),
    ("eks: {version: '1.33', bastion_host: null}", "eks", 0.60 + 2 * 0.126 + 0.05, 2 * (21.5 + 40 / 730) + 2 * 0.126, []),
    ("eks: {bastion_host: null, node_groups: [{nodes: 1}]}", "eks", 0.402 + 21.5 + 40 / 730, 21.5 + 40 / 730 + 2 * 0.126, []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "engine", "idle", "more", "unknown"), COSTS)
def test_cost_by_hand(text: str, engine: Any, idle: float, more: float, unknown: list[str]) -> None:
    figures = cost(target(text, engine))
    watched, by_nodes = WATCHED[engine]
    assert figures["known_idle_hour"] == pytest.approx(idle + KEY + watched, abs=1e-4)
    assert figures["known_full_hour"] == pytest.approx(idle + KEY + watched + more + by_nodes, abs=1e-4)
    assert all(figures[f"{n}_hour"] == (None if unknown else figures[f"known_{n}_hour"]) for n in ("idle", "full"))
    assert figures["unknown_idle"] == figures["unknown_full"] == unknown


BLOCKS = "region: sa-east-1\npcluster: {queues: [{compute_resources: [{instance_type: trn2.3xlarge}]}]}"
LEAST = [
    # environment, engine, USD, what is paid
    (BLOCKS, "slurm", 24 * 2.235, "a capacity block of 1 x trn2.3xlarge for a day, paid in full"),
    ("region: ap-southeast-4\neks: {node_groups: [{name: a, instance_type: trn2.3xlarge, nodes: 2}]}", "eks", 48 * 2.235, "a capacity block of 2 x trn2.3xlarge for a day, paid in full"),
    ("region: us-east-2\n" + BLOCK.replace("{min_nodes", "{instance_type: trn2.48xlarge, min_nodes"), "slurm", 16 * 24 * 35.7608, "a capacity block of 16 x trn2.48xlarge for a day, paid in full"),
    (BLOCK, "slurm", None, "a capacity block of 16 x trn1.32xlarge for a day, paid in full"),  # its price on demand is another one
    (BLOCK + "\ncatalog: {prices: {us-east-1: {trn1.32xlarge: 9.5}}}", "slurm", 16 * 24 * 9.5, "a capacity block of 16 x trn1.32xlarge for a day, paid in full"),
    ("", "slurm", 0.79 + 21.5, "an hour of 1 x trn1.32xlarge and of the idle stack"),
    ("", "pcs", None, "an hour of 1 x trn1.32xlarge and of the idle stack"),
    ("eks: {node_groups: [{name: a, instance_type: trn1.32xlarge, nodes: 1}]}", "eks", 0.48 + 21.5, "an hour of 1 x trn1.32xlarge and of the idle stack"),
    (RESERVED, "slurm", 0.79 + 16 * 21.5, "an hour of 16 x trn1.32xlarge and of the idle stack"),
    ("pcluster: {queues: [{capacity_type: spot}]}", "slurm", 0.79 + 21.5, "an hour of 1 x trn1.32xlarge (spot costs less) and of the idle stack"),
    # the cheapest of several, and one whose price is known before one whose price is not
    ("eks: {node_groups: [{name: a, instance_type: trn1.32xlarge}, {name: b, instance_type: trn1.2xlarge}]}", "eks", 0.4224 + 1.34375, "an hour of 1 x trn1.2xlarge and of the idle stack"),
    ("region: ap-southeast-4\neks: {node_groups: [{name: a, instance_type: trn1.32xlarge}, {name: b, instance_type: trn2.3xlarge}]}", "eks", 53.64, "a capacity block of 1 x trn2.3xlarge for a day, paid in full"),
    ("region: ap-south-2\neks: {node_groups: [{name: a, instance_type: trn2.3xlarge}, {name: b, instance_type: trn2u.48xlarge}]}", "eks", None, "an hour of 1 x trn2.3xlarge and of the idle stack"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "engine", "usd", "what"), LEAST)
def test_the_least_to_pay(text: str, engine: Any, usd: float | None, what: str) -> None:
    figures = cost(target(text, engine))
    assert figures["least"]["what"] == what
    assert figures["least"]["usd"] == (None if usd is None else pytest.approx(usd, abs=0.01))
    assert ("unknown" in figures["least"]["text"]) == (usd is None)
    first = next(iter(findings(figures)))
    assert describe_least(figures) == f"{first.what}: {first.value}: {first.reason}"


def test_an_unknown_price_is_reported_and_not_guessed() -> None:
    found = list(findings(cost(target("region: eu-west-1"))))[1:]
    assert found[0].value == (
        "unknown (no price of head node: c5.4xlarge, head node: root volume, 1 x NAT gateway (without its traffic) and 4 more; "
        "see https://calculator.aws/)"
    )
    assert found[0].reason == "counted at eu-west-1's list prices, without stored data, traffic and logs"
    assert found[0].fix == "see https://calculator.aws/; prices of instance types can be under catalog.prices.eu-west-1"
    given = "region: eu-west-1\ncatalog: {prices: {eu-west-1: {c5.4xlarge: 1.5}}}"
    assert cost(target(given))["known_idle_hour"] == 1.5
    assert cost(target(given))["idle_hour"] is None
