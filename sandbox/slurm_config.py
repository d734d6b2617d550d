"""The configuration files of a local Slurm, from a ParallelCluster cluster configuration. Pure text, no processes.

ParallelCluster's settings are kept (partition per queue, node names, `EnforcePartLimits=ALL`, `ReturnToService=1`,
whole-node allocation if the queue has it; source: the slurm.conf templates of aws-parallelcluster-cookbook). Other
settings differ because all virtual nodes are on this machine: loopback addresses, no cgroups, short timers. Nodes of AWS PCS start and
stop with Slurm's power saving; ParallelCluster's always run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.slurm import parameters, releases
from trainium_cdk.errors import UnknownCatalogEntry

MAX_NODES = 64
"""Maximum of virtual nodes on one machine: each takes about 1.5 MB, and launches on all nodes become slower."""
CREDENTIAL_SECONDS = 20
"""Seconds that a node has to start a job. Slurm's default is 120; a requeued job waits as long before it starts again."""


RELEASE = "22.05"
"""Debian's Slurm."""
_OF_THIS_MACHINE = frozenset(
    name.lower()
    for name in [
        "ClusterName",
        "SlurmctldHost",
        "SlurmctldPort",
        "SlurmdPort",
        "SlurmUser",
        "SlurmdUser",
        "AuthType",
        "CredType",
        "AuthInfo",
        "CommunicationParameters",
        "PluginDir",
        "StateSaveLocation",
        "SlurmctldPidFile",
        "SlurmdPidFile",
        "SlurmctldLogFile",
        "SlurmdLogFile",
        "SlurmdSpoolDir",
        "ProctrackType",
        "TaskPlugin",
        "MpiDefault",
        "SelectType",
        "SelectTypeParameters",
        "JobAcctGatherType",
        "JobCompType",
        "JobCompLoc",
        "MinJobAge",
        "SlurmdParameters",
        "DebugFlags",
        "Prolog",
        "Epilog",
        "PrologSlurmctld",
        "EpilogSlurmctld",
        "ResumeProgram",
        "SuspendProgram",
        "HealthCheckProgram",
        "UnkillableStepProgram",
        "GresTypes",
    ]
)
"""Parameters that place Slurm on one machine without cgroups. A configuration's own are left out."""


class BadClusterConfiguration(ValueError):
    """The cluster configuration cannot be used for a Slurm. The message has the key, the value and the fix."""


@dataclass(frozen=True)
class VirtualNode:
    """A compute node: a slurmd on this machine.

    Attributes:
        features: Slurm features as ParallelCluster sets them: static or dynamic, instance type, compute resource, efa.
        threads: hardware threads of a core that Slurm may use: 1 where simultaneous multithreading is off, else 2.
        weight: Slurm uses nodes of a lower weight first.
    """

    name: str
    queue: str
    compute_resource: str
    instance_type: str
    static: bool
    features: tuple[str, ...]
    threads: int
    weight: int
    launch: str = ""
    """What an instance of it is started from: a running node whose launch changed is replaced."""


@dataclass(frozen=True)
class Queue:
    """A Slurm partition. `exclusive` is ParallelCluster's JobExclusiveAllocation: one job to a node."""

    name: str
    nodes: tuple[VirtualNode, ...]
    exclusive: bool = False


@dataclass(frozen=True)
class ClusterPlan:
    """The plan of a local Slurm for a cluster configuration.

    Attributes:
        queues: in the configuration's order; the first one is the default partition.
        mount_dirs: absolute mount directories of the shared storage, for example `/efs`.
        left_out: virtual nodes that are omitted because of the maximum.
        venv: where the virtual environment is on a shared file system; empty: in the home directory.
        accounting: whether the cluster has Slurm's database.
        settings: lines of slurm.conf that the configuration adds.
        settings_not_run: lines that this Slurm is not given, each with the reason.
        idle_seconds: how long a node that is not static stays without a job; 0: all nodes always run.
        service: the name of the cluster whose service starts the instances of its nodes; empty: there are no instances.
        secured: whether only root and the image's user get credentials on the head node.
    """

    queues: tuple[Queue, ...]
    mount_dirs: tuple[str, ...]
    left_out: int = 0
    venv: str = ""
    accounting: bool = False
    settings: tuple[str, ...] = ()
    settings_not_run: tuple[str, ...] = ()
    idle_seconds: int = 0
    service: str = ""
    secured: bool = True

    @property
    def always_on(self) -> tuple[VirtualNode, ...]:
        return tuple(node for node in self.nodes if node.static or not self.idle_seconds)

    @property
    def nodes(self) -> tuple[VirtualNode, ...]:
        return tuple(node for queue in self.queues for node in queue.nodes)


def plan_of_pcluster(config: Mapping[str, Any], max_nodes: int) -> ClusterPlan:
    """Read a cluster configuration (numbers and booleans can be strings, as CloudFormation passes them).

    Every compute resource gets nodes up to its MaxCount until there are `max_nodes`; beyond that, compute
    resources share the nodes in proportion to their MaxCount.

    Raises:
        BadClusterConfiguration: no queue, no node, or a value that is not a number.
    """
    queues = _list(_get(config, "Scheduling", "the cluster configuration"), "SlurmQueues", "Scheduling")
    requested = [
        (queue, resource, _count(resource, "MinCount", 0, where), _count(resource, "MaxCount", 10, where))
        for queue in queues
        for resource in _list(queue, "ComputeResources", f"queue {queue.get('Name')!r}")
        for where in [f"queue {queue.get('Name')!r}, compute resource {resource.get('Name')!r}"]
    ]
    total = sum(most for *_, most in requested)
    if total == 0:
        raise BadClusterConfiguration(
            "no queue has a node: every MaxCount is 0; set MaxCount to 1 or more in a compute resource"
        )
    granted = shares([most for *_, most in requested], max_nodes)
    nodes: dict[str, list[VirtualNode]] = {str(q["Name"]): [] for q in queues}
    for (queue, resource, least, _), number in zip(requested, granted, strict=True):
        nodes[str(queue["Name"])] += _nodes_of(queue, resource, min(least, number), number)
    made = tuple(
        Queue(str(q["Name"]), tuple(nodes[str(q["Name"])]), exclusive=_true(q.get("JobExclusiveAllocation")))
        for q in queues
        if nodes[str(q["Name"])]
    )
    mounts = tuple(str(s["MountDir"]) for s in config.get("SharedStorage") or [] if s.get("MountDir"))
    slurm = config["Scheduling"].get("SlurmSettings") or {}
    given = slurm.get("CustomSlurmSettings") or []
    metadata = (config.get("HeadNode") or {}).get("Imds") or {}
    return ClusterPlan(
        made,
        mounts,
        left_out=total - sum(granted),
        accounting="Database" in slurm,
        settings=own_settings(given),
        settings_not_run=lines_not_run(given),
        secured=_true(metadata.get("Secured", True)),  # ParallelCluster's default
    )


def own_settings(given: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The configuration's lines of slurm.conf that this Slurm is given: all but those that only the release on AWS has, and those that
    place this Slurm on this machine. A wrong line stops it, as on AWS."""
    return tuple(_line(line) for line in given if not not_run(line))


def _line(parameters: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def lines_not_run(given: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The lines that this Slurm is not given, each with the reason."""
    return tuple(f"{_line(line)} ({why})" for line in given if (why := not_run(line)))


def not_run(line: Mapping[str, Any]) -> str:
    """Why a line of slurm.conf is not given to this Slurm; empty if it is.

    >>> not_run({"MetricsType": "metrics/openmetrics"})
    'Slurm 22.05 does not have MetricsType'
    >>> not_run({"MaxJobCount": 20000}), not_run({"MaxJobCont": 20000})
    ('', '')
    """
    names = {name.lower(): name for name in line}
    later = {name.lower() for release in releases()[1:] for name in parameters(release)}
    if newer := sorted(names.keys() & later - {name.lower() for name in parameters(RELEASE)}):
        return f"Slurm {RELEASE} does not have {names[newer[0]]}"
    if fixed := sorted(names.keys() & _OF_THIS_MACHINE):
        return f"{names[fixed[0]]} is this machine's own"
    return ""


def _nodes_of(queue: Mapping[str, Any], resource: Mapping[str, Any], static: int, number: int) -> list[VirtualNode]:
    """ParallelCluster numbers static and dynamic nodes separately, both from 1."""
    name, cr = str(queue["Name"]), str(resource["Name"])
    kinds = [str(instance["InstanceType"]) for instance in resource.get("Instances") or []]
    kinds = kinds or [str(resource.get("InstanceType", "unknown"))]
    efa = _true((resource.get("Efa") or {}).get("Enabled"))
    threads = 1 if _true(resource.get("DisableSimultaneousMultithreading")) else 2

    def node(number: int, is_static: bool) -> VirtualNode:
        # A compute resource with several instance types has no feature for its type.
        features = ["static" if is_static else "dynamic", *(kinds if len(kinds) == 1 else []), cr, *["efa"] * efa]
        short = "st" if is_static else "dy"
        weight = int(
            resource.get("StaticNodePriority" if is_static else "DynamicNodePriority", 1 if is_static else 1000)
        )
        named = f"{name}-{short}-{cr}-{number}"
        return VirtualNode(named, name, cr, kinds[0], is_static, tuple(features), threads, weight)

    return [node(i, True) for i in range(1, static + 1)] + [node(i, False) for i in range(1, number - static + 1)]


def shares(requested: Sequence[int], most: int) -> list[int]:
    """Distribute `most` nodes: first one each, then in proportion to the requested numbers."""
    shares = [0] * len(requested)
    for _ in range(min(most, sum(requested))):
        short = (i for i in range(len(requested)) if shares[i] < requested[i])
        shares[min(short, key=lambda i: shares[i] / requested[i])] += 1
    return shares


def _get(mapping: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    if not isinstance(value, Mapping):
        raise BadClusterConfiguration(
            f"{where} has no `{key}`; a local Slurm needs Scheduling.SlurmQueues to know its nodes"
        )
    return value


def _list(mapping: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    value = mapping.get(key)
    if not isinstance(value, list) or not value:
        raise BadClusterConfiguration(f"{where} has no `{key}`; give it at least one entry with a Name")
    for item in value:
        if not isinstance(item, Mapping) or not item.get("Name"):
            raise BadClusterConfiguration(f"{where}: an entry of `{key}` has no Name: {item!r}")
    return value


def _count(resource: Mapping[str, Any], key: str, default: int, where: str) -> int:
    value = resource.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise BadClusterConfiguration(f"{where}: {key} is {value!r}, which is not a whole number") from None
    if number < 0:
        raise BadClusterConfiguration(f"{where}: {key} is {number}; it must be 0 or more")
    return number


def _true(value: object) -> bool:
    return str(value).lower() in {"true", "yes", "1"}


@dataclass(frozen=True)
class Places:
    """Paths, ports and versions of a local Slurm.

    Attributes:
        root: short path of its directory (Unix socket names have at most 107 characters).
        host: this machine's short host name.
        user: user of the daemons.
        ctld_port: slurmctld's port.
        node_ports: one slurmd port per virtual node, in the plan's order.
        version: Slurm's version, for example (22, 5).
        plugins: Slurm's plug-ins, if not in the compiled-in folder.
        credential_seconds: see `CREDENTIAL_SECONDS`.
        database_port: slurmdbd's port; 0 without accounting.
    """

    root: Path
    host: str
    user: str
    ctld_port: int
    node_ports: tuple[int, ...]
    version: tuple[int, int]
    plugins: Path | None = None
    credential_seconds: int = CREDENTIAL_SECONDS
    database_port: int = 0


def slurm_conf(plan: ClusterPlan, places: Places) -> str:
    """The `slurm.conf` shared by the controller, the commands and (by Include) every node."""
    root = places.root
    lines = [
        "ClusterName=parallelcluster",
        f"SlurmctldHost={places.host}(127.0.0.1)",
        f"SlurmctldPort={places.ctld_port}",
        f"SlurmUser={places.user}",
        f"SlurmdUser={places.user}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={root}/munge/sock,cred_expire={places.credential_seconds}",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        "DebugFlags=NO_CONF_HASH",  # every node's file differs in its spool directory
        *([f"PluginDir={places.plugins}"] if places.plugins else []),
        f"StateSaveLocation={root}/state",
        f"SlurmctldPidFile={root}/run/slurmctld.pid",
        f"SlurmdPidFile={root}/run/%n.pid",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"SlurmdLogFile={root}/log/%n.log",
        "ProctrackType=proctrack/linuxproc",
        "MpiDefault=none",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "EnforcePartLimits=ALL",
        "ReturnToService=1",
        "JobRequeue=1",
        "SlurmctldTimeout=30",
        "SlurmdTimeout=180",
        "MessageTimeout=20",
        "InactiveLimit=0",
        "KillWait=10",
        "Waittime=0",
        "MinJobAge=86400",  # finished jobs stay visible, because there is no accounting database
        "SlurmdParameters=config_overrides",  # the nodes have the instance's CPUs, not this machine's
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={root}/log/jobcomp.log",
        *plan.settings,
    ]
    if places.database_port:  # as ParallelCluster sets them
        address = ("Host=127.0.0.1", f"Port={places.database_port}", f"User={places.user}", f"Pass={root}/munge/sock")
        lines += [f"AccountingStorage{line}" for line in ("Type=accounting_storage/slurmdbd", *address)]
    ports, on = iter(places.node_ports), plan.always_on
    lines += _power_saving(plan, places.root)
    lines += [_node_line(node, next(ports), places.host, "UNKNOWN" if node in on else "CLOUD") for node in plan.nodes]
    for i, queue in enumerate(plan.queues):
        names = ",".join(node.name for node in queue.nodes)
        # ParallelCluster's (aws-parallelcluster-cookbook, queue renderer): partitions of one's own name it
        if not plan.service:
            lines.append(f"NodeSet={queue.name}_nodes Nodes={names}")
        lines.append(
            f"PartitionName={queue.name} Nodes={names} MaxTime=INFINITE State=UP"
            + (" Default=YES" if i == 0 else "")
            + (" OverSubscribe=EXCLUSIVE" if queue.exclusive else "")
        )
    return "\n".join(lines) + "\n"


def _power_saving(plan: ClusterPlan, root: Path) -> list[str]:
    if not plan.idle_seconds:
        return []
    kept = ",".join(node.name for node in plan.always_on)
    return [
        f"ResumeProgram={root}/etc/resume",
        f"SuspendProgram={root}/etc/suspend",
        f"PrologSlurmctld={root}/etc/prolog",
        f"SuspendTime={plan.idle_seconds}",
        "SuspendTimeout=4",
        "ResumeTimeout=1800",  # PCS gives a node 30 minutes (user guide, node lifecycle actions)
        "ResumeRate=0",
        "SuspendRate=0",
        "SlurmctldParameters=idle_on_node_suspend,power_save_interval=1,power_save_min_interval=0",
        "PrivateData=cloud",  # sinfo shows powered-down nodes, as PCS's (user guide, tutorial: idle~)
        *([f"SuspendExcNodes={kept}"] if kept else []),
    ]


def _node_line(node: VirtualNode, port: int, host: str, state: str) -> str:
    cpus, memory = _size(node)
    return (
        f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory}"
        f" Feature={','.join(node.features)}"
        f" Weight={node.weight} State={state}"
    )


def _size(node: VirtualNode) -> tuple[int, int]:
    """CPUs and MiB of memory for Slurm. ParallelCluster reserves 5 % of the memory for the system."""
    try:
        facts = Catalog.load().instance(node.instance_type)
    except UnknownCatalogEntry:
        return 2, 3891  # not a Trainium type (for example a CPU queue): enough for a job with one task
    return facts.vcpus * node.threads // 2, int(facts.memory_gib * 1024 * 0.95)


def node_conf(places: Places, index: int) -> str:
    """The file of one slurmd. Its spool directory has a number, because sockets in it already have the node's name."""
    return f"include {places.root}/etc/slurm.conf\nSlurmdSpoolDir={places.root}/s/{index}\n"


def cgroup_conf(version: tuple[int, int]) -> str:
    """Disable cgroups: a separate setting since Slurm 23; before, only mounting is disabled."""
    return "CgroupPlugin=disabled\n" if version >= (23, 2) else "CgroupAutomount=no\n"
