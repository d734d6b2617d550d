"""The documentation shows what was measured, and nothing else."""

from __future__ import annotations

import base64
import json
import re
from xml.etree import ElementTree

import pytest

from tests.trust import report
from tests.trust.report import FIGURES, ROOT, TABLES, Failed


@pytest.mark.parametrize("document", TABLES)
def test_a_document_shows_the_figures(document: str) -> None:
    """After `make trust`, or `python -m tests.trust.report --render` where only the wording of the table has changed."""
    found = json.loads(FIGURES.read_text("utf-8"))
    assert report.block((ROOT / document).read_text("utf-8")) == TABLES[document](found)


def test_the_published_figures_are_good() -> None:
    """A run with an open finding, a loss or a leftover is not published."""
    measured = json.loads(FIGURES.read_text("utf-8"))["measured"]
    assert {counts["open"] for counts in measured["audit"]["scanners"].values()} == {0}
    for phases in measured["faults"]["stacks"].values():
        assert phases.keys() == report.PHASES.keys()
        assert all((n["survived"], n["left"]) == (n["tried"], 0) for n in phases.values())
    bad = {"lost", "duplicated", "changed", "left", "half_done", "acted_on_others", "silent", "train_ran"}
    assert {(name, key): n[key] for name, n in measured.items() for key in bad & n.keys() if n[key]} == {}
    left = {**measured["left-slurm"], **measured["left-kubernetes"]}
    assert left == dict.fromkeys(("jobs", "half_submissions", "pods", "files"), 0)


def test_every_test_that_the_table_counts_exists() -> None:
    named = re.findall(r"(tests/[\w/]+\.py)::(\w*)", (ROOT / "tests/trust/report.md").read_text("utf-8"))
    assert len(named) > 25
    assert [(file, test) for file, test in named if f"def {test}" not in (ROOT / file).read_text("utf-8")] == []


def xml(*cases: str, statistics: str = "") -> ElementTree.Element:
    encoded = base64.b64encode(statistics.encode()).decode()
    properties = f'<property name="hypothesis-statistics-tests/a/test_b.py::test_c" value="{encoded}"/>'
    made = "".join(f'<testcase classname="tests.a.test_b" name="{name}">{inside}</testcase>' for name, _, inside in (c.partition("|") for c in cases))  # fmt: skip
    return ElementTree.fromstring(f"<testsuites><testsuite><properties>{properties if statistics else ''}</properties>{made}</testsuite></testsuites>")  # fmt: skip  # noqa: S314


def test_cases_and_examples_are_counted() -> None:
    text = "x:\n\n  - during reuse phase (0.01 seconds):\n    - 2 passing, 0 failing, and 0 invalid test cases\n\n  - during generate phase (0.2 seconds):\n    - 98 passing, 0 failing, and 11 invalid test cases\n"
    found = report.passed(xml("test_c[a]", "test_c[b]", "test_d", statistics=text))
    assert found == {"tests/a/test_b.py::test_c": {"cases": 2, "drawn": 100}, "tests/a/test_b.py::test_d": {"cases": 1}}


@pytest.mark.parametrize("outcome", ["failure", "error", "skipped"])
def test_a_run_that_did_not_pass_is_not_reported(outcome: str) -> None:
    with pytest.raises(Failed, match=rf"tests/a/test_b.py::test_c: {outcome}"):
        report.passed(xml("test_d", f"test_c[a]|<{outcome}/>"))
