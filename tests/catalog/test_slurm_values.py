"""Values of slurm.conf: the check beside what real controllers did with 170 cases, written down before there was a check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainium_cdk.description.catalog.slurm import check_line
from trainium_cdk.description.checks.cluster_configuration import slurm_faults

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "slurm_answers.yaml").read_text("utf-8"))
A_FILE = ("jwt_key=", "job_submit/lua", "open /")
"""The controller stops only while a file is not there: a warning names it, as an image may have it."""
NOT_JUDGED = [{"NodeName": "own-1", "CPUs": 2, "State": "SLEEPING"}]
RENAMED = "warning: JobContainerType has been replaced"
"""A warning of the controller about a name that it still takes."""


def judged(case: dict[str, Any], release: str) -> str:
    """What the check says: refused, ignored or taken."""
    resource = {"Name": "trn", "InstanceType": "trn1.32xlarge", "MinCount": 0, "MaxCount": 2}
    queue = {"Name": "compute1", "ComputeResources": [resource], "CustomSlurmSettings": case.get("queue", {})}
    slurm = {
        "CustomSlurmSettings": case.get("lines", []),
        **({"Database": {"Uri": "x"}} if "accounting" in case else {}),
    }
    found = [*slurm_faults({"Scheduling": {"SlurmQueues": [queue], "SlurmSettings": slurm}}, release)]
    return "refused" if any(p.level == "error" for p in found) else "ignored" if found else "taken"


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.get("lines") or case.get("queue")))
def test_the_check_says_what_the_real_controller_does(case: dict[str, Any]) -> None:
    for release, answer in case["answers"].items():
        [(real, words)] = answer.items()
        ours = judged(case, release)
        if case.get("lines", [{}])[-1] in NOT_JUDGED:
            assert ours == "taken"
        elif real == "refused":
            assert ours == "refused" or (ours == "ignored" and (any(w in words for w in A_FILE) or "jwt" in words)), (
                words
            )
        elif real == "ignored":
            assert ours == "ignored" or words.startswith(RENAMED), words
        else:  # silently ignored, or read by slurmd and the commands only: a warning at most
            assert ours in ("taken", "ignored")


def test_where_two_releases_differ_the_deployed_one_counts() -> None:
    differ = [case for case in CASES if list(case["answers"]["24.11"]) != list(case["answers"]["26.05"])]
    assert {str(case.get("lines") or case["queue"]) for case in differ} >= {
        "{'QOS': 'gold'}",
        "[{'TopologyPlugin': 'topology/flat'}]",
    }
    for release, expected in (("24.11", False), ("25.05", True), ("25.11", True)):
        assert (check_line(release, {"PreemptMode": "PRIORITY"}) is None) is expected
    assert judged({"queue": {"QOS": "gold"}}, "25.11") == "refused"  # its source: read_config.c, `has an invalid qos`


@pytest.mark.parametrize(
    "case", [c for c in CASES if "refused" in c["answers"]["26.05"]], ids=lambda c: str(c.get("lines") or c["queue"])
)
def test_a_fault_names_the_release_and_what_to_write(case: dict[str, Any]) -> None:
    lines = [*case.get("lines", []), *([{"PartitionName": "q", **case["queue"]}] if "queue" in case else [])]
    for line in lines:
        wrong = check_line("25.11", line)
        if wrong:
            assert wrong.fix.startswith(("write ", "remove ", "add "))
            assert "Slurm" in wrong.reason or "whole number" in wrong.reason or "yes nor no" in wrong.reason


def test_a_word_that_a_fix_names_is_taken() -> None:
    followed = 0
    for line in (line for case in CASES for line in case.get("lines", [])):
        wrong = check_line("25.11", line)
        if wrong and (word := re.fullmatch(r"write (\S+), or remove it", wrong.fix)):
            assert check_line("25.11", {wrong.name: word[1]}) is None, wrong
            followed += 1
    assert followed > 20
