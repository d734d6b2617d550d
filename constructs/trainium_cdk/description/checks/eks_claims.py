"""Amazon EKS: devices that pods claim (Dynamic Resource Allocation)."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.catalog.models import InstanceType, numbers
from trainium_cdk.description.checks.rule import Rules, error, groups, join_words, warning
from trainium_cdk.description.settings import Environment, NodeGroup, Problem
from trainium_cdk.problems import KeyPath

CLAIMS = (1, 34)
"""The first version of Kubernetes with claims (Neuron documentation, deploy/eks/dra, 2.33.1)."""
PARTS = (1, 36)
"""The first version whose scheduler tries each set of a node's devices once."""
_AT: KeyPath = ("eks", "plugins")


RULES = Rules()


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
        yield error((*_AT, "neuron_scheduler"), text, "write neuron_scheduler: false, or devices: plugin")
    if env.eks.plugins.volcano:
        text = "Volcano's queues count the device plug-in's devices, which nodes with claims do not have"
        yield error((*_AT, "volcano"), text, "write volcano: false, or devices: plugin")


@RULES.add
def undocumented_claims(env: Environment) -> Iterator[Problem]:
    """Neuron documentation, deploy/eks/dra (2.33.1)."""
    if env.eks.plugins.devices == "claims" and not any(_claimed(env)):
        text = "it has no effect, because each node group has its own value of devices"
        yield warning((*_AT, "devices"), text, "write devices: claims for a node group, or remove it here")
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
            yield ((*at, "devices") if group.devices else (*_AT, "devices")), group
