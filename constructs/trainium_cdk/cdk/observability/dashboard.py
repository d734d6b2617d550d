"""The widgets of the dashboard, row by row: pure functions of what a cluster consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aws_cdk import aws_cloudwatch as cw

from trainium_cdk.cdk.observability.metrics import MINUTE, Metrics, metric
from trainium_cdk.description.settings.inventory.base import MetricsSource

_LIVE = (
    "Jobs and nodes are counted each minute. A gap: nothing was counted, see the function or the service that counts."
)


def rows(
    metrics: Metrics,
    *,
    source: MetricsSource | None,
    queues: Mapping[str, float | None],
    file_systems: Sequence[tuple[str, str]],
) -> list[Sequence[cw.IWidget]]:
    """Nodes and jobs, then devices, then file systems.

    Args:
        source: where metrics of devices come from.
        queues: the price of a node of each, USD an hour; None where none is known.
        file_systems: kind (`fsx`, `efs`) and id of each.
    """
    return [_nodes(metrics, queues), *_devices(metrics, source), *_storage(file_systems)]


def _nodes(metrics: Metrics, queues: Mapping[str, float | None]) -> list[cw.IWidget]:
    states = [metrics.sent(f"Nodes{state}", label=state.lower()) for state in ("Busy", "Starting", "Idle", "Failed")]
    known = {name: price for name, price in queues.items() if price}
    idle = {f"q{i}": metrics.sent("NodesIdle", label=name, Queue=name) for i, name in enumerate(known)}
    terms = [f"{metric}*{price}" for metric, price in zip(idle, known.values(), strict=True)]
    paid: cw.IWidget = _text("No queue of this cluster is paid by the hour at a known price.")
    if terms:
        money = cw.MathExpression(expression=" + ".join(terms), using_metrics=idle, label="USD an hour", period=MINUTE)
        paid = _graph("Money of idle nodes", [money], unit="USD an hour, at most")
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


def _devices(metrics: Metrics, source: MetricsSource | None) -> Iterator[Sequence[cw.IWidget]]:
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
    left: Sequence[cw.IMetric],
    *,
    right: Sequence[cw.IMetric] = (),
    unit: str = "",
    right_unit: str = "",
    stacked: bool = False,
) -> cw.GraphWidget:
    return cw.GraphWidget(
        title=title,
        left=list(left),
        right=list(right),
        left_y_axis=cw.YAxisProps(min=0, label=unit or None, show_units=False),
        right_y_axis=cw.YAxisProps(min=0, label=right_unit or None, show_units=False),
        stacked=stacked,
        width=6,
        height=6,
    )


def _text(markdown: str, width: int = 6) -> cw.TextWidget:
    return cw.TextWidget(markdown=markdown, width=width, height=6 if width == 6 else 2)


_TRAFFIC = {
    "fsx": ("AWS/FSx", ("DataReadBytes", "DataWriteBytes")),
    "efs": ("AWS/EFS", ("DataReadIOBytes", "DataWriteIOBytes")),
}
"""Namespace and traffic (bytes a period) of each kind of file system."""


def _storage(file_systems: Sequence[tuple[str, str]]) -> Iterator[Sequence[cw.IWidget]]:
    for kind, id in file_systems:
        namespace, names = _TRAFFIC[kind]
        traffic = [metric(namespace, name, "Sum", FileSystemId=id) for name in names]
        if kind == "fsx":
            free = metric(namespace, "FreeDataStorageCapacity", "Sum", FileSystemId=id)
            title, limit = "FSx for Lustre", _graph("FSx for Lustre: free", [free], unit="bytes")
        else:
            used = metric(namespace, "PercentIOLimit", "Maximum", FileSystemId=id)
            title, limit = "EFS", _graph("EFS: of its limit", [used], unit="percent")
        yield [_graph(f"{title}: traffic", traffic, unit="bytes a minute"), limit]
