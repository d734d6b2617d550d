"""A node sends metrics: the CloudWatch agent and the service that it reads from. It works without them too."""

from __future__ import annotations

import hashlib
import json

import jsonschema
import pytest

from conformance import surfaces
from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import AGENT, AGENT_VERSION, Vendor
from tests.support import swept

AGENT_SCHEMA = surfaces.load()["cloudwatch-agent"].recorded["files"]
GROUP = {"TRN_METRICS_GROUP": "/trainium/trn-slurm/metrics", "TRN_MOUNTS": "", "TRN_AGENT_VERSION": AGENT_VERSION}


@pytest.mark.parametrize("system", swept(["ubuntu-22.04", "ubuntu-24.04"], "ubuntu-24.04"))
def test_a_head_node_sends_the_metrics_of_the_queue(new_node: NewNode, vendor: Vendor, system: str) -> None:
    package = vendor.folder / f"agent/ubuntu/amd64/{AGENT_VERSION}/amazon-cloudwatch-agent.deb"
    head = new_node(system, **GROUP, TRN_AGENT_SHA=hashlib.sha256(package.read_bytes()).hexdigest())
    head.become("HeadNode")
    done = head.configure()
    assert done.code == 0, done.err
    appended = json.loads(head.read(f"{AGENT}/etc/appended.json"))
    [entry] = appended["logs"]["logs_collected"]["files"]["collect_list"]
    jsonschema.validate(entry, AGENT_SCHEMA)  # the agent's own
    assert (entry["log_group_name"], entry["log_stream_name"]) == (GROUP["TRN_METRICS_GROUP"], "{instance_id}")
    assert head.read("/var/log/systemctl").splitlines()[-1] == "restart trn-metrics.service"
    [start] = [
        row for row in head.read("/etc/systemd/system/trn-metrics.service").splitlines() if row.startswith("ExecStart")
    ]
    program = start.removeprefix("ExecStart=").split()
    assert program[2:] == ["trn-slurm", entry["file_path"], "--queue"]
    once = head.run(*program, "--once")  # with the system's own Python; without Slurm's commands
    assert once.code == 0, once.err
    assert "sinfo" in once.err
    [line] = map(json.loads, head.read(entry["file_path"]).splitlines())
    assert 0 < line["DiskUsed"] <= 100


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"TRN_AGENT_KEY_FINGERPRINT": "0" * 40}, "has fingerprint"),
        ({"TRN_AGENT_SHA": "0" * 64}, f"expected {'0' * 64}"),
    ],
)
@pytest.mark.sweep
def test_without_an_agent_a_node_works_and_says_so(new_node: NewNode, wrong: dict[str, str], reason: str) -> None:
    node = new_node(**GROUP | wrong)
    node.become("HeadNode")
    done = node.configure()
    assert (done.code, node.status()["result"]) == (0, "ok"), done.err
    told = node.read("/var/log/trn-bootstrap.log")
    assert reason in told
    assert "no metrics will be sent" in told
    assert not node.path(AGENT).exists()


def test_the_agents_schema_refuses_what_it_does_not_know() -> None:
    for wrong in (
        {"log_group_name": "g"},
        {"file_path": "/x", "log_group": "g"},
        {"file_path": "/x", "timezone": "CET"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, AGENT_SCHEMA)
