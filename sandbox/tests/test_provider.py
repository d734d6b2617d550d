"""The fake of ParallelCluster's provider, against the limits of crhelper, with which the original responds to CloudFormation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.pcluster_validator import PCLUSTER_PYTHON
from sandbox.testing import completed, need, need_pcluster

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
    need_pcluster()
    done = completed(
        [PCLUSTER_PYTHON, "-W", "ignore", "-c", _CRHELPER, json.dumps(REASONS)],
        check=True,
        env={"AWS_DEFAULT_REGION": "us-east-1", "AWS_SAM_LOCAL": "true"},
    )
    return [(reason, physical_id) for reason, physical_id in json.loads(done.stdout.splitlines()[-1])]


def test_a_reason_is_cut_as_crhelper_cuts_it(crhelper: list[tuple[str, str]]) -> None:
    emulator = Path(".venvs/aws/bin/python")
    need(emulator.exists(), f"the emulator is not installed ({emulator}): make setup")
    code = (
        "import json, sys; from sandbox.emulator.pcluster_provider.handler import shortened;"
        "print(json.dumps([shortened(reason) for reason in json.loads(sys.argv[1])]))"
    )
    done = completed([emulator, "-c", code, json.dumps(REASONS)], check=True, env={"PYTHONPATH": "."})
    assert json.loads(done.stdout) == [reason for reason, _ in crhelper]


def test_crhelper_generates_the_id_of_a_failed_creation(crhelper: list[tuple[str, str]]) -> None:
    """So the cluster's name is read from the template, where a creation has failed."""
    assert all(physical_id.startswith("Trn_Cluster_") for _, physical_id in crhelper)


def test_a_cluster_whose_update_was_rolled_back_counts_as_failed() -> None:
    """As in the fake's `updateFailed`: ParallelCluster's own mapping."""
    need_pcluster()
    ask = (
        "from pcluster.api.converters import cloud_formation_status_to_cluster_status as c;"
        "print(c('UPDATE_ROLLBACK_COMPLETE'), c('UPDATE_COMPLETE'))"
    )
    done = completed([PCLUSTER_PYTHON, "-W", "ignore", "-c", ask], check=True)
    assert done.stdout.split() == ["UPDATE_FAILED", "UPDATE_COMPLETE"]


_IN_THE_EMULATOR = """
import json
from ministack.services.cloudformation import custom_resource
import sandbox.emulator.cfn.failed_rollbacks
from sandbox.emulator.pcluster_provider.handler import flatten

taken = []
for size in (3900, 4100):
    custom_resource.register_token("t")
    custom_resource.deliver_response("t", {"Status": "SUCCESS", "Data": {"a": "x" * size}})
    taken.append(custom_resource._pending["t"]["result"])
flatten({"headNode": {"publicIpAddress": "203.0.113.7"}})
print(json.dumps([taken, flatten({"headNode": {"state": "running"}, "pools": [{"n": 1}]})]))
"""


def test_limits_of_responses() -> None:
    emulator = Path(".venvs/aws/bin/python")
    need(emulator.exists(), f"the emulator is not installed ({emulator}): make setup")
    done = completed([emulator, "-c", _IN_THE_EMULATOR], check=True, env={"PYTHONPATH": "."})
    (short, long), flat = json.loads(done.stdout.splitlines()[-1])
    assert short["Status"] == "SUCCESS"
    assert (long["Status"], long["Reason"], long["Data"]) == ("FAILED", "Response object is too long.", {})
    # the names of the response before, as in a function that has served a request already
    assert flat == {"headNode.publicIpAddress": "203.0.113.7", "headNode.state": "running", "pools.0.n": 1}
