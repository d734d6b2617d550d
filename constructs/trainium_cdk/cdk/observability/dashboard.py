"""The widgets of the dashboard, row by row, as CloudWatch reads them: pure functions of what a cluster consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import Aws
from aws_cdk import aws_cloudwatch as cw

from trainium_cdk.cdk.observability.metrics import MINUTE, Metric, Metrics
from trainium_cdk.description.settings.inventory.base import MetricsSource

_LIVE = (
    "Jobs and nodes are counted each minute. A gap: nothing was counted, see the function or the service that counts."
)


Widget = dict[str, Any]
"""As in a dashboard's body (CloudWatch user guide, "Dashboard body structure and syntax")."""


class Rows(cw.ConcreteWidget):
    """Widgets in rows, as one widget of the CDK: one for each would be a request for each, and for each metric.

    Args:
        top: the height of what is above.
    """

    def __init__(self, rows: Sequence[Sequence[Widget]], *, top: int = 0) -> None:
        self._widgets: list[Widget] = []
        bottom = top
        for row in rows:
            x = 0
            for each in row:
                self._widgets.append({**each, "x": x, "y": bottom})
                x += each["width"]
            bottom += max(each["height"] for each in row)
        super().__init__(24, bottom - top)

    def to_json(self) -> list[Any]:
        return self._widgets


def rows(
    metrics: Metrics,
    *,
    source: MetricsSource | None,
    queues: Mapping[str, float | None],
    file_systems: Sequence[tuple[str, str]],
) -> list[Sequence[Widget]]:
    """Nodes and jobs, then devices, then file systems.

    Args:
        source: where metrics of devices come from.
        queues: the price of a node of each, USD an hour; None where none is known.
        file_systems: kind (`fsx`, `efs`) and id of each.
    """
    return [_nodes(metrics, queues), *_devices(metrics, source), *_storage(file_systems)]


def _nodes(metrics: Metrics, queues: Mapping[str, float | None]) -> list[Widget]:
    states = [metrics.sent(f"Nodes{state}", label=state.lower()) for state in ("Busy", "Starting", "Idle", "Failed")]
    known = {name: price for name, price in queues.items() if price}
    idle = {f"q{i}": metrics.sent("NodesIdle", label=name, Queue=name) for i, name in enumerate(known)}
    terms = [f"{metric}*{price}" for metric, price in zip(idle, known.values(), strict=True)]
    paid = _text("No queue of this cluster is paid by the hour at a known price.")
    if terms:
        money = [{"label": "USD an hour", "expression": " + ".join(terms), "period": MINUTE}]
        lines = [money, *(each.line(id=id, visible=False) for id, each in idle.items())]
        paid = _graph("Money of idle nodes", [], lines, unit="USD an hour, at most")
    lacking = [name for name in queues if name not in known]
    jobs = [metrics.sent("JobsRunning", label="running"), metrics.sent("JobsWaiting", label="waiting for nodes")]
    wait = metrics.sent("LongestWait", label="longest wait")
    note = f" No hourly price is known of: {', '.join(lacking)}." if lacking and known else ""
    return [
        _graph("Nodes", states, stacked=True),
        _graph("Jobs", jobs, right=[wait], right_unit="seconds"),
        paid,
        _text(f"## {metrics.cluster}\n{_LIVE}{note}"),
    ]


def _devices(metrics: Metrics, source: MetricsSource | None) -> Iterator[Sequence[Widget]]:
    if source == "nodes":
        sent = metrics.sent
        memory = [sent("NeuronMemoryUsed", label="Neuron"), sent("HostMemoryUsed", label="host")]
        efa = [sent("EfaReceived", "Sum", label="received"), sent("EfaSent", "Sum", label="sent")]
        failed = [sent("ExecutionErrors", "Sum"), sent("UncorrectedMemoryErrors", "Sum")]
        yield [
            _graph("NeuronCores", [*metrics.spread("NeuronCoreUtilization")], unit="percent"),
            _graph("Memory", memory, unit="percent"),
            _graph("EFA", efa, unit="bytes a second"),
            _graph("Errors", failed, right=[sent("DiskUsed", label="fullest disk, percent")]),
        ]
    elif source:
        insight = metrics.insight
        cores = [insight("node_neuroncore_utilization", s) for s in ("Average", "Maximum")]
        memory, host = [insight("node_neurondevice_runtime_memory_used_bytes", "Sum")], "node_memory_utilization"
        efa = [insight(f"node_efa_{way}_bytes", "Sum") for way in ("rx", "tx", "rdma_read", "rdma_write")]
        counts = ("neuron_execution_errors", "neurondevice_hw_ecc_events")
        failed = [insight(f"node_{what}_total", "Sum") for what in counts]
        yield [
            _graph("NeuronCores", cores, unit="percent"),
            _graph(
                "Memory", memory, right=[insight(host, "Maximum")], unit="bytes", right_unit="percent of the host's"
            ),
            _graph("EFA", efa, unit="bytes a second"),
            _graph("Errors", failed, right=[insight("node_filesystem_utilization", "Maximum")]),
        ]
    else:
        how = "set `eks.observability` (Container Insights, charged by observation)"
        yield [_text(f"Metrics of NeuronCores, memory and EFA: {how}.", width=24)]


def _graph(
    title: str,
    left: Sequence[Metric],
    lines: Sequence[Sequence[Any]] = (),
    *,
    right: Sequence[Metric] = (),
    unit: str = "",
    right_unit: str = "",
    stacked: bool = False,
) -> Widget:
    """`lines` are of the left axis too."""
    shown = [*lines, *(each.line() for each in left), *(each.line(right=True) for each in right)]
    axes = {
        side: {**({"label": label} if label else {}), "min": 0, "showUnits": False}
        for side, label in (("left", unit), ("right", right_unit))
    }
    drawn = {"view": "timeSeries", "title": title, "region": Aws.REGION, "stacked": stacked}
    return _widget("metric", {**drawn, "metrics": shown, "yAxis": axes})


def _text(markdown: str, width: int = 6) -> Widget:
    return _widget("text", {"markdown": markdown}, width=width, height=6 if width == 6 else 2)


def _widget(kind: str, properties: Widget, *, width: int = 6, height: int = 6) -> Widget:
    return {"type": kind, "width": width, "height": height, "x": 0, "y": 0, "properties": properties}


_TRAFFIC = {
    "fsx": ("AWS/FSx", ("DataReadBytes", "DataWriteBytes")),
    "efs": ("AWS/EFS", ("DataReadIOBytes", "DataWriteIOBytes")),
}
"""Namespace and traffic (bytes a period) of each kind of file system."""


def _storage(file_systems: Sequence[tuple[str, str]]) -> Iterator[Sequence[Widget]]:
    for kind, id in file_systems:
        namespace, names = _TRAFFIC[kind]
        of = {"FileSystemId": id}
        traffic = [Metric(namespace, name, "Sum", of) for name in names]
        if kind == "fsx":
            free = Metric(namespace, "FreeDataStorageCapacity", "Sum", of)
            title, limit = "FSx for Lustre", _graph("FSx for Lustre: free", [free], unit="bytes")
        else:
            used = Metric(namespace, "PercentIOLimit", "Maximum", of)
            title, limit = "EFS", _graph("EFS: of its limit", [used], unit="percent")
        yield [_graph(f"{title}: traffic", traffic, unit="bytes a minute"), limit]
