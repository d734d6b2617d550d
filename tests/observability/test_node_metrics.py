"""What a node measures (`bootstrap/lib/metrics.py`): the documented report of neuron-monitor, EFA's counters, and Slurm's words. On a real
Slurm: tests/jobs/test_capacity.py; on a node of each system: tests/bootstrap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.observability.node_script import metrics

REPORT: dict[str, Any] = json.loads(Path(__file__).with_name("report.json").read_text())


def test_a_report_of_neuron_monitor() -> None:
    assert metrics.neuron(REPORT) == {
        "NeuronCoreUtilization": [70.0, 25.0, 0.0],  # by device; a core that no process uses is idle
        "NeuronMemoryUsed": 25.0,
        "ExecutionErrors": 3,
        "UncorrectedMemoryErrors": 3,
        "HostMemoryUsed": 25.0,
    }


@pytest.mark.parametrize("lost", ["neuron_runtime_data", "system_data", "neuron_hardware_info"])
def test_what_is_missing_in_a_report_is_left_out(lost: str) -> None:
    for empty in ({}, None):
        found = metrics.neuron({**REPORT, lost: empty})
        assert ("HostMemoryUsed" in found) == (lost != "system_data")
        assert ("NeuronCoreUtilization" in found) == (lost != "neuron_hardware_info")
    assert metrics.neuron({}) == {}


def test_logical_cores_and_the_most_devices_fit_embedded_metrics() -> None:
    cores = {str(i): {"neuroncore_utilization": 100.0} for i in range(64)}
    report = {
        "neuron_hardware_info": {
            "neuron_device_count": 16,
            "neuroncore_per_device_count": 8,
            "logical_neuroncore_config": 2,
        },
        "neuron_runtime_data": [{"report": {"neuroncore_counters": {"neuroncores_in_use": cores}}}],
    }
    assert metrics.neuron(report)["NeuronCoreUtilization"] == [100.0] * 16


def test_efa_counts_all_devices(tmp_path: Path) -> None:
    assert metrics.efa(tmp_path) is None
    for device, received in (("rdmap0", 100), ("rdmap1", 20)):
        counters = tmp_path / device / "ports/1/hw_counters"
        counters.mkdir(parents=True)
        (counters / "rx_bytes").write_text(f"{received}\n")
        (counters / "rdma_read_bytes").write_text("3\n")
        (counters / "tx_bytes").write_text("7\n")
    assert metrics.efa(tmp_path) == (126, 14)


def test_the_fullest_disk_counts_and_a_lost_mount_does_not() -> None:
    assert 0 < metrics.disks(["/", "/gone"])["DiskUsed"] <= 100
    assert metrics.disks(["/gone"]) == {}


STATES = {
    "ALLOCATED": "Busy", "MIXED+CLOUD": "Busy", "COMPLETING+CLOUD": "Busy", "IDLE+CLOUD": "Idle", "IDLE+CLOUD+POWERED_DOWN": "",
    "IDLE+CLOUD+POWERING_DOWN": "", "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP": "Starting", "MIXED+CLOUD+POWERING_UP": "Starting",
    "DOWN+CLOUD+NOT_RESPONDING": "Failed", "DOWN+CLOUD+POWERED_DOWN": "Failed", "IDLE+CLOUD+DRAIN": "Failed", "ALLOCATED+CLOUD+DRAIN": "Failed",
    "idle~": "Idle", "IDLE*": "Idle",
}  # fmt: skip


@pytest.mark.parametrize("word", STATES)
def test_states_of_nodes(word: str) -> None:
    assert metrics.state(word) == STATES[word]


def test_the_queue() -> None:
    nodes = "a-1 a* MIXED\na-1 a* MIXED\na-2 a* IDLE\nb-1 b IDLE+CLOUD+POWERED_DOWN\nb-2 b DOWN\n\n"
    jobs = "\n".join(
        [
            "RUNNING|None|2026-11-24T06:00:00",
            "PENDING|Resources|2026-11-24T06:30:00",
            "PENDING|Priority|2026-11-24T06:50:00",
            "PENDING|Dependency|2026-11-20T06:00:00",
            "PENDING|JobHeldUser|2026-11-20T06:00:00",
            "PENDING |None |N/A ",
        ]
    )
    now = metrics.datetime(2026, 11, 24, 7, tzinfo=metrics.timezone.utc).timestamp()
    whole, queues = metrics.queue(nodes, jobs, now)
    assert whole == {
        "JobsRunning": 1, "JobsWaiting": 2, "LongestWait": 1800, "NodesBusy": 1, "NodesIdle": 1, "NodesStarting": 0, "NodesFailed": 1,
    }  # fmt: skip
    assert queues["b"] == {"NodesBusy": 0, "NodesIdle": 0, "NodesStarting": 0, "NodesFailed": 1}
    assert metrics.queue("", "", now)[1] == {}


def test_a_large_log_is_renamed_for_the_agent_to_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LARGEST", 10)
    log = tmp_path / "trn-metrics.log"
    for text in ("0123456789ab", "c"):
        metrics.write(log, text)
    assert (log.read_text(), log.with_suffix(".log.1").read_text()) == ("c\n", "0123456789ab\n")
