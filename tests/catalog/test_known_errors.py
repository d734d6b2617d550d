"""The table of known errors: each sample line is recognised as its own error, and ordinary lines as none."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT
from trainium_cdk.client.jobs.status import error_patterns
from trainium_cdk.description.catalog.known_errors import KnownError, explain, job_errors, known_errors
from trainium_cdk.description.catalog.lookup import read
from trainium_cdk.runner.readers.collecting import Collector
from trainium_cdk.runner.readers.ending import explained, known_error, why_it_ended
from trainium_cdk.runner.slurm_nodes import looks_broken

ALL = (*known_errors(), *(one for one in job_errors() if one not in known_errors()))
SAMPLES = [(error.name, sample) for error in ALL for sample in error.samples]
LINES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("failure_lines.yaml").read_text("utf-8"))
FAILING = [(name, line) for name, lines in LINES["failing"].items() for line in lines]


def why(log: str, code: int, nodes: int) -> str:
    """Why a program ended that printed this."""
    collector = Collector()
    collector.feed(log.encode())
    return why_it_ended(collector.close(), code, nodes, error_patterns())


def first(errors: Sequence[KnownError], line: str) -> str:
    return next((error.name for error in errors if error.is_in(line)), "")


@pytest.mark.parametrize(("name", "sample"), SAMPLES, ids=[f"{n}: {s[:40]}" for n, s in SAMPLES])
def test_a_sample_is_recognised(name: str, sample: str) -> None:
    assert first(job_errors(), sample) == name or name == "not-authorized"
    if name in {error.name for error in known_errors()}:
        assert first(known_errors(), sample) == name


OTHERS = [(error, other) for error in ALL for other in error.others]


@pytest.mark.parametrize(("error", "other"), OTHERS, ids=[f"{e.name}: {s[:40]}" for e, s in OTHERS])
def test_a_line_that_only_looks_like_it_is_not(error: KnownError, other: str) -> None:
    assert not error.is_in(other)


@pytest.mark.parametrize(("name", "line"), FAILING, ids=[f"{n}: {s[:40]}" for n, s in FAILING])
def test_what_a_failing_program_prints_is_explained_by_its_own_entry(name: str, line: str) -> None:
    """In a job of two nodes. None: the line itself is the sentence."""
    assert [error.name for error, _ in explained(error_patterns(), [line], 2)] == [name] * bool(name)


@pytest.mark.parametrize(("name", "line"), FAILING, ids=[f"{n}: {s[:40]}" for n, s in FAILING])
def test_a_failing_line_is_kept_among_many_others(name: str, line: str) -> None:
    """It lies before many lines that look like errors, and the program only says that it failed."""
    many = "".join(f"step {i} | loss 2.1\nWARNING retry {i} of shard {i}: request timed out\n" for i in range(300))
    log = f"{line}\n{many}exit\n"
    found = why(log, 1, 2)
    error = next((one for one in job_errors() if one.name == name), None)
    assert error is None or error.at_end or error.cause[1:] in found, found


@pytest.mark.parametrize("line", LINES["consequences"])
def test_a_consequence_explains_nothing(line: str) -> None:
    assert explained(error_patterns(), [line], 2) == []
    assert why(line, 1, 2) == ""


ENDS = [
    ('Traceback (most recent call last):\n  File "t.py", line 1\nRuntimeError: nrt_execute status=1202\n', 1),
    ("Traceback (most recent call last):\n  File \"t.py\", line 1\nKeyError: 'tokens'\n", 1),
    ("[F137] neuronx-cc was forcibly killed\n", 1),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.\n",
        137,
    ),
    ("begin\n", 137),
    ("begin\n", 139),
]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("line", LINES["harmless"])
def test_a_harmless_line_changes_no_cause(line: str, nodes: int) -> None:
    for log, code in ENDS:
        assert why(f"{line}\n{log}", code, nodes) == why(log, code, nodes)


STATUSES = read("job_errors")["nrt_status"]


@pytest.mark.parametrize("status", STATUSES)
def test_each_status_of_the_runtime_has_one_entry_that_says_whether_to_try_again(status: str) -> None:
    """By its name, its number, and the words in which TorchNeuron prints it."""
    lines = (
        f"Failure: {status} in nrt_execute()",
        f"RuntimeError: nrt_execute status={STATUSES[status]['number']}",
        f'error message="NRT EXECUTION FAILED: Async execution error: seq_id=7, {STATUSES[status]["words"]}"',
    )
    [name] = {first(job_errors(), line) for line in lines}
    [error] = [one for one in job_errors() if one.name == name]
    assert status in error.nrt
    assert re.search("submit it again|it fails again|resumes from its last checkpoint", error.fix)
    assert looks_broken(lines[2]) == (name == "device-broken")


HEALTHY = [
    run["log"]
    for name in ("printed", "trl")
    for run in yaml.safe_load((ROOT / f"tests/jobs/{name}.yaml").read_text("utf-8"))
    if "why" not in run
]


@pytest.mark.parametrize("log", HEALTHY, ids=[log.strip()[:40] for log in HEALTHY])
def test_a_healthy_log_has_no_known_error(log: str) -> None:
    """Recorded and public logs of trainings that did not fail: not even where nothing else explains an end."""
    collector = Collector()
    collector.feed(log.replace("⏎", "\r").encode())
    assert known_error(collector.close(), 2, error_patterns()) == ""


@pytest.mark.parametrize("line", LINES["survived"])
def test_what_a_program_goes_on_without_is_no_cause(line: str) -> None:
    """Not even where nothing else explains the end."""
    assert why(f"{line}\nstep 12 loss 2.2\n", 1, 2) == why("step 12 loss 2.2\n", 1, 2)


def test_a_status_of_the_runtime_counts_by_its_own_number_alone() -> None:
    for line, name in (
        ("nrt_execute status=1202", "device-broken"),
        ("nrt_execute status=12020", ""),
        ("nrt_execute status=4.5", ""),
        ("nrt_execute status=0, retries 4", ""),
        ("http status=4", ""),
        ("Failed to load NEFF. Status: 41", ""),
        ("Failed to upload. Status: 4", ""),
        ("MY_NRT_TIMEOUT=5", ""),
    ):
        assert first(job_errors(), line) == name, line


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
    names = [error.name for error in ALL]
    assert len(set(names)) == len(names)
    for error in ALL:
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
    samples = {error.name: error.samples[0] for error in ALL}
    for name, lines, nodes, found in (
        ("efa-missing", [samples["efa-missing"]], 1, False),
        ("efa-missing", [samples["efa-missing"]], 2, True),
        ("compile-lock", [samples["compile-lock"]], 1, True),
        ("compile-lock", [samples["compile-lock"], "Compiler status PASS"], 1, False),
    ):
        assert [error.name for error, _ in explained(error_patterns(), lines, nodes)] == [name] * found, (name, nodes)


def test_a_hostile_line_takes_no_time() -> None:
    began = time.process_time()
    words = (
        "device mempool ",
        "neuronx-cc ",
        "nrt status ",
        "loss nan ",
        "RuntimeError: ",
        "No such file or directory: '",
        "NMGR: err ",
    )
    for line in ("do not have sufficient " + "a" * 300_000, *(word * 50_000 for word in words)):
        explain(line)
        explained(error_patterns(), [line], 2)
    assert time.process_time() - began < 2
