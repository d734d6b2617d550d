"""The audit has no open finding and no unused acknowledgement."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from audit import acknowledged, scanners, table
from audit.__main__ import scan
from audit.acknowledged import Sorted
from audit.findings import Finding, Subjects
from audit.scanners.process import THERE
from tests.audit.conftest import whole
from tests.stacks import synthesis
from tests.support import need

OTHERS = ("AwsSolutions", "NIST.800.53.R5", "cfn-guard")
RAW = {
    "TrnPclusterStack/default": (2, 21),
    "TrnEksStack/default": (5, 40),
    "TrnPclusterStack/fsx-persistent-s3": (2, 21),
    "TrnEksStack/fsx-persistent-s3": (5, 39),
    "TrnEksStack/eks/all-settings": (5, 49),
}
"""Subject -> findings of checkov, and of the other three together."""
DEFAULT = ("TrnPclusterStack/default", "TrnEksStack/default")


@pytest.fixture(scope="module")
def result(audited: Subjects) -> Sorted:
    need(THERE.exists(), f"the scanners are not installed ({THERE}): make audit")
    return acknowledged.sort(scan(list(scanners.ALL), audited), acknowledged.load())


@pytest.mark.parametrize("scanner", scanners.ALL)
@pytest.mark.timeout(1800)
def test_no_scanner_has_an_open_finding(scanner: str, result: Sorted) -> None:
    assert [f"{f.rule} {f.subject} {f.resource}: {f.message}" for f in result.open if f.scanner == scanner] == []


@pytest.mark.timeout(1800)
def test_raw_findings_do_not_grow(result: Sorted, audited: Subjects) -> None:
    """Acknowledged ones included."""
    by = Counter((f.subject, f.scanner) for f in (*result.open, *(f for f, _ in result.acknowledged)))
    raw = {s: (by[s, "checkov"], sum(by[s, scanner] for scanner in OTHERS)) for s in RAW if s in audited.templates}
    assert raw == {s: RAW[s] for s in raw}
    assert sum(RAW[stack][1] for stack in DEFAULT) <= 61
    for stack in DEFAULT:
        resources = json.loads(audited.templates[stack].read_text("utf-8"))["Resources"]
        assert raw[stack][0] <= 0.05 * len(resources)


@whole
def test_every_acknowledgement_is_needed(result: Sorted) -> None:
    assert result.stale == []


@whole
def test_every_finding_is_counted_once(result: Sorted, audited: Subjects) -> None:
    numbers = table.figures(list(scanners.ALL), audited, result)
    assert sum(scanner["open"] for scanner in numbers["scanners"].values()) == len(result.open)
    assert sum(scanner["acknowledged"] for scanner in numbers["scanners"].values()) == len(result.acknowledged) > 100
    assert numbers["reasons"] <= len(acknowledged.load())
    assert numbers["resources"] > 10 * numbers["templates"] == 10 * len(audited.templates)


@whole
def test_all_stacks_are_scanned_in_every_environment(audited: Subjects) -> None:
    slurm = {f"TrnPclusterStack/{name}" for name in synthesis.SLURM.names}
    eks = {f"TrnEksStack/{name}" for name in synthesis.EKS.names}
    pcs = {name for name in audited.templates if name.startswith("TrnPcsStack/")}
    assert set(audited.templates) - pcs == slurm | eks
    assert min(len(slurm), len(eks), len(pcs)) >= 12


def test_an_entry_matches_what_it_names_and_nothing_else() -> None:
    entry = acknowledged.Entry(
        reason="a reason that is long enough for the schema",
        resources=["Logs"],
        rules={"nag": ["IAM5[Resource::*]"]},
        subjects=["*/default"],
    )
    hit = Finding("nag", "IAM5[Resource::arn]", "A/default", "Logs0123ABCD", "")
    misses = [
        Finding("nag", "IAM4[Resource::arn]", "A/default", "Logs0123ABCD", ""),
        Finding("nag", "IAM5R", "A/default", "Logs0123ABCD", ""),  # brackets are literal
        Finding("other", "IAM5[Resource::arn]", "A/default", "Logs0123ABCD", ""),
        Finding("nag", "IAM5[Resource::arn]", "A/other", "Logs0123ABCD", ""),
        Finding("nag", "IAM5[Resource::arn]", "A/default", "MyLogs", ""),
    ]
    found = acknowledged.sort([hit, *misses], [entry])
    assert [f for f, _ in found.acknowledged] == [hit]
    assert sorted(found.open) == sorted(misses)
    assert found.stale == []


@pytest.mark.parametrize(
    ("entry", "stale"),
    [
        ({"resources": ["A", "B"], "rules": {"j": ["r"]}}, "B"),
        ({"resources": ["A"], "rules": {"j": ["r", "deleted"]}}, "j deleted"),
        ({"resources": ["A"], "rules": {"j": ["r"], "k": ["r"]}}, "k r"),
        ({"resources": ["A"], "rules": {"j": ["r"]}, "subjects": ["s", "t"]}, "t"),
    ],
)
def test_an_unused_pattern_is_reported(entry: dict[str, object], stale: str) -> None:
    made = acknowledged.Entry.model_validate({"reason": "a reason that is long enough for the schema", **entry})
    [line] = acknowledged.sort([Finding("j", "r", "s", "A", "")], [made]).stale
    assert line.startswith(f"{stale}  (a reason")


@pytest.mark.parametrize("pattern", ["*", "*Role*", "Network*", "*Logs"])
def test_an_entry_for_a_kind_of_resources_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="name the resources"):
        acknowledged.Entry.model_validate({"reason": "x" * 40, "resources": [pattern], "rules": {"j": ["r"]}})


def test_an_entry_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="reason"):
        acknowledged.Entry.model_validate({"reason": "", "resources": ["A"], "rules": {"j": ["r"]}})
