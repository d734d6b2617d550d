"""`trn plan`: a job on several numbers of nodes, from published figures alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.catalog import Catalog
from trainium_cdk.cli import app as cli
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs import BertLarge, Finetune, Gpt, Script, TorchTitan
from trainium_cdk.jobs.forecast import forecast
from trainium_cdk.jobs.models import Job

CATALOG = Catalog.load()
TUTORIAL = ("--environment", "tests/environments/tutorial.yaml")


def test_counts_that_fit_and_those_that_do_not() -> None:
    found = forecast(BertLarge(optimizer="adamw"), [1, 2, 3, 17], make_cluster(), CATALOG)
    assert [f.global_batch_size for f in found] == [16384, 16384, None, None]
    assert [f.cores for f in found] == [32, 64, 0, 0]
    assert "32 does not divide by 3" in found[2].refused
    assert "has at most 16 of trn1.32xlarge" in found[3].refused
    assert found[1].hour_usd == 2 * 21.50


def test_hours_and_cost_follow_from_a_published_throughput_alone() -> None:
    one, two = forecast(BertLarge(optimizer="adamw"), [1, 2], make_cluster(), CATALOG)
    point = next(p for p in CATALOG.throughput if (p.optimizer, p.nodes) == ("adamw", 1))
    hours = 28_125 * 16_384 / point.sequences_per_second / 3600
    assert one.hours == pytest.approx(hours)
    assert one.usd == pytest.approx(hours * 21.50)
    assert (two.expected, two.hours, two.usd) == (None, None, None)


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        (BertLarge(), 7032),
        (BertLarge(run_steps=50), 50),
        (BertLarge(optimizer="adamw", steps=30_000), 30_000),
        (Gpt(data="/efs/data"), 20_000),
        (TorchTitan(preset="qwen3-8b", ref="a" * 40), 10_000),
        (Finetune(model="Qwen/Qwen3-8B"), None),
        (Script(filename="a.sh", content=b"true"), None),
    ],
)
def test_the_steps_of_each_kind(job: Job, steps: int | None) -> None:
    assert job.total_steps == steps


def test_a_capacity_block_is_paid_for() -> None:
    [found] = forecast(BertLarge(), [1], make_cluster(fleet(capacity_type="capacity-block")), CATALOG)
    assert found.hour_usd is None


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    cli.app(["plan", "bert-large", "--optimizer", "adamw", "--nodes", "1,3,16", *TUTORIAL], standalone_mode=False)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].startswith("1 x trn1.32xlarge\t32\t16384 = 16 sequences x 32 accumulation steps")
    assert shown.out.splitlines()[1].endswith("\t3,827 (published)\t21.50\t33.45\t719.18")
    assert shown.out.splitlines()[2] == "3\t\trefused\t\t\t\t"
    assert shown.out.splitlines()[3].endswith("\tnot published\t344.00\tunknown\tunknown")
    assert "3 nodes refused: nodes is 3: strong scaling" in shown.err
    assert "list prices, nodes only: trn1.32xlarge 21.50 USD an hour; `trn cost` has the rest" in shown.err
    cli.app(["plan", "bert-large", "--nodes", "1", "--json", *TUTORIAL], standalone_mode=False)
    [plan] = json.loads(capsys.readouterr().out)["plans"]
    assert (plan["nodes"], plan["steps"], plan["hours"], plan["hour_usd"]) == (1, 7032, None, 21.5)


def test_on_kubernetes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "eks.yaml"
    file.write_text("eks: {}\n")
    cli.app(
        [
            "plan",
            "bert-large",
            "--nodes",
            "1,2",
            "--stack",
            "TrnEksStack",
            "--image",
            "r/i:1",
            "--environment",
            str(file),
        ],
        standalone_mode=False,
    )
    assert "2 x trn1.32xlarge\t64" in capsys.readouterr().out


def test_on_pcs(capsys: pytest.CaptureFixture[str]) -> None:
    cli.app(["plan", "bert-large", "--nodes", "2", "--stack", "TrnPcsStack", *TUTORIAL], standalone_mode=False)
    assert "2 x trn1.32xlarge\t64" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stack", "environment", "expected"),
    [
        ("TrnPclusterStack", "", ["prepare: 1 x c5.2xlarge of queue cpu, which may have to start from zero", "precompile: 2 x trn1.32xlarge of queue compute1, which may have to start from zero"]),
        ("TrnPclusterStack", "pcluster: {cpu_queue: {min_nodes: 1}, queues: [{compute_resources: [{min_nodes: 2}]}]}", ["prepare: 1 x c5.2xlarge of queue cpu, which run always", "precompile: 2 x trn1.32xlarge of queue compute1, which run always"]),
        ("TrnPclusterStack", "pcluster: {cpu_queue: null}", ["prepare: 1 x trn1.32xlarge of queue compute1, which may", "precompile: 2 x trn1"]),
        ("TrnPcsStack", "pcs: {cpu_queue: {name: small, instance_type: m5.xlarge}}", ["prepare: 1 x m5.xlarge of queue small, which may", "precompile: 2 x trn1"]),
        ("TrnEksStack", "eks: {system: {instance_type: m5.xlarge}}", ["prepare: a pod on the system nodes (m5.xlarge), which run always", "precompile: 2 x trn1.32xlarge of queue trn, which may"]),
    ],
)  # fmt: skip
def test_where_the_stages_before_the_training_run(
    stack: str, environment: str, expected: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "environment.yaml"
    file.write_text(environment)
    image = ("--image", "r/i:1") if stack == "TrnEksStack" else ()
    words = ["plan", "bert-large", "--nodes", "2", "--precompile", "--stack", stack, *image, "--environment", str(file)]
    cli.app(words, standalone_mode=False)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pre")]
    assert [line.startswith(start) for line, start in zip(lines, expected, strict=True)] == [True, True], lines
    cli.app([*words, "--json"], standalone_mode=False)
    [plan] = json.loads(capsys.readouterr().out)["plans"]
    told = [(p["stage"], p["from_zero"]) for p in plan["places"]]
    assert told == [(line.partition(":")[0], "zero" in line) for line in lines]


def test_of_a_deployed_stack_it_is_not_known_whether_nodes_run() -> None:
    [found] = forecast(BertLarge(), [1], make_cluster(), CATALOG)
    assert str(found.places[0]) == "prepare: 1 x c5.2xlarge of queue cpu, which may have to start"


@pytest.mark.parametrize("nodes", ["", "0", "a", "1,,x", "-1", "1.5", "99999"])
def test_numbers_that_are_none(nodes: str) -> None:
    with pytest.raises(TrnError, match="Write numbers of nodes, from 1 on, for example --nodes 1,2,4,8"):
        cli.app(["plan", "bert-large", f"--nodes={nodes}", *TUTORIAL], standalone_mode=False)
