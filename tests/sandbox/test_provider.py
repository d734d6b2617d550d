"""The fake of ParallelCluster's provider, against the limits of crhelper, with which the original responds to CloudFormation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from sandbox.pcluster_validator import PCLUSTER_PYTHON, installed_version
from tests.support import need

_CRHELPER = """
import json, sys
from pathlib import Path
import pcluster
sys.path.insert(0, str(Path(pcluster.__file__).parent / "resources/custom_resources/custom_resources_code"))
from crhelper import CfnResource
import os
os.environ["AWS_SAM_LOCAL"] = "true"  # no clients of AWS
sent = []
for reason in json.loads(sys.argv[1]):
    helper = CfnResource()
    helper._event = {"StackId": "arn:aws:cloudformation:us-east-1:1:stack/Trn/uuid", "LogicalResourceId": "Cluster"}
    helper.Reason, helper.Status, helper.PhysicalResourceId, helper.LogicalResourceId = reason, "FAILED", "", "Cluster"
    helper._send(send_response=lambda _, body: sent.append(body))
print(json.dumps([[body["Reason"], body["PhysicalResourceId"]] for body in sent]))
"""
REASONS = ["", "short", "x" * 256, "x" * 257, "begin " + "y" * 4000 + " end"]


@pytest.fixture(scope="module")
def crhelper() -> list[tuple[str, str]]:
    """Reason and physical id that crhelper sends for a creation that failed for each of REASONS."""
    need(installed_version(), f"aws-parallelcluster is not installed ({PCLUSTER_PYTHON}): make setup")
    done = subprocess.run(
        [PCLUSTER_PYTHON, "-W", "ignore", "-c", _CRHELPER, json.dumps(REASONS)],
        capture_output=True, text=True, check=True, env={"AWS_DEFAULT_REGION": "us-east-1", "AWS_SAM_LOCAL": "true"},
    )  # fmt: skip
    return [(reason, physical_id) for reason, physical_id in json.loads(done.stdout.splitlines()[-1])]


def test_a_reason_is_cut_as_crhelper_cuts_it(crhelper: list[tuple[str, str]]) -> None:
    emulator = Path(".venvs/aws/bin/python")
    need(emulator.exists(), f"the emulator is not installed ({emulator}): make setup")
    code = (
        "import json, sys; from sandbox.emulator.pcluster_provider.handler import shortened;"
        "print(json.dumps([shortened(reason) for reason in json.loads(sys.argv[1])]))"
    )
    done = subprocess.run(
        [emulator, "-c", code, json.dumps(REASONS)], capture_output=True, text=True, check=True, env={"PYTHONPATH": "."}
    )
    assert json.loads(done.stdout) == [reason for reason, _ in crhelper]


def test_crhelper_generates_the_id_of_a_failed_creation(crhelper: list[tuple[str, str]]) -> None:
    """So the cluster's name is read from the template, where a creation has failed."""
    assert all(physical_id.startswith("Trn_Cluster_") for _, physical_id in crhelper)
