"""What a verification would do and cost, from the catalogue alone; and that its environments are valid."""

from __future__ import annotations

import re

import pytest

from sandbox.paths import HOME as ROOT
from trainium_cdk import checks, engines
from trainium_cdk.errors import TrnError
from trainium_cdk.operations.verify.plan import Block, described, environment, make, types
from trainium_cdk.settings import validate

BLOCK = Block("cr-0123456789abcdef0", "trn2.48xlarge", "us-east-2", "use2-az2", 4)


@pytest.mark.parametrize(
    ("engine", "instance_type", "max_usd", "expected"),
    [
        ("slurm", None, 25, ("trn1.2xlarge", "us-east-1", 1, "bert-large")),
        ("eks", None, 17, ("trn1.2xlarge", "us-east-1", 1, "bert-large")),
        ("pcs", None, 50, ("trn1.2xlarge", "us-east-1", 1, "bert-large")),
        ("slurm", "trn1.32xlarge", 100, ("trn1.32xlarge", "us-east-1", 1, "bert-large")),  # two nodes need more
        ("slurm", "trn1.32xlarge", 400, ("trn1.32xlarge", "us-east-1", 2, "bert-large")),
    ],
)
def test_the_nodes_of_a_plan(
    engine: str, instance_type: str | None, max_usd: float, expected: tuple[object, ...]
) -> None:
    plan = make(engine, instance_type, None, max_usd)
    assert (plan.instance_type, plan.region, plan.nodes, plan.kind) == expected
    assert plan.least <= max_usd
    assert plan.expected < plan.highest


@pytest.mark.parametrize(
    ("engine", "instance_type", "region", "max_usd", "says"),
    [
        ("slurm", None, None, 5, r"--max-usd is 5\.00: 1 x trn1\.2xlarge in us-east-1 need 7\.90 .* Give --max-usd 20"),
        ("slurm", "trn9.huge", None, 50, "the catalogue has no instance type 'trn9.huge'"),
        ("slurm", "trn2.48xlarge", None, 50, "capacity blocks are sold by the day. Give --capacity-block"),
        (
            "slurm",
            None,
            "eu-north-9",
            50,
            "no price by the hour is known for an instance type of the catalogue in eu-north-9",
        ),
        ("eks", "trn2.48xlarge", None, 50, "on EKS needs an image of your own"),
    ],
)
def test_what_is_refused(engine: str, instance_type: str | None, region: str | None, max_usd: float, says: str) -> None:
    with pytest.raises(TrnError, match=says):
        make(engine, instance_type, region, max_usd)


def test_the_advice_for_a_small_budget_works() -> None:
    assert make("slurm", None, None, 20).highest <= 20


@pytest.mark.parametrize("engine", list(engines.ENGINES))
def test_its_environments_are_valid(engine: str) -> None:
    blocks = [] if engine == "eks" else [make(engine, None, None, None, BLOCK)]
    for plan in [*types(engine), *blocks]:
        for env in (environment(plan), validate(described(plan, updated=True))):
            assert [p for p in checks.check(env, engine) if p.level == "error"] == []
            assert env.name == "verify"


def test_the_page_has_these_costs_and_steps() -> None:
    page = (ROOT / "docs/about/verified.md").read_text()
    for engine in engines.ENGINES:
        plan = make(engine, None, None, None)
        assert f"| `--engine {engine}` | {plan.expected:.0f} | {plan.highest:.0f} |" in page
        assert f"one `{plan.instance_type}`" in page
        assert [step.name for step in plan.all] == re.findall(
            r"^\| ([a-z]+) \| ", page.partition("| passed if |")[2].partition("Without")[0], re.MULTILINE
        )


def test_a_block_costs_nothing_more() -> None:
    with_block, by_hour = make("slurm", None, None, 20, BLOCK), make("slurm", "trn1.32xlarge", None, None)
    assert with_block.nodes == by_hour.nodes == 2
    assert with_block.usd["full"] < 2 < by_hour.usd["full"]
    assert (
        make(
            "slurm", None, None, None, Block("cr-0123456789abcdef1", "trn2.48xlarge", "us-east-2", "use2-az2", 1)
        ).nodes
        == 1
    )
