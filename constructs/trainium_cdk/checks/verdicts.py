"""What is said of a value in `pcluster.overrides` that a setting controls: which setting has it, that it works, or that it cannot be set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from trainium_cdk.checks.nodes import trains_or_is_arm
from trainium_cdk.checks.rule import error, warning
from trainium_cdk.checks.setting_values import NO, flag, number, on_off, ordinary_type
from trainium_cdk.errors import SettingsError
from trainium_cdk.problems import Problem
from trainium_cdk.settings import Environment, validate

Path = tuple[str | int, ...]
QUEUES, RESOURCES, CPU = "pcluster.queues[]", "pcluster.queues[].compute_resources[]", "pcluster.cpu_queue"
_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")


class Given(NamedTuple):
    """A key of `overrides`, with its value and the item of a list that it is in."""

    environment: Environment
    path: Path
    value: Any
    beside: Mapping[str, Any]
    """The mapping that has the key."""
    queue: str
    """Name of the queue that it is in; empty for none."""


Verdict = Callable[[Given], Iterator[Problem]]


def works(reason: str, fix: str) -> Verdict:
    """It passes, with a warning."""

    def told(given: Given) -> Iterator[Problem]:
        yield warning(given.path, reason, fix)

    return told


def cannot(reason: str, fix: str) -> Verdict:
    """It is refused, and no setting can express it."""

    def told(given: Given) -> Iterator[Problem]:
        yield error(given.path, f"it cannot be set: {reason}", fix)

    return told


IN_CPU_QUEUE = works(
    "no setting of the CPU queue says this: `trn` and its checks do not know of it",
    "check it with ParallelCluster's documentation; jobs of one node work as before",
)


def root_size(given: Given) -> Iterator[Problem]:
    if (number(given.value) or 0) > 16384:
        yield from works(
            "a volume of type gp3, which the stack asks for, has at most 16,384 GiB",
            "give VolumeType: io2 beside it",
        )(given)
    else:
        yield from cannot(
            "ParallelCluster's image does not fit", "use a root volume of 50 GiB or more: root_volume_gib"
        )(given)


ORDINARY_ONLY = cannot(
    "these nodes do not train, and a cluster with Trainium nodes is x86_64", "choose an ordinary x86_64 type"
)
SUBNET = works(
    "the stack does not know this subnet: it does not wait for its routes, and cannot check its zone",
    "check that it is in the cluster's VPC and reaches AWS, and the file systems",
)


def elastic_ip(given: Given) -> Iterator[Problem]:
    env, value = given.environment, given.value
    wanted, own = flag(value), not env.network.existing
    public = env.pcluster.head.subnet == "public"
    if wanted is not NO and wanted:
        yield _use(given, "pcluster.head.subnet", "public")
    elif wanted is not NO and public and own:
        yield from cannot(
            "the public subnets of the stack's network give no addresses, so that the node would not reach AWS",
            "use pcluster.head.subnet: private",
        )(given)
    elif wanted is not NO and public:
        yield from works(
            "the head node only starts if its subnet gives it a public address, or has another connection to AWS",
            "use pcluster.head.subnet: private",
        )(given)
    elif isinstance(value, str) and _ADDRESS.fullmatch(value):
        yield _use(given, "pcluster.head.elastic_ip", value)
    elif isinstance(value, str) and value.startswith("eipalloc-"):
        yield from cannot(
            "ParallelCluster looks for the address itself, and does not find it by its allocation ID",
            "use pcluster.head.elastic_ip with the address, for example 203.0.113.10",
        )(given)
    else:
        yield _use(given, "pcluster.head.subnet", "private")


_SEVERAL_SUBNETS = works(
    "the nodes of one job may be in several zones, and the stack does not know these subnets",
    "check that they are in the cluster's VPC; ParallelCluster wants Instances, and InstanceType: null, in each compute resource then",
)


def any_subnets(given: Given) -> Iterator[Problem]:
    return (_SEVERAL_SUBNETS if _several(given.value) else SUBNET)(given)


def _several(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 1


def queue_subnets(given: Given) -> Iterator[Problem]:
    if _several(given.value) and _uses_efa(given.environment, given.queue):
        yield from cannot(
            "EFA does not cross subnets, and these nodes use it",
            "make a queue for each zone: pcluster.queues[].zone_id",
        )(given)
    elif given.value is None:
        yield _use(given, "network and pcluster.queues[].zone_id")
    else:
        yield from any_subnets(given)


def _uses_efa(env: Environment, queue: str) -> bool:
    return any(
        env.catalog.instance(r.instance_type).efa_of(r.efa) > 0
        for q in env.pcluster.queues
        for r in q.compute_resources
        if q.name == queue
    )


def trainium_type(given: Given) -> Iterator[Problem]:
    if given.value is None and given.beside.get("Instances"):
        return
    if given.value in given.environment.catalog.instances:
        yield _use(given, f"{RESOURCES}.instance_type", given.value)
    elif given.value is None:
        yield _use(given, f"{RESOURCES}.instance_type")
    else:
        yield from cannot(
            "the node scripts, jobs and prices of this queue go by a Trainium type of the catalogue",
            "add a queue of another name, or describe the type in catalog.instances",
        )(given)


def cpu_type(given: Given) -> Iterator[Problem]:
    if given.value is not None or not given.beside.get("Instances"):
        yield from by_value(given, f"{CPU}.instance_type", ordinary_type, ORDINARY_ONLY)


def instances(given: Given) -> Iterator[Problem]:
    """`Instances` in place of InstanceType. Jobs are sized by the devices of the one type that the settings name."""
    if "InstanceType" not in given.beside or given.beside["InstanceType"] is not None:
        reason = "ParallelCluster takes Instances or InstanceType, and the stack sets InstanceType"
        yield error(given.path, reason, "add InstanceType: null beside it")
        return
    items = given.value if isinstance(given.value, list | tuple) else ()
    types = {item.get("InstanceType") for item in items if isinstance(item, Mapping)}
    env = given.environment
    cpu = given.queue in [q.name for q in env.pcluster.cpu_queues]
    ours = {r.instance_type for q in env.pcluster.queues if q.name == given.queue for r in q.compute_resources}
    if cpu and all(isinstance(one, str) and not trains_or_is_arm(one) for one in types):
        yield from works(
            "`trn` takes all nodes of the CPU queue for those of pcluster.cpu_queue.instance_type, in prices and memory too",
            "name the smallest of the types there",
        )(given)
    elif cpu:
        yield from ORDINARY_ONLY(given)
    elif len(types) == 1 and types <= ours:
        yield from works(
            "it says the same as the settings, and is only needed for several subnets",
            "remove it where there is one subnet",
        )(given)
    else:
        yield from cannot(
            "a job is sized by the devices and EFA interfaces of one type, and nodes of another would not fit it",
            "add a compute resource for each type: pcluster.queues[].compute_resources",
        )(given)


GROUP_BY_ID = cannot(
    "ParallelCluster finds a placement group by its name", f"write its name in {QUEUES}.placement_group"
)


def resource_placement(given: Given) -> Iterator[Problem]:
    """The setting is the queue's: one compute resource of several may differ from it only here."""
    env = given.environment
    counts = [len(q.compute_resources) for q in env.pcluster.queues if q.name == given.queue]
    if counts == [1] or given.value is None:
        yield from queue_placement(given)
    else:
        yield from works(
            "pcluster.queues[].placement_group is for the whole queue: `trn` does not know that this compute resource differs",
            "give the compute resource a queue of its own",
        )(given)


def queue_placement(given: Given) -> Iterator[Problem]:
    value = given.value if given.path[-1] == "Name" else on_off(given.value)
    if given.value is not None or not {"Name", "Id"} & given.beside.keys():
        yield _use(given, f"{QUEUES}.placement_group", *(() if value in (NO, None) else (value,)))


def cpu_capacity(given: Given) -> Iterator[Problem]:
    if given.value == "ONDEMAND":
        return
    yield from works(
        "`trn` shows on-demand prices for the CPU queue, and a stage there may be interrupted, and begins again",
        "remove it for jobs that must not wait for spot capacity",
    )(given)


def custom_action(given: Given) -> Iterator[Problem]:
    yield from cannot(
        "the stack's own script is here, and installs what training needs",
        "use bootstrap.scripts for scripts that run after it, or OnNodeStart for one that runs before",
    )(given)


def by_value(given: Given, setting: str, value: Callable[[Any], Any], otherwise: Verdict | None) -> Iterator[Problem]:
    found = value(given.value)
    refused = _refused(setting, found) if found is not NO else None
    if refused:
        yield error(given.path, f"it cannot be set: {refused.reason}", refused.fix)
    elif found is not NO:
        yield _use(given, setting, found)
    elif given.value is not None and otherwise:
        yield from otherwise(given)
    else:
        yield _use(given, setting)


def _refused(setting: str, value: Any) -> Problem | None:
    """What the setting itself says against a value; None if it takes it."""
    key: Path = ()
    data = value
    for step in reversed(setting.split(".")):
        name, is_list = step.removesuffix("[]"), step.endswith("[]")
        key = (name, 0, *key) if is_list else (name, *key)
        data = {name: [data] if is_list else data}
    try:
        validate(data)
    except SettingsError as e:
        return next((problem for problem in e.problems if problem.key[: len(key)] == key), None)
    return None


def _use(given: Given, setting: str, *value: Any) -> Problem:
    name = ".".join(str(step) for step in given.path if isinstance(step, str))
    shown = "".join(f": {_yaml(one)}" for one in value)
    return error(given.path, f"the stack sets {name} itself and relies on it", f"use {setting}{shown}")


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(_yaml, value))}]" if isinstance(value, list) else str(value)
