"""The table of known errors: each sample line is recognised as its own error, and ordinary lines as none."""

from __future__ import annotations

import time

import pytest

from trainium_cdk.catalog.known_errors import explain, known_errors
from trainium_cdk.jobs.ending import error_patterns
from trainium_cdk.runner.readers.ending import explained

SAMPLES = [(error.name, sample) for error in known_errors() for sample in error.samples]


@pytest.mark.parametrize(("name", "sample"), SAMPLES, ids=[f"{n}: {s[:40]}" for n, s in SAMPLES])
def test_a_sample_is_recognised(name: str, sample: str) -> None:
    found = explain(sample)
    assert found is not None
    assert found.name == name


OTHERS = [(error.name, other) for error in known_errors() for other in error.others]


@pytest.mark.parametrize(("name", "other"), OTHERS, ids=[f"{n}: {s[:40]}" for n, s in OTHERS])
def test_a_line_that_only_looks_like_it_is_not(name: str, other: str) -> None:
    found = explain(other)
    assert found is None or found.name != name


@pytest.mark.parametrize(
    "line",
    [
        "step 120 loss 2.31 throughput 740 seq/s",
        "2026-11-24 07:00:00.000123: 77 [INFO]: Compilation Successfully Completed for model.MODULE_9.hlo_module.pb",
        "trn-bootstrap[head] step check-mounts: done (0 s)",
        "trn: train: Slurm job 7 on compute1-dy-trn-[1-2], 2026-11-24T07:00:00Z",
        "User Initiated",
        "",
    ],
)
def test_ordinary_lines_are_none(line: str) -> None:
    assert explain(line) is None


def test_names_are_unique_and_texts_are_sentences() -> None:
    names = [error.name for error in known_errors()]
    assert len(set(names)) == len(names)
    for error in known_errors():
        assert not error.cause.endswith(".")
        assert not error.fix.endswith(".")
        first, rest = error.fix[:1], error.fix[1:]
        assert str(error) == f"{error.cause}. {first.upper()}{rest}"


def test_the_first_line_of_each_error_is_kept() -> None:
    text = ["begin", "srun: error: Node failure on n1", "srun: error: Node failure on n2", "E Too many open files"]
    assert [(error.name, line) for error, line in explained(error_patterns(), text, 1)] == [
        ("node-failed", "srun: error: Node failure on n1"),
        ("open-files", "E Too many open files"),
    ]


def test_an_error_with_a_condition_is_one_only_there() -> None:
    samples = {error.name: error.samples[0] for error in known_errors()}
    for name, lines, nodes, found in (
        ("efa-missing", [samples["efa-missing"]], 1, False),
        ("efa-missing", [samples["efa-missing"]], 2, True),
        ("compile-lock", [samples["compile-lock"]], 1, True),
        ("compile-lock", [samples["compile-lock"], "Compiler status PASS"], 1, False),
    ):
        assert [error.name for error, _ in explained(error_patterns(), lines, nodes)] == [name] * found, (name, nodes)


def test_a_hostile_line_takes_no_time() -> None:
    began = time.process_time()
    for line in ("do not have sufficient " + "a" * 300_000, "device mempool " * 50_000, "neuronx-cc " * 50_000):
        explain(line)
    assert time.process_time() - began < 2
