"""Amazon EKS: the nodes, their labels, interfaces and images; devices that pods claim (Dynamic Resource Allocation); and whether the system nodes
hold all pods that are installed on them, and the pods that `trn` starts there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from trainium_cdk.description.catalog.models import InstanceType, numbers
from trainium_cdk.description.catalog.pods import Machine, Pod, Room, machine, pods
from trainium_cdk.description.checks.rule import Rules, error, groups, info, join_words, near, warning
from trainium_cdk.description.settings import Environment, NodeGroup, Problem, SystemNodes
from trainium_cdk.problems import KeyPath

RESERVED_NAMES = {
    "system": "this name is reserved for the system nodes",
    "default": "the group's queue has its name, and Kueue puts every job without a queue into a queue of this name",
    "root": "with Volcano the group's queue has its name, and Volcano reserves this name",
    "trn-unlimited": "Kueue knows the group's nodes by its name, and CPU and memory by this one",
}
RESERVED_LABELS = ("eks.amazonaws.com", "k8s.io", "kubernetes.io", "trainium-cdk")
CLAIMS = (1, 34)
"""The first version of Kubernetes with claims (Neuron documentation, deploy/eks/dra, 2.33.1)."""
PARTS = (1, 36)
"""The first version whose scheduler tries each set of a node's devices once."""
NODE_GROUPS = 30
"""Managed node groups of a cluster, if the account's quota was not raised (EKS user guide, service-quotas, 2026-11)."""
_PLUGINS: KeyPath = ("eks", "plugins")
LARGER = (
    "m5.large", "r5.large", "m5.xlarge", "r5.xlarge", "m5.2xlarge", "r5.2xlarge", "m5.4xlarge", "r5.4xlarge", "r5.8xlarge",
)  # fmt: skip
"""Types of system nodes that a fix may name, the cheapest first."""
_MOST_NODES = 100
_MORE = 8
"""Nodes that a fix adds at most."""
_LEAST_GIB = 4
"""Never advise less: code and packages alone take that much."""
_SYSTEM: KeyPath = ("eks", "system", "instance_type")
_AT: KeyPath = ("eks",)


RULES = Rules()


@RULES.refuse("catalogue, instances: sizes of a logical core")
def unsupported_lnc(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if kind and group.lnc and group.lnc not in kind.lnc:
            text = f"{kind.name} supports LNC {join_words(map(str, kind.lnc), 'or')}"
            yield error((*at, "lnc"), text, f"write lnc: {kind.default_lnc}, or remove it")


@RULES.refuse("stack: it makes a queue or flavor of this name")
def reserved_node_group_name(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        if text := RESERVED_NAMES.get(group.name):
            yield error((*at, "name"), text, "write another name, for example trn")


@RULES.refuse("containers-roadmap, 1451: EKS refuses these prefixes; stack: trainium-cdk is its own")
def reserved_label(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        for key in group.labels:
            domain = key.rpartition("/")[0]
            if domain and any(domain == d or domain.endswith(f".{d}") for d in RESERVED_LABELS):
                text = f"labels of {domain} are reserved for the system"
                yield error((*at, "labels", key), text, f"write {key.rpartition('/')[2]}, or use your own domain")


@RULES.add
def efa_layout_without_use(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if "efa_layout" in group.model_fields_set and kind and not kind.efa_of(group.efa):
            text = "it has no effect: these nodes have no EFA interfaces"
            yield warning((*at, "efa_layout"), text, "remove it")


@RULES.add
def many_node_groups(env: Environment) -> Iterator[Problem]:
    count = len(env.eks.node_groups) + 1
    if count > NODE_GROUPS:
        text = f"{count} node groups with the one of the system: an account has {NODE_GROUPS} a cluster, if its quota was not raised"
        fix = "use a second environment, or raise EKS's quota `Managed node groups per cluster` first"
        yield warning((*_AT, "node_groups"), text, fix, value=count)


@RULES.refuse("EKS API, CreateNodegroup: releaseVersion is an image's; catalogue, amis: images")
def unknown_node_image(env: Environment) -> Iterator[Problem]:
    requested, version = env.eks.ami_release, env.kubernetes_version
    known = env.catalog.amis(version)
    at = (*_AT, "ami_release")
    if requested and requested in known:
        return
    if requested and known and requested < max(known):
        text = f"the catalogue has no Neuron node image of that date for Kubernetes {version}"
        yield error(at, text, f"write {near(requested, known)}")
    elif requested:
        text = "newer than every node image in the catalogue: its Neuron driver cannot be checked"
        yield warning(
            at, text, f"write {max(known)} for a known image" if known else "remove it to use EKS's newest image"
        )


@RULES.refuse("catalogue, neuron: driver of a runtime")
def missing_driver(env: Environment) -> Iterator[Problem]:
    """No known node image has a driver for the Neuron release: nodes install it, for which they need the internet."""
    known = env.bootstrap.neuron_release in (None, *env.catalog.releases)
    driver = env.node_driver if known else None
    named = [g.name for _, g in groups(env) if not g.custom_ami]
    if not driver or not named:
        return
    image, at = env.node_image, (*_AT, "ami_release")
    has = f"the newest known image, {image.version}, has Neuron driver {image.driver}" if image else "no image is known"
    text = f"{has}, and the runtime {env.release.runtime} of Neuron {env.release.version} is for driver {driver}"
    fix = f"an image with driver {driver}: node_groups[].custom_ami, or ami_release of a newer EKS image (releases of awslabs/amazon-eks-ami)"
    if env.network.reaches_internet:
        yield info(
            at,
            f"{text}. Each node of {join_words(named)} installs it when it starts, in a few minutes",
            f"to save them, give {fix}",
        )
    else:
        allow = "write network.existing.internet: true" if env.network.existing else "write nat: one"
        yield error(at, f"{text}, which nodes without access to the internet cannot install", f"{allow}, or give {fix}")


@RULES.add
def release_without_image(env: Environment) -> Iterator[Problem]:
    known = env.bootstrap.neuron_release in (None, *env.catalog.releases)
    release = env.release if known else None
    if release and not env.catalog.container(release, env.framework):
        example = env.catalog.image_example(release.version, env.framework)
        yield info(
            ("bootstrap", "neuron_release"),
            "the catalogue has no training image of this release, so that each job must name its image",
            f"after the deployment build one (`trn image build {example}`), and give its name as --image",
            value=release.version,
            engine="eks",
        )


@RULES.refuse("Neuron documentation, deploy/eks/dra: from Kubernetes 1.34")
def unsupported_claims(env: Environment) -> Iterator[Problem]:
    version = env.kubernetes_version
    for at, _ in _claimed(env):
        if numbers(version) < CLAIMS:
            text = f"Kubernetes {version} does not have the API of claims, which is there from 1.34"
            yield error(at, text, f"write version: '{env.catalog.eks.default}', or devices: plugin")


@RULES.refuse(
    "Kubernetes, concepts/scheduling-eviction/dynamic-resource-allocation: taints of devices from 1.36; catalogue, eks: parts of types"
)
def parts_of_nodes(env: Environment) -> Iterator[Problem]:
    version, known = env.kubernetes_version, env.catalog.eks.claims.parts
    for at, group in groups(env):
        key = (*at, "share")
        if not group.share:
            continue
        if not env.eks.claims(group):
            text = "with the device plug-in jobs take whole nodes"
            yield error(key, text, "write devices: claims for this node group, or share: false")
        elif CLAIMS <= numbers(version) < PARTS:
            text = (
                f"the scheduler of Kubernetes {version} tries each order of a node's free devices, for up to 10 s on each node. It ignores "
                "taints of broken devices"
            )
            yield error(key, text, f"write version: '{env.catalog.eks.default}', or share: false")
        elif group.instance_type in env.catalog.instances and group.instance_type not in known:
            text = f"no source documents which devices of {group.instance_type} are connected"
            yield error(key, text, f"write instance_type: {join_words(known, 'or')}, or share: false")


@RULES.refuse("Neuron documentation, deploy/eks/dra: groups of devices are attributes of nodes with EFA")
def claims_without_efa(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if group.share and env.eks.claims(group) and kind and kind.efa_interfaces and not kind.efa_of(group.efa):
            text = "Neuron's driver names connected devices only on nodes with EFA, so that parts of several devices never start"
            yield error((*at, "efa"), text, "write efa: auto, or share: false")


@RULES.refuse("Neuron documentation, deploy/eks/dra: a claim sets the LNC of its devices; stack: so no node does")
def lnc_of_claims(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if group.lnc and env.eks.claims(group) and (kind is None or group.lnc in kind.lnc):
            text = "where pods claim devices, each job chooses its LNC"
            yield error((*at, "lnc"), text, f"remove it, and write trn submit --lnc {group.lnc}")


@RULES.refuse(
    "Neuron documentation, deploy/eks/dra: without the scheduler extension; stack: Volcano counts the plug-in's devices"
)
def plugins_beside_claims(env: Environment) -> Iterator[Problem]:
    if not any(_claimed(env)):
        return
    if env.eks.plugins.neuron_scheduler:
        text = "Neuron's chart refuses it together with its DRA driver. Pods that claim devices get connected ones without it"
        yield error((*_PLUGINS, "neuron_scheduler"), text, "write neuron_scheduler: false, or devices: plugin")
    if env.eks.plugins.volcano:
        text = "Volcano's queues count the device plug-in's devices, which nodes with claims do not have"
        yield error((*_PLUGINS, "volcano"), text, "write volcano: false, or devices: plugin")


@RULES.add
def undocumented_claims(env: Environment) -> Iterator[Problem]:
    """Neuron documentation, deploy/eks/dra (2.33.1)."""
    if env.eks.plugins.devices == "claims" and not any(_claimed(env)):
        text = "it has no effect, because each node group has its own value of devices"
        yield warning((*_PLUGINS, "devices"), text, "write devices: claims for a node group, or remove it here")
    for at, group in _claimed(env):
        kind = env.catalog.instances.get(group.instance_type)
        if kind and not documented(kind):
            text = f"Neuron documents claims with {join_words(env.catalog.eks.claims.parts)}, and not with {kind.name}"
            yield warning(at, text, "write devices: plugin for this type, or run a short job first")


def documented(kind: InstanceType) -> bool:
    """Whether nothing warns of claims with an instance type."""
    return not (kind.family.startswith("trn1") or kind.ultraserver)


def _claimed(env: Environment) -> Iterator[tuple[KeyPath, NodeGroup]]:
    """The node groups whose devices pods claim, each with the key that says so."""
    for at, group in groups(env):
        if env.eks.claims(group):
            yield ((*at, "devices") if group.devices else (*_PLUGINS, "devices")), group


class StartedPod(NamedTuple):
    """A pod on the system nodes, and what it does, as a sentence says it."""

    what: str
    room: Room


class SystemPods(NamedTuple):
    """Pods that system nodes must hold: pods of each node, a fixed number for the cluster, and pods `trn` starts."""

    own: tuple[Pod, ...]
    shared: tuple[Pod, ...]
    started: tuple[StartedPod, ...]


@RULES.refuse("Kubernetes, concepts/configuration/manage-resources-containers: no pod beyond a node's room")
def small_system_nodes(env: Environment) -> Iterator[Problem]:
    """A sum of requests: each node's own pods, the controllers, and then one of the largest pods that `trn` starts."""
    system, kind = env.eks.system, machine(env.eks.system.instance_type)
    if kind is None:
        return
    brought = partial(pods().installed, env.eks_parts)
    asked = SystemPods(brought("every"), brought("system"), started(env.eks.prepare_memory_gib))
    if not (found := _without_room(asked, kind, system.nodes)):
        return
    wanted, free = found
    one, taken = pods().allocatable(kind), _sum(asked.own * system.nodes + asked.shared)
    lacks = f"{_number(wanted.room.cpu / 1000)} CPUs and {_number(wanted.room.memory / 1024)} GiB of memory left"
    if all(node.pods < wanted.room.pods for node in free):
        lacks = f"room in its {one.pods} pods"
    yield error(
        _SYSTEM,
        f"what is installed on {system.nodes} such node{'s' if system.nodes > 1 else ''} requests {_number(taken.cpu / 1000)} of "
        f"{_number(one.cpu * system.nodes / 1000)} CPUs and {_number(taken.memory / 1024)} of {_number(one.memory * system.nodes / 1024)} GiB of "
        f"memory. No node has {lacks} for {wanted.what}, which would never start",
        _fix(system, asked, wanted, free),
    )


def started(gib: int | None) -> tuple[StartedPod, ...]:
    """The pods that `trn` starts on system nodes, the largest first.

    Args:
        gib: memory of `prepare`; None for the default.
    """
    facts = pods().helpers
    largest = max((facts.prepare.helper(fetches, gib) for fetches in facts.prepare.memory), key=lambda h: h.memory)
    return (
        StartedPod("the pod that fetches a job's models (`prepare`)", Room(largest.cpu, largest.memory)),
        StartedPod("TensorBoard", Room(facts.tensorboard.cpu, facts.tensorboard.memory)),
        StartedPod("the pod that reads a job's files (trn logs)", Room(facts.reader.cpu, facts.reader.memory)),
    )


def _without_room(asked: SystemPods, kind: Machine, nodes: int) -> tuple[StartedPod, list[Room]] | None:
    """The first pod that no node has room for, and what the nodes have left; None if all have."""
    left = pods().allocatable(kind).less(_sum(asked.own))
    free = [left] * nodes
    if min(left) < 0:
        return StartedPod("the pods of each node", _sum(asked.own)), free
    for pod in asked.shared:
        for _ in range(pod.count):
            if not (after := placed(free, pod.room, kind)):
                return StartedPod(pod.name, pod.room), free
            free = after
    return next(((w, free) for w in asked.started if not any(node.holds(w.room) for node in free)), None)


def placed(free: Sequence[Room], wanted: Room, kind: Machine) -> list[Room]:
    """Return the nodes' room with one more pod; empty if none holds it. Like the default scheduler, choose the emptiest node that holds it."""
    able = [i for i, node in enumerate(free) if node.holds(wanted)]
    if not able:
        return []
    best = max(able, key=lambda i: free[i].cpu / (kind.vcpus * 1000) + free[i].memory / kind.memory)
    return [node.less(wanted) if i == best else node for i, node in enumerate(free)]


def _fix(system: SystemNodes, asked: SystemPods, wanted: StartedPod, free: Iterable[Room]) -> str:
    kinds = {name: kind for name in (system.instance_type, *LARGER) if (kind := machine(name))}
    larger = (name for name, kind in kinds.items() if not _without_room(asked, kind, system.nodes))
    ways = [f"write instance_type: {found}" for found in [*larger][:1]]
    counts = range(system.nodes + 1, min(system.nodes + _MORE, _MOST_NODES) + 1)
    if count := next((n for n in counts if not _without_room(asked, kinds[system.instance_type], n)), 0):
        ways.append(f"write nodes: {count}{f' and max_nodes: {count}' if count > system.max_nodes else ''}")
    gib = max((node.memory for node in free if node.holds(wanted.room._replace(memory=0))), default=0) // 1024
    if wanted is asked.started[0] and _LEAST_GIB <= gib < wanted.room.memory // 1024:
        ways.append(f"write eks.prepare_memory_gib: {gib} if no job needs more")
    return join_words(ways, "or") or "install less"


def _sum(some: Iterable[Pod]) -> Room:
    found = [pod.room for pod in some for _ in range(pod.count)]
    return Room(sum(r.cpu for r in found), sum(r.memory for r in found), len(found))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
