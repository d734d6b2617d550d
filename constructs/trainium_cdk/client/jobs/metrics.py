"""The numbers of a job: the reader of logs (`readers.log`) with what every kind of job prints; and the use of its nodes, as neuron-monitor reports it, with
the program that asks one node."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.runner.readers import Record
from trainium_cdk.runner.readers.course import Course
from trainium_cdk.runner.readers.log import JobLog, Lines, label

_CONFIG = {
    "period": "1s",
    "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": "neuroncore_counters"}, {"type": "memory_used"}]}],
    "system_metrics": [{"type": "memory_info"}],
}


@cache
def lines() -> Lines:
    """Reads the lines of all kinds of jobs."""
    return Lines(reader for kind in kinds().values() for reader in kind.LOGS)


def job_log() -> JobLog:
    """A reader of one job's log."""
    return JobLog(lines())


def parse_line(line: bytes | str) -> list[Record]:
    """All records in a line alone, in their order."""
    data = line if isinstance(line, bytes) else line.encode()
    return lines().parse(data, Course(), label(data))


def read_log(text: bytes, stage: str = "train") -> list[Record]:
    """All records of a stage's log."""
    log = job_log()
    return [record for _, record in [*log.feed(stage, text), *log.close()]]


@dataclass(frozen=True)
class Use:
    """The use of one node; None where it was not reported.

    Attributes:
        cores: NeuronCores in use; `used`: their mean utilization in percent, `least`: the idlest one's.
        device_bytes: device memory of all processes. host_bytes, host_total: memory of the machine.
    """

    node: int
    cores: int
    used: float | None
    least: float | None
    device_bytes: int | None
    host_bytes: int | None
    host_total: int | None


def ask_use() -> tuple[str, ...]:
    """The program that prints one report of a node, of a second."""
    from trainium_cdk.client.jobs import sent  # not for each log

    return ("python3", "-I", "-c", sent.read("neuron_use.py").decode(), json.dumps(_CONFIG))


def use_of(node: int, text: str) -> Use | None:
    """The use in a report (neuron-monitor's user guide, "The JSON output format"), which other lines may surround; None without one."""
    try:
        report: Any = json.loads(next((line for line in text.splitlines() if line.startswith("{")), ""))
        runtimes = [one["report"] for one in report["neuron_runtime_data"]]
        used = [
            float(core["neuroncore_utilization"])
            for one in runtimes
            for core in one.get("neuroncore_counters", {}).get("neuroncores_in_use", {}).values()
        ]
        memory = [
            one["memory_used"]["neuron_runtime_used_bytes"]["neuron_device"] for one in runtimes if "memory_used" in one
        ]
        host = report.get("system_data", {}).get("memory_info", {})
        return Use(
            node,
            len(used),
            sum(used) / len(used) if used else None,
            min(used, default=None),
            sum(memory) if memory else None,
            host.get("memory_used_bytes"),
            host.get("memory_total_bytes"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
